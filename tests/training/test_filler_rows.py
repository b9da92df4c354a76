"""Filler rows, in which a vector environment only resets: nothing is learned from them, even if most rows are such."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlsdk.agent import agent_class
from rlsdk.registry.loading import spec_of
from rlsdk.registry.manifest import read_manifest
from rlsdk.updates import in_order, shuffled
from rlsdk_envs.toy import IdentityEnv
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_testing.rollouts import rollout_of
from rlsdk_testing.scaffold import new_package
from rlsdk_testing.subject import differing, flat_state
from rlsdk_trpo import TRPO

EXAMPLES = Path(__file__).parents[2] / "examples" / "third_party"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make an unchanged on-policy package of `rlsdk new` and that of the tutorial importable."""
    folder = new_package("my-on", "on-policy", tmp_path_factory.mktemp("new"))
    paths = [str(folder / "src"), str(EXAMPLES / "reinforce" / "src")]
    sys.path[:0] = paths
    yield
    for path in paths:
        sys.path.remove(path)
    for name in [name for name in sys.modules if name.startswith(("rlsdk_my_on", "acme_reinforce"))]:
        del sys.modules[name]


def resetting(num_envs: int, length: int) -> Any:
    """Environments that use a separate step to reset."""
    makers = [lambda: IdentityEnv(4, episode_length=length)] * num_envs
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)


def made(name: str) -> Callable[..., Any]:
    if name == "reinforce":
        return agent_class(spec_of(read_manifest("acme_reinforce")))
    ours: dict[str, Any] = {"trpo": TRPO, "recurrent-ppo": RecurrentPPO, "maskable-ppo": MaskablePPO}
    return ours[name] if name in ours else import_module("rlsdk_my_on").MyOn  # type: ignore[no-any-return]


SMALL: dict[str, dict[str, Any]] = {
    "trpo": {"batch_size": 1, "normalize_advantage": False},
    "recurrent-ppo": {"batch_size": 1, "normalize_advantage": False, "policy_kwargs": {"lstm_hidden_size": 8}},
    "maskable-ppo": {"batch_size": 1, "normalize_advantage": False, "use_masking": False},
    "my-on": {"batch_size": 1, "normalize_advantage": False},
    "reinforce": {},
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("n_steps", "length"), [(1, 3), (4, 1), (4, 100)])
def test_rollouts_that_hold_little_else(packages: None, name: str, n_steps: int, length: int) -> None:
    """Training works if rollouts and minibatches contain filler rows alone, and if no episode ends in a rollout."""
    policy = "MlpLstmPolicy" if name == "recurrent-ppo" else "MlpPolicy"
    agent = made(name)(policy, resetting(1, length), n_steps=n_steps, seed=0, **SMALL[name]).learn(24)
    assert agent.num_timesteps == 24
    assert all(bool(value.isfinite().all()) for value in agent.policy.parameters())


@pytest.mark.parametrize("order", [shuffled, in_order])
@pytest.mark.parametrize("name", ["my-on", "reinforce"])
def test_what_is_in_them_does_not_matter(
    packages: None, monkeypatch: pytest.MonkeyPatch, name: str, order: Any
) -> None:
    """Actions and rewards of filler rows do not change an update, with any order of minibatches in a new package."""
    if name == "my-on":
        monkeypatch.setattr(import_module("rlsdk_my_on.algorithm"), "shuffled", order)
    states = []
    for filler in (0.0, 100.0):
        agent = made(name)("MlpPolicy", resetting(2, 3), n_steps=16, seed=0)
        rollout = rollout_of(agent, 16)
        steps = rollout.steps
        assert not bool(steps.valid.all())
        rewards = torch.where(steps.valid, steps.reward, filler)
        actions = torch.where(steps.valid, steps.action, torch.full_like(steps.action, int(filler > 0)))
        agent.parts.algorithm.update(
            replace(rollout, steps=replace(steps, reward=rewards, action=actions)), progress=0.5
        )
        states.append(flat_state(agent))
    assert not differing(*states)
