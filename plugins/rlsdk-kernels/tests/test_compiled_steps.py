"""All gradient steps of an epoch in one compiled call equal those of torch. Single calls do what it cannot do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

import rlsdk
from rlsdk.errors import UsageError
from rlsdk.interfaces import BuildContext
from rlsdk.kernels import factory
from rlsdk.kernels.factory import compiled_off, policy_steps
from rlsdk.kernels.protocol import Minibatches, PolicySteps
from rlsdk.kernels.vector_steps import STEPS_BETWEEN_CLEARING, VectorStep
from rlsdk.networks import ActorCritic, build_actor_critic
from rlsdk.networks.layers import initialization
from rlsdk.records import Observation
from rlsdk.runtime.process import Streams
from rlsdk.spaces import Box, Discrete, MultiDiscrete, Space
from rlsdk.updates import FlatOptimizer, LossTerms, PolicyBatch, evaluator_of, policy_loss_of
from rlsdk_kernels.compiled_vectors import CompiledStep
from rlsdk_ppo.config import PPOConfig
from tests.compiled_variants import RUNNABLE, needs_library
from tests.tables import in_one_test

FEATURES = 5
pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]


def box(size: int) -> Box:
    return Box(-np.ones(size, np.float32), np.ones(size, np.float32), (size,), "float32")


BOX, CHOICES = box(3), Discrete(4, start=2)
ADAM = {"eps": 1e-5, "weight_decay": 0.01}
OPTIMIZERS: dict[str, dict[str, Any]] = {"adam": ADAM, "rmsprop": {"alpha": 0.9, "eps": 1e-4}}


def vector(network: Any) -> Tensor:
    """All parameters [D]."""
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def network_of(action: Space, **settings_of_it: Any) -> ActorCritic:
    context = BuildContext(box(FEATURES), action, 1, "cpu", Streams(0))
    config = PPOConfig(policy="MlpPolicy", policy_kwargs={"net_arch": [9, 6], **settings_of_it})  # type: ignore[arg-type]
    with initialization(0):
        return build_actor_critic(context, config)


def rows_of(network: ActorCritic, count: int, weighted: bool = False, masked: bool = False) -> PolicyBatch:
    numbers, discrete = Generator().manual_seed(count), network.action_std() is None
    features = torch.randn(count, FEATURES, generator=numbers)
    log_prob, value, advantage, target = torch.randn(4, count, generator=numbers).unbind()
    mask = torch.rand(count, 4, generator=numbers) < 0.7 if masked and discrete else None
    action = torch.randn(count, 3, generator=numbers)
    if discrete:
        action = torch.randint(4, (count,), generator=numbers)
        if mask is not None:
            mask[torch.arange(count), action] = True
        action = action + 2
    none = torch.zeros(count, dtype=torch.bool)
    weight = (torch.arange(count) % 3 != 1).float() if weighted else None
    old = 0.2 * log_prob - (1.4 if discrete else 4.0)
    return PolicyBatch(Observation(features, none, mask), action, old, value, advantage, target, ((), ()), none, weight)


class Both:
    """A network with an optimizer that has made one step, and the same in float64 with torch's modules and optimizers."""

    def __init__(self, action: Space, kind: str = "adam", use_masks: bool = False, **settings_of_it: Any) -> None:
        self.network, self.exact = (network_of(action, **settings_of_it) for _ in range(2))
        self.network.use_masks = self.exact.use_masks = use_masks
        self.exact.double()
        self.mine = FlatOptimizer(
            self.network, kind, 1e-2, {**OPTIMIZERS[kind], **({"fused": True} if kind == "adam" else {})}
        )
        make: Any = torch.optim.Adam if kind == "adam" else torch.optim.RMSprop
        self.theirs = make(self.exact.parameters(), 1e-2, **OPTIMIZERS[kind])
        for one, two in zip(self.network.parameters(), self.exact.parameters(), strict=True):
            assert one.grad is not None
            one.grad.normal_(generator=Generator().manual_seed(one.numel()))
            two.grad = one.grad.double()
        self.mine.step(1e-2)
        self.theirs.step()

    def steps(self, rows: int = 64) -> PolicySteps:
        evaluator = evaluator_of(self.network, rows)
        found = policy_steps(evaluator, policy_loss_of(self.network))
        assert found is not None
        return found

    def next_steps(self, max_norm: float | None = None) -> VectorStep:
        found = self.mine.next_steps(3e-3, max_norm)
        assert found is not None
        return found

    def step(
        self, rows: PolicyBatch, terms: LossTerms, max_norm: float | None, largest_kl: float | None
    ) -> tuple[Tensor, bool]:
        """Make a step of the exact network; return (the means [6], whether the KL divergence is too large)."""
        exact, weight = self.exact, torch.ones(len(rows)) if rows.weight is None else rows.weight
        share, counted = (weight / weight.sum()).double(), weight > 0
        layers = exact.dense_layers()
        assert layers is not None
        features, mask = rows.observation.features.double(), rows.observation.action_mask
        distribution = layers.head.of(nn.Sequential(*layers.actor)(features), mask if layers.use_masks else None)
        value = nn.Sequential(*layers.critic)(features)[:, 0]
        log_prob = distribution.log_prob(exact.internal(rows.action))
        entropy, advantage = distribution.entropy(), rows.advantage.double()
        if terms.normalize_advantage and counted.sum() > 1:
            advantage = (advantage - advantage[counted].mean()) / (advantage[counted].std() + 1e-8)
        zero = torch.zeros((), dtype=torch.float64)
        policy, kl, outside = -(share * advantage * log_prob).sum(), zero, zero
        if terms.clip is not None:
            log_ratio = log_prob - rows.log_prob.double()
            ratio = log_ratio.exp()
            limited = ratio.clamp(1 - terms.clip, 1 + terms.clip) * advantage
            policy = -(share * torch.minimum(ratio * advantage, limited)).sum()
            kl, outside = (share * (ratio - 1 - log_ratio)).sum(), (share * ((ratio - 1).abs() > terms.clip)).sum()
        old, goal = rows.value.double(), rows.target.double()
        near = value if terms.clip_value is None else old + (value - old).clamp(-terms.clip_value, terms.clip_value)
        values, disorder = (share * (near - goal) ** 2).sum(), (share * entropy).sum()
        loss = policy - terms.ent_coef * disorder + terms.vf_coef * values
        means = torch.stack([policy, values, -disorder, kl, outside, loss]).detach()
        if largest_kl is not None and float(kl.detach()) > largest_kl:
            return means, True
        self.theirs.zero_grad()
        torch.autograd.backward(loss)
        if max_norm is not None:
            nn.utils.clip_grad_norm_(self.exact.parameters(), max_norm)
        self.theirs.param_groups[0]["lr"] = 3e-3
        self.theirs.step()
        return means, False

    def assert_equal(self) -> None:
        for one, two in zip(self.network.parameters(), self.exact.parameters(), strict=True):
            torch.testing.assert_close(one.detach(), two.detach().float(), rtol=2e-4, atol=2e-5)


