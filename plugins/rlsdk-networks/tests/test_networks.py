"""Outputs, random zeros and errors of the networks alone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlsdk.errors import SettingsError
from rlsdk_networks import MlpNetwork, SeededDropout, SimbaNetwork
from rlsdk_networks.reference import dense, residual

SPACE = spaces.Box(-1.0, 1.0, (3,), np.float32)
NESTED = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2, 2), np.float32), "b": spaces.Tuple([spaces.Discrete(3)])})
ROUNDING: Any = {"rtol": 1e-12, "atol": 1e-14}
"""How far float64 outputs may differ. Near 0 they are differences of numbers of size 1, so an absolute limit counts there."""


def inputs(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def disturbed(network: nn.Module) -> nn.Module:
    """The network in float64 with random weights everywhere, so that no layer norm is the identity."""
    generator = torch.Generator().manual_seed(0)
    for parameter in network.double().parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return network


def weights_of(network: nn.Module) -> dict[str, Any]:
    return {name: value.numpy() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("net_arch", [[], [5], [6, 4, 5]])
def test_dense_layers_equal_the_formula(layer_norm: bool, activation: str, net_arch: list[int]) -> None:
    made = MlpNetwork(SPACE, 2, 4, net_arch=net_arch, activation_fn=activation, layer_norm=layer_norm)
    network, seen, action = disturbed(made), inputs(7, 3), inputs(7, 2)
    wanted = dense(weights_of(network), torch.cat([seen, action], 1).numpy(), activation)
    # sums may cancel to nearly 0
    np.testing.assert_allclose(network(seen, action).detach().numpy(), wanted, **ROUNDING)
    assert wanted.shape == (7, 4)
    # without dropout, compiled code computes them, if there is any
    single, given = deepcopy(network).float(), (seen.float(), action.float())
    found, gradient = single(*given), torch.autograd.grad
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-4, atol=1e-4)
    exact = gradient(network(seen, action).square().sum(), list(network.parameters()))
    for own, expected in zip(gradient(found.square().sum(), list(single.parameters())), exact, strict=True):
        torch.testing.assert_close(own.double(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()) + 1e-5)


@pytest.mark.parametrize("blocks", [1, 3])
def test_residual_blocks_equal_the_formula(blocks: int) -> None:
    network, seen = disturbed(SimbaNetwork(SPACE, 4, width=6, blocks=blocks, expansion=2)), inputs(7, 3)
    np.testing.assert_allclose(network(seen).detach().numpy(), residual(weights_of(network), seen.numpy()), **ROUNDING)


@pytest.mark.parametrize(
    ("kind", "small"), [(MlpNetwork, {"net_arch": [5]}), (SimbaNetwork, {"width": 6, "blocks": 1})]
)
@pytest.mark.parametrize("actions", [0, 2])
def test_networks_read_the_entries_that_keys_lists(kind: Any, small: dict[str, Any], actions: int) -> None:
    """They equal a network of these entries alone."""
    sizes = (actions, 4) if actions else (4,)
    torch.manual_seed(0)
    network = kind(NESTED, *sizes, keys=["a"], **small)
    torch.manual_seed(0)
    alone = kind(NESTED["a"], *sizes, **small)
    seen = {"a": torch.randn(7, 2, 2), "b": (torch.randn(7, 3),)}
    given = (torch.randn(7, 2),) if actions else ()
    assert torch.equal(network(seen, *given), alone(seen["a"], *given))


def test_the_sizes_of_simba_are_those_of_the_paper() -> None:
    actor, critic = SimbaNetwork(SPACE, 4), SimbaNetwork(SPACE, 2, 1)
    assert (len(actor.blocks), actor.embedding.out_features) == (1, 128)
    assert (len(critic.blocks), critic.embedding.out_features, critic.blocks[0].first.out_features) == (2, 512, 2048)  # type: ignore[union-attr]
    variance = float(critic.blocks[0].first.weight.detach().var())  # type: ignore[union-attr, operator]
    assert variance == pytest.approx(2.0 / 512, rel=0.01)
    torch.testing.assert_close(actor.embedding.weight.T @ actor.embedding.weight, torch.eye(3), atol=1e-5, rtol=0.0)


def test_nested_observations_are_joined_in_the_order_of_their_space() -> None:
    network = disturbed(MlpNetwork(NESTED, 2, net_arch=[5]))
    a, b = inputs(4, 2, 2), inputs(4, 3)
    wanted = dense(weights_of(network), torch.cat([a.flatten(1), b], 1).numpy(), "relu")
    np.testing.assert_allclose(network({"a": a, "b": (b,)}).detach().numpy(), wanted, **ROUNDING)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_zeros_are_independent_and_have_the_probability_of_the_rate(rate: float) -> None:
    layer, ones = SeededDropout(rate), torch.ones(400, 500)
    found = torch.stack([layer(ones, True) for _ in range(5)])
    zero = found == 0.0
    entries, expected = zero.numel(), rate * zero.numel()
    deviation = (entries * rate * (1.0 - rate)) ** 0.5
    assert abs(int(zero.sum()) - expected) < 4.0 * deviation
    torch.testing.assert_close(found[~zero], torch.full_like(found[~zero], 1.0 / (1.0 - rate)))
    # neighbors in a row, in a column, and the same entry in two passes
    for both in (zero[:, :, 1:] & zero[:, :, :-1], zero[:, 1:] & zero[:, :-1], zero[1:] & zero[:-1]):
        share = rate**2 * both.numel()
        assert abs(int(both.sum()) - share) < 5.0 * share**0.5
    # every place can be zero, the first and the last too
    many = torch.stack([layer(torch.ones(1, 20), True) for _ in range(2000)])[:, 0]
    assert bool(((many == 0.0).float().mean(0) > 0.3 * rate).all())


def test_zeros_follow_from_the_state() -> None:
    layer, x = SeededDropout(0.1), torch.ones(20, 50)
    layer(x, True)
    twin, third = deepcopy(layer), SeededDropout(0.1)
    third.load_state_dict(layer.state_dict())
    after = layer(x, True)
    assert torch.equal(after, twin(x, True))
    assert torch.equal(after, third(x, True))
    assert not torch.equal(after, layer(x, True)), "every pass has other zeros"
    assert torch.equal(layer(x, False), x)
    assert not torch.equal(SeededDropout(0.1)(x, True), SeededDropout(0.1)(x, True)), "every layer has other zeros"


def test_units_drop_in_training_and_in_target_critics() -> None:
    critic, network = MlpNetwork(SPACE, 2, 1, dropout=0.5), MlpNetwork(SPACE, 2, dropout=0.5)
    seen, action = inputs(3, 3).float(), inputs(3, 2).float()

    def varies(network: nn.Module, *given: Tensor) -> bool:
        return not torch.equal(network(*given), network(*given))

    assert varies(critic, seen, action)
    assert varies(network, seen)
    assert not varies(critic.eval(), seen, action)
    assert not varies(network.eval(), seen)
    assert varies(critic.requires_grad_(False), seen, action), "a target critic (algorithm 2 of arXiv:2110.02034)"
    assert not varies(network.requires_grad_(False), seen), "a target network of Q-learning"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"dropout": 1.0}, r"dropout = 1\.0 must be a number from 0 to below 1"),
        ({"dropout": True}, "dropout = True must be a number"),
        ({"layer_norm": 1}, "layer_norm = 1 must be true or false"),
        ({"activation_fn": "sin"}, "activation_fn = 'sin'; accepted: elu, gelu"),
        ({"net_arch": {"pi": [3]}}, r"must be a list of layer widths, such as \[256, 256\]"),
        ({"net_arch": [0]}, "layer widths must be positive whole numbers"),
    ],
)
def test_wrong_settings_of_dense_layers_are_errors(arguments: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SettingsError, match=wanted):
        MlpNetwork(SPACE, 1, **arguments)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"width": 0}, "width = 0 must be"),
        ({"blocks": 1.5}, r"blocks = 1\.5"),
        ({"expansion": True}, "expansion = True"),
    ],
)
def test_wrong_settings_of_residual_blocks_are_errors(arguments: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SettingsError, match=wanted):
        SimbaNetwork(SPACE, 1, **arguments)
