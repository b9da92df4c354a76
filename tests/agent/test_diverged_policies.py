"""A policy whose outputs are NaN or infinite raises `DivergenceError` instead of acting, in every state of the kernels."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from torch import Tensor

from rlsdk.distributions import Bernoulli, Categorical, MultiCategorical
from rlsdk.errors import DivergenceError
from rlsdk.evaluation import evaluate_policy
from rlsdk.kernels.factory import compiled_off, kernels_off
from rlsdk.training.train import _forget_what_diverged
from rlsdk.tree import is_finite, map_tensors
from rlsdk_a2c import A2C
from rlsdk_acer import ACER
from rlsdk_acktr import ACKTR
from rlsdk_ars import ARS
from rlsdk_dqn import DQN
from rlsdk_interchange.exporting import export
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_ppo import PPO
from rlsdk_qrdqn import QRDQN
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_sac import SAC
from rlsdk_td3 import TD3
from rlsdk_trpo import TRPO
from tests.tables import in_one_test

STATES: dict[str, Any] = {"compiled": nullcontext, "uncompiled": compiled_off, "off": kernels_off}
MASK = np.array([0, 1, 1], bool)
CHOICES, BITS, VECTOR = Discrete(3), MultiBinary(2), Box(-1, 1, (2,))
SPACES: dict[str, Space[Any]] = {
    "discrete": CHOICES,
    "start": Discrete(3, start=5),
    "multi-discrete": MultiDiscrete([2, 3]),
    "bits": BITS,
    "dict": Dict(a=CHOICES, b=VECTOR),
    "tuple": Tuple((CHOICES, BITS)),
    "box": VECTOR,
}
AGENTS = [
    *((PPO, space, {"n_steps": 32}) for space in SPACES),
    *((ARS, space, {}) for space in ("discrete", "multi-discrete", "bits", "box")),
    *((DQN, space, {"learning_starts": 0}) for space in ("discrete", "multi-discrete")),
    *((kind, "discrete", {}) for kind in (A2C, TRPO, ACER, ACKTR, MaskablePPO)),
    (QRDQN, "discrete", {"learning_starts": 0}),
    (RecurrentPPO, "discrete", {"n_steps": 32}),
    (PPO, "box", {"n_steps": 32, "use_sde": True}),
    (SAC, "box", {"learning_starts": 0}),
    (SAC, "box", {"learning_starts": 0, "use_sde": True}),
    (TD3, "box", {"learning_starts": 0}),
]


@pytest.mark.parametrize("wrong", [None, float("nan"), float("inf")])
def test_only_a_carry_that_diverged_ends_the_round(wrong: float | None) -> None:
    agent = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=8, batch_size=8, seed=0).learn(8)
    driven = agent._assembled
    before = driven.acting
    if wrong is not None:
        state = before[0]
        carry = map_tensors(lambda leaf: torch.full_like(leaf, wrong), state.carry)
        driven.acting = before = (replace(state, carry=carry), *before[1:])
    _forget_what_diverged(driven)
    assert driven.in_round == (wrong is not None)
    assert (driven.acting is before or driven.acting == before) == (wrong is None)
    assert is_finite(driven.acting[0].carry)


class Counted(gym.Env[Any, Any]):
    """Counts its steps. An episode has five."""

    def __init__(self, actions: Space[Any], masks: bool = False) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (4,)), actions
        self.steps = 0
        if masks:
            self.action_masks = lambda: MASK

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.ones(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.ones(4, np.float32), 1.0, self.steps % 5 == 0, False, {}


@in_one_test
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("algorithm", "space", "settings"), AGENTS, ids=lambda each: getattr(each, "__name__", str(each))
)
def test_an_agent_whose_weights_are_nan_does_not_act(
    algorithm: Any, space: str, settings: dict[str, Any], state: str
) -> None:
    masks = algorithm is MaskablePPO
    name = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    env = Counted(SPACES[space], masks)
    inside: AbstractContextManager[None] = STATES[state]()
    with inside:
        model = algorithm(name, env, seed=0, **settings)
        assert model.predict(np.ones(4, np.float32), **({"action_masks": MASK} if masks else {}))
        for parameter in model.policy.parameters():
            parameter.data.fill_(np.nan)
        given = {"action_masks": MASK} if masks else {}
        for deterministic in (True, False):
            with pytest.raises(DivergenceError, match="not finite"):
                model.predict(np.ones(4, np.float32), deterministic=deterministic, **given)
            with pytest.raises(DivergenceError, match="not finite"):
                model.session(deterministic=deterministic).act(np.ones(4, np.float32), **given)
        many = {"action_masks": np.repeat(MASK[None], 200, 0)} if masks else {}
        with pytest.raises(DivergenceError, match="not finite"):
            model.predict(np.ones((200, 4), np.float32), **many)
        with pytest.raises(DivergenceError, match="not finite"):
            evaluate_policy(model, env, n_eval_episodes=1, warn=False)
        with pytest.raises(DivergenceError, match="not finite"):
            model.learn(64)
    assert env.steps == 0


def states_of(call: Any) -> set[str]:
    """What a call does in each state of the kernels."""
    found = set()
    for state in STATES.values():
        with state():
            try:
                found.add(str(call()))
            except DivergenceError:
                found.add("DivergenceError")
    return found


@in_one_test
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("algorithm", [MaskablePPO, PPO, DQN, QRDQN])
def test_kernel_states_agree_on_one_output_that_is_not_finite(
    algorithm: Any, deterministic: bool, place: int, wrong: float
) -> None:
    """Value 0 is forbidden under the mask. -inf is the output of a value that is never chosen, as some networks use it."""
    masks = algorithm is MaskablePPO

    def action() -> list[int]:
        model = algorithm("MlpPolicy", Counted(CHOICES, masks), seed=0, policy_kwargs={"net_arch": [8]})
        head = model.policy.head
        layer = head.linear if hasattr(head, "linear") else head
        each = layer.out_features // 3
        layer.bias.data[place * each : (place + 1) * each] = wrong
        if hasattr(model.policy, "epsilon"):
            model.policy.epsilon.zero_()
        given = {"action_masks": MASK} if masks else {}
        found = [int(model.predict(np.ones(4, np.float32), deterministic=deterministic, **given)[0]) for _ in range(8)]
        assert place not in found
        return found

    ignored = wrong == -np.inf or (masks and place == 0)
    (found,) = states_of(action)
    assert (found != "DivergenceError") == ignored


@in_one_test
@pytest.mark.parametrize("highest", [-1e9, -1e20, -3e38])
@pytest.mark.parametrize("deterministic", [True, False])
def test_forbidden_choices_never_win_against_very_small_logits(highest: float, deterministic: bool) -> None:
    def actions() -> list[int]:
        model = MaskablePPO("MlpPolicy", Counted(CHOICES, masks=True), seed=0, policy_kwargs={"net_arch": [8]})
        head = model.policy.head.linear
        head.bias.data[:] = torch.tensor([0.0, highest, highest * 1.1])
        seen = np.ones(4, np.float32)
        return [int(model.predict(seen, action_masks=MASK, deterministic=deterministic)[0]) for _ in range(8)]

    assert states_of(actions) == {str([1] * 8)}


def test_probabilities_of_very_small_logits_under_a_mask() -> None:
    mask = torch.tensor([[False, True, True]])
    logits = torch.tensor([[0.0, -1e9, -1e9]], requires_grad=True)
    for chosen in (Categorical.of(logits, mask), MultiCategorical.of(logits, (3,), mask)):
        assert chosen.probs.tolist() == [[0.0, 0.5, 0.5]]
        assert chosen.entropy().item() == pytest.approx(np.log(2.0))
    (grad,) = torch.autograd.grad(Categorical.of(logits, mask).entropy().sum(), logits)
    assert torch.isfinite(grad).all()
    assert Categorical.of(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.bool)).probs[0, 0].item() == pytest.approx(
        1 / 3
    )


@in_one_test
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "of",
    [Categorical.of, Bernoulli.of, lambda logits: MultiCategorical.of(logits, (2, 3))],
    ids=["one", "bits", "several"],
)
def test_distributions_with_nan_neither_sample_nor_have_a_mode(of: Any, kind: torch.dtype) -> None:
    logits: Tensor = torch.zeros(4, 5, dtype=kind, requires_grad=True)
    generator = torch.Generator()
    of(logits).sample(generator), of(logits).mode()
    wrong = logits.detach().clone()
    wrong[2, 4] = np.nan
    for call in (lambda: of(wrong).sample(generator), lambda: of(wrong).mode()):
        with pytest.raises(DivergenceError, match="not finite"):
            call()


@pytest.mark.parametrize("space", ["discrete", "bits", "box"])
def test_a_diverged_policy_is_not_exported(space: str, tmp_path: Any) -> None:
    model = PPO("MlpPolicy", Counted(SPACES[space]), seed=0)
    model.policy.head.linear.weight.data.fill_(np.nan)
    with pytest.raises(DivergenceError, match="cannot be exported: some of its weights are NaN"):
        export(model, tmp_path / "policy", "torch-export")
    assert not list(tmp_path.iterdir())
