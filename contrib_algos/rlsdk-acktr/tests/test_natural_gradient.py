"""Steps of ACKTR where the natural gradient is known exactly, and properties of its Fisher information."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlsdk.environments import make_vec_env
from rlsdk.errors import DivergenceError, SettingsError
from rlsdk_acktr import ACKTR
from rlsdk_acktr.blocks import DiagonalBlock, KroneckerBlock, damped
from rlsdk_acktr.fisher import FisherInformation
from rlsdk_acktr.recording import layers_of, recorded
from rlsdk_testing.rollouts import rollout_of
from tests.tables import in_one_test

PLAIN: dict[str, Any] = {"momentum": 0.0, "learning_rate": 1.0, "cold_iter": 0, "kfac_clip": 1e9, "damping": 1e-12}


def observed(network: nn.Module, inputs: Tensor, weights: Tensor, weight: Tensor | None = None) -> FisherInformation:
    """Return the Fisher information of the scores sum(weights * outputs), with weights and outputs [N, O]."""
    fisher = FisherInformation(network)
    with recorded(layers_of(network).values()) as calls:
        rows = (network(inputs) * weights).flatten(1).sum(1)
    fisher.observe(rows.sum() if weight is None else (rows * weight).sum(), calls, weight, len(inputs), 0.99)
    return fisher


def natural(fisher: FisherInformation, config: Any, network: nn.Module, inputs: Tensor, grad: Tensor) -> Tensor:
    """The natural gradient [D] of sum(grad * outputs) / N."""
    network.zero_grad()
    ((network(inputs) * grad).sum() / len(inputs)).backward()
    fisher.precondition(config, refresh=True)
    return torch.cat([p.grad.reshape(-1) for p in network.parameters() if p.grad is not None])


def config(**settings: Any) -> Any:
    return ACKTR("MlpPolicy", "CartPole-v1", **settings).config


def test_a_linear_gaussian_policy_gets_its_exact_natural_gradient() -> None:
    """The exact Fisher information of N(W s + b, sigma^2) is E[s s'] x 1 / sigma^2. Scores z / sigma give its factors exactly
    if the mean of z z' is the identity at every state."""
    torch.manual_seed(0)
    states, actions, sigma, size = 7, 3, 0.4, 5
    layer = nn.Linear(size, actions)
    noise = torch.cat([torch.eye(actions), -torch.eye(actions)]) * actions**0.5
    inputs = torch.randn(states, size).repeat_interleave(len(noise), 0)
    scores = noise.repeat(states, 1) / sigma
    grad = torch.randn(len(inputs), actions)
    for damping in (1e-6, 0.1):
        fisher = observed(layer, inputs, scores)
        found = natural(fisher, config(damping=damping), layer, inputs, grad)
        # the whole matrix, from the model's definition: parameters in torch's order, weights row by row, then biases
        jacobians = []
        for state in inputs.double():
            rows = [torch.kron(torch.eye(actions)[k].double(), state) for k in range(actions)]
            jacobians.append(torch.cat([torch.stack(rows), torch.eye(actions).double()], 1))
        exact = sum(j.T @ j for j in jacobians) / len(jacobians) / sigma**2
        plain = sum(j.T @ g for j, g in zip(jacobians, grad.double(), strict=True)) / len(jacobians)
        expected = torch.linalg.solve(exact + damping * torch.eye(len(exact)).double(), plain)
        torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=2e-4)


