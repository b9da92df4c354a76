"""The packages of contrib_algos: how they relate to one another, to the core and to stable-baselines3."""

from __future__ import annotations

import ast
import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.registry import find
from rlsdk.tree import flatten
from rlsdk_a2c import A2C
from rlsdk_ddpg import DDPG
from rlsdk_ppo import PPO
from rlsdk_td3 import TD3
from rlsdk_testing.rollouts import rollout_of
from tests.training_trace import code_lines

ROOT = Path(__file__).parents[2]
PACKAGES = {
    path.parent.name.removeprefix("rlsdk-"): path.parent for path in ROOT.glob("contrib_algos/*/pyproject.toml")
}
OF_STABLE_BASELINES3 = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg")
ALGORITHMS = {
    path.parents[2].name.removeprefix("rlsdk-"): path.parent
    for path in ROOT.glob("*/rlsdk-*/src/*/rlsdk.toml")
    if "family" in tomllib.loads(path.read_text())
}
"""Name of an algorithm -> the folder with the code of its package."""
MOST_LINES, MOST_SHARED = 365, 0.3
"""Lines with `else`, `except` and decorators count too; without them it was 350, for the same code."""


def code_of(path: Path) -> list[str]:
    """The stripped lines of code of a file, without imports and lines of one character."""
    lines, imported = path.read_text().splitlines(), set[int]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code = [lines[number - 1].strip() for number in sorted(code_lines(path) - imported)]
    return [line for line in code if len(line) > 1]


def module(name: str) -> str:
    return f"rlsdk_{name.replace('-', '_')}"


def folder(name: str) -> Path:
    place = PACKAGES.get(name, ROOT / "plugins" / f"rlsdk-{name}")
    return place / "src" / module(name)


def programs(place: Path) -> list[Path]:
    """The Python files of a package without `reference.py`: it states a formula again, so as to share no code with others."""
    return [path for path in place.glob("*.py") if path.name != "reference.py"]


