"""The numpy kernels for the actor-critic loss and for distributions, and the compiled loss, return the same values and
gradients as torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlsdk.distributions import Categorical
from rlsdk.distributions.gaussian import Gaussian
from rlsdk.errors import UsageError
from rlsdk.kernels import KernelChoice, factory
from rlsdk.kernels.protocol import GumbelNoise, LossTerms, NormalNoise, PolicyLoss, PolicyOutputs
from rlsdk.records import Observation
from rlsdk.updates import PolicyBatch
from rlsdk.updates.clipped_policy import policy_loss
from rlsdk_kernels.compiled_library import library
from rlsdk_kernels.compiled_policy import CompiledPolicyLoss
from rlsdk_kernels.numpy_distributions import Taken, taken
from rlsdk_kernels.policy_loss import PolicyLossKernel
from tests.tables import in_one_test

NOISE = GumbelNoise(-1e8, 1e-30)
LOSSES = [PolicyLossKernel(), *([CompiledPolicyLoss()] if library() is not None else [])]
by_all = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def rows_of(count: int, weighted: bool) -> tuple[PolicyBatch, PolicyOutputs]:
    numbers = torch.Generator().manual_seed(count)
    log_prob, value, advantage, target, new_value, moved, entropy = torch.randn(7, count, generator=numbers).unbind()
    none = torch.zeros(count, dtype=torch.bool)
    weight = (torch.arange(count) % 3 != 1).float() if weighted else None
    seen = Observation(torch.zeros(count, 1), none)
    rows = PolicyBatch(seen, none, log_prob, value, 3.0 * advantage + 1.0, target, ((), ()), none, weight)
    nothing = {"made": lambda: Categorical(log_prob), "fisher": lambda: lambda v: v}
    return rows, PolicyOutputs(log_prob=log_prob + 0.3 * moved, entropy=entropy.abs(), value=new_value, **nothing)  # type: ignore[arg-type]


@in_one_test
@by_all
@pytest.mark.kernels("compares a kernel with torch")
@pytest.mark.parametrize("count", [1, 2, 5, 64, 257])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("clip", "clip_value"), [(None, None), (0.2, None), (0.1, 0.3)])
@pytest.mark.parametrize("ent_coef", [0.0, 0.01])
def test_means_and_gradients(
    loss: PolicyLoss,
    count: int,
    weighted: bool,
    normalize: bool,
    clip: float | None,
    clip_value: float | None,
    ent_coef: float,
) -> None:
    rows, now = rows_of(count, weighted)
    terms = LossTerms(clip, clip_value, ent_coef, 0.5, normalize)
    means, grads = loss(rows, now, terms)
    expected, others = policy_loss(rows, now, terms)
    assert means.dtype is expected.dtype
    torch.testing.assert_close(means, expected, atol=1e-6, rtol=1e-5)
    for mine, other in zip(grads, others, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            torch.testing.assert_close(mine, other, atol=1e-7, rtol=1e-5)


def test_gradients_are_those_of_autograd() -> None:
    rows, now = rows_of(50, weighted=True)
    leaves = [leaf.clone().requires_grad_() for leaf in (now.log_prob, now.entropy, now.value)]
    moved = replace(now, log_prob=leaves[0], entropy=leaves[1], value=leaves[2])
    means, grads = policy_loss(rows, moved, LossTerms(0.2, 0.3, 0.01, 0.5, True))
    for mine, other in zip(grads, torch.autograd.grad(means[-1], leaves), strict=True):
        assert mine is not None
        torch.testing.assert_close(mine, other, atol=1e-7, rtol=1e-5)


@in_one_test
@by_all
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1e18, 1e20, 1e30, 1e37])
def test_large_advantages_are_normalized(loss: PolicyLoss, size: float, weighted: bool) -> None:
    """Their squares are beyond float32."""
    terms, (rows, now) = LossTerms(0.2, None, 0.0, 0.5, True), rows_of(64, weighted)
    wanted, _ = loss(rows, now, terms)
    found, (grad, *_) = loss(replace(rows, advantage=rows.advantage * size), now, terms)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert torch.isfinite(grad).all()


@by_all
def test_what_is_not_finite_comes_out_so(loss: PolicyLoss) -> None:
    rows, now = rows_of(5, weighted=False)
    terms = LossTerms(0.2, None, 0.0, 0.5, True)
    for number in (float("nan"), float("inf")):
        rows.advantage[1] = number
        assert not loss(rows, now, terms)[0].isfinite().all()


@pytest.mark.skipif(library() is None, reason="this installation compiled no kernels")
def test_the_compiled_loss_reads_no_column_of_another_length() -> None:
    rows, now = rows_of(5, weighted=True)
    for short in (replace(rows, advantage=rows.advantage[:4]), replace(rows, weight=torch.ones(6))):
        with pytest.raises(UsageError, match="the columns of a batch of 5 rows"):
            CompiledPolicyLoss()(short, now, LossTerms(0.2, None, 0.0, 0.5, True))


@pytest.mark.parametrize("setting", ["autograd", "torch"])
def test_other_settings_leave_the_loss_to_torch(setting: str) -> None:
    assert factory.policy_loss(KernelChoice(setting), policy_loss) is policy_loss


@in_one_test
@pytest.mark.kernels("compares a kernel with torch")
@pytest.mark.parametrize("outputs", [2, 5])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("with_entropy", [False, True])
def test_choices(outputs: int, masked: bool, with_entropy: bool) -> None:
    torch.manual_seed(0)
    raw, action = 3.0 * torch.randn(40, outputs), torch.randint(outputs, (40,))
    mask = (torch.rand(40, outputs) > 0.4).scatter(1, action[:, None], True) if masked else None
    distribution = Categorical.of(raw, mask)
    mine = taken(raw.numpy(), action, mask, NOISE)
    compare(mine, distribution, action, with_entropy)


@pytest.mark.kernels("compares a kernel with torch")
@pytest.mark.parametrize("with_entropy", [False, True])
def test_vectors(with_entropy: bool) -> None:
    torch.manual_seed(0)
    raw, action, log_std = torch.randn(40, 3), torch.randn(40, 3), torch.tensor([0.5, -1.0, 0.0])
    mine = taken(raw.numpy(), action, None, NormalNoise(log_std))
    compare(mine, Gaussian(raw, log_std.expand_as(raw)), action, with_entropy)


def compare(mine: Taken, theirs: Categorical | Gaussian, action: torch.Tensor, with_entropy: bool) -> None:
    torch.testing.assert_close(torch.from_numpy(mine.log_prob), theirs.log_prob(action), atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(torch.from_numpy(mine.entropy), theirs.entropy(), atol=2e-6, rtol=1e-5)
    grads = torch.randn(40), torch.randn(40) if with_entropy else None
    grad, *own = mine.vjp(grads[0].numpy(), None if grads[1] is None else grads[1].numpy())
    expected, *rest = theirs.vjp(action, *grads)
    torch.testing.assert_close(torch.from_numpy(grad), expected, atol=2e-6, rtol=1e-5)
    for one, other in zip(own, rest, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other.sum(0), atol=2e-5, rtol=1e-4)