def divided(rows: PolicyBatch, order: Tensor | None, size: int) -> Iterator[PolicyBatch]:
    if order is None:
        yield rows
        return
    yield from (rows.rows(index) for epoch in order for index in epoch.split(size))


@pytest.mark.parametrize("variant", RUNNABLE, indirect=True)
def test_the_steps_are_those_of_torch(variant: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from([BOX, CHOICES]),
        st.sampled_from(["adam", "rmsprop"]),
        st.builds(
            LossTerms,
            st.sampled_from([None, 0.0, 0.2]),
            st.sampled_from([None, 0.3]),
            st.sampled_from([0.0, 0.05]),
            st.sampled_from([0.0, 0.5]),
            st.booleans(),
        ),
        st.sampled_from([(1, 1), (2, 5), (7, 3), (40, 16), (64, 64)]),
        st.sampled_from([None, 0.1]),
        st.tuples(st.booleans(), st.booleans(), st.booleans()),
    )
    def check(
        action: Space,
        kind: str,
        terms: LossTerms,
        sizes: tuple[int, int],
        max_norm: float | None,
        flags: tuple[bool, bool, bool],
    ) -> None:
        (count, size), (weighted, masked, in_order) = sizes, flags
        both = Both(action, kind, masked)
        rows = rows_of(both.network, count, weighted and count > 2, masked)
        numbers = Generator().manual_seed(1)
        order = None if in_order else torch.stack([torch.randperm(count, generator=numbers) for _ in range(2)])
        found, minibatches, stopped = both.steps()(rows, Minibatches(order, size), terms, both.next_steps(max_norm))
        seen = [both.step(part, terms, max_norm, None)[0] for part in divided(rows, order, size) if has_weight(part)]
        assert (minibatches, stopped) == (1 if in_order else 2 * math.ceil(count / size), False)
        if len(seen) == minibatches:
            torch.testing.assert_close(found, torch.stack(seen).sum(0).float(), rtol=1e-3, atol=1e-4)
            both.assert_equal()

    check()


