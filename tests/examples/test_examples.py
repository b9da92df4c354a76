"""The examples install, run, pass the contracts and do not change the program that uses them, as their tutorials state."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlsdk.cli.main import app
from tests.example_plugins import installed_examples
from tests.throwaway import Environment, build_wheels

EXAMPLES = Path(__file__).parents[2] / "examples"
PLUGINS = EXAMPLES / "third_party"
TUTORIALS = ("reinforce", "cross-entropy", "constrained", "cloning", "extras")
LARGER = ("v-trace", "dyna", "random-network-distillation")
"""Examples with their own training loop, memory or networks."""
NAMES = (*TUTORIALS, *LARGER)
PRIVATE = re.compile(r"from rlsdk[\w.]*\._|from rlsdk[\w.]* import _|rlsdk\.\w*\._")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A virtual environment with the example plugins, installed from wheels."""
    folder = tmp_path_factory.mktemp("examples")
    return Environment(folder / "env", build_wheels([PLUGINS / name for name in NAMES], folder / "wheels"))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_short_and_uses_public_names_only(name: str) -> None:
    files = sorted((PLUGINS / name / "src").rglob("*.py"))
    # the reference states formulas of the algorithm a second time
    lines = sum(len(path.read_text().splitlines()) for path in files if path.name != "reference.py")
    assert 0 < lines < (320 if name in LARGER else 200), f"{name} has {lines} lines"
    for path in files:
        assert not PRIVATE.search(path.read_text()), path


