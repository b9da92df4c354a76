"""Plugins are listed without being imported and loaded one at a time. A broken plugin does not affect the others."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

import rlsdk
from rlsdk.agent import agent_class
from rlsdk.errors import ContractViolation, PluginError
from rlsdk.registry import AlgorithmSpec, Manifest, discovery, find, load, plugins, unregister
from rlsdk.registry.discovery import register
from rlsdk.registry.manifest import ManifestError, parse_manifest, read_manifest
from rlsdk.settings import AgentConfig
from rlsdk_testing import verify
from tests import small_algorithms
from tests.plugin_site import Site
from tests.throwaway import Environment, build_wheels, write_distribution, write_extension

ASK = """
from rlsdk.registry import load
from rlsdk.errors import ContractViolation, PluginError
import warnings
def ask(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return ["ok", load(name).id, [str(w.message) for w in caught]]
        except PluginError as error:
            return ["error", str(error), repr(error.__cause__)]
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A virtual environment with working and broken plugins."""
    folder = tmp_path_factory.mktemp("plugins")
    sources = [
        write_distribution(folder, "good"),
        write_distribution(folder, "raises", first="raise RuntimeError('no GPU found')"),
        write_distribution(folder, "exits", first="import sys; sys.exit(3)"),
        write_distribution(folder, "prints", first="print('hello from the plugin')"),
        write_distribution(folder, "seeds", first="import torch; torch.manual_seed(0); torch.set_num_threads(1)"),
        write_distribution(folder, "future", sdk=">=99"),
        write_distribution(folder, "twin", distribution="acme-twin-one"),
        write_distribution(folder, "twin", distribution="acme-twin-two"),
        write_distribution(folder, "missing", first="import a_package_nobody_has"),
        write_distribution(folder, "garbled", manifest="id = "),
        write_extension(folder),
    ]
    return Environment(folder / "env", build_wheels(sources, folder / "wheels"))


@pytest.mark.full
def test_listing_shows_all_and_runs_none(house: Environment) -> None:
    result = house.json(
        "import rlsdk; found = rlsdk.algorithms()\n"
        "result = {'plugins': [[p.qualified_id, p.version, p.problem] for p in found],"
        " 'imported': [m for m in sys.modules if m.startswith(('acme', 'torch', 'gymnasium', 'numpy'))]}"
    )
    assert result["imported"] == []
    listed = {name: problem for name, _, problem in result["plugins"]}
    assert {"acme-good/good", "acme-twin-one/twin", "acme-twin-two/twin", "rlsdk-tqc/tqc"} <= set(listed)
    assert listed["acme-good/good"] is None
    assert "needs rlsdk >=99" in listed["acme-future/future"]
    assert "is not valid TOML" in listed["acme-garbled/garbled"]


def test_each_manifest_is_read_once_however_many_entry_points_name_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 entry points of one package took 69 seconds."""
    lines = "".join(f"a{i} = acme_many.part{i}\n" for i in range(300))
    site.add("many", entry=f"[rlsdk.plugins]\n{lines}")
    read = list[str]()
    monkeypatch.setattr(discovery, "read_manifest", lambda module: read.append(module) or read_manifest(module))
    found = [plugin for plugin in plugins(rescan=True) if plugin.distribution == "acme-many"]
    assert (len(found), read.count("acme_many")) == (300, 1)
    assert all("make them equal" in str(plugin.problem) for plugin in found)


@pytest.mark.full
def test_the_command_line_lists_past_broken_plugins(house: Environment) -> None:
    done = house.run("-m", "rlsdk.cli.main", "list", "--json")
    assert done.returncode == 0, done.stderr
    assert "hello" not in done.stdout
    problems = {p["id"]: p["problem"] for p in json.loads(done.stdout)}
    assert problems["good"] is None
    assert problems["future"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", ["acme-raises/raises 1.2.3 is broken", "no GPU found"]),
        ("exits", ["acme-exits/exits", "SystemExit"]),
        ("missing", ["a_package_nobody_has"]),
        ("future", ["needs rlsdk >=99"]),
        ("garbled", ["not valid TOML"]),
        ("twin", ["acme-twin-one/twin", "acme-twin-two/twin"]),
        ("goood", ["did you mean 'good'"]),
    ],
)
def test_a_bad_plugin_is_named_with_its_cause(house: Environment, name: str, words: list[str]) -> None:
    status, message, cause = house.json(f"{ASK}\nresult = ask({name!r})")
    assert status == "error"
    for word in words:
        assert word in message
    if name in ("raises", "exits", "missing"):
        assert cause != "None"