def has_weight(rows: PolicyBatch) -> bool:
    return rows.weight is None or bool(rows.weight.any())


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("action", [BOX, CHOICES], ids=["box", "choices"])
def test_a_minibatch_above_the_largest_divergence_makes_no_step_and_is_the_last(action: Space) -> None:
    terms = LossTerms(0.2, None, 0.0, 0.5, True)
    both, order = Both(action), torch.arange(60)[None]
    rows = rows_of(both.network, 60)
    first = [float(both.step(part, terms, None, 0.0)[0][3]) for part in divided(rows, order, 20)]
    for limit in (min(first) / 2, first[0] * 1.01):
        both = Both(action)
        totals, count, stopped = both.steps()(rows, Minibatches(order, 20, limit), terms, both.next_steps())
        seen, exceeded = [], False
        for part in divided(rows, order, 20):
            means, exceeded = both.step(part, terms, None, limit)
            seen.append(means)
            if exceeded:
                break
        assert (count, stopped) == (len(seen), exceeded)
        torch.testing.assert_close(totals, torch.stack(seen).sum(0).float(), rtol=1e-3, atol=1e-4)
        both.assert_equal()
        assert int(both.mine.state_dict()["step"]) == 1 + count - stopped  # type: ignore[call-overload]


def test_no_rows_make_no_step() -> None:
    both = Both(CHOICES)
    before = [p.detach().clone() for p in both.network.parameters()]
    rows, none = rows_of(both.network, 8), torch.empty(3, 0, dtype=torch.int64)
    totals, count, stopped = both.steps()(
        rows, Minibatches(none, 4), LossTerms(0.2, None, 0.0, 0.5, True), both.next_steps()
    )
    assert (count, stopped) == (0, False)
    assert not totals.any()
    assert all(map(torch.equal, before, (p.detach() for p in both.network.parameters())))


TERMS = LossTerms(0.2, None, 0.0, 0.5, True)


@in_one_test
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"action": torch.full((8,), 6)}, "none of the 4 choices"),
        ({"action": torch.zeros(8)}, "float32"),
        ({"action": torch.zeros(7, dtype=torch.int64)}, "\\[7\\]"),
        ({"advantage": torch.zeros(9)}, "\\[9\\]"),
        ({"target": torch.zeros(8, 1)}, "\\[8, 1\\]"),
        ({"log_prob": torch.zeros(1)}, "\\[1\\]"),
        ({"observation": Observation(torch.zeros(8, 4), torch.zeros(8, dtype=torch.bool))}, "\\[8, 4\\]"),
    ],
)
def test_rows_that_compiled_code_must_not_read_are_refused(change: dict[str, Any], error: str) -> None:
    both = Both(CHOICES)
    good = rows_of(both.network, 8)
    rows = replace(good, **change)
    if "target" in change:
        assert len(rows) == 8
    with pytest.raises(UsageError, match=error):
        both.steps()(rows, Minibatches(), TERMS, both.next_steps())