@pytest.mark.parametrize(
    "readme",
    [*sorted(PLUGINS.rglob("*/README.md")), *(EXAMPLES / name / "README.md" for name in ("embedding", "kernel"))],
    ids=str,
)
def test_a_tutorial_shows_the_code_as_it_is(readme: Path) -> None:
    sources = [p.read_text() for p in readme.parent.rglob("*") if p.suffix in (".py", ".toml") and p.is_file()]
    blocks = re.findall(r"```(?:python|toml)\n(.*?)```", readme.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        assert any(block in text for text in sources) or _lines_in_order(block, sources), block


def test_whoever_types_the_first_tutorial_has_the_whole_package() -> None:
    folder = PLUGINS / "reinforce"
    step = re.compile(r"\*\*\d\. `([^`]+)`\*\*.*?```\w+\n(.*?)```", re.DOTALL)
    typed = dict(step.findall((folder / "README.md").read_text()))
    files = {path for path in folder.rglob("*") if path.is_file() and path.suffix in (".py", ".toml")}
    assert typed == {str(path.relative_to(folder)): path.read_text() for path in files}


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_the_tutorials_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the tutorials run with few steps. `test_the_algorithms_keep_the_contracts` covers `rlsdk check`."""
    lines = re.findall(r"^rlsdk run .*$", (PLUGINS / name / "README.md").read_text(), re.MULTILINE)
    assert lines
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    with installed_examples(tmp_path / "site"):
        for number, line in enumerate(lines):
            arguments = shlex.split(re.sub(r"--steps [\d_]+", "--steps 120", line))[1:]
            out = [] if "--out" in arguments else ["--out", str(number)]
            done = CliRunner().invoke(app, [*arguments, *out, "--eval-episodes", "1"])
            assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception}"


def _lines_in_order(block: str, sources: list[str]) -> bool:
    """Whether one of the sources has the lines of a block in the same order, possibly with other lines between them."""
    wanted = block.splitlines()
    return any(_subsequence(wanted, text.splitlines()) for text in sources)


def _subsequence(wanted: list[str], lines: list[str]) -> bool:
    rest = iter(lines)
    return all(line in rest for line in wanted)


@pytest.mark.slow
def test_the_algorithms_run_from_the_command_line(house: Environment, tmp_path: Path) -> None:
    for name in ("reinforce", "cross-entropy"):
        out = tmp_path / name
        done = house.run(
            *("-m", "rlsdk", "run", name, "--env", "CartPole-v1", "--steps", "20_000", "--seed", "0"),
            *("--eval-every", "0", "--out", str(out)),
        )
        assert done.returncode == 0, done.stderr
        reached = json.loads((out / "run.json").read_text())["final_evaluation"]["mean"]
        assert reached > 60.0, f"{name}: {reached}"  # random actions reach 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "env"), [("v-trace", "CartPole-v1"), ("dyna", "CartPole-v1"), ("rnd", "corridor/Corridor-v0")]
)
def test_own_loops_memories_and_networks_run_and_resume(
    house: Environment, algorithm: str, env: str, tmp_path: Path
) -> None:
    out = ("--eval-every", "0", "--out", str(tmp_path / "run"))
    done = house.run("-m", "rlsdk", "run", algorithm, "--env", env, "--steps", "1500", "--seed", "0", *out)
    assert done.returncode == 0, done.stderr
    done = house.run("-m", "rlsdk", "eval", str(tmp_path / "run" / "final.rlsdk"), "--episodes", "1")
    assert done.returncode == 0, done.stderr
    code = (
        "import rlsdk\n"
        f"agent = rlsdk.load({str(tmp_path / 'run' / 'final.rlsdk')!r}, env={env!r})\n"
        "agent.learn(1100, reset_num_timesteps=False)\nresult = agent.num_timesteps"
    )
    assert house.json(code) >= 2600


@pytest.mark.slow
def test_a_clone_learns_from_a_teacher(house: Environment, tmp_path: Path) -> None:
    small = ("--set", "n_steps=256", "--eval-every", "0", "--out", str(tmp_path / "teacher"))
    done = house.run("-m", "rlsdk", "run", "trpo", "--env", "CartPole-v1", "--steps", "512", "--seed", "0", *small)
    assert done.returncode == 0, done.stderr
    code = (PLUGINS / "cloning" / "teach.py").read_text()
    agrees = "[clone.predict(x, deterministic=True)[0] == teacher.predict(x, deterministic=True)[0] for x in seen]"
    seen = "import numpy as np\nseen = np.random.default_rng(0).normal(0, 0.05, (200, 4)).astype(np.float32)"
    moved = f"import os\nos.chdir({str(tmp_path)!r})\n{code}\n{seen}\nresult = float(np.mean({agrees}))"
    assert house.json(moved) > 0.8
    assert (tmp_path / "clone.rlsdk").exists()


@pytest.mark.slow
def test_the_constrained_algorithm_runs_in_its_environment_only(house: Environment, tmp_path: Path) -> None:
    run = ("-m", "rlsdk", "run", "ppo-lagrangian", "--seed", "0", "--eval-every", "0", "--set", "n_steps=256")
    done = house.run(*run, "--env", "safe/Sprint-v0", "--steps", "1024", "--out", str(tmp_path / "a"))
    assert done.returncode == 0, done.stderr
    assert "train/multiplier" in (tmp_path / "a" / "metrics.jsonl").read_text()
    done = house.run(*run, "--env", "CartPole-v1", "--steps", "256", "--out", str(tmp_path / "b"))
    assert done.returncode != 0
    assert "gave no info['cost']" in done.stderr


@pytest.mark.full
def test_a_data_set_is_a_path_on_the_command_line_and_given_again_to_go_on(house: Environment, tmp_path: Path) -> None:
    house.json(
        "import torch; from gymnasium import spaces; from rlsdk.environments import to_space\n"
        "from rlsdk_datasets import RecordedEpisode, write_episodes\n"
        "import gymnasium; env = gymnasium.make('CartPole-v1')\n"
        "seen = torch.zeros(11, 4); episode = RecordedEpisode(seen, torch.ones(10, dtype=torch.int64), torch.ones(10), True)\n"
        f"write_episodes({str(tmp_path / 'demo')!r}, [episode], *map(to_space, (env.observation_space, env.action_space)))\n"
        "result = 0"
    )
    run = ("-m", "rlsdk", "run", "cloning", "--out", str(tmp_path / "run"), "--eval-every", "0")
    data = ("--set", f"dataset={tmp_path / 'demo.safetensors'}")
    done = house.run(*run, *data, "--env", "CartPole-v1", "--steps", "100", "--seed", "0")
    assert done.returncode == 0, done.stderr
    done = house.run(*run, "--resume", "--steps", "150")
    assert done.returncode != 0
    assert "on the command line --dataset FILE" in done.stderr
    done = house.run(*run, *data, "--resume", "--steps", "150")
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_the_extras_serve(house: Environment, tmp_path: Path) -> None:
    out = tmp_path / "warm"
    done = house.run(
        *("-m", "rlsdk", "run", "tqc", "--env", "acme/Thermostat-v0", "--steps", "500", "--logger", "best"),
        *("--eval-every", "0", "--out", str(out), "--set", "learning_starts=450"),
    )
    assert done.returncode == 0, done.stderr
    # logged every 4 episodes
    assert json.loads((out / "best.json").read_text())["time/total_timesteps"]["value"] == 400.0
    found = house.json(
        "import rlsdk, numpy as np\n"
        f"agent = rlsdk.load({str(out / 'final.rlsdk')!r}); agent.save({str(tmp_path / 'a.npz')!r})\n"
        f"again = rlsdk.load({str(tmp_path / 'a.npz')!r}); seen = np.array([12.0], np.float32)\n"
        "result = [agent.predict(seen)[0].tolist(), again.predict(seen)[0].tolist()]"
    )
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reinforce", "cross-entropy", "constrained", "cloning", *LARGER])
def test_the_algorithms_keep_the_contracts(house: Environment, name: str) -> None:
    done = house.run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(PLUGINS / name / "tests"))
    assert done.returncode == 0, done.stdout[-3000:]


HOST = """
import logging, random, signal, sys, threading
import numpy as np, torch
torch.set_num_threads(3); torch.manual_seed(5); np.random.seed(5); random.seed(5)
def facts():
    return [
        torch.get_num_threads(), str(torch.get_default_dtype()), torch.random.get_rng_state().sum().item(),
        int(np.random.get_state()[1].sum()), hash(random.getstate()), len(logging.getLogger().handlers),
        logging.getLogger().level, str([signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]),
        sys.excepthook is sys.__excepthook__,
    ]
sys.path.insert(0, FOLDER)
before = facts()
import service
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
server = service.Service(service.train(Path(FILE), steps=4000))
alone = [server.play(i) for i in range(8)]
with ThreadPoolExecutor(4) as clients:
    together = list(clients.map(server.play, range(8)))
result = [before, facts(), alone, together, [t.name for t in threading.enumerate() if not t.daemon]]
"""


@pytest.mark.full
def test_a_host_is_left_alone(house: Environment, tmp_path: Path) -> None:
    code = HOST.replace("FOLDER", repr(str(EXAMPLES / "embedding"))).replace("FILE", repr(str(tmp_path / "s.rlsdk")))
    done = house.run("-c", f"import json, sys\n{code}\nprint(json.dumps(result))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, "nothing but the answer is printed"
    before, after, alone, together, threads = json.loads(done.stdout)
    assert before == after
    assert alone == together
    assert threads == ["MainThread"]