@pytest.mark.full
def test_one_broken_plugin_leaves_the_others_usable(house: Environment) -> None:
    result = house.json(
        f"{ASK}\nresult = [ask('raises')[0], ask('exits')[0], ask('good')[:2], ask('acme-twin-two/twin')[:2]]"
    )
    assert result == ["error", "error", ["ok", "good"], ["ok", "twin"]]


@pytest.mark.full
def test_a_plugin_that_prints_is_silenced_and_reported(house: Environment) -> None:
    done = house.run("-c", f"{ASK}\nr = ask('prints')\nassert r[0] == 'ok' and 'hello' in r[2][0], r\nprint('clean')")
    assert done.stdout.splitlines() == ["clean"], done.stderr


@pytest.mark.full
@pytest.mark.parametrize("torch_first", [True, False])
def test_a_plugin_that_seeds_torch_is_undone_and_reported(house: Environment, torch_first: bool) -> None:
    before = "import torch; torch.set_num_threads(2); torch.manual_seed(123)" if torch_first else ""
    code = f"{before}\n{ASK}\nr = ask('seeds')\nimport torch\nresult = [r, torch.initial_seed(), torch.rand(1).item()]"
    (status, _, effects), seed, drawn = house.json(code)
    assert status == "ok"
    assert seed == 123 if torch_first else seed != 0
    assert any("torch's random state" in effect for effect in effects)
    seeded = house.json("import torch; torch.manual_seed(123); result = torch.rand(1).item()")
    assert (drawn == seeded) is torch_first
    if torch_first:
        assert any("thread count" in effect for effect in effects)


@pytest.mark.full
def test_doctor_explains(house: Environment) -> None:
    done = house.run("-m", "rlsdk.cli.main", "doctor")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert any("acme-good/good 1.2.3: usable" in line for line in lines)
    assert any("acme-raises/raises" in line and "no GPU found" in line for line in lines)
    assert any("WARNING" in line and "torch's random state" in line for line in lines)


@pytest.mark.full
@pytest.mark.parametrize(
    ("switch", "expected"), [("off", []), ("good", ["good"]), ("good, prints", ["good", "prints"])]
)
def test_the_switch_hides_plugins(house: Environment, switch: str, expected: list[str]) -> None:
    code = "import rlsdk; result = [p.id for p in rlsdk.algorithms()]"
    assert house.json(code, RLSDK_PLUGINS=switch) == expected
    if switch == "off":
        status, message, _ = house.json(f"{ASK}\nresult = ask('good')", RLSDK_PLUGINS="off")
        assert status == "error"
        assert "RLSDK_PLUGINS" in message


@pytest.mark.slow
def test_the_kit_finds_the_import_side_effects(house: Environment) -> None:
    code = (
        "import warnings; warnings.simplefilter('ignore')\nfrom rlsdk_testing import running, run_checks\n"
        "from rlsdk_testing.kit import named_clause\n"
        "running.clauses = lambda: (named_clause('plugin.import-is-free'),)\n"
        "result = [outcome.status for n in ('good', 'seeds', 'prints') for outcome in run_checks(n)]"
    )
    assert house.json(code) == ["passed", "failed", "failed"]


@pytest.mark.slow
def test_extensions_serve_without_an_algorithm(house: Environment, tmp_path: Path) -> None:
    """A plugin's sink, environment and serializer work in commands and in Python, although it has no algorithm."""
    run = tmp_path / "run"
    small = ["--set", "policy_kwargs.net_arch=[8]", "--set", "buffer_size=500", "--set", "batch_size=8"]
    command = ["run", "tqc", "--env", "acme/Identity-v0", "--steps", "120", "--logger", "tally", "--eval-episodes", "1"]
    done = house.run("-m", "rlsdk.cli.main", *command, *small, "--out", str(run), RLSDK_PLUGINS="tqc,extras")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "tally.txt").read_text())[-1] == 120
    code = f"""
import rlsdk, numpy
agent = rlsdk.load({str(run / "final")!r})
agent.save({str(tmp_path / "agent.numpy")!r})
again = rlsdk.load({str(tmp_path / "agent.numpy")!r})
one, two = (a.predict(numpy.zeros(1), deterministic=True)[0].tolist() for a in (agent, again))
first = numpy.load({str(tmp_path / "agent.numpy")!r}).files[0]
result = [one == two, [p.id for p in rlsdk.algorithms() if p.id == "extras"], first]
"""
    assert house.json(code) == [True, [], "__document__"]
    done = house.run("-m", "rlsdk.cli.main", "inspect", str(tmp_path / "agent.numpy"))
    assert "algorithm:    tqc" in done.stdout, done.stderr
    for arguments, words in (
        (["--logger", "tali"], "did you mean 'tally'"),
        (["--env", "acme/Nothing-v0"], "AssertionError"),
    ):
        done = house.run("-m", "rlsdk.cli.main", *command, *small, *arguments, "--out", str(tmp_path / "bad"))
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    done = house.run("-m", "rlsdk.cli.main", "info", "extras")
    assert "no installed plugin offers 'extras'" in done.stderr


