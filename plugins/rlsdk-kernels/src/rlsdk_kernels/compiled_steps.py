"""Gradient steps of actor-critic methods in compiled code: one call for all minibatches of an epoch.

It evaluates the network, computes the loss and its gradients, and makes the optimizer's step, as the functions of
`compiled_dense` and `compiled_policy` do one after another.
"""

from __future__ import annotations

from ctypes import Structure, addressof, byref, c_double, c_float, c_int64, c_void_p
from math import inf
from operator import is_

import torch
from torch import Tensor

from rlsdk.errors import UsageError
from rlsdk.kernels import ActorCriticLayers, GumbelNoise, PolicyRows, VectorStep
from rlsdk.updates import LossTerms, Minibatches
from rlsdk_kernels import compiled_library as c
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.compiled_vectors import fits, optimizer_of
from rlsdk_kernels.memory import Memory

NO_MEMORY, WRONG_ACTION, WRONG_ORDER = 1, 2, 3


class Policy(Structure):
    """An actor and a critic, as `policy_steps.c` declares them."""

    _fields_ = (
        *(("actor", c.Network), ("critic", c.Network)),
        *c.fields(c_void_p, "log_std log_std_grad"),
        *c.fields(c_float, "forbidden"),
    )


class Rows(Structure):
    """The rows of a rollout, as `policy_steps.c` declares them."""

    _fields_ = (
        *c.fields(c_void_p, "inputs action mask weight advantage old_log_prob old_value target"),
        *c.fields(c_int64, "rows"),
    )


class Order(Structure):
    """How rows are divided into minibatches, as `policy_steps.c` declares it."""

    _fields_ = (
        *c.fields(c_void_p, "order"),
        *c.fields(c_int64, "epochs chosen size"),
        *c.fields(c_double, "largest_kl"),
    )


class CompiledPolicySteps:
    """See `rlsdk.kernels.protocol.PolicySteps`."""

    def __init__(self, layers: ActorCriticLayers, actor: CompiledDense, critic: CompiledDense) -> None:
        """`actor` and `critic` evaluate the layers. The head has `sampling`."""
        self.layers, self.actor, self.critic = layers, actor, critic
        self._held: tuple[object, ...] = ()
        self._memory = self._step_memory = Memory()
        self._described = Policy()

    def __reduce__(self) -> tuple[object, ...]:
        return CompiledPolicySteps, (self.layers, self.actor, self.critic)  # addresses must not be copied

    def __call__(
        self, rows: PolicyRows, minibatches: Minibatches, terms: LossTerms, step: VectorStep
    ) -> tuple[Tensor, int, bool]:
        if not self._step_memory.is_that_of(vectors := (*step.vectors, step.made)):
            if not fits(step.vectors, step.vectors[0].numel()) or not fits((step.made,)):
                raise _unreadable()
            self._step_memory = Memory(vectors)
        read, totals = self._read(rows, terms), torch.zeros(6, dtype=torch.float32, device="cpu")
        places = Rows(*(None if tensor is None else tensor.data_ptr() for tensor in read), len(rows))
        divided, made = _divided(minibatches, len(rows)), (c_int64 * 2)()
        parts, counts = (self._policy(), places, divided, c.terms_of(terms), optimizer_of(step)), step.made.data_ptr()
        found = c.loaded_library().policy_steps(*map(byref, parts), counts, totals.data_ptr(), made)
        if found == NO_MEMORY:
            raise MemoryError("there is no memory for a minibatch; use a smaller batch_size")
        if found == WRONG_ACTION:
            raise c.not_a_choice(self.actor.output_size)
        if found == WRONG_ORDER:
            raise IndexError(f"an index is none of the {len(rows)} rows")
        return totals, made[0], made[0] > made[1]

    def _policy(self) -> Policy:
        """Return the networks and their gradients. They are described again only if something changed.

        Raises:
            UsageError: compiled code cannot change the parameters where they are.
        """
        head, networks = self.layers.head, (self.actor.trained(), self.critic.trained())
        own = [tensor for p in head.own_parameters for tensor in (p, p.grad) if tensor is not None]
        held = *networks[0], *networks[1], *own
        if len(held) == len(self._held) and all(map(is_, held, self._held)) and self._memory.is_that_of(own):
            return self._described
        if not fits(own, self.actor.output_size):
            raise _unreadable()
        forbidden = head.sampling.forbidden if isinstance(head.sampling, GumbelNoise) else 0.0
        parts = [c.Network(addressof(layers), count, addressof(grads)) for layers, count, grads in networks]
        self._held, self._memory = held, Memory(own)
        self._described = Policy(*parts, *(self._memory.addresses or (None, None)), forbidden)
        return self._described

    def _read(self, rows: PolicyRows, terms: LossTerms) -> list[Tensor | None]:
        """Return the tensors [N, ..] that compiled code reads, in the order of `Rows`; they must stay alive."""
        size, head, wide = len(rows), self.layers.head, self.actor.output_size
        features, action = c.as_floats(rows.observation.features), head.from_environment(rows.action)
        c.require_readable(features, (size, self.actor.input_size), torch.float32)
        kind, shape = (
            (torch.int64, (size,)) if isinstance(head.sampling, GumbelNoise) else (torch.float32, (size, wide))
        )
        action = action.contiguous() if kind is torch.int64 else c.as_floats(action)
        c.require_readable(action, shape, kind)
        mask = rows.observation.action_mask if self.layers.use_masks else None
        old_log_prob = None if terms.clip is None else rows.log_prob
        old_value = None if terms.clip_value is None else rows.value
        used = rows.weight, rows.advantage, old_log_prob, old_value, rows.target
        columns = (None if values is None else c.floats_of(values, size) for values in used)
        return [features, action, None if mask is None else c.as_mask(mask, (size, wide)), *columns]


def _unreadable() -> UsageError:
    return UsageError("parameters, gradients or moments are not contiguous float32 vectors on the CPU")


def _divided(minibatches: Minibatches, rows: int) -> Order:
    index, largest_kl = minibatches.order, inf if minibatches.largest_kl is None else minibatches.largest_kl
    if index is None:
        return Order(None, 1, rows, rows, largest_kl)
    right = index.dtype is torch.int64 and index.is_cpu and index.is_contiguous() and index.ndim == 2
    if not right or minibatches.size < 1:
        raise UsageError(
            "minibatches need contiguous int64 indices [E, M] and a positive size; found"
            f" {index.dtype} {list(index.shape)} with the strides {index.stride()}, and the size {minibatches.size}"
        )
    return Order(index.data_ptr(), *index.shape, minibatches.size, largest_kl)
