"""Actions taken and the loss of actor-critic methods, in compiled code.

Each function does the same as its counterpart in `numpy_distributions` or `policy_loss` in one call instead of ten to thirty.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from rlsdk.errors import UsageError
from rlsdk.kernels import GumbelNoise, NormalNoise, PlainHead, PolicyRows
from rlsdk.updates import LossTerms, PolicyOutputs
from rlsdk_kernels.compiled_library import (
    Columns,
    as_floats,
    as_mask,
    floats_of,
    loaded_library,
    not_a_choice,
    require_readable,
    terms_of,
)
from rlsdk_kernels.policy_loss import LossGrads

HeadVjp = Callable[[Tensor, Tensor | None], Tensor]
"""A function of the gradients of log-probabilities and entropies [N]. It returns the gradient with respect to the output of
the head's linear layer [N, O], and writes that of the head's own parameters to their `grad`."""


def taken(raw: Tensor, action: Tensor, mask: Tensor | None, head: PlainHead) -> tuple[Tensor, Tensor, HeadVjp]:
    """Return (log-probabilities [N] of the internal actions [N, ..], entropies [N], vjp), given the output `raw` [N, O] of
    the head's linear layer and a mask, bool [N, O] or None."""
    if isinstance(head.sampling, NormalNoise):
        return _vectors_taken(raw, as_floats(action), head)
    return _choices_taken(raw, action.contiguous(), mask, cast("GumbelNoise", head.sampling))


def _choices_taken(
    logits: Tensor, action: Tensor, mask: Tensor | None, noise: GumbelNoise
) -> tuple[Tensor, Tensor, HeadVjp]:
    """`action` is int64 [N], counted from 0."""
    library, (rows, choices) = loaded_library(), logits.shape
    require_readable(action, (rows,), torch.int64)
    allowed = None if mask is None else as_mask(mask, (rows, choices))
    log_probs, (log_prob, entropy) = torch.empty_like(logits), logits.new_empty(2, rows).unbind()
    if library.choices_taken(
        logits.data_ptr(),
        None if allowed is None else allowed.data_ptr(),
        action.data_ptr(),
        rows,
        choices,
        noise.forbidden,
        log_probs.data_ptr(),
        log_prob.data_ptr(),
        entropy.data_ptr(),
    ):
        raise not_a_choice(choices)

    def vjp(grad_log_prob: Tensor, grad_entropy: Tensor | None) -> Tensor:
        grad, own = torch.empty_like(log_probs), floats_of(grad_log_prob, rows)
        of_entropy = None if grad_entropy is None else floats_of(grad_entropy, rows)
        start = log_probs.data_ptr(), entropy.data_ptr(), action.data_ptr(), rows, choices, own.data_ptr()
        library.choices_vjp(*start, None if of_entropy is None else of_entropy.data_ptr(), grad.data_ptr())
        return grad

    return log_prob, entropy, vjp


def _vectors_taken(mean: Tensor, action: Tensor, head: PlainHead) -> tuple[Tensor, Tensor, HeadVjp]:
    """`action` is float [N, A]."""
    library, (rows, size), (parameter,) = loaded_library(), mean.shape, head.own_parameters
    require_readable(action, (rows, size), torch.float32)
    log_std = floats_of(parameter, size)
    standardized, (log_prob, entropy) = torch.empty_like(mean), mean.new_empty(2, rows).unbind()
    library.vectors_taken(
        mean.data_ptr(),
        log_std.data_ptr(),
        action.data_ptr(),
        rows,
        size,
        standardized.data_ptr(),
        log_prob.data_ptr(),
        entropy.data_ptr(),
    )

    def vjp(grad_log_prob: Tensor, grad_entropy: Tensor | None) -> Tensor:
        grad, own = torch.empty_like(mean), floats_of(grad_log_prob, rows)
        of_entropy = None if grad_entropy is None else floats_of(grad_entropy, rows)
        grad_log_std = cast("Tensor", parameter.grad)
        into = floats_of(grad_log_std, size)
        start = standardized.data_ptr(), log_std.data_ptr(), rows, size, own.data_ptr()
        library.vectors_vjp(
            *start, None if of_entropy is None else of_entropy.data_ptr(), grad.data_ptr(), into.data_ptr()
        )
        if into is not grad_log_std:
            grad_log_std.copy_(into)
        return grad

    return log_prob, entropy, vjp


class CompiledPolicyLoss:
    """See `rlsdk.kernels.protocol.PolicyLoss`."""

    def __call__(self, rows: PolicyRows, now: PolicyOutputs, terms: LossTerms) -> tuple[Tensor, LossGrads]:
        size, clip = rows.target.shape[0], terms.clip
        unused = now.value
        old_log_prob = unused if clip is None else rows.log_prob
        old_value = unused if terms.clip_value is None else rows.value
        weight = () if rows.weight is None else (rows.weight,)
        given = (rows.advantage, old_log_prob, old_value, rows.target, now.log_prob, now.entropy, now.value)
        columns = [as_floats(column) for column in (*weight, *given)]
        if any(column.shape != (size,) for column in columns):
            raise UsageError(
                f"the columns of a batch of {size} rows have the shapes {[list(c.shape) for c in columns]}"
            )
        addresses = [None] * (not weight) + list(map(Tensor.data_ptr, columns))
        grad_log_prob, grad_entropy, grad_value = columns[-1].new_empty(3, size).unbind()
        means = columns[-1].new_empty(6)
        loaded_library().policy_loss(
            ctypes.byref(Columns(*addresses)),
            size,
            ctypes.byref(terms_of(terms)),
            means.data_ptr(),
            grad_log_prob.data_ptr(),
            grad_entropy.data_ptr() if terms.ent_coef else None,
            grad_value.data_ptr(),
        )
        return means, (grad_log_prob, grad_entropy if terms.ent_coef else None, grad_value)
