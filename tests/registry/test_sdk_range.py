"""A plugin that needs another version of rlsdk is refused wherever it is used; the error has one line with the fix.

Every command, and every public function with an algorithm, spec, file or plan as parameter, must refuse the plugin.
Otherwise it must be listed here, with the reason why it needs no plugin.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlsdk
import rlsdk_lab
from rlsdk import registry
from rlsdk.agent import agent_class, from_parameters
from rlsdk.cli.main import Commands
from rlsdk.environments import make_vec_env
from rlsdk.errors import ContractViolation, PluginError
from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk.executors import capacity, make_executor
from rlsdk.registry import loading, packaged_files
from rlsdk.registry.discovery import misfit
from rlsdk.runs import EvaluationRequest, evaluate_stored, require_possible
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk_interchange.sb3 import import_sb3
from rlsdk_lab.sweep import Sweep, sweep
from rlsdk_testing import Subject, run_checks, verify
from tests.plugin_site import Site
from tests.repository.test_public_api import described as public_api
from tests.tables import in_one_test
from tests.throwaway import EXTENSION

MANIFEST = """
id = "bad"
title = "Refused"
summary = "for tests"
family = "on-policy"
sdk = "{sdk}"
actions = ["Discrete"]
observations = ["Box", "Discrete"]
policies = ["MlpPolicy"]
build = "acme_bad.parts:build"
config = "acme_bad.parts:Config"
agent = "acme_bad.agent:Bad"
upgrade = "acme_bad.parts:upgrade"
from_sb3 = "acme_bad.parts:from_sb3"
sinks = ["tally"]
environments = ["acme"]
serializers = [".numpy"]
executors = ["threads"]
[policy_classes]
BadPolicy = "MlpPolicy"
"""
PARTS = """
import attrs
from rlsdk.settings import AgentConfig, described

@attrs.frozen
class Config(AgentConfig):
    n_steps: int = attrs.field(default=8, metadata=described("steps per rollout"))
    gamma: float = attrs.field(default=0.99, metadata=described("discount"))

def build(context, config):
    from tests import small_algorithms
    return small_algorithms.build(context, small_algorithms.Config("MlpPolicy", n_steps=config.n_steps))

def upgrade(settings, state, from_version):
    raise RuntimeError("code of a refused plugin ran")

def from_sb3(weights, actions):
    raise RuntimeError("code of a refused plugin ran")
"""
AGENT = """
from rlsdk.agent import Agent

class Bad(Agent):
    pass
"""
PRESET = "[run]\nsteps = 8\n[settings]\nn_steps = 4\n"
FITS, REFUSED = ">=0.1", ">=0.0.1,<0.1"


@attrs.frozen
class World:
    """A plugin that does not fit this SDK any more, and an agent file and a class from the time when it did."""

    folder: Path
    file: Path
    own: Any
    spec: Any
    numpy_file: Path


def write(site: Site, sdk: str = FITS, parts: str = PARTS) -> Path:
    package = site.add("bad", manifest=MANIFEST.format(sdk=sdk), code=EXTENSION)
    (package / "__init__.py").write_text(
        "from rlsdk.registry import public_names\n__getattr__, __dir__ = public_names(__name__)\n"
    )
    (package / "parts.py").write_text(parts)
    (package / "agent.py").write_text(AGENT)
    (package / "presets").mkdir(exist_ok=True)
    (package / "presets" / "CartPole-v1.toml").write_text(PRESET)
    forget()
    return package


def forget() -> None:
    """Remove the plugin's modules from `sys.modules` and search for plugins again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_bad"]:
        del sys.modules[name]
    registry.plugins(rescan=True)