@in_one_test
@pytest.mark.parametrize(
    ("minibatches", "error"),
    [
        (Minibatches(torch.tensor([[0, 1], [0, 8]]), 2), "none of the 8 rows"),
        (Minibatches(torch.tensor([[0, -1]]), 2), "none of the 8 rows"),
        (Minibatches(torch.arange(8)[None], 0), "positive size"),
        (Minibatches(torch.arange(8)[None].int(), 2), "int64"),
        (Minibatches(torch.arange(16)[None, ::2], 2), "contiguous"),
        (Minibatches(torch.arange(8), 2), "\\[E, M\\]"),
    ],
)
def test_wrong_minibatches_are_refused(minibatches: Minibatches, error: str) -> None:
    both = Both(BOX)
    before = vector(both.network)
    with pytest.raises((UsageError, IndexError), match=error):
        both.steps()(rows_of(both.network, 8), minibatches, TERMS, both.next_steps())
    assert torch.equal(before, vector(both.network))


def test_parameters_with_other_memory_are_refused() -> None:
    both = Both(BOX)
    step = both.next_steps()
    weight = next(both.network.parameters())
    weight.data = weight.data.t().contiguous().t()
    with pytest.raises(UsageError, match="contiguous"):
        both.steps()(rows_of(both.network, 8), Minibatches(), TERMS, step)


@pytest.mark.parametrize("action", [BOX, CHOICES])
def test_parameters_that_moved_to_another_vector_are_trained(action: Space) -> None:
    """A second optimizer moves the parameters and their gradients to its own memory."""
    one, two = Both(action), Both(action)
    rows, terms = rows_of(one.network, 64), LossTerms(0.2, None, 0.01, 0.5, True)
    steps = one.steps()
    for both in (one, two):
        (steps if both is one else both.steps())(rows, Minibatches(), terms, both.next_steps())
        state = both.mine.state_dict()
        both.mine = FlatOptimizer(both.network, "adam", 1e-2, {**ADAM, "fused": True})
        both.mine.load_state_dict(state)
        (steps if both is one else both.steps())(rows, Minibatches(), terms, both.next_steps())
    assert not torch.equal(vector(one.network), vector(one.exact).float())
    assert torch.equal(vector(one.network), vector(two.network))


def test_default_types_of_torch_have_no_effect() -> None:
    found = []
    for default in (torch.float32, torch.float64):
        both = Both(BOX)
        rows, step, steps = rows_of(both.network, 8), both.next_steps(), both.steps()
        torch.set_default_dtype(default)
        try:
            found.append((steps(rows, Minibatches(torch.arange(8)[None], 3), TERMS, step)[0], vector(both.network)))
        finally:
            torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, *found))


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_decayed_moments_become_zero_after_the_same_steps(kind: str) -> None:
    found = []
    for count in (STEPS_BETWEEN_CLEARING - 1, STEPS_BETWEEN_CLEARING):
        values, gradient, first, second = torch.ones(4, 40)
        gradient.zero_()
        first.fill_(1e-38)
        second.fill_(1e-38)
        made = torch.tensor(count - 1.0)
        step: Any = VectorStep(kind, (values, gradient, first, second), made, 1e-3, (0.9, 0.999), 1e-8, 0.0)  # type: ignore[arg-type]
        assert CompiledStep()(step)
        assert made == count
        found.append((bool(first.any()), bool(second.any())))
    assert found == [(True, True), (False, False)] or (kind == "rmsprop" and found[1] == (False, False))


@pytest.mark.usefixtures("variant")
def test_adam_rounds_as_torch_does() -> None:
    numbers = Generator().manual_seed(0)
    mine = list(torch.randn(4, 960, generator=numbers).abs().unbind())
    theirs = [vector.clone() for vector in mine]
    for count in (1, 2, 100, 5000):
        torch._fused_adam_(
            [theirs[0]], [theirs[1]], [theirs[2]], [theirs[3]], [], [torch.tensor(float(count))],
            lr=1e-2, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-5, amsgrad=False, maximize=False,
        )  # fmt: skip
        made = torch.tensor(count - 1.0)
        step = VectorStep("adam", (mine[0], mine[1], mine[2], mine[3]), made, 1e-2, (0.9, 0.999), 1e-5, 0.0)
        assert CompiledStep()(step)
    for one, two in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-7)


