"""Which environments a file may name: the rule, and every command that makes an environment that a file names."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.environments.gymnasium_adapter import refusal
from rlsdk.registry import preset
from rlsdk_interchange import hub, record_episodes
from rlsdk_zoo import installed as zoo
from tests.tables import in_one_test

MODULE = """
import pathlib, gymnasium
pathlib.Path({mark!r}).touch()
from gymnasium.envs.classic_control import CartPoleEnv
class Own(CartPoleEnv): ...
class Wrapper(gymnasium.Wrapper): ...
gymnasium.register("Evil-v0", Own)
"""
KINDS = {
    "argument": "rlsdk/CartPoleNoVel-v1?task=evil_module:Evil-v0",
    "wrapper": "CartPole-v1?wrapper=evil_module:Wrapper",
    "wrapper with arguments": "CartPole-v1?wrapper=RecordVideo(video_folder='videos')",
    "table": "CartPole-v1?sutton_barto_reward={a%20=%20'evil_module:Evil-v0'}",
    "path": "./evil_module.py:Own",
    "path in an argument": "Ant-v5?xml_file=evil_module.py",
    "address": "CartPole-v1?render_mode=http://localhost/x",
}
SHORT = ("--steps", "64", "--n-envs", "1", "--eval-episodes", "1")
ACCEPTED = [
    "CartPole-v1",
    "CartPole-v1?max_episode_steps=10&render_mode=rgb_array&sutton_barto_reward=true",
    "Pendulum-v1?g=9.81",
    "LunarLander-v3?continuous=true&gravity=-9.5",
    "Ant-v5?healthy_reward=1&healthy_z_range=[0.2,%201.0]&xml_file=ant.xml&width=64",
    "FrozenLake-v1?map_name=8x8&is_slippery=false",
    "rlsdk/CartPoleNoVel-v1?task=CartPole-v1&sutton_barto_reward=true",
    "rlsdk/AtariPong-v4?mode=1&frameskip=2&obs_type=ram",
    "rlsdk/BitFlipping15-v0?n_bits=3",
    "CartPole-v1?wrapper=TimeFeature&wrapper=TimeLimit(max_episode_steps=5)",
    "NotInstalled-v0",
]
REFUSED = [
    *KINDS.values(),
    "evil_module:Evil-v0",
    "../x",
    "a/b/C-v0",
    "",
    "CartPole-v1?speed=1",
    "NotInstalled-v0?speed=1",
    "rlsdk/AtariPong-v4?game=evil_module",
    "GymV26Environment-v0?env_id=evil_module:Evil-v0",
    "FrozenLake-v1?map_name=evil_module",
    "FrozenLake-v1?desc=[%22SF%22]",
    "Ant-v5?default_camera_config={a%20=%201}",
    "CartPole-v1?sutton_barto_reward=[[1]]",
    "CartPole-v1?sutton_barto_reward=2020-01-01",
    "CartPole-v1?wrapper=Monitor(filename='x')",
    "CartPole-v1?wrapper=TimeLimit(speed=1)",
    "CartPole-v1?wrapper=nothing",
    "CartPole-v1?wrapper=TimeLimit(",
]


@in_one_test
@pytest.mark.parametrize("env", ACCEPTED)
def test_plain_environments_are_accepted(env: str) -> None:
    assert refusal(env) is None


@in_one_test
@pytest.mark.parametrize("env", REFUSED)
def test_all_others_are_refused(env: str) -> None:
    assert refusal(env)


@pytest.fixture
def mark(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write `evil_module.py` where modules are found; the file that this returns appears when it is imported."""
    (tmp_path / "evil_module.py").write_text(MODULE.format(mark=str(tmp_path / "imported")))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "imported"
    sys.modules.pop("evil_module", None)
    gymnasium.registry.pop("Evil-v0", None)


def agent_naming(env: str, path: str = "agent.rlsdk") -> Path:
    agent = rlsdk.make("ppo", env="CartPole-v1", n_steps=8, batch_size=8)
    agent.env_name = env
    return agent.save(path)


def data_set_naming(env: str) -> Path:
    envs = make_vec_env("CartPole-v1")
    envs.env_id = env
    return record_episodes("random", envs, 1, "demo", seed=0)


def changed(path: str, change: Callable[[dict[str, Any]], None]) -> None:
    table = json.loads(Path(path).read_text())
    change(table)
    Path(path).write_text(json.dumps(table))


def of_agent(command: str, *options: str) -> Callable[..., list[str]]:
    return lambda env, cli, patch: [command, str(agent_naming(env)), *options]