def test_a_linear_value_function_is_solved_in_one_step() -> None:
    """Gauss-Newton on a quadratic: with 4 c^2 = 2 vf_coef and no damping one step ends at the least squares solution."""
    agent = ACKTR(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 4),
        seed=0,
        **PLAIN | {"damping": 1e-10},
        n_steps=64,
        vf_coef=0.5,
        vf_fisher_coef=0.5,
        policy_kwargs={"net_arch": []},
    )
    rollout = rollout_of(agent, 64)
    from rlsdk.updates import policy_batch

    rows = policy_batch(rollout, agent.policy, gamma=0.99, lam=1.0)
    agent.parts.algorithm.update(rollout, progress=0.0)
    features = np.column_stack([rows.observation.features.numpy(), np.ones(len(rows))]).astype(float)
    best = np.linalg.lstsq(features, rows.target.numpy().astype(float), rcond=None)[0]
    value = agent.policy.value
    predicted = features @ np.append(value.weight.detach().numpy()[0], value.bias.detach().numpy())
    np.testing.assert_allclose(predicted, features @ best, atol=0.02 * np.abs(features @ best).max())


@pytest.mark.parametrize("split", [False, True])
def test_the_bound_holds_for_the_step(split: bool) -> None:
    """The step's length in the Fisher metric, computed with whole matrices, is between half of kfac_clip and kfac_clip."""
    agent = ACKTR(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 4),
        seed=0,
        **PLAIN | {"kfac_clip": 1e-3, "damping": 1e-3, "factored_damping": split},
        policy_kwargs={"net_arch": [6]},
    )
    for number in range(4):
        before = {name: p.detach().clone() for name, p in agent.policy.named_parameters()}
        metrics = agent.parts.algorithm.update(rollout_of(agent, 32, number), progress=0.0)
        total = 0.0
        for name, block in agent.parts.algorithm.fisher.layers.items():
            steps = [p.detach() - before[f"{name}.{own}"] for own, p in block.layer.named_parameters()]
            step = torch.cat([steps[0], steps[1].unsqueeze(1)], 1).double()
            a, g = (factor.double() for factor in block.tensors[:2])
            total += float((step * (g @ step @ a)).sum())
        assert float(metrics["train/step_scale"]) < 1.0
        assert 5e-4 < total <= 1.001e-3


def test_repeated_rows_change_no_statistics() -> None:
    layer, inputs, scores = nn.Linear(3, 2), torch.randn(5, 3), torch.randn(5, 2)
    once = observed(layer, inputs, scores).layers[""].tensors
    twice = observed(layer, inputs.repeat(2, 1), scores.repeat(2, 1)).layers[""].tensors
    for one, two in zip(once[:2], twice[:2], strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_rows_that_do_not_count_change_no_statistics(kind: str) -> None:
    layer = nn.Linear(3, 2) if kind == "dense" else nn.Conv2d(1, 2, 2, padding=1)
    inputs = torch.randn(6, 3) if kind == "dense" else torch.randn(6, 1, 3, 4)
    scores, weight = torch.randn(layer(inputs).shape), torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    chosen = weight > 0
    masked = observed(layer, inputs, scores, weight).layers[""].tensors
    alone = observed(layer, inputs[chosen], scores[chosen]).layers[""].tensors
    for one, two in zip(masked[:2], alone[:2], strict=True):
        torch.testing.assert_close(one, two)


def test_the_factors_of_a_convolution_are_those_of_its_patches() -> None:
    """A convolution is a dense layer on every patch: A is a mean over positions, G a sum."""
    torch.manual_seed(0)
    layer, inputs = nn.Conv2d(2, 3, (2, 3), stride=(1, 2), padding=(1, 0), dilation=(2, 1)), torch.randn(4, 2, 5, 7)
    scores = torch.randn(layer(inputs).shape)
    found = observed(layer, inputs, scores).layers[""].tensors
    height, width = scores.shape[2:]
    padded = nn.functional.pad(inputs, (0, 0, 1, 1))
    a, g = torch.zeros(13, 13), torch.zeros(3, 3)
    for n in range(4):
        for i in range(height):
            for j in range(width):
                patch = padded[n, :, [i, i + 2]][:, :, 2 * j : 2 * j + 3].reshape(-1)
                extended = torch.cat([patch, torch.ones(1)])
                a += torch.outer(extended, extended) / (4 * height * width)
                g += torch.outer(scores[n, :, i, j], scores[n, :, i, j]) / 4
    torch.testing.assert_close(found[0], a, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1], g, rtol=1e-4, atol=1e-5)


