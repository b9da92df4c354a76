"""Dense networks whose layers have batch renormalization before them, in compiled code: one call per pass.

A layer with the class attribute `is_batch_renorm` is recognized as one. It has parameters `scale` and `bias`, [F] or [C, F] for
an ensemble, buffers `mean` and `variance` of the same shape and `passes`, int64 0-d, and numbers `momentum`, `eps` and
`warm_up`. While its attribute `in_batch` is true, it uses and moves statistics as `rlsdk_crossq.layers.BatchRenorm` does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import cast

import torch
from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels import is_dense, is_hooked, is_linear
from rlsdk_kernels.compiled_dense import CompiledDense, Places, exhausted, kept_memory
from rlsdk_kernels.compiled_library import Norm, as_floats, loaded_library, places
from rlsdk_kernels.dense_choice import can_be_compiled
from rlsdk_kernels.memory import Memory, require_memory

_grad = attrgetter("grad")
_tensors, _learned = attrgetter("scale", "bias", "mean", "variance", "passes"), attrgetter("scale", "bias")
_options = attrgetter("warm_up", "momentum", "eps")
Vjp = Callable[[Tensor, Places | None, Places | None, int | None], None]
"""A function of the gradient with respect to outputs, and of the addresses of the gradients of layers, of normalizations and of
inputs, or None."""
STATISTICS = 4
"""The numbers in a trace for each normalized feature, besides its values; see `renorm.c`."""


def is_renormalized(modules: Sequence[nn.Module]) -> bool:
    """Whether modules are linear layers and activations that compiled code evaluates, with batch renormalization before each
    linear layer."""
    norms, others = divided(modules)
    last = bool(others) and is_linear(others[-1]) and is_dense(others)
    if not norms or not last or not can_be_compiled(others) or any(map(is_hooked, norms)):
        return False
    linear = [module for module in others if is_linear(module)]
    before = [modules[i - 1] for i, module in enumerate(modules) if i and is_linear(module)]
    return before == norms and all(map(_fits, norms, linear))


def divided(modules: Sequence[nn.Module]) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return (the normalizations, the other modules)."""
    norms = [module for module in modules if _is_renorm(module)]
    return norms, [module for module in modules if not _is_renorm(module)]


def _is_renorm(module: nn.Module) -> bool:
    return bool(type(module).__dict__.get("is_batch_renorm", False))


def _fits(norm: nn.Module, linear: nn.Module) -> bool:
    """Whether the tensors of a normalization have the shape of the inputs of a linear layer."""
    weight, (*tensors, passes) = cast("Tensor", linear.weight), _tensors(norm)
    shape = weight.shape[:2] if weight.dim() == 3 else weight.shape[1:]
    fit = all(tensor.shape == shape and tensor.dtype is torch.float32 and tensor.is_cpu for tensor in tensors)
    return fit and passes.dtype is torch.int64 and passes.is_cpu


