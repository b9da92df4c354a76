"""Gradient steps of actor-critic methods in compiled code: one call for all minibatches of an epoch.

It evaluates the network, computes the loss and its gradients, and makes the optimiser's step, as the functions of
`compiled_dense` and `compiled_policy` do one after another.
"""

from __future__ import annotations

from ctypes import addressof, byref, c_int64
from math import inf
from typing import cast

import torch
from torch import Tensor

from rlsdk.errors import UsageError
from rlsdk.kernels.compiled_dense import CompiledDense
from rlsdk.kernels.compiled_library import Order, Policy, Rows, as_floats, loaded_library
from rlsdk.kernels.compiled_policy import as_mask, column, not_a_choice, require_readable, terms_of
from rlsdk.kernels.compiled_vectors import fits, optimiser_of
from rlsdk.kernels.protocol import (
    ActorCriticLayers,
    GumbelNoise,
    LossRows,
    LossTerms,
    Minibatches,
    NormalNoise,
    VectorStep,
)

NO_MEMORY, WRONG_ACTION, WRONG_ORDER = 1, 2, 3


class CompiledPolicySteps:
    """See `rlsdk.kernels.protocol.PolicySteps`."""

    def __init__(self, layers: ActorCriticLayers, actor: CompiledDense, critic: CompiledDense) -> None:
        """The layers of `actor` and `critic` are those of `layers`. Its head has `sampling`."""
        self.layers, self.actor, self.critic = layers, actor, critic

    def __call__(
        self, rows: LossRows, minibatches: Minibatches, terms: LossTerms, step: VectorStep
    ) -> tuple[Tensor, int, bool]:
        if not fits(step.vectors, step.vectors[0].numel()):
            raise UsageError("the optimiser has parameters, gradients or moments other than float32 on the CPU")
        policy, (places, read) = self._policy(), self._columns(rows, terms)
        order, limit, count = minibatches.order, minibatches.largest_kl, int(step.count)
        totals, made = torch.zeros(6), (c_int64 * 2)()
        read.append(order)
        chosen = (None, 0) if order is None else (order.data_ptr(), len(order))
        divided = Order(*chosen, minibatches.size, inf if limit is None else limit)
        given = byref(policy), byref(places), byref(divided), byref(terms_of(terms)), byref(optimiser_of(step))
        found = loaded_library().policy_steps(*given, count, totals.data_ptr(), made)
        step.count.add_(made[1])
        if found == NO_MEMORY:
            raise MemoryError("there is no memory for a minibatch; use a smaller batch_size")
        if found == WRONG_ACTION:
            raise not_a_choice(self.actor.output_size)
        if found == WRONG_ORDER:
            raise IndexError(f"an index is none of the {len(rows)} rows")
        return totals, made[0], made[0] > made[1]

    def _policy(self) -> Policy:
        networks = [
            (addressof(layers), count, addressof(grads))
            for layers, count, grads in (self.actor.trained(), self.critic.trained())
        ]
        noise = self.layers.head.sampling
        if not isinstance(noise, NormalNoise):
            return Policy(*networks[0], *networks[1], None, None, cast("GumbelNoise", noise).forbidden)
        (log_std,) = self.layers.head.own_parameters
        vectors = log_std.detach(), cast("Tensor", log_std.grad)
        if not fits(vectors, self.actor.output_size):
            raise UsageError("log_std or its gradient is not contiguous: call zero_grad() of the optimiser")
        return Policy(*networks[0], *networks[1], *map(Tensor.data_ptr, vectors), 0.0)

    def _columns(self, rows: LossRows, terms: LossTerms) -> tuple[Rows, list[Tensor | None]]:
        """Return the rows for compiled code and the tensors that it reads, which must stay alive."""
        size, head, wide = len(rows), self.layers.head, self.actor.output_size
        features, action = as_floats(rows.observation.features), head.from_environment(rows.action)
        require_readable(features, (size, self.actor.input_size), torch.float32)
        if isinstance(head.sampling, NormalNoise):
            action = as_floats(action)
            require_readable(action, (size, wide), torch.float32)
        else:
            action = action.contiguous()
            require_readable(action, (size,), torch.int64)
        mask = rows.observation.action_mask if self.layers.use_masks else None
        read = [
            features,
            action,
            None if mask is None else as_mask(mask, (size, wide)),
            None if rows.weight is None else column(rows.weight, size),
            column(rows.advantage, size),
            None if terms.clip is None else column(rows.log_prob, size),
            None if terms.clip_value is None else column(rows.value, size),
            column(rows.target, size),
        ]
        return Rows(*(None if tensor is None else tensor.data_ptr() for tensor in read), size), read
