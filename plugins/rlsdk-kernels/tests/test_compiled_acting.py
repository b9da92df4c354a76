"""Compiled acting samples the actions of numpy and torch with the same random numbers, in single calls and for rollouts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator, nn

from rlsdk.distributions.categorical import FORBIDDEN, SMALLEST
from rlsdk.errors import UsageError
from rlsdk.kernels.protocol import GumbelNoise, NormalNoise
from rlsdk_kernels import compiled_library
from rlsdk_kernels.compiled_acting import ChoiceSampling, GreedyChoice, VectorSampling, can_act_in_place, sampling_of
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.numpy_distributions import GumbelSampler, NormalSampler
from tests.compiled_variants import needs_library
from tests.tables import in_one_test

GUMBEL = GumbelNoise(FORBIDDEN, SMALLEST)
pytestmark = [needs_library, pytest.mark.usefixtures("variant"), pytest.mark.kernels("tests compiled kernels")]


def network_of(inputs: int, hidden: int, outputs: int) -> CompiledDense:
    return CompiledDense([nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)])


@in_one_test
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rows", [1, 300])
def test_sampled_choices_are_those_of_numpy(masked: bool, rows: int) -> None:
    torch.manual_seed(0)
    network, seen = network_of(5, 8, 7), torch.randn(rows, 5)
    mask = torch.rand(rows, 7) < 0.5 if masked else None
    if mask is not None:
        mask[:, 3] = True
    one, two = Generator().manual_seed(5), Generator().manual_seed(5)
    found = ChoiceSampling(network, GUMBEL)(seen, mask, one)
    assert torch.equal(found, GumbelSampler(GUMBEL)(network(seen), mask, two))
    assert torch.equal(one.get_state(), two.get_state())


@in_one_test
@pytest.mark.parametrize("rows", [1, 300])
def test_sampled_vectors_are_those_of_numpy(rows: int) -> None:
    torch.manual_seed(0)
    network, noise = network_of(5, 8, 7), NormalNoise(nn.Parameter(torch.randn(7)))
    seen, one, two = torch.randn(rows, 5), Generator().manual_seed(5), Generator().manual_seed(5)
    found = VectorSampling(network, noise)(seen, None, one)
    torch.testing.assert_close(found, NormalSampler(noise)(network(seen), None, two))
    assert torch.equal(one.get_state(), two.get_state())
    narrower = VectorSampling(network, NormalNoise(nn.Parameter(torch.zeros(6))))
    with pytest.raises(UsageError, match="the policy takes"):
        narrower(seen, None, one)


def test_noise_that_is_zero_counts_as_the_smallest_number() -> None:
    layer = nn.Linear(1, 3)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([1.0, 2.0, 0.0]))
    drawn, found, call = torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64), CompiledDense([layer]).call
    function = compiled_library.loaded_library().act_by_choice
    call(function, torch.zeros(1, 1), None, drawn.data_ptr(), SMALLEST, found.data_ptr())
    assert found.tolist() == [1]


@in_one_test
@pytest.mark.parametrize("entries", [1, 3])
def test_greedy_actions(entries: int) -> None:
    torch.manual_seed(0)
    network, seen = network_of(6, 8, 4 * entries), torch.randn(400, 6)
    choice, best = GreedyChoice(network, entries), network(seen).view(400, 4, entries).sum(-1).argmax(-1)
    assert torch.equal(choice(seen, None, Generator()), best)
    numbers = Generator().manual_seed(1)
    other, random = torch.randint(4, (400,), generator=numbers), torch.rand(400, generator=numbers)
    limit = random[(other != best).nonzero()[9, 0]].clone()  # a number that is not below the limit
    found = choice(seen, limit, Generator().manual_seed(1))
    assert torch.equal(found, torch.where(random < limit, other, best))


@in_one_test
@pytest.mark.parametrize("kind", ["choices", "masked choices", "vectors", "greedy"])
@pytest.mark.parametrize("rows", [1, 3])
def test_actions_in_storage_are_those_of_single_steps(kind: str, rows: int) -> None:
    torch.manual_seed(0)
    network, features, mask = network_of(5, 8, 6), torch.randn(20, rows, 5), None
    one, two, epsilon = Generator().manual_seed(5), Generator().manual_seed(5), torch.tensor(0.5)
    if kind == "greedy":
        choice = GreedyChoice(network, 2)
        act, storage = choice.in_place(features, epsilon, one)
        expected: Any = lambda t: choice(features[t], epsilon, two)  # noqa: E731
    else:
        if kind == "masked choices":
            mask = torch.rand(20, rows, 6) < 0.4
            mask[..., 1] = True
        sampling = sampling_of(network, NormalNoise(nn.Parameter(torch.randn(6))) if kind == "vectors" else GUMBEL)
        act, storage = sampling.in_place(features, mask, one)
        expected = lambda t: sampling(features[t], None if mask is None else mask[t], two)  # noqa: E731
    for t in range(20):
        if t == 10:
            epsilon.fill_(0.1)  # schedules change it during a rollout
        act(t)
        assert torch.equal(storage[t], expected(t))
    assert torch.equal(one.get_state(), two.get_state())


def test_storage_that_c_code_cannot_read_is_refused() -> None:
    network, features = network_of(5, 8, 6), torch.randn(20, 3, 5)
    assert can_act_in_place(network, features, torch.ones(20, 3, 6, dtype=torch.bool))
    for other in (features.double(), features[..., :4], torch.randn(20, 15), features[:, ::2], torch.randn(20, 3, 6)):
        assert not can_act_in_place(network, other)
    assert not can_act_in_place(network, features, torch.ones(20, 6, 3, dtype=torch.bool).transpose(1, 2))
    for mask in (torch.ones(20, 3, 5, dtype=torch.bool), torch.ones(20, 3, 6)):
        with pytest.raises(UsageError, match="the policy takes"):
            ChoiceSampling(network, GUMBEL).in_place(features, mask, Generator())