class CompiledRenorm:
    """Evaluates a network, or an ensemble of C networks, on the CPU. Outputs are [N, O], of an ensemble [C, N, O].

    See `rlsdk.kernels.protocol.DenseNetwork`.
    """

    name = CompiledDense.name

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        """Check `is_renormalized` first."""
        self.modules = list(modules)
        self.norms, others = divided(self.modules)
        self.dense = CompiledDense(others)
        first = self.dense.parameters[0]
        self._members, self._count = len(first) if first.dim() == 3 else 1, len(self.norms)
        self._lead = first.shape[:1] if first.dim() == 3 else first.shape[:0]
        self._learned: list[nn.Parameter] = [parameter for norm in self.norms for parameter in _learned(norm)]
        self._size = sum(parameter.shape[-1] for parameter in self._learned[::2])
        self._known: tuple[Memory, ctypes.Array[Norm]] = Memory(), (Norm * 0)()
        self._gradients: tuple[Memory, Places] = Memory(), places(())

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (outputs, vjp) for inputs [N, I]; `vjp` writes gradients of all parameters."""
        outputs, vjp = self._forward(inputs)

        def learn(grad: Tensor) -> None:
            vjp(grad, self.dense.gradients(), self._norm_gradients(), None)

        return outputs, learn

    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return (outputs, vjp) for inputs [N, I]; `vjp` returns the gradient with respect to them, [N, I]."""
        outputs, vjp = self._forward(inputs)

        def to_inputs(grad: Tensor) -> Tensor:
            result = outputs.new_empty(*outputs.shape[:-1], self.dense.input_size)
            vjp(grad, None, None, result.data_ptr())
            return result.sum(0) if self._lead else result

        return outputs, to_inputs

    def outputs_of_several(self, inputs: Tensor, count: int) -> Tensor | None:
        """One call per batch [N, I] is as fast; see `rlsdk.kernels.protocol.DenseNetwork`."""
        return None

    def _forward(self, inputs: Tensor) -> tuple[Tensor, Vjp]:
        """Return (outputs, vjp) for inputs [N, I]."""
        x, layers, norms = self.dense.checked(inputs), self.dense.layers(), self._norms()
        rows, in_batch, counts = len(x), bool(self.norms[0].in_batch), (self._members, self._count)
        trace = x.new_empty(self._members * self._size * (rows + STATISTICS))
        outputs = x.new_empty(*self._lead, rows, self.dense.output_size)
        addresses = trace.data_ptr(), outputs.data_ptr()
        if loaded_library().renorm_forward(layers, norms, *counts, x.data_ptr(), rows, in_batch, *addresses):
            raise exhausted()

        def vjp(grad: Tensor, into: Places | None, into_norms: Places | None, to_inputs: int | None) -> None:
            if grad.shape != outputs.shape:
                shapes = f"the gradient has the shape {list(grad.shape)}, the outputs have {list(outputs.shape)}"
                raise ValueError(shapes)
            found, layers, norms = as_floats(grad), self.dense.layers(), self._norms()
            start = layers, norms, *counts, rows, in_batch, trace.data_ptr(), found.data_ptr()
            if loaded_library().renorm_backward(*start, into, into_norms, to_inputs):
                raise exhausted()

        return outputs, vjp

    def _norms(self) -> ctypes.Array[Norm]:
        """The normalizations with the addresses of their numbers, which are read again if one has other memory or layout.

        Raises:
            UsageError: numbers have another shape, dtype, device or layout, or have lost their memory.
        """
        own: list[Tensor] = [tensor for norm in self.norms for tensor in _tensors(norm)]
        before, found = self._known
        if before.is_that_of(own):
            return found
        if not all(map(_fits, self.norms, self.dense.linear)) or not all(map(Tensor.is_contiguous, own)):
            raise UsageError(
                "numbers of a batch normalization became another dtype, device, shape or layout; they must stay contiguous"
                " float32 on cpu: call policy.float(), and choose the device when the agent is made or loaded"
            )
        require_memory(own)
        described = [self._norm(norm, member) for member in range(self._members) for norm in self.norms]
        found = (Norm * len(described))(*described)
        found.memory = kept_memory(own)  # type: ignore[attr-defined]
        self._known = Memory(own), found  # one assignment, because several threads may predict
        return found

    def _norm(self, norm: nn.Module, member: int) -> Norm:
        *tensors, passes = _tensors(norm)
        own = (tensor.detach()[member] if self._lead else tensor for tensor in tensors)
        return Norm(*map(Tensor.data_ptr, own), passes.data_ptr(), *_options(norm))

    def _norm_gradients(self) -> Places:
        """The addresses of the `grad` of scale and bias of each member's normalizations."""
        own: list[Tensor] = list(map(_grad, self._learned))
        if not self._gradients[0].is_that_of(own):
            require_memory(own)
            if any(as_floats(grad) is not grad for grad in own):
                raise UsageError(
                    "a gradient of a normalization is not contiguous float32: call zero_grad() of the optimizer"
                )
            members = range(self._members)
            parts = [grad[member] if self._lead else grad for member in members for grad in own]
            self._gradients = Memory(own), places(parts)
        return self._gradients[1]

    def __getstate__(self) -> dict[str, object]:
        """Return the state without addresses, which must not be copied or pickled."""
        return {"modules": self.modules}

    def __setstate__(self, state: dict[str, list[nn.Module]]) -> None:
        self.__init__(state["modules"])  # type: ignore[misc]
