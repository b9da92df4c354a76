"""Exploration: probabilities of actions that replace the policy's own, action noise, and the start of rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import to_space
from rlsdk.errors import PluginError, SettingsError
from rlsdk.exploration import NormalActionNoise, OrnsteinUhlenbeckActionNoise, UniformWarmUp
from rlsdk.exploration.behavior import NoisyPolicy, allowed_actions, uniform_log_prob
from rlsdk.networks import ActionScale
from rlsdk.records import Act, Observation
from rlsdk.settings.action_noise import as_action_noise
from rlsdk.spaces import MultiBinary
from rlsdk_tqc import TQC

BOX = to_space(spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 0.5])))


@dataclass(frozen=True)
class Behavior:
    """The extras of a policy with importance weights: the log-probability of the action, and a value."""

    log_prob: Any
    value: torch.Tensor


class Inner:
    """A policy that returns the same action and extras at every step; its carry counts rollouts."""

    def __init__(self, action: torch.Tensor, extras: Any) -> None:
        self.action, self.extras, self.begun = action, extras, 0

    def initial_carry(self, batch: int) -> int:
        return 0

    def begin_rollout(self, carry: int) -> int:
        return carry + 1

    def act(self, observation: Observation, carry: int, **_: Any) -> Act[int, Any]:
        return Act(self.action, carry, self.extras)


def seen(batch: int, mask: torch.Tensor | None = None) -> Observation:
    return Observation(torch.zeros(batch, 1), torch.zeros(batch, dtype=torch.bool), mask)


MASK = torch.tensor([[True, False, True], [True, True, True]])


@pytest.mark.parametrize(
    ("space", "mask", "expected"),
    [
        (spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 0.5])), None, [-np.log(2.0)] * 2),
        (spaces.Discrete(3), None, [-np.log(3.0)] * 2),
        (spaces.Discrete(3, start=5), MASK, [-np.log(2.0), -np.log(3.0)]),
        (spaces.MultiDiscrete([2, 3]), None, [-np.log(6.0)] * 2),
        (spaces.MultiDiscrete([1, 2]), MASK, [-np.log(1.0), -np.log(2.0)]),
        (spaces.MultiBinary(3), None, [-np.log(8.0)] * 2),
    ],
)
@pytest.mark.parametrize("kind", ["dataclass", "mapping"])
def test_warm_up_stores_the_probability_of_its_own_action(space: Any, mask: Any, expected: Any, kind: str) -> None:
    value, inner = torch.ones(2), to_space(space)
    extras: Any = (
        Behavior(torch.zeros(2), value) if kind == "dataclass" else {"log_prob": torch.zeros(2), "value": value}
    )
    policy: Any = UniformWarmUp(Inner(torch.zeros(2), extras), inner, 2)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    act = policy.act(seen(2, mask), policy.initial_carry(2), deterministic=False, generator=generator)
    found = act.extras if kind == "mapping" else vars(act.extras)
    np.testing.assert_allclose(found["log_prob"], expected, rtol=1e-6)
    assert found["value"] is value
    after = policy.act(seen(2, mask), act.carry, deterministic=False, generator=generator)
    assert after.extras is extras, "the policy's own actions carry the policy's own probability"


def test_frequencies_of_masked_warm_up_are_the_probabilities_it_stores() -> None:
    mask = MASK[:1].expand(6000, -1)
    extras = {"log_prob": torch.zeros(6000)}
    policy: Any = UniformWarmUp(Inner(torch.zeros(6000), extras), to_space(spaces.Discrete(3)), 10**6)  # type: ignore[arg-type]
    act = policy.act(seen(6000, mask), policy.initial_carry(6000), deterministic=False, generator=torch.Generator())
    share = torch.bincount(act.action, minlength=3) / 6000
    assert share[1] == 0
    assert torch.allclose(share[[0, 2]], act.extras["log_prob"][:2].exp(), atol=0.03)


def test_extras_without_a_probability_stay_as_they_are() -> None:
    for extras in ((), {"value": torch.ones(2)}, torch.ones(2), Behavior(None, torch.ones(2))):
        policy: Any = UniformWarmUp(Inner(torch.zeros(2), extras), to_space(spaces.Discrete(3)), 9)  # type: ignore[arg-type]
        act = policy.act(seen(2), policy.initial_carry(2), deterministic=False, generator=torch.Generator())
        assert act.extras is extras


def test_action_noise_refuses_a_policy_that_stores_probabilities() -> None:
    inner = Inner(torch.zeros(2, 2), Behavior(torch.zeros(2), torch.ones(2)))
    policy: Any = NoisyPolicy(inner, NormalActionNoise(0.0, 0.1), ActionScale(BOX))  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="log_prob"):
        policy.act(seen(2), policy.initial_carry(2), deterministic=False, generator=torch.Generator())
    assert policy.act(seen(2), policy.initial_carry(2), deterministic=True, generator=torch.Generator()) is not None


def test_rollout_starts_reach_the_innermost_policy() -> None:
    inner: Any = Inner(torch.zeros(2, 2), ())
    policy: Any = NoisyPolicy(UniformWarmUp(inner, BOX, 0), NormalActionNoise(0.0, 0.1), ActionScale(BOX))
    carry = policy.begin_rollout(policy.begin_rollout(policy.initial_carry(2)))
    assert carry.inner.inner == 2
    inner.begin_rollout = None
    assert policy.begin_rollout is None, "loops call nothing then"


class Remembering:
    """A policy whose carry is its last action [B, 2], and which acts by it."""

    def initial_carry(self, batch: int) -> torch.Tensor:
        return torch.zeros(batch, 2)

    def action_played(self, carry: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return action

    def act(self, observation: Observation, carry: torch.Tensor, **_: Any) -> Act[torch.Tensor, Any]:
        action = 0.5 * carry + 0.1
        return Act(action, action, ())


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("random_steps", [0, 4, 100])
def test_a_policy_that_remembers_its_last_action_remembers_the_one_that_was_played(
    random_steps: int, noisy: bool
) -> None:
    policy: Any = UniformWarmUp(Remembering(), BOX, random_steps)  # type: ignore[arg-type]
    policy = NoisyPolicy(policy, NormalActionNoise(0.0, 0.3), ActionScale(BOX)) if noisy else policy
    carry, generator = policy.initial_carry(2), torch.Generator().manual_seed(0)
    for _ in range(6):
        act = policy.act(seen(2), carry, deterministic=False, generator=generator)
        carry = act.carry
        assert torch.equal((carry.inner.inner if noisy else carry.inner), act.action)
    act = policy.act(seen(2), carry, deterministic=True, generator=generator)
    own = act.carry.inner.inner if noisy else act.carry.inner
    assert torch.equal(own, act.action), "deterministic actions are the policy's own"
    assert policy.action_played is not None
    plain: Any = Inner(torch.zeros(2, 2), ())
    assert (
        NoisyPolicy(UniformWarmUp(plain, BOX, 0), NormalActionNoise(0.0, 0.1), ActionScale(BOX)).action_played is None
    )


def test_ornstein_uhlenbeck_starts_where_it_is_told_to() -> None:
    noise = OrnsteinUhlenbeckActionNoise(0.0, 0.0, theta=0.5, dt=0.1, initial_noise=[1.0, -2.0])
    inner: Any = Inner(torch.zeros(1, 2), ())
    policy: Any = NoisyPolicy(inner, noise, ActionScale(to_space(spaces.Box(-9.0, 9.0, (2,), np.float32))))
    first = Observation(torch.zeros(1, 1), torch.ones(1, dtype=torch.bool))
    carry, found = policy.initial_carry(1), []
    for observation in (first, seen(1), first):
        carry = policy.act(observation, carry, deterministic=False, generator=torch.Generator()).carry
        found.append(carry.noise[0].tolist())
    np.testing.assert_allclose(found, [[0.95, -1.9], [0.9025, -1.805], [0.95, -1.9]], rtol=1e-6)
    again = as_action_noise(noise.to_setting())
    assert again == noise
    assert "initial_noise" not in OrnsteinUhlenbeckActionNoise(0.0, 0.1).to_setting()


def test_ornstein_uhlenbeck_is_the_peers() -> None:
    peers = pytest.importorskip("stable_baselines3.common.noise")
    given: Any = {"theta": 0.3, "dt": 0.05, "initial_noise": np.array([0.4, -0.2])}
    theirs = peers.OrnsteinUhlenbeckActionNoise(np.array([0.1, 0.2]), np.array([0.3, 0.5]), **given)
    ours = OrnsteinUhlenbeckActionNoise([0.1, 0.2], [0.3, 0.5], **given)
    np.random.seed(0)  # noqa: NPY002  # the peer draws from numpy's global state
    draws = np.random.RandomState(0).normal(size=(6, 2))
    state = ours.started(torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, dtype=torch.bool))
    for normal in draws:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rlsdk.settings.action_noise._standard_normal", lambda *_, n=normal: torch.tensor(n)[None])
            noise, state = ours.step(state, torch.Generator())
        np.testing.assert_allclose(noise[0], theirs(), rtol=1e-6)


@pytest.mark.parametrize("name", ["mean", "sigma", "initial_noise"])
def test_noise_of_another_size_is_refused(name: str) -> None:
    given: Any = {"mean": [0.0], "sigma": [0.1], name: [0.1, 0.2, 0.3]}
    with pytest.raises(SettingsError, match=f"{name} has 3 numbers, actions have 1 dimensions"):
        TQC("MlpPolicy", "Pendulum-v1", action_noise=OrnsteinUhlenbeckActionNoise(**given), buffer_size=10)


def test_uniform_binary_actions_obey_masks() -> None:
    """A mask has two flags per entry, for the values 0 and 1. The log-probability counts the allowed values."""
    space, generator = MultiBinary((3,)), torch.Generator().manual_seed(0)
    mask = torch.tensor([[True, False, False, True, True, True]]).expand(200, -1)
    actions = allowed_actions(space, mask, generator)
    assert actions is not None
    assert actions.dtype == torch.int8
    assert actions[:, 0].unique().tolist() == [0]
    assert actions[:, 1].unique().tolist() == [1]
    assert actions[:, 2].unique().tolist() == [0, 1]
    assert uniform_log_prob(space, mask, actions).tolist() == pytest.approx([-math.log(2.0)] * 200)