def test_activations_in_place_do_not_change_what_is_seen() -> None:
    found = []
    for inplace in (False, True):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=inplace), nn.Linear(4, 2))
        found.append(observed(network, torch.randn(5, 3), torch.randn(5, 2)).layers["0"].tensors[1])
    assert bool(found[0].any())
    torch.testing.assert_close(found[0], found[1])


def test_layers_of_one_network_that_share_a_parameter_have_a_diagonal() -> None:
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    network[1].weight = network[0].weight
    fisher = observed(network, torch.randn(4, 3), torch.randn(4, 1))
    assert set(fisher.layers) == {"2"}
    assert all(
        isinstance(fisher.others[name], DiagonalBlock) and fisher.others[name].count for name in ("0.weight", "0.bias")
    )


def test_split_damping_is_in_proportion_to_traces() -> None:
    """(A + p r) (G + r / p): both factors get the same share of damping relative to their mean eigenvalue."""
    inputs, outputs, damping = torch.tensor([1.0, 3.0, 8.0]), torch.tensor([0.1, 0.5]), 0.09
    ratio = (4.0 / 0.3) ** 0.5
    expected = torch.stack([(g + 0.3 / ratio) * (inputs + 0.3 * ratio) for g in outputs])
    torch.testing.assert_close(damped(inputs, outputs, damping, True), expected)
    torch.testing.assert_close(damped(inputs, outputs, damping, False), torch.outer(outputs, inputs) + damping)
    for dead in (torch.zeros(2), outputs):
        assert bool(damped(torch.zeros(3), dead, damping, True).isfinite().all())


def test_averages_are_equal_at_first_and_then_decay() -> None:
    block = DiagonalBlock(nn.Parameter(torch.zeros(1)))
    seen = [1.0, 2.0, 6.0, 3.0]
    for value in seen[:3]:
        block.add(0.7, torch.tensor([value]))
    torch.testing.assert_close(block.tensors[0], torch.tensor([3.0]))
    block.add(0.7, torch.tensor([seen[3]]))
    torch.testing.assert_close(block.tensors[0], torch.tensor([0.7 * 3.0 + 0.3 * 3.0]))


def test_memories_learn_by_a_diagonal() -> None:
    networks = {"lstm_hidden_size": 4, "net_arch": [4]}
    agent = ACKTR(
        "MlpLstmPolicy", make_vec_env("CartPole-v1", 2), seed=0, n_steps=8, cold_iter=1, policy_kwargs=networks
    )
    before = {name: p.detach().clone() for name, p in agent.policy.named_parameters()}
    agent.learn(48)
    others = agent.parts.algorithm.fisher.others
    for name, parameter in agent.policy.named_parameters():
        assert not torch.equal(parameter, before[name]), name
        assert (others[name].count > 0) == ("cells" in name), name


def test_frozen_parameters_stay() -> None:
    agent = ACKTR(
        "MlpPolicy", make_vec_env("CartPole-v1", 2), seed=0, n_steps=8, cold_iter=1, policy_kwargs={"net_arch": [4]}
    )
    frozen = agent.policy.body[0].weight.requires_grad_(False)
    before = frozen.clone()
    agent.learn(64)
    assert torch.equal(frozen, before)
    assert agent.parts.algorithm.fisher.layers["body.0"].count == 0
    assert agent.parts.algorithm.fisher.others["body.0.bias"].count == 4


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("trained", [(), ("critic_body.0.weight",), ("head", "body")])
def test_nearly_everything_may_be_frozen(trained: tuple[str, ...], is_new: bool) -> None:
    agent = ACKTR("MlpPolicy", make_vec_env("CartPole-v1", 2), seed=0, n_steps=8, cold_iter=1, kfac_update=1)
    if not is_new:
        agent.learn(32)
    for name, parameter in agent.policy.named_parameters():
        parameter.requires_grad_(name.startswith(trained) if trained else False)
    before = {name: parameter.detach().clone() for name, parameter in agent.policy.named_parameters()}
    agent.learn(64, reset_num_timesteps=False)
    for name, parameter in agent.policy.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name