def test_every_package_is_known_to_the_checks() -> None:
    """The settings of mypy, import-linter and the tests list all packages; the core may import none of them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contracts = settings["importlinter"]["contracts"]
    core = next(each for each in contracts if each["name"] == "The core knows no plugin")
    independent = next(each for each in contracts if each["name"] == "Plugins do not know one another")
    for name, path in PACKAGES.items():
        package = module(name)
        assert str(path.relative_to(ROOT) / "src") in settings["mypy"]["mypy_path"].split(":")
        assert package in settings["importlinter"]["root_packages"]
        assert package in core["forbidden_modules"]
        assert package in independent["modules"]


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_are_short_and_say_nothing_twice(name: str) -> None:
    mine = [line for path in sorted(programs(folder(name))) for line in code_of(path)]
    boilerplate = {line for other in ("trpo", "ars") for path in programs(folder(other)) for line in code_of(path)}
    own = [line for line in mine if line not in boilerplate]
    assert len(mine) <= MOST_LINES
    for other in ALGORITHMS.keys() - {name}:
        theirs = {line for path in programs(ALGORITHMS[other]) for line in code_of(path)}
        shared = sum(line in theirs for line in own)
        assert shared <= max(MOST_SHARED * len(mine), 12), f"{shared} of {len(mine)} lines are those of {other}"


@pytest.mark.parametrize("name", OF_STABLE_BASELINES3)
def test_parameters_are_those_of_stable_baselines3(name: str) -> None:
    """Parameters have the order and defaults of stable-baselines3. Those without a counterpart are refused by name."""
    peer = pytest.importorskip("stable_baselines3")
    from importlib import import_module

    kind = getattr(import_module(module(name)), name.upper())
    theirs = inspect.signature(getattr(peer, name.upper())).parameters
    ours = inspect.signature(kind).parameters
    left_out = {"rollout_buffer_class", "rollout_buffer_kwargs", "_init_setup_model"}
    by_name = {"stats_window_size", "tensorboard_log", "policy_kwargs", "verbose", "seed", "device"}
    assert set(theirs) - left_out <= set(ours)
    order = [each for each in theirs if each not in left_out | by_name]
    positional = [each for each, parameter in ours.items() if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == order
    for each in set(order) - {"policy", "env"}:
        assert plain(ours[each].default) == plain(theirs[each].default), each


def plain(value: Any) -> Any:
    """A default as a number or text: schedules and frequencies print as in stable-baselines3."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def test_ddpg_is_td3_with_three_settings() -> None:
    common: dict[str, Any] = {
        "seed": 0,
        "learning_starts": 20,
        "buffer_size": 200,
        "batch_size": 16,
        "action_noise": {"kind": "normal", "mean": 0.0, "sigma": 0.1},
    }
    networks = {"net_arch": [8], "n_critics": 1}
    same = {"policy_delay": 1, "target_policy_noise": 0.0, "target_noise_clip": 0.0}
    td3 = TD3("MlpPolicy", "Pendulum-v1", **common, **same, policy_kwargs=networks).learn(80)
    ddpg = DDPG("MlpPolicy", "Pendulum-v1", **common, policy_kwargs={"net_arch": [8]}).learn(80)
    one, two = flatten(td3.get_parameters()), flatten(ddpg.get_parameters())
    assert one.keys() == two.keys()
    assert all(torch.equal(torch.as_tensor(one[name]), torch.as_tensor(two[name])) for name in one)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a2c_is_ppo_with_its_settings(env: str) -> None:
    """PPO with one epoch, one minibatch and the same optimizer equals A2C, because nothing is clipped (arXiv:2205.09123)."""
    common: dict[str, Any] = {"seed": 0, "n_steps": 8, "learning_rate": 7e-4, "gae_lambda": 1.0, "ent_coef": 0.01}
    networks = {"optimizer_class": "rmsprop", "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}}
    a2c = A2C("MlpPolicy", make_vec_env(env, 2), **common)
    ppo = PPO(
        "MlpPolicy",
        make_vec_env(env, 2),
        **common,
        n_epochs=1,
        batch_size=None,
        normalize_advantage=False,
        policy_kwargs=networks,
    )
    for _ in range(5):
        rollout = rollout_of(ppo, 8)
        for agent in (a2c, ppo):
            agent.parts.algorithm.update(rollout, progress=0.0)
        one, two = a2c.policy.state_dict(), ppo.policy.state_dict()
        assert all(torch.allclose(one[name], two[name], rtol=0, atol=1e-6) for name in one)


def test_a_dueling_head_adds_advantages_without_their_mean() -> None:
    """The dueling head computes equation 9 of arXiv:1511.06581, for each choice of a MultiDiscrete action."""
    from rlsdk.networks.layers import DuelingHead

    head, features = DuelingHead(3, (2, 3), 2), torch.randn(4, 3)
    found = head(features).view(4, 5, 2)
    value, advantage = head.value(features).view(4, 2, 2), head.advantage(features).view(4, 5, 2)
    for row in range(4):
        for action in range(5):
            choice, own = (0, slice(0, 2)) if action < 2 else (1, slice(2, 5))
            expected = value[row, choice] + advantage[row, action] - advantage[row, own].mean(0)
            torch.testing.assert_close(found[row, action], expected)


def test_dueling_networks_learn_and_are_saved(tmp_path: Path) -> None:
    from rlsdk_dqn import DQN

    networks = {"dueling": True, "net_arch": [8]}
    settings = {"seed": 0, "learning_starts": 8, "buffer_size": 100, "batch_size": 8}
    model = DQN("MlpPolicy", "CartPole-v1", policy_kwargs=networks, **settings)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(40)
    moved = {name for name, value in model.policy.state_dict().items() if not torch.equal(value, before[name])}
    assert {"head.value.weight", "head.advantage.weight", "body.0.weight"} <= moved
    loaded = DQN.load(model.save(tmp_path / "agent"))
    seen = model.observation_space.sample()
    assert model.predict(seen)[0] == loaded.predict(seen)[0]


def test_every_package_states_its_range_and_ships_its_files() -> None:
    for name, path in PACKAGES.items():
        manifest = find(name).manifest
        assert manifest is not None
        project = tomllib.loads((path / "pyproject.toml").read_text())["project"]
        assert f"rlsdk[fast,sb3]{manifest.sdk}" in project["dependencies"], "an algorithm brings the kernels and names"
        parity = ["tests/test_parity.py"] if name in OF_STABLE_BASELINES3 else []
        for file in ("README.md", "CHANGELOG.md", "LICENSE", "tests/test_contract.py", *parity):
            assert (path / file).is_file(), f"{name} has no {file}"
