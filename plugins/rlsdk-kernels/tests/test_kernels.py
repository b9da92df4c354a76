"""Kernels compared with autograd, in float64: dense layers, closed forms of distributions and losses, whole updates."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

import rlsdk
from rlsdk.distributions import Bernoulli, Categorical, Gaussian, MultiCategorical, SquashedGaussian
from rlsdk.distributions.categorical import FORBIDDEN, SMALLEST
from rlsdk.environments import make_vec_env
from rlsdk.kernels import KernelChoice, is_hooked
from rlsdk.kernels.factory import compiled_off
from rlsdk.kernels.protocol import GumbelNoise, NormalNoise, is_dense
from rlsdk.math.surrogate import clipped_surrogate, clipped_surrogate_grad, value_error, value_error_grad
from rlsdk.networks import EnsembleMLP, flatten_parameters
from rlsdk.networks.layers import views_of
from rlsdk.records import ActingState
from rlsdk.training.collector import collect
from rlsdk.tree import map_tensors
from rlsdk.updates import policy_batch
from rlsdk.updates.clipped_policy import AutogradEvaluator, evaluator_of
from rlsdk_dqn import DQN
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_kernels import choice
from rlsdk_kernels.actor_critic_kernel import ActorCriticKernel
from rlsdk_kernels.backends import TORCH
from rlsdk_kernels.choice import backend_name
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.compiled_library import has_avx2, library, may_compile
from rlsdk_kernels.dense_kernel import DenseKernel
from rlsdk_kernels.numpy_backend import NUMPY, Backend
from rlsdk_kernels.numpy_distributions import GumbelSampler, NormalSampler
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_ppo import PPO
from rlsdk_qrdqn import QRDQN
from rlsdk_sac import SAC
from rlsdk_td3 import TD3
from rlsdk_testing.rollouts import rollout_of
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO
from tests.tables import in_one_test

BACKENDS = [NUMPY, TORCH]
ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.Identity]


def layers(widths: list[int], activation: type[nn.Module], members: int = 0) -> list[nn.Module]:
    if members:
        named = {nn.Tanh: "tanh", nn.ReLU: "relu", nn.Identity: "identity"}[activation]
        return list(EnsembleMLP(members, widths[0], widths[1:-1], widths[-1], named).double().layers)
    found: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        found += [nn.Linear(inputs, outputs), *([activation()] if i < len(widths) - 2 else [])]
    return [module.double() for module in found]


@settings(max_examples=60, deadline=None)
@given(
    backend=st.sampled_from(BACKENDS),
    activation=st.sampled_from(ACTIVATIONS),
    widths=st.lists(st.integers(1, 7), min_size=2, max_size=5),
    rows=st.integers(1, 9),
    members=st.sampled_from([0, 1, 3]),
    seed=st.integers(0, 1000),
)
def test_a_dense_kernel_equals_autograd(
    backend: Backend, activation: type[nn.Module], widths: list[int], rows: int, members: int, seed: int
) -> None:
    torch.manual_seed(seed)
    modules = layers(widths, activation, members)
    network = nn.Sequential(*modules)
    flatten_parameters(network.parameters())
    kernel = DenseKernel(modules, backend)
    x = torch.randn(rows, widths[0], dtype=torch.float64, requires_grad=True)
    entered = x.unsqueeze(0).expand(members, -1, -1) if members else x
    outputs = network(entered)
    found, trace = kernel.forward(backend.array(x.detach()))
    assert torch.allclose(backend.tensor(found), outputs.detach(), atol=1e-12)
    assert torch.equal(backend.tensor(kernel(backend.array(x.detach()))), backend.tensor(found))
    grad = torch.randn_like(outputs)
    expected = torch.autograd.grad(outputs, [x, *kernel.parameters], grad, retain_graph=True)
    back = backend.tensor(kernel.input_grad(trace, backend.array(grad), kernel.gradients()))
    assert torch.allclose(back.sum(0) if members else back, expected[0], atol=1e-10)
    for parameter, gradient in zip(kernel.parameters, expected[1:], strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-10)
    direction = [torch.randn_like(parameter) for parameter in kernel.parameters]
    moved = backend.tensor(kernel.jvp(trace, kernel.arrays(direction)))
    inner = sum(float((d * g).sum()) for d, g in zip(direction, expected[1:], strict=True))
    assert float((moved * grad).sum()) == pytest.approx(inner, abs=1e-8), "<J v, w> = <v, J^T w>"


@pytest.mark.parametrize("make", [DenseKernel, *([CompiledDense] if library() is not None else [])])
def test_a_dense_kernel_follows_its_parameters(make: Any) -> None:
    """A dense kernel uses the present parameters after changes in place, in new memory, and in copies and pickles."""
    linear = nn.Linear(2, 3)
    kernel, x = make([linear, nn.Tanh()]), torch.ones(1, 2)

    def agrees(kernel: Any, module: nn.Module) -> None:
        assert torch.allclose(kernel.outputs(x), torch.tanh(module(x)), atol=1e-6)

    agrees(kernel, linear)
    with torch.no_grad():
        linear.weight.add_(1.0)
    agrees(kernel, linear)
    flatten_parameters(linear.parameters())
    with torch.no_grad():
        linear.bias.add_(1.0)
    agrees(kernel, linear)
    for copied in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        own = copied.modules[0]
        assert own is not linear
        with torch.no_grad():
            own.weight.mul_(2.0)
        agrees(copied, own)
    agrees(kernel, linear)


def test_predictions_from_several_threads_agree() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = TRPO("MlpPolicy", "Pendulum-v1", seed=0, n_steps=8)
    seen = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    other = TRPO("MlpPolicy", "Pendulum-v1", seed=0, n_steps=8)
    expected = [other.predict(row, deterministic=True)[0] for row in seen]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: model.predict(row, deterministic=True)[0], seen))
    assert np.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"weight_decay": 0.1}, {"fused": False}])
def test_the_optimizer_is_torchs_adam(options: dict[str, Any]) -> None:
    from rlsdk.updates import FlatOptimizer

    torch.manual_seed(0)
    mine, theirs = (nn.Parameter(torch.ones(5)) for _ in range(2))
    ours, other = FlatOptimizer([mine], "adam", 0.1, options), torch.optim.Adam([theirs], 0.1, **options)
    for _ in range(5):
        gradient = torch.randn(5)
        ours.zero_grad()
        mine.grad.copy_(gradient)  # type: ignore[union-attr]
        theirs.grad = gradient.clone()
        ours.step(0.1)
        other.step()
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_what_a_dense_kernel_takes() -> None:
    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *_: None)
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    assert is_dense([nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)])
    wrong: list[list[nn.Module]] = [
        [],
        [nn.Tanh()],
        [nn.Linear(2, 2, bias=False)],
        [nn.Linear(2, 2), nn.Tanh(), nn.Tanh()],
        [nn.Linear(2, 2), nn.Dropout()],
        [nn.Linear(2, 2), nn.LayerNorm(2)],
        [hooked],
        [parametrized],
    ]
    for modules in wrong:
        assert not is_dense(modules) or any(map(is_hooked, modules))
        with pytest.raises(ValueError, match="linear layers"):
            DenseKernel(modules)


def test_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_avx2", lambda: False)
    small = KernelChoice("auto", width=64, rows=64, device="cpu")
    assert backend_name(small) == ("compiled" if may_compile() else "numpy")
    with compiled_off():
        assert backend_name(small) == "numpy"
    assert backend_name(KernelChoice("auto", width=256, rows=64, device="cpu")) == "torch"
    assert backend_name(KernelChoice("auto", width=64, rows=2048, device="cpu")) == "torch"
    assert backend_name(KernelChoice("torch", width=64, rows=64, device="cpu")) == "torch"
    assert backend_name(KernelChoice("autograd", width=64, rows=64, device="cpu")) is None
    assert backend_name(KernelChoice("auto", width=64, rows=64, device="cuda")) is None
    monkeypatch.setattr(choice, "has_avx2", lambda: True)
    for width, rows in ((256, 64), (64, 2048), (512, 256)):
        assert backend_name(KernelChoice("auto", width=width, rows=rows)) == ("compiled" if may_compile() else "torch")
    assert backend_name(KernelChoice("auto", width=1024, rows=64)) == "torch"


@pytest.mark.parametrize(
    ("capability", "expected"), [("DEFAULT", False), ("NO AVX", False), ("AVX2", True), ("AVX512", True)]
)
def test_processors_with_avx2(capability: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert has_avx2() is expected


def distribution_case(kind: str, masked: bool, seed: int) -> tuple[Any, list[Tensor], Tensor]:
    """(function that makes a distribution from the inputs, the inputs, actions)."""
    generator = Generator().manual_seed(seed)
    logits = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    mask = torch.rand(6, 5, generator=generator) < 0.6
    mask[:, 0] = mask[:, 2] = True
    if kind == "gaussian":
        log_std = 0.3 * torch.randn(6, 5, generator=generator, dtype=torch.float64)
        return Gaussian, [logits, log_std], torch.randn(6, 5, generator=generator, dtype=torch.float64)
    if kind == "bernoulli":
        both = torch.ones(6, 10, dtype=torch.bool)
        both[:, 0:4:2] = mask[:, :2]
        made = lambda raw: Bernoulli.of(raw, both if masked else None)  # noqa: E731
    elif kind == "multi":
        made = lambda raw: MultiCategorical.of(raw, (2, 3), mask if masked else None)  # noqa: E731
    else:
        made = lambda raw: Categorical.of(raw, mask if masked else None)  # noqa: E731
    return made, [logits], made(logits).sample(generator)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["categorical", "multi", "bernoulli", "gaussian"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_closed_forms_equal_autograd(kind: str, masked: bool, seed: int) -> None:
    make, inputs, action = distribution_case(kind, masked, seed)
    leaves = [value.clone().requires_grad_() for value in inputs]
    distribution = make(*leaves)
    of_log_prob, of_entropy = torch.randn(2, 6, dtype=torch.float64)
    for entropy in (None, of_entropy):
        outputs = [distribution.log_prob(action), distribution.entropy()][: 1 + (entropy is not None)]
        expected = torch.autograd.grad(
            outputs, leaves, [of_log_prob, of_entropy][: len(outputs)], retain_graph=True, allow_unused=True
        )
        for mine, other in zip(distribution.vjp(action, of_log_prob, entropy), expected, strict=True):
            assert torch.allclose(mine, torch.zeros_like(mine) if other is None else other, atol=1e-8)
    fixed = make(*[value.clone() for value in inputs])
    gradients = torch.autograd.grad(distribution.kl_divergence(fixed).sum(), leaves, create_graph=True)
    change = [torch.randn_like(value) for value in inputs]
    along = sum((g * v).sum() for g, v in zip(gradients, change, strict=True))
    hessian = torch.autograd.grad(along, leaves)
    for mine, other in zip(distribution.fisher_product(*change), hessian, strict=True):
        assert torch.allclose(mine, other, atol=1e-8), "the Fisher information is the Hessian of the KL divergence"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.floats(0.1, 3.0))
def test_the_squashed_sample_pulls_back_as_autograd_does(seed: int, spread: float) -> None:
    torch.manual_seed(seed)
    mean, log_std = (spread * torch.randn(7, 3, dtype=torch.float64)).requires_grad_(), torch.randn(7, 3).double()
    log_std.requires_grad_()
    noise, of_action, of_log_prob = torch.randn(7, 3).double(), torch.randn(7, 3).double(), torch.randn(7).double()
    distribution = SquashedGaussian(mean, log_std)
    action, log_prob = distribution.transform(noise)
    expected = torch.autograd.grad([action, log_prob], [mean, log_std], [of_action, of_log_prob])
    for mine, other in zip(distribution.transform_vjp(noise, action, of_action, of_log_prob), expected, strict=True):
        assert torch.allclose(mine, other, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), clip=st.floats(0.01, 0.5), clip_value=st.sampled_from([None, 0.05, 1.0]))
def test_gradients_of_losses_equal_autograd(seed: int, clip: float, clip_value: float | None) -> None:
    torch.manual_seed(seed)
    log_prob = (0.3 * torch.randn(9, dtype=torch.float64)).requires_grad_()
    advantage, value = torch.randn(9).double(), torch.randn(9).double().requires_grad_()
    old, target = value.detach() + 0.2 * torch.randn(9), torch.randn(9).double()
    loss = clipped_surrogate(log_prob.exp(), advantage, clip).sum()
    (expected,) = torch.autograd.grad(loss, log_prob)
    assert torch.allclose(clipped_surrogate_grad(log_prob.exp(), advantage, clip), expected)
    (expected,) = torch.autograd.grad(value_error(value, old, target, clip_value).sum(), value)
    assert torch.allclose(value_error_grad(value, old, target, clip_value), expected)


def test_sampling_in_numpy_equals_the_distributions() -> None:
    torch.manual_seed(0)
    raw, mask = torch.randn(200, 7), torch.rand(200, 7) < 0.5
    mask[:, 3] = True
    head = nn.Module()
    head.log_std = nn.Parameter(torch.randn(7))
    gumbel = GumbelSampler(GumbelNoise(FORBIDDEN, SMALLEST))
    cases: list[tuple[Any, Any, Tensor | None]] = [
        (NormalSampler(NormalNoise(head.log_std)), Gaussian(raw, head.log_std.detach().expand_as(raw)), None),
        (gumbel, Categorical.of(raw), None),
        (gumbel, Categorical.of(raw, mask), mask),
    ]
    for draw, distribution, given_mask in cases:
        action = draw(raw, given_mask, Generator().manual_seed(5))
        expected = distribution.sample(Generator().manual_seed(5))
        assert torch.allclose(action, expected, atol=1e-6)
        assert given_mask is None or bool(given_mask[torch.arange(200), action].all())


def test_sampling_in_numpy_sees_every_change_of_the_deviation() -> None:
    log_std, mean = nn.Parameter(torch.zeros(3)), torch.zeros(2, 3)
    draw = NormalSampler(NormalNoise(log_std))
    first = draw(mean, None, Generator().manual_seed(5))
    with torch.no_grad():
        log_std.fill_(math.log(2.0))
    assert torch.allclose(draw(mean, None, Generator().manual_seed(5)), 2.0 * first), "changed in place"
    other = copy.deepcopy(draw)
    log_std.data = torch.full((3,), math.log(3.0))
    assert torch.allclose(draw(mean, None, Generator().manual_seed(5)), 3.0 * first), "given other memory"
    assert torch.allclose(other(mean, None, Generator().manual_seed(5)), 2.0 * first), (
        "a copy has a deviation of its own"
    )


@pytest.mark.parametrize(
    "env",
    ["Pendulum-v1", "CartPole-v1", "rlsdk/InvalidActionEnvMultiDiscrete-v0", "rlsdk/InvalidActionEnvMultiBinary-v0"],
)
def test_what_acting_leaves_out_is_found_for_the_whole_rollout(env: str) -> None:
    algorithm = "maskable-ppo" if env.startswith("rlsdk/") else "trpo"
    normalize = None if env.startswith("rlsdk/") else True
    agent = rlsdk.make(algorithm, env=make_vec_env(env, 3), seed=0, n_steps=8, normalize=normalize)
    network = agent.parts.algorithm.network
    rollout = rollout_of(agent, 20)
    found = rollout.steps.extras
    carry, first = network.initial_carry(3), torch.ones(3, dtype=torch.bool)
    for t in range(20):
        seen = map_tensors(lambda leaf, t=t: leaf[t], rollout.steps.observation)
        distribution, value = network.evaluate(seen, (carry.actor, carry.critic), first)
        taken = network.internal(map_tensors(lambda leaf, t=t: leaf[t], rollout.steps.action))
        torch.testing.assert_close(found.log_prob[t], distribution.log_prob(taken), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.value[t], value, atol=1e-5, rtol=1e-5)
    assert network.estimates(rollout.steps) is found, "what is there is not found again"


def in_parts() -> Any:
    parts = spaces.Dict({"a": spaces.Box(-9.0, 9.0, (2,)), "b": spaces.Box(-9.0, 9.0, (2,))})
    return gym.wrappers.TransformObservation(cut(), lambda x: {"a": x[:2], "b": x[2:]}, parts)


def cut() -> Any:
    """Values at the end of its episodes are used, because a time limit ends them."""
    return gym.make("CartPole-v1", max_episode_steps=7)


@pytest.mark.parametrize("kernel", ["auto", "autograd"])
@pytest.mark.parametrize("env", [cut, in_parts])
def test_values_that_rollouts_leave_out_are_evaluated_together(env: Any, kernel: str) -> None:
    """A2C's rollouts have no values; `policy_batch` evaluates all observations together."""
    kwargs, policy = {"kernel": kernel, "net_arch": [8]}, "MlpPolicy" if env is cut else "MultiInputPolicy"
    agent = rlsdk.make("a2c", policy=policy, env=make_vec_env(env, 3), seed=0, policy_kwargs=kwargs, device="cpu")
    network, rollout = agent.parts.algorithm.network, rollout_of(agent, 40)
    assert rollout.final_observations is not None
    assert rollout.steps.extras.value is None
    found = policy_batch(rollout, network, gamma=0.9, lam=0.8)
    network.stores_estimates = True
    with_values = replace(rollout, steps=replace(rollout.steps, extras=network.estimates(rollout.steps)))
    assert with_values.steps.extras.value is not None
    expected = policy_batch(with_values, network, gamma=0.9, lam=0.8)
    for name in ("value", "advantage", "target"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        value = network.values_after(found.observation, ((), ()))
    torch.testing.assert_close(found.value, value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("normalize", [None, True])
def test_a_rollout_contains_the_same_with_every_kernel(normalize: bool | None) -> None:
    found = {}
    for kernel_setting in ("auto", "autograd"):
        kwargs = {"kernel": kernel_setting}
        agent = rlsdk.make(
            "trpo", env=make_vec_env("Pendulum-v1", 2), seed=0, normalize=normalize, policy_kwargs=kwargs
        )
        first, generator = agent.env.reset(0), torch.Generator().manual_seed(0)
        start = agent.policy.initial_carry(2)
        steps = collect(agent.env, agent.policy, ActingState(first, start), 6, generator=generator).steps
        found[kernel_setting] = steps.extras
    torch.testing.assert_close(found["auto"].value, found["autograd"].value, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found["auto"].log_prob, found["autograd"].log_prob, atol=1e-5, rtol=1e-5)
    assert found["auto"].memory == found["autograd"].memory


ACTIONS = {
    "box": spaces.Box(-1, 1, (3,)),
    "discrete": spaces.Discrete(4),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
}


@in_one_test
@pytest.mark.kernels("compares kernels with autograd")
@pytest.mark.parametrize("kernel_setting", ["numpy", "torch"])
@pytest.mark.parametrize("action", list(ACTIONS))
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shared", [None, {"shared": [6]}, [7, 6, {"pi": [4], "vf": [5, 3]}]])
def test_evaluators_agree(action: str, kernel_setting: str, weighted: bool, shared: Any) -> None:
    from rlsdk.updates.minibatches import policy_batch

    env = make_vec_env(lambda: AnySpaceEnv(spaces.Box(-1, 1, (4,)), ACTIONS[action], 5), 2, vectorization="sync")
    model = TRPO(
        "MlpPolicy", env, n_steps=16, seed=0, policy_kwargs={"kernel": kernel_setting, "net_arch": shared or [9, 5]}
    )
    network = model.policy
    actor = set(network.actor_parameters)
    own = [p for p in [*network.critic_body.parameters(), *network.value.parameters()] if p not in actor]
    rows = policy_batch(rollout_of(model, 16), network, gamma=0.9, lam=0.9)
    if weighted:
        object.__setattr__(rows, "weight", (torch.arange(len(rows)) % 3 > 0).float())
    flat, gradients = flatten_parameters(network.parameters())
    kernel, autograd = evaluator_of(network, 64), AutogradEvaluator(network)
    assert isinstance(kernel, ActorCriticKernel)
    assert kernel.name == kernel_setting
    grads = torch.randn(len(rows)), torch.randn(len(rows)), torch.randn(len(rows))
    direction, found = torch.randn(sum(p.numel() for p in network.actor_parameters)), []
    for evaluator in (kernel, autograd):
        gradients.zero_()
        now, policy_vjp = evaluator.evaluate(evaluator.prepared(rows))
        policy_vjp(*grads)
        value, vjp = evaluator.values(evaluator.prepared(rows), own)
        both = gradients.clone()
        gradients.zero_()
        vjp(grads[2])
        critic = [p.grad.clone() for p in own]
        product = evaluator.evaluate(evaluator.prepared(rows))[0].fisher()(direction)
        found.append([now.log_prob, now.entropy, now.value, value, both, product, *critic])
    for mine, other in zip(*found, strict=True):
        assert torch.allclose(mine, other, atol=2e-5, rtol=1e-4)
    assert torch.equal(views_of(flat, network.parameters())[0], next(iter(network.parameters())))


@pytest.mark.kernels("which evaluator is chosen")
def test_layers_that_are_used_twice_elsewhere_are_left_to_autograd() -> None:
    model = TRPO("MlpPolicy", "Pendulum-v1", n_steps=16, batch_size=16, seed=0, policy_kwargs={"net_arch": [5, 5]})
    network = model.policy
    assert isinstance(evaluator_of(network, 64), ActorCriticKernel)
    network.critic_body[2] = network.body[2]
    assert isinstance(evaluator_of(network, 64), AutogradEvaluator)
    network.critic_body[0] = network.body[0]
    assert isinstance(evaluator_of(network, 64), AutogradEvaluator)  # the activations between are different modules
    network.critic_body[1], network.critic_body[3] = network.body[1], network.body[3]
    assert isinstance(evaluator_of(network, 64), ActorCriticKernel)


@pytest.mark.kernels("compares training with kernels and with autograd")
@in_one_test
@pytest.mark.parametrize(
    ("kind", "env", "arguments"),
    [
        (TRPO, "Pendulum-v1", {"n_steps": 64}),
        (MaskablePPO, "CartPole-v1", {"n_steps": 64, "use_masking": False}),
        (QRDQN, "CartPole-v1", {"learning_starts": 50, "batch_size": 16}),
        (TQC, "Pendulum-v1", {"learning_starts": 50, "batch_size": 16}),
        (DQN, "CartPole-v1", {"learning_starts": 50, "batch_size": 16, "train_freq": 1}),
        (PPO, "CartPole-v1", {"n_steps": 64}),
        (SAC, "Pendulum-v1", {"learning_starts": 50, "batch_size": 16}),
        (TD3, "Pendulum-v1", {"learning_starts": 50, "batch_size": 16}),
    ],
)
def test_kernels_train_alike(kind: Any, env: str, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd adds to the gradients of earlier updates, and kernels replace them: both begin with 0."""
    trained, ran = {}, {}
    for kernel_setting in ("autograd", "numpy", "torch"):
        model = kind(
            "MlpPolicy", env, seed=3, policy_kwargs={"kernel": kernel_setting, "net_arch": [16, 16]}, **arguments
        )
        with monkeypatch.context() as patch:
            ran[kernel_setting] = names_of_calls(patch)
            model.learn(192)
        trained[kernel_setting] = torch.cat([p.detach().flatten() for p in model.policy.parameters()])
    for kernel_setting in ("numpy", "torch"):
        assert float((trained[kernel_setting] - trained["autograd"]).abs().max()) < 2e-3
    assert not ran["autograd"]
    assert "numpy" in ran["numpy"]
    assert "torch" in ran["torch"]


def names_of_calls(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """A set that collects the names of the kernels that evaluate from now on."""
    names = set[str]()
    for kind in (DenseKernel, ActorCriticKernel):
        evaluate = kind.evaluate

        def noted(self: Any, inputs: Any, evaluate: Any = evaluate) -> Any:
            names.add(self.name)
            return evaluate(self, inputs)

        monkeypatch.setattr(kind, "evaluate", noted)
    return names


def test_an_unknown_kernel_is_refused() -> None:
    from rlsdk.errors import SettingsError

    with pytest.raises(SettingsError, match="did you mean 'numpy'"):
        TRPO("MlpPolicy", "CartPole-v1", policy_kwargs={"kernel": "nunpy"})