TRAININGS: list[tuple[str, str, dict[str, Any]]] = [
    ("ppo", "CartPole-v1", {"n_steps": 128, "batch_size": 48}),
    ("ppo", "CartPole-v1", {"n_steps": 128, "target_kl": 0.002, "clip_range_vf": 0.1}),
    ("ppo", "Pendulum-v1", {"n_steps": 128, "ent_coef": 0.01, "max_grad_norm": 0.1}),
    ("a2c", "CartPole-v1", {}),
    ("a2c", "Pendulum-v1", {"use_rms_prop": False, "normalize_advantage": True}),
    ("maskable-ppo", "rlsdk/InvalidActionEnvDiscrete-v0", {"n_steps": 128}),
]


@pytest.mark.parametrize(("name", "env", "given"), TRAININGS)
def test_whole_trainings_are_equal(name: str, env: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    agents = [rlsdk.make(name, env=env, seed=1, device="cpu", **given)]
    assert agents[0].parts.algorithm._kernels.kernel.steps is not None
    monkeypatch.setattr(factory, "policy_steps", lambda *_: None)
    agents.append(rlsdk.make(name, env=env, seed=1, device="cpu", **given))
    assert agents[1].parts.algorithm._kernels.kernel.steps is None
    for agent in agents:
        agent.learn(640)
    states = [agent.parts.algorithm.state_dict()["optimizer"] for agent in agents]
    assert states[0].keys() == states[1].keys()
    assert states[0]["step"] == states[1]["step"] > 1
    torch.testing.assert_close(vector(agents[0].policy), vector(agents[1].policy), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_optimizers_with_other_steps_are_called(kind: str) -> None:
    assert Both(BOX, kind).mine.next_steps(1e-3) is not None
    hooked, grouped, frozen = (Both(BOX, kind) for _ in range(3))
    hooked.mine.optimizer.register_step_pre_hook(lambda *_: None)
    grouped.mine.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    next(frozen.network.parameters()).requires_grad_(False)
    assert [both.mine.next_steps(1e-3) for both in (hooked, grouped, frozen)] == [None] * 3
    others = [{"amsgrad": True}, {"maximize": True}] if kind == "adam" else [{"momentum": 0.5}, {"centered": True}]
    for other in others:
        optimizer = FlatOptimizer(network_of(BOX), kind, 1e-2, {**OPTIMIZERS[kind], **other})
        optimizer.zero_grad()
        optimizer.step(1e-2)
        assert optimizer.next_steps(1e-3) is None
    new = FlatOptimizer(network_of(BOX), kind, 1e-2, OPTIMIZERS[kind])
    assert new.next_steps(1e-3) is None  # it has no moments
    assert FlatOptimizer(network_of(BOX), "sgd", 1e-2).next_steps(1e-3) is None


def test_other_networks_and_losses_make_their_own_steps() -> None:
    def steps(network: ActorCritic, loss: Any = None) -> PolicySteps | None:
        FlatOptimizer(network, "adam", 1e-3).zero_grad()
        return policy_steps(evaluator_of(network, 64), loss or policy_loss_of(network))

    assert steps(network_of(BOX)) is not None
    assert steps(network_of(MultiDiscrete((2, 3), (0, 0)))) is None
    assert steps(network_of(BOX, net_arch=[8, {"pi": [4], "vf": [4]}])) is None
    assert steps(network_of(BOX, kernel="autograd")) is None
    assert steps(network_of(BOX, kernel="numpy")) is None
    assert steps(network_of(BOX), lambda *arguments: policy_loss_of(network_of(BOX))(*arguments)) is None
    with compiled_off():
        assert steps(network_of(BOX)) is None


def test_a_hook_that_is_added_between_updates_is_called() -> None:
    agent = rlsdk.make("ppo", env="CartPole-v1", seed=0, n_steps=64, batch_size=32, device="cpu")
    agent.learn(128)
    calls = []
    linear = next(module for module in agent.policy.modules() if isinstance(module, nn.Linear))
    handle = linear.register_forward_hook(lambda *_: calls.append(1))
    agent.learn(64, reset_num_timesteps=False)
    assert calls
    handle.remove()
    agent.learn(64, reset_num_timesteps=False)
    assert agent.parts.algorithm._kernels.kernel.steps is not None