@pytest.fixture
def world(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    package = write(site)
    (package / "parts.py").write_text(
        PARTS.replace('raise RuntimeError("code of a refused plugin ran")', "return settings, state", 1)
    )
    spec = registry.load("bad")
    own = agent_class(spec)
    agent = own("MlpPolicy", "CartPole-v1", seed=1)
    agent.save(tmp_path / "old")
    agent.save(tmp_path / "old.numpy")
    monkeypatch.chdir(tmp_path)
    write(site, sdk=REFUSED)
    yield World(tmp_path, tmp_path / "old.rlsdk", own, spec, tmp_path / "old.numpy")
    monkeypatch.undo()
    forget()


def require_refusal(message: str) -> None:
    """Require one line with the plugin, its range, the SDK's version, and the pip command that fixes the problem."""
    assert len(message.strip().splitlines()) == 1, message
    for words in ("acme-bad/bad 1.2.3", REFUSED, f"installed is {rlsdk.__version__}", "pip install --upgrade acme-bad"):
        assert words in message, message


def request(world: World, **options: Any) -> RunRequest:
    return RunRequest(**{"algorithm": "bad", "env": "CartPole-v1", "steps": 8, "out": world.folder / "run", **options})


ENTRANCES: dict[str, Callable[[World], object]] = {
    "rlsdk.make": lambda w: rlsdk.make("bad", env="CartPole-v1"),
    "rlsdk.load": lambda w: rlsdk.load(w.file),
    "rlsdk.Agent.load": lambda w: rlsdk.Agent.load(w.file),
    "rlsdk.agent.agent_class": lambda w: agent_class(w.spec),
    "rlsdk.agent.from_parameters": lambda w: from_parameters("bad", {}, env="CartPole-v1"),
    "rlsdk.runs.evaluate_stored": lambda w: evaluate_stored(w.file, None, EvaluationRequest(1), "in-process"),
    "rlsdk.registry.load": lambda w: registry.load("bad"),
    "rlsdk.registry.agent_type": lambda w: loading.agent_type(w.spec),
    "rlsdk.registry.require_usable": lambda w: loading.require_usable(w.spec),
    "rlsdk.registry.preset": lambda w: registry.preset("bad", "CartPole-v1"),
    "rlsdk.registry.named_preset": lambda w: packaged_files.named_preset("bad", "CartPole-v1"),
    "rlsdk.registry.presets": lambda w: registry.presets("bad"),
    "rlsdk.registry.preset_names": lambda w: registry.preset_names("bad"),
    "rlsdk.registry.extension": lambda w: registry.extension("sinks", "tally"),
    "rlsdk.executors.capacity": lambda w: capacity("threads"),
    "rlsdk.executors.make_executor": lambda w: make_executor("threads", 2),
    "rlsdk_interchange.import_sb3": lambda w: import_sb3(w.folder / "model.zip", "bad", "CartPole-v1"),
    "rlsdk_testing.run_checks": lambda w: run_checks("bad"),
    "rlsdk_testing.Subject": lambda w: Subject("bad"),
    "rlsdk.runs.run": lambda w: run(request(w)),
    "rlsdk.runs.require_possible": lambda w: require_possible(request(w)),
    "rlsdk_lab.sweep.sweep": lambda w: sweep(Sweep(request=request(w), seeds=(0, 1), jobs=1, executor="in-process")),
    "rlsdk_lab.tune": lambda w: rlsdk_lab.tune(
        rlsdk_lab.Tuning(algorithm="bad", env="CartPole-v1", steps=8, trials=1, out=w.folder / "tuning")
    ),
}
"""Public names that take an algorithm, a spec, a file or a plan, and refuse the plugin."""
CLASSES: dict[str, Callable[[World], object]] = {
    "constructor": lambda w: w.own("MlpPolicy", "CartPole-v1"),
    "constructor, nothing else right": lambda w: w.own("NoPolicy", "no such environment", n_stepps=3),
    "subclass": lambda w: type("Mine", (w.own,), {})("MlpPolicy", "CartPole-v1"),
    "load of the class": lambda w: w.own.load(w.file),
    "class of a spec": lambda w: type("Mine", (rlsdk.Agent,), {"spec": w.spec})("MlpPolicy", "CartPole-v1"),
    "import of the class": lambda w: getattr(import_module("acme_bad"), "Bad"),  # noqa: B009  # as `from acme_bad import Bad`
}
EXTENSIONS: dict[str, Callable[[World], object]] = {
    "reading a file of its format": lambda w: rlsdk.load(w.numpy_file),
    "writing a file of its format": lambda w: rlsdk.make("tqc", env="Pendulum-v1", buffer_size=9).save(
        w.folder / "new.numpy"
    ),
    "environment": lambda w: rlsdk.make("trpo", env="acme/Identity-v0"),
    "environments side by side": lambda w: make_vec_env("acme/Identity-v0", 2),
    "environments in processes": lambda w: make_vec_env("acme/Identity-v0", 2, vectorization="async"),
    "evaluation": lambda w: evaluate_policy(rlsdk.make("trpo", env="Pendulum-v1"), "acme/Identity-v0", 1),
    "executor of environments": lambda w: make_vec_env("CartPole-v1", 2, vectorization="threads"),
    "executor of seeds": lambda w: sweep(
        Sweep(request=request(w, algorithm="trpo"), seeds=(0,), jobs=1, executor="threads")
    ),
    "sink": lambda w: run(request(w, algorithm="trpo", sinks=("tally",))),
}
NOT_ENTRANCES = {
    "rlsdk_interchange.Exported": "a record",
    "rlsdk_interchange.push": "uploads a file as it is",
    "rlsdk.register": "refuses it in other words, see below",
    "rlsdk_testing.verify": "a clause is broken, see below",
    "rlsdk.agent.part": "names an attribute of parts",
    "rlsdk.agent.Agent": "the same class as rlsdk.Agent",
    "rlsdk.registry.find": "describes a plugin, with its problem",
    "rlsdk.registry.plugin_of": "describes a plugin, with its problem",
    "rlsdk.registry.unregister": "forgets",
    "rlsdk.agent.as_agent_file": "makes the name of a file",
    "rlsdk.agent.inspect_file": "reads the manifest of a file",
    "rlsdk.agent.SafetensorsSerializer.load": "reads tensors and JSON of a file",
    "rlsdk.interfaces.ability": "its name is that of a method",
    "rlsdk.interfaces.shortcut": "its name is that of a method",
    "rlsdk.interfaces.plays_episodes": "asks the plan of an agent that was built",
    "rlsdk.runs.RunDirectory": "a record",
    "rlsdk.runs.RunRequest": "a record, see rlsdk.runs.run",
    "rlsdk.runs.environment_of": "takes the spec of an algorithm that was loaded",
    "rlsdk.runs.find_agent": "finds a file",
    "rlsdk.runs.read_table": "reads a table of a file",
    "rlsdk.interfaces.require_spaces": "its algorithm is a word of the message",
    "rlsdk_lab.load_suite": "reads a table of names",
    "rlsdk.runs.read_metric": "reads a table of numbers",
    "rlsdk_lab.rl_zoo_preset": "takes the spec of an algorithm that was loaded",
    "rlsdk_lab.Range": "a record",
    "rlsdk_lab.Suite": "a record",
    "rlsdk.interfaces.BuildContext": "a record",
    "rlsdk.interfaces.Parts": "a record",
    "rlsdk.interfaces.Serializer.load": "a Protocol",
    "rlsdk_lab.bench": "reports each run that fails",
    "rlsdk_lab.Cell": "a record",
    "rlsdk_lab.Score": "a record",
    "rlsdk_lab.Tuning": "a record, see rlsdk_lab.tune",
    "rlsdk_lab.search_space": "takes the class of the settings",
    "rlsdk_interchange.export_minari": "recorded episodes hold no agent",
    "rlsdk_interchange.import_minari": "recorded episodes hold no agent",
    "rlsdk_interchange.record_episodes": "takes an agent",
    "rlsdk_interchange.RecordEpisodes": "a callback",
    "rlsdk_zoo.installed.ZooAgent": "a record",
    "rlsdk_zoo.installed.find": "agents of a refused plugin are not listed",
    "rlsdk_zoo.installed.load": "reads the file as rlsdk.load does",
    "rlsdk_testing.verify_executor": "takes an executor that is made",
    "rlsdk_interchange.export": "takes an agent",
}
"""Other public names with such a parameter -> the reason why they do not refuse the plugin."""


def refusal(work: Callable[[World], object], world: World) -> str:
    with pytest.raises(PluginError) as caught:
        work(world)
    return str(caught.value)


@pytest.mark.parametrize("name", ENTRANCES)
def test_public_names_refuse_it(world: World, name: str) -> None:
    before = {path.name for path in world.folder.iterdir()}
    require_refusal(refusal(ENTRANCES[name], world))
    assert not [module for module in sys.modules if module.startswith("acme_bad.")], "its code was imported"
    assert {path.name for path in world.folder.iterdir()} == before, "something was left behind"


@pytest.mark.usefixtures("from_an_index")
def test_registering_refuses_it(world: World) -> None:
    """The message names no package to upgrade, because registered code is not installed."""
    words = (
        'registered/bad cannot be used: it needs rlsdk >=0.0.1,<0.1, installed is .*pip install "rlsdk>=0.0.1,<0.1"$'
    )
    with pytest.raises(PluginError, match=words):
        rlsdk.register(attrs.evolve(world.spec, id="bad"), registry.find("bad").manifest)


def test_a_clause_says_it(world: World) -> None:
    with pytest.raises(ContractViolation, match="pip install --upgrade acme-bad"):
        verify("bad", "plugin.claims-backed")


@pytest.mark.parametrize("name", CLASSES)
def test_its_class_refuses(world: World, name: str) -> None:
    require_refusal(refusal(CLASSES[name], world))


@pytest.mark.parametrize("name", EXTENSIONS)
def test_what_it_gives_besides_algorithms_is_refused(world: World, name: str) -> None:
    before = {path.name for path in world.folder.iterdir()}
    require_refusal(refusal(EXTENSIONS[name], world))
    assert {path.name for path in world.folder.iterdir()} == before, "something was left behind"


def test_every_public_name_that_takes_a_plugin_is_tried() -> None:
    """A new public name must be added to ENTRANCES, or to NOT_ENTRANCES with the reason."""
    packages = (
        "rlsdk",
        "rlsdk.agent",
        "rlsdk.executors",
        "rlsdk.runs",
        "rlsdk.interfaces",
        "rlsdk.registry",
        "rlsdk_testing",
    )
    parameters, found = {"algorithm", "spec", "request", "plan", "name", "path"}, set[str]()
    for package, names in public_api()["names"].items():
        if package not in packages and not package.startswith("rlsdk_interchange"):
            continue
        for name, kind in names.items():
            signature = (kind.get("load") or kind["class"]) if isinstance(kind, dict) else kind
            words = signature.translate(str.maketrans("(),?*", "     ")).split()
            if parameters & set(words):
                found.add(f"{package}.{name}" + (".load" if isinstance(kind, dict) and "load" in kind else ""))
    known = {*ENTRANCES, *NOT_ENTRANCES, "rlsdk.agent.Agent.load"}
    assert found - known == set()
    assert found, "nothing was looked at"


NEEDED = {"env": "CartPole-v1", "steps": "8", "trials": "1", "out": "made"}
"""Values for the options that commands need."""
COMMANDS_WITHOUT_PLUGINS = {
    "compare": "tables of runs",
    "ui": "records and tables of runs",
    "plot": "tables of runs",
    "inspect": "reads the manifest of a file",
    "push": "uploads a file as it is",
    "pull": "downloads a file as it is",
    "list": "names the problem",
    "doctor": "names the problem",
    "new": "names the plugin that has the id",
    "bench": "reports each run that fails",
    "export-lerobot": "reads a data set, which names no plugin",
    "import-lerobot": "reads a data set of another library",
}


def command_line(command: Any, world: World) -> list[str]:
    """Return a command line that uses the refused plugin, with values for the parameters of the command."""
    values = {"algorithm": "bad", "file": str(world.file), "path": "model.zip"}
    line = [str(command.name)]
    for name, parameter in inspect.signature(command.callback).parameters.items():
        if name in values:
            line.append(values[name])
        elif name in NEEDED:
            line += [f"--{name}", NEEDED[name]]
        else:
            assert parameter.default is not inspect.Parameter.empty, f"what does {command.name} want for {name}?"
    return line


@pytest.mark.parametrize(
    "command", [c for c in Commands().values() if not hasattr(c, "commands")], ids=lambda c: c.name
)
def test_commands_refuse_it(world: World, cli: Any, command: Any) -> None:
    """A new command must have the parameter `algorithm` or `file`, or be listed in COMMANDS_WITHOUT_PLUGINS."""
    parameters = inspect.signature(command.callback).parameters
    if command.name in COMMANDS_WITHOUT_PLUGINS:
        assert "algorithm" not in parameters
        return
    assert {"algorithm", "file"} & set(parameters), f"decide what {command.name} does with a plugin that does not fit"
    code, out, err = cli(*command_line(command, world))
    assert (code, out) == (1, "")
    require_refusal(err)
    assert not Path("made").exists()


@pytest.mark.parametrize(
    "line",
    [
        "run trpo --env CartPole-v1 --steps 8 --out made --logger tally",
        "run trpo --env acme/Identity-v0 --steps 8 --out made",
        "run trpo --env CartPole-v1 --steps 8 --out made --seeds 2 --executor threads",
        "run ars --env CartPole-v1 --steps 8 --out made --vectorization threads",
        "run bad --env CartPole-v1 --steps 8 --out made --seeds 2",
        "run bad --resume --out made",
        "eval old.numpy --env CartPole-v1",
        "config bad --preset CartPole-v1",
        "check bad --capabilities",
    ],
)
def test_options_refuse_it(world: World, cli: Any, line: str) -> None:
    code, _, err = cli(*line.split())
    assert code == 1
    require_refusal(err)
    assert not Path("made").exists()


@pytest.mark.full
def test_what_only_looks_names_the_problem(world: World, cli: Any) -> None:
    for command in (["list"], ["list", "--json"], ["doctor"]):
        _, out, _ = cli(*command)
        (line,) = [
            text
            for text in out.splitlines()
            if f"needs rlsdk {REFUSED}" in text and "Refused" not in text and "bad" in text
        ]
        assert "pip install --upgrade acme-bad" in line
    assert cli("inspect", str(world.file))[0] == 0


def test_a_suite_reports_it(world: World, cli: Any) -> None:
    Path("mine.toml").write_text('[[cells]]\nalgorithm = "bad"\nenv = "CartPole-v1"\nsteps = 8\n')
    code, _, err = cli("bench", "mine.toml", "--seeds", "1", "--executor", "in-process")
    assert code == 1
    assert f"needs rlsdk {REFUSED}" in err


@in_one_test
@pytest.mark.usefixtures("from_an_index")
@pytest.mark.parametrize(
    ("stated", "here", "fix"),
    [
        (">=0.2", "0.1.0", 'newer SDK: pip install "rlsdk>=0.2"'),
        (">=0.2,<0.3", "0.1.9", 'newer SDK: pip install "rlsdk>=0.2,<0.3"'),
        ("~=1.1", "0.1.0", 'newer SDK: pip install "rlsdk~=1.1"'),
        ("==0.2.*", "0.1.0", 'newer SDK: pip install "rlsdk==0.2.*"'),
        ("<0.1", "0.1.0", 'pip install --upgrade acme-bad, or an older SDK: pip install "rlsdk<0.1"'),
        (">=0.1,<0.2", "0.2.0", 'pip install --upgrade acme-bad, or an older SDK: pip install "rlsdk>=0.1,<0.2"'),
        (">=0.1,!=0.1.3", "0.1.3", "pip install --upgrade acme-bad"),
        (">=0.1,<0.2", "0.1.0", None),
        (">=0.1,<0.2", "0.1.1.dev3", None),
        ("0.1", "0.1.0", "is not a version range"),
        ("===o'ne", "0.1.0", 'pip install "rlsdk===o\'ne"'),
    ],
)
def test_the_command_that_mends_it(stated: str, here: str, fix: str | None) -> None:
    problem = misfit(stated, here, "acme-bad")
    assert (problem is None) == (fix is None)
    assert (fix or "") in (problem or "")


@pytest.mark.usefixtures("from_an_index")
@pytest.mark.parametrize("place", ["config", "build", "agent"])
@pytest.mark.parametrize(
    "line",
    [
        "from rlsdk.training import FuturePlan",
        "import rlsdk.future",
        "import rlsdk.training; rlsdk.training.FuturePlan",
    ],
)
def test_a_name_that_this_sdk_lacks(site: Site, monkeypatch: pytest.MonkeyPatch, place: str, line: str) -> None:
    """The plugin uses a name of a newer SDK, but its range includes this one."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    package = write(site, sdk=">=0.1")
    file, before = {
        "config": ("parts.py", ""),
        "build": ("parts.py", "def build(context, config):\n    "),
        "agent": ("agent.py", ""),
    }[place]
    text = (package / file).read_text()
    (package / file).write_text(
        text.replace(before, before + line + ("\n    " if before else "\n"), 1) if before else f"{line}\n{text}"
    )
    attempts = [
        lambda: rlsdk.make("bad", env="CartPole-v1"),
        lambda: import_module("acme_bad").Bad("MlpPolicy", "CartPole-v1"),
    ]
    for attempt in attempts:
        forget()
        with pytest.raises(PluginError) as caught:
            attempt()
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        name = "rlsdk.future" if "future" in line else "FuturePlan"
        for words in (
            "bad",
            name,
            "its range is rlsdk >=0.1",
            f"rlsdk {rlsdk.__version__} has no such name",
            "pip install --upgrade rlsdk acme-bad",
        ):
            assert words in message, message


def test_other_errors_of_a_plugin_keep_their_cause(site: Site) -> None:
    package = write(site)
    (package / "parts.py").write_text("import a_missing_package")
    forget()
    with pytest.raises(PluginError, match="a_missing_package") as caught:
        rlsdk.make("bad", env="CartPole-v1")
    assert "its range" not in str(caught.value)
    with pytest.raises(ModuleNotFoundError):
        import_module("acme_bad").Bad("MlpPolicy", "CartPole-v1")


def test_the_list_as_json_says_the_same(world: World, cli: Any) -> None:
    _, out, _ = cli("list", "--json")
    (bad,) = [entry for entry in json.loads(out) if entry["id"] == "bad"]
    assert "pip install --upgrade acme-bad" in bad["problem"]
