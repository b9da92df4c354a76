"""Beta and Dirichlet distributions against scipy and torch in float64, and policies that use them."""

from __future__ import annotations

import runpy
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from scipy import stats
from torch import Generator, Tensor

from rlsdk.errors import SettingsError, UnsupportedSpaceError, UsageError
from rlsdk_a2c import A2C
from rlsdk_interchange import export
from rlsdk_networks import Beta, Dirichlet, Simplex
from rlsdk_networks.distributions import MARGIN, standard_gamma
from rlsdk_networks.heads import BetaHead, DirichletHead
from rlsdk_ppo import PPO
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_testing import NotApplicable, Subject, clauses
from rlsdk_trpo import TRPO

ROWS, SIZE = 50, 3


def parameters(seed: int, largest: float = 3.0) -> Tensor:
    """Random parameters above 1, up to about 1 + 10**largest, float64."""
    rng = np.random.default_rng(seed)
    return torch.tensor(1.0 + 10.0 ** rng.uniform(-2.0, largest, (ROWS, SIZE)))


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def test_beta_equals_scipy_and_torch() -> None:
    one, two = (Beta(parameters(k), parameters(k + 1)) for k in (0, 2))
    theirs, others = (torch.distributions.Beta(each.alpha, each.beta) for each in (one, two))
    action = torch.tensor(np.random.default_rng(5).uniform(0.01, 0.99, (ROWS, SIZE)))
    wanted = stats.beta(one.alpha.numpy(), one.beta.numpy()).logpdf(action.numpy()).sum(-1)
    np.testing.assert_allclose(one.log_prob(action).numpy(), wanted, rtol=1e-9)
    torch.testing.assert_close(one.entropy(), theirs.entropy().sum(-1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        one.kl_divergence(two), torch.distributions.kl_divergence(theirs, others).sum(-1), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(one.kl_divergence(one), torch.zeros(ROWS, dtype=torch.float64), rtol=0.0, atol=1e-12)


def test_dirichlet_equals_scipy_and_torch() -> None:
    one, two = Dirichlet(parameters(0)), Dirichlet(parameters(1))
    theirs, others = (torch.distributions.Dirichlet(each.concentration) for each in (one, two))
    action = torch.tensor(np.random.default_rng(5).dirichlet(np.full(SIZE, 3.0), ROWS))
    wanted = [
        stats.dirichlet(c).logpdf(a / a.sum()) for c, a in zip(one.concentration.numpy(), action.numpy(), strict=True)
    ]
    np.testing.assert_allclose(one.log_prob(action).numpy(), wanted, rtol=1e-9)
    torch.testing.assert_close(one.entropy(), theirs.entropy(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        one.kl_divergence(two), torch.distributions.kl_divergence(theirs, others), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(one.kl_divergence(one), torch.zeros(ROWS, dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("kind", ["beta", "dirichlet"])
def test_modes_have_the_largest_density(kind: str) -> None:
    one: Any = Beta(parameters(0, 1.0), parameters(1, 1.0)) if kind == "beta" else Dirichlet(parameters(0, 1.0))
    mode = one.mode()
    best = one.log_prob(mode)
    for seed in range(200):
        other = mode + 0.05 * torch.randn(ROWS, SIZE, generator=seeded(seed), dtype=torch.float64)
        other = other.clamp(MARGIN, 1.0 - MARGIN)
        other = other if kind == "beta" else other / other.sum(-1, keepdim=True)
        assert bool((one.log_prob(other) <= best + 1e-9).all())


@pytest.mark.parametrize("shape", [1.001, 1.5, 4.0, 1000.0])
def test_gamma_variables_have_their_distribution(shape: float) -> None:
    found = standard_gamma(torch.full((20_000,), shape, dtype=torch.float64), seeded())
    assert stats.kstest(found.numpy(), stats.gamma(shape).cdf).pvalue > 1e-3


def test_samples_have_their_distribution() -> None:
    alpha, beta = torch.full((20_000, 1), 1.3), torch.full((20_000, 1), 4.0)
    found = Beta(alpha, beta).sample(seeded()).squeeze(-1)
    assert stats.kstest(found.numpy(), stats.beta(1.3, 4.0).cdf).pvalue > 1e-3
    shares = Dirichlet(torch.tensor([1.2, 3.0, 5.0]).expand(20_000, 3)).sample(seeded())
    for k, (own, others) in enumerate(((1.2, 8.0), (3.0, 6.2), (5.0, 4.2))):
        assert stats.kstest(shares[:, k].numpy(), stats.beta(own, others).cdf).pvalue > 1e-3


@pytest.mark.parametrize("low", [1.001, 1.01, 2.0])
@pytest.mark.parametrize("high", [1.001, 100.0, 1e6])
def test_samples_and_modes_stay_inside(low: float, high: float) -> None:
    one = torch.tensor([low, high, low]).expand(2000, 3)
    beta, dirichlet = Beta(one, one.flip(-1) + high), Dirichlet(one)
    for found in (beta.sample(seeded()), beta.mode()):
        assert bool(((found >= MARGIN) & (found <= 1.0 - MARGIN)).all())
        assert bool(beta.log_prob(found).isfinite().all())
    simplex = Simplex(3)
    for found in (dirichlet.sample(seeded()), dirichlet.mode()):
        assert all(simplex.contains(row) for row in found.numpy())
        assert bool(dirichlet.log_prob(found).isfinite().all())


@pytest.mark.parametrize("row", [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
def test_the_edges_have_finite_densities_and_gradients(row: list[float]) -> None:
    action, one = torch.tensor([row]), torch.tensor([[1.001, 3.0, 50.0]], requires_grad=True)
    for distribution in (Beta(one, one.flip(-1)), Dirichlet(one)):
        (grad,) = torch.autograd.grad(distribution.log_prob(action).sum(), one)
        assert bool(grad.isfinite().all())


def test_heads_convert_actions_to_the_bounds_and_back() -> None:
    space = _core_space(spaces.Box(np.array([-3.0, 0.0], np.float32), np.array([5.0, 0.1], np.float32)))
    head = BetaHead(space, 4)
    action = head(torch.randn(500, 4, generator=seeded()), None).sample(seeded())
    outside = head.to_environment(action)
    torch.testing.assert_close(outside, torch.tensor([-3.0, 0.0]) + action * torch.tensor([8.0, 0.1]))
    torch.testing.assert_close(head.from_environment(outside), action, atol=1e-6, rtol=0.0)
    far = head.to_environment(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    torch.testing.assert_close(far, torch.tensor([[-3.0, 0.0], [5.0, 0.1]]))


def _core_space(action: spaces.Space[Any]) -> Any:
    """The space of rlsdk that agents get for a gymnasium space."""
    return PPO("MlpPolicy", Spaces(action), seed=0).context.action_space


class Spaces(gymnasium.Env[Any, Any]):
    """Checks that every action is in the space. The reward is the second number of an action; episodes have ten steps."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space, self.steps = action_space, 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=options.get("seed"))
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        return np.zeros(3, np.float32), float(action[1]), False, self.steps >= 10, {}


BOX = spaces.Box(np.array([-1.0, -2.0], np.float32), np.array([1.0, 3.0], np.float32))
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": (PPO, {"n_steps": 64}),
    "a2c": (A2C, {"n_steps": 16}),
    "trpo": (TRPO, {"n_steps": 64}),
    "recurrent-ppo": (RecurrentPPO, {"n_steps": 64, "batch_size": 64}),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("distribution", ["beta", "dirichlet"])
def test_algorithms_act_inside_learn_and_load(algorithm: str, distribution: str, tmp_path: Path) -> None:
    kind, settings = ALGORITHMS[algorithm]
    policy = "MlpLstmPolicy" if kind is RecurrentPPO else "MlpPolicy"
    space: Any = BOX if distribution == "beta" else Simplex(3)
    networks = {"action_distribution": distribution}
    model = kind(policy, Spaces(space), policy_kwargs=networks, learning_rate=3e-3, seed=0, **settings)
    seen = np.zeros(3, np.float32)
    before, _ = model.predict(seen, deterministic=True)
    model.learn(1280)
    after, _ = model.predict(seen, deterministic=True)
    assert after[1] > before[1] + 0.05, "it has learned to raise the second number"
    model.save(tmp_path / "agent")
    np.testing.assert_array_equal(kind.load(tmp_path / "agent").predict(seen, deterministic=True)[0], after)


CHECKED = ("agent.", "distribution.", "policy.", "resume.equals-uninterrupted", "rollout.", "seeds.", "training.")
"""Clauses that an action head can break. `resume.vectors` tries gSDE, which has its own distribution."""


@pytest.mark.parametrize(
    "algorithm", ["ppo", *(pytest.param(name, marks=pytest.mark.full) for name in ("a2c", "trpo"))]
)
def test_algorithms_with_beta_policies_pass_clauses(algorithm: str) -> None:
    subject = Subject(algorithm, {"policy_kwargs": {"action_distribution": "beta"}})
    # beta distributions are for Box actions alone
    subject.manifest = attrs.evolve(subject.manifest, actions=("Box",))
    checked = 0
    for each in clauses():
        if each.id.startswith(CHECKED) and each.id != "policy.masks-obeyed":  # it needs discrete actions
            with suppress(NotApplicable):
                each.check(subject)
                checked += 1
    assert checked > 30


@pytest.mark.parametrize(
    ("distribution", "action", "settings", "error", "wanted"),
    [
        ("beta", spaces.Discrete(3), {}, UnsupportedSpaceError, "for Box actions with bounds, not for Discrete"),
        ("beta", spaces.Box(-np.inf, np.inf, (2,)), {}, UnsupportedSpaceError, "needs finite bounds"),
        ("dirichlet", BOX, {}, UnsupportedSpaceError, r"declare action_space = rlsdk_networks\.Simplex\(n\)"),
        ("dirichlet", spaces.Box(0.0, 1.0, (1,)), {}, UnsupportedSpaceError, "at least two numbers"),
        ("dirichlet", spaces.Box(0.0, 1.0, (2, 2)), {}, UnsupportedSpaceError, "with one axis"),
        ("gamma", BOX, {}, SettingsError, r"policy_kwargs\.action_distribution: no installed plugin offers 'gamma'"),
        ("beta", BOX, {"use_sde": True}, SettingsError, "use_sde = true has its own distribution of actions"),
    ],
)
def test_what_does_not_fit_is_one_error(
    distribution: str, action: Any, settings: dict[str, Any], error: type[Exception], wanted: str
) -> None:
    with pytest.raises(error, match=wanted) as found:
        PPO("MlpPolicy", Spaces(action), policy_kwargs={"action_distribution": distribution}, **settings)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("distribution", "action"), [("beta", BOX), ("dirichlet", Simplex(3))])
def test_policies_are_exported_to_onnx(
    distribution: str, action: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They return no log-densities, whose gamma functions ONNX lacks. A network with such a function is refused in one line."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    agent = PPO("MlpPolicy", Spaces(action), n_steps=8, seed=0, policy_kwargs={"action_distribution": distribution})
    session = runtime.InferenceSession(str(export(agent, tmp_path / "policy.onnx").path))
    seen = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 3)).astype(np.float32)
    (found, *_) = session.run(None, {session.get_inputs()[0].name: seen})
    np.testing.assert_allclose(found, agent.predict(seen, deterministic=True)[0], atol=1e-5)
    monkeypatch.setattr("rlsdk_networks.distributions._lgamma", torch.lgamma)
    with pytest.raises(
        UsageError, match=r"ONNX cannot hold the policy: .*lgamma.*; choose format='torch-export'"
    ) as caught:
        export(agent, tmp_path / "again.onnx")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "again.onnx").exists()


def test_a_whole_network_has_no_head() -> None:
    networks = {"action_distribution": "beta", "actor_class": "mlp"}
    with pytest.raises(SettingsError, match="the action head has no effect with actor_class"):
        PPO("MlpPolicy", Spaces(BOX), policy_kwargs=networks)


def test_the_simplex_contains_shares_only() -> None:
    simplex = Simplex(4, seed=0)
    assert all(simplex.contains(simplex.sample()) for _ in range(100))
    for wrong in ([0.5, 0.5, 0.5, -0.5], [0.3, 0.3, 0.3, 0.0], [0.5, 0.5]):
        assert not simplex.contains(np.array(wrong, np.float32))
    assert repr(simplex) == "Simplex(4)"
    assert isinstance(DirichletHead(_core_space(simplex), 4), DirichletHead)
    for wrong_size in (1, 2.0, True, 10**30):
        with pytest.raises(SettingsError, match="whole number of at least 2 shares"):
            Simplex(wrong_size)  # type: ignore[arg-type]


@pytest.mark.full
def test_the_portfolio_example_learns_more_than_equal_shares() -> None:
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "portfolio.py"))
    equal, learned = example["main"](8192)
    assert learned > equal + 5.0