@pytest.mark.slow
def test_an_executor_of_a_plugin_plays_candidates_and_runs_seeds(house: Environment, tmp_path: Path) -> None:
    code = """
import torch
from rlsdk_ars import ARS
from rlsdk.environments import make_vec_env
from rlsdk_testing.subject import differing, flat_state

states = []
for kind in ("sync", "threads"):
    env = make_vec_env("CartPole-v1", vectorization=kind, workers=1)
    states.append(flat_state(ARS("LinearPolicy", env, n_delta=2, seed=0).learn(300)))
    env.close()
result = differing(*states)
"""
    assert house.json(code) == []
    command = ["run", "ars", "--env", "CartPole-v1", "--steps", "100", "--eval-episodes", "1", "--seeds", "2"]
    done = house.run(
        "-m", "rlsdk.cli.main", *command, "--jobs", "1", "--executor", "threads", "--out", str(tmp_path / "two")
    )
    assert done.returncode == 0, done.stderr
    assert "pool closed" in done.stdout
    assert json.loads((tmp_path / "two/summary.json").read_text())["seeds"].keys() == {"0", "1"}


@attrs.frozen
class _Config(AgentConfig):
    pass


SPEC = AlgorithmSpec(
    id="notebook", family="off-policy", config_type=_Config, build=lambda f, c: None, policies=("MlpPolicy",)
)
MANIFEST = Manifest(
    id="notebook", title="t", summary="s", family="off-policy", sdk="", actions=("Box",), observations=("Box",),
    policies=("MlpPolicy",),
)  # fmt: skip


def test_code_that_is_not_installed_can_be_registered() -> None:
    register(SPEC, MANIFEST)
    try:
        assert load("notebook") is SPEC
        assert load("registered/notebook") is SPEC
        assert "notebook" in [p.id for p in rlsdk.algorithms()]
        with pytest.raises(PluginError, match="registered already"):
            rlsdk.register(SPEC, MANIFEST)
    finally:
        unregister("notebook")
    with pytest.raises(PluginError, match="no installed plugin"):
        find("notebook")
    with pytest.raises(PluginError, match="not registered"):
        unregister("notebook")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: None, ["returned NoneType", "return Parts"]),
        (lambda parts: parts.policy, ["returned Softmax", "return Parts"]),
        (lambda parts: replace(parts, policy=object()), ["its policy, object, has no initial_carry, act"]),
        (lambda parts: replace(parts, algorithm=parts.policy), ["its algorithm, Softmax, has no update"]),
        (lambda parts: replace(parts, buffer=[]), ["its buffer, list, has no sample"]),
        (lambda parts: replace(parts, plan=None), ["the training loop None", "OnPolicyPlan, OffPolicyPlan"]),
    ],
)
def test_what_build_returns_is_checked(change: Any, words: list[str]) -> None:
    spec = AlgorithmSpec(
        id="wrong",
        family="on-policy",
        policies=("MlpPolicy",),
        config_type=small_algorithms.Config,
        build=lambda context, config: change(small_algorithms.build(context, config)),
    )
    with pytest.raises(PluginError) as caught:
        agent_class(spec)("MlpPolicy", "CartPole-v1")
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"train/loss": 0.5}, "train/loss is a float"),
        ({"train/loss": torch.zeros(2), "train/kl": torch.tensor(1.0)}, r"train/loss is a Tensor \[2\]"),
        ({"train/losses": torch.zeros(2)}, r"train/losses is a Tensor \[2\]"),
        ({}, "returned none"),
        ([torch.tensor(1.0)], "it returned list"),
    ],
)
def test_what_update_returns_is_checked(metrics: Any, words: str) -> None:
    kind = agent_class(attrs.evolve(SPEC, config_type=small_algorithms.Config, build=small_algorithms.build))
    agent = kind("MlpPolicy", "CartPole-v1")
    agent.parts.algorithm.update = lambda batch, *, progress: metrics  # type: ignore[method-assign]
    with pytest.raises(PluginError, match=words):
        agent.learn(64)