def of_hub(env: str, cli: Any, patch: pytest.MonkeyPatch) -> list[str]:
    patch.setattr(hub, "pull", lambda repo, revision=None: agent_naming(env, "hub.rlsdk"))
    assert cli("pull", "someone/agent", "--out", "pulled.rlsdk")[0] == 0
    return ["eval", "pulled.rlsdk", "--episodes", "1"]


def of_zoo(env: str, cli: Any, patch: pytest.MonkeyPatch) -> list[str]:
    content = agent_naming(env, "zoo.rlsdk").read_bytes()
    patch.setattr(zoo.ZooAgent, "read", lambda self: content)
    assert cli("zoo", "get", "ppo/CartPole-v1", "--out", "got.rlsdk")[0] == 0
    return ["eval", "got.rlsdk", "--episodes", "1"]


def of_run(env: str, cli: Any, patch: pytest.MonkeyPatch) -> list[str]:
    assert cli("run", "ars", "--env", "CartPole-v1", *SHORT, "--out", "run")[0] == 0
    changed("run/run.json", lambda table: table.update(env=env, steps=9999))
    return ["run", "ars", "--resume", "--out", "run"]


def of_sweep(env: str, cli: Any, patch: pytest.MonkeyPatch) -> list[str]:
    assert (
        cli("run", "ars", "--env", "CartPole-v1", *SHORT, "--seeds", "1", "--executor", "in-process", "--out", "run")[0]
        == 0
    )
    changed("run/sweep.json", lambda table: table["request"].update(env=env, steps=9999))
    return ["run", "ars", "--resume", "--out", "run"]


def of_settings(env: str, cli: Any, patch: pytest.MonkeyPatch) -> list[str]:
    Path("best.toml").write_text(f'policy = "LinearPolicy"\nenv = {json.dumps(env)}\n')
    return ["run", "ars", "--config", "best.toml", *SHORT, "--out", "run"]


def of_suite(env: str, cli: Any, patch: pytest.MonkeyPatch) -> list[str]:
    Path("suite.toml").write_text(f'[[cells]]\nalgorithm = "ars"\nenv = {json.dumps(env)}\nsteps = 32\n')
    return ["bench", "suite.toml", "--seeds", "1", "--jobs", "1"]


ROUTES = {
    "eval": of_agent("eval", "--episodes", "1"),
    "eval with more arguments": of_agent("eval", "--episodes", "1", "--env-kwargs", "sutton_barto_reward=true"),
    "record": of_agent("record", "-o", "a.gif"),
    "record-episodes": of_agent("record-episodes", "--episodes", "1", "--out", "recorded"),
    "hub": of_hub,
    "zoo": of_zoo,
    "resume": of_run,
    "sweep": of_sweep,
    "tuned settings": of_settings,
    "bench": of_suite,
}


@pytest.mark.parametrize("route", ROUTES)
def test_no_command_makes_an_environment_that_a_file_may_not_name(
    route: str, cli: Any, mark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, (kind, env) in enumerate(KINDS.items()):
        (tmp_path / str(number)).mkdir()
        monkeypatch.chdir(tmp_path / str(number))
        (Path("evil_module.py")).write_bytes((tmp_path / "evil_module.py").read_bytes())
        with monkeypatch.context() as patch:
            command = ROUTES[route](env, cli, patch)
        code, _, err = cli(*command)
        assert (code, "a file may not choose" in err, "--trust" in err, len(err.splitlines())) == (1, True, True, 1), (
            kind,
            err,
        )
        assert not mark.exists(), kind


def test_no_data_set_makes_such_an_environment(cli: Any, mark: Path) -> None:
    pytest.importorskip("rlsdk_bc")
    for kind, env in KINDS.items():
        data_set_naming(env)
        Path("demo.safetensors").rename(f"{kind}.safetensors")
        train = ("--dataset", f"{kind}.safetensors", "--steps", "2", "--no-preset", "--out", kind)
        code, out, err = cli("run", "bc", *train)
        assert code == 0, err
        assert "no environment, so no evaluation" in out, kind
        assert "may not choose what is imported or read" in out, kind
        code, _, err = cli("tune", "bc", "--dataset", f"{kind}.safetensors", "--steps", "2", "--out", "search")
        assert (code, "add --env" in err) == (1, True), err
        assert not mark.exists(), kind


def test_with_trust_they_are_made(cli: Any, mark: Path) -> None:
    assert cli("eval", str(agent_naming(KINDS["argument"])), "--episodes", "1")[0] == 1
    code, _, err = cli("eval", "agent.rlsdk", "--episodes", "1", "--trust")
    assert (code, "the velocities of Evil-v0 are not known" in err, mark.exists()) == (1, True, True)


def test_a_preset_is_looked_up_by_the_environment_of_the_run() -> None:
    """So a preset cannot name an environment to make."""
    assert preset("ppo", KINDS["address"]) == preset("ppo", "CartPole-v1") is not None