def test_replaced_layers_get_new_factors() -> None:
    agent = ACKTR(
        "MlpPolicy", make_vec_env("CartPole-v1", 2), seed=0, n_steps=8, cold_iter=0, policy_kwargs={"net_arch": [4]}
    )
    agent.learn(48)
    stored = agent.parts.algorithm.fisher.layers["value"]
    agent.policy.body[0] = nn.Linear(4, 4)
    agent.learn(16, reset_num_timesteps=False)
    layers = agent.parts.algorithm.fisher.layers
    assert layers["value"] is stored
    assert stored.count == 4
    assert layers["body.0"].count == 1


def test_resuming_between_two_eigendecompositions_changes_nothing(tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_steps": 8, "cold_iter": 1, "kfac_update": 3, "seed": 0, "learning_rate": 0.1}
    networks = {"net_arch": [4]}
    whole = ACKTR("MlpPolicy", make_vec_env("Pendulum-v1", 2), **options, policy_kwargs=networks)
    whole.learn(16 * 3)
    path = whole.save(tmp_path / "agent")
    parted = ACKTR.load(path, env=make_vec_env("Pendulum-v1", 2))
    rollouts = [rollout_of(whole, 8, seed) for seed in range(3)]
    for rollout in rollouts:
        for agent in (whole, parted):
            agent.parts.algorithm.update(rollout, progress=0.0)
        pairs = zip(whole.policy.parameters(), parted.policy.parameters(), strict=True)
        assert all(torch.equal(one, two) for one, two in pairs)


def test_infinite_inputs_stop_the_training() -> None:
    agent = ACKTR(
        "MlpPolicy", make_vec_env("CartPole-v1", 2), seed=0, n_steps=4, cold_iter=0, policy_kwargs={"net_arch": [4]}
    )
    rollout = rollout_of(agent, 4)
    steps = rollout.steps
    features = steps.observation.features * 1e30
    broken = replace(rollout, steps=replace(steps, observation=replace(steps.observation, features=features)))
    with pytest.raises(DivergenceError, match="training diverged"):
        agent.parts.algorithm.update(broken, progress=0.0)


def test_blocks_of_another_network_are_refused() -> None:
    small, large = FisherInformation(nn.Linear(2, 2)), observed(nn.Linear(3, 2), torch.randn(4, 3), torch.randn(4, 2))
    with pytest.raises(ValueError, match="stored tensors"):
        small.load_state_dict(large.state_dict())
    assert isinstance(small.layers[""], KroneckerBlock)
    with pytest.raises(ValueError, match="of another network"):
        small.load_state_dict({"layers": {"head": {}}, "others": {}})


@in_one_test
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kfac_clip": 0.0}, "kfac_clip = 0.0 is outside"),
        ({"kfac_update": 0}, "kfac_update = 0 is outside"),
        ({"damping": 0.0}, "damping = 0.0 is outside"),
        ({"momentum": 1.0}, "momentum = 1.0 is outside"),
        ({"stats_decay": 1.0}, "stats_decay = 1.0 is outside"),
        ({"cold_iter": -1}, "cold_iter = -1 is outside"),
        ({"lr_schedule": "linear"}, "unknown setting 'lr_schedule'"),
        ({"momentum": 0.5, "policy_kwargs": {"optimizer_class": "adam"}}, "momentum = 0.5 is of SGD"),
        ({"n_steps": 1, "normalize_advantage": True}, "cannot be normalized"),
    ],
)
def test_settings_without_meaning_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        ACKTR("MlpPolicy", "CartPole-v1", **settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