def test_registering_checks_spec_against_manifest() -> None:
    with pytest.raises(PluginError, match=r"policies = \('MlpPolicy',\) in the spec, \('Other',\) in the manifest"):
        register(SPEC, attrs.evolve(MANIFEST, policies=("Other",)))
    with pytest.raises(PluginError, match="needs rlsdk >=99, installed is"):
        register(SPEC, attrs.evolve(MANIFEST, sdk=">=99"))
    with pytest.raises(PluginError, match="accepted: Box"):
        register(SPEC, attrs.evolve(MANIFEST, actions=("Sphere",)))


@pytest.mark.parametrize(
    ("traits", "words"),
    [
        (("telepathic", "x-own"), r"unknown traits \['telepathic'\]"),
        (("gsde",), "not so: \\['gsde'\\]"),
        (("x-own",), None),
    ],
)
def test_traits_are_known_and_true(traits: tuple[str, ...], words: str | None) -> None:
    context: dict[str, Any] = {"id": "traits", "family": "on-policy", "policies": ("MlpPolicy",)}
    spaces = {"actions": ("Discrete",), "observations": ("Box",), "traits": traits}
    spec = AlgorithmSpec(config_type=small_algorithms.Config, build=small_algorithms.build, **context)
    register(spec, Manifest(title="t", summary="s", sdk=">=0.1", **context, **spaces))
    try:
        with pytest.raises(ContractViolation, match=words) if words else nullcontext():
            verify("traits", "plugin.claims-backed")
    finally:
        unregister("traits")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"famly": "x"}, "unknown fields"),
        ({"family": ""}, "empty family"),
        ({"actions": ["Sphere"]}, "accepted: Box"),
        ({"actions": "Box"}, "list of strings"),
        ({"actions": [["Box"]]}, "list of strings"),
        ({"sinks": [[["x"]]]}, "list of strings"),
        ({"title": 3}, "string"),
        ({"title": None}, "lacks"),
        ({"family": None}, "provides nothing"),
        ({"policies": None}, "an algorithm needs"),
        ({"serializers": [".rlsdk"]}, "the SDK's own"),
        ({"serializers": [".RLSDK"]}, "the SDK's own"),
        ({"serializers": ["npz"]}, "a file suffix"),
        ({"vectorizers": ["async"]}, "the SDK's own"),
        ({"executors": ["auto"]}, "the SDK's own"),
        ({"sinks": ["tensorboard"]}, "the SDK's own"),
        ({"summary": "two\nlines"}, "control characters"),
        ({"title": "\x1b[2J"}, "control characters"),
        ({"summary": "long" * 1000}, "too long"),
        ({"policies": ["P"] * 1000}, "too long"),
        ({"policies": ["a b"]}, "accepted: letters"),
    ],
)
def test_bad_manifests(change: dict[str, object], words: str) -> None:
    data = {**attrs.asdict(MANIFEST), "policy_classes": {}, "commands": {}, "importers": {}, **change}
    data = {k: list(v) if isinstance(v, tuple) else v for k, v in data.items() if v is not None}
    with pytest.raises(ManifestError, match=words):
        parse_manifest(data)


@pytest.mark.full
def test_wheels_hold_what_they_need(tmp_path: Path) -> None:
    """The wheels of rlsdk and rlsdk-tqc contain their modules, their type markers and the manifest of the plugin."""
    import zipfile

    root = Path(__file__).parents[2]
    wheels = build_wheels([root, root / "plugins" / "rlsdk-tqc"], tmp_path)
    names = {wheel.name.split("-")[0]: set(zipfile.ZipFile(wheel).namelist()) for wheel in wheels}
    assert {"rlsdk/py.typed", "rlsdk/cli/main.py"} <= names["rlsdk"]
    assert {"rlsdk_tqc/rlsdk.toml", "rlsdk_tqc/py.typed", "rlsdk_tqc/build.py"} <= names["rlsdk_tqc"]
    assert not any(name.startswith(("tests", "plugins", "benchmarks")) for name in names["rlsdk"])
