"""Dense networks in compiled code: one call per pass instead of some ten per layer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels.backends import BACKENDS, COMPILED, TORCH
from rlsdk.kernels.compiled_library import Layer, as_floats, loaded_library, places
from rlsdk.kernels.dense_kernel import DenseKernel, activations_of
from rlsdk.kernels.hooks import is_hooked
from rlsdk.kernels.numpy_backend import NUMPY, Backend
from rlsdk.kernels.protocol import ACTIVATIONS, NUMPY_WIDTH, DenseLayers, DenseNetwork, is_dense, is_linear
from rlsdk.kernels.switch import may_compile

Places = ctypes.Array[ctypes.c_void_p]
"""The addresses of tensors shaped like the weight and bias of each layer."""
_grad = attrgetter("grad")


class Trace(NamedTuple):
    """What a forward pass leaves for the gradients."""

    inputs: Tensor  # [N, I]
    hidden: Tensor  # the outputs of all layers but the last, one [N, width] after another
    outputs: Tensor  # [N, O]


class CompiledDense:
    """Evaluates linear layers on the CPU, with activations between them: a network, or one member of an ensemble.

    It has the methods of `DenseKernel` that networks need which share no layers.
    """

    backend = COMPILED
    name = COMPILED.name

    def __init__(self, modules: Iterable[nn.Module], member: int | None = None) -> None:
        """Check `can_be_compiled` first. `member` is the index of the member of an ensemble; None: it is no ensemble."""
        self.modules, self.member = list(modules), member
        self.linear = [module for module in self.modules if is_linear(module)]
        self.parameters = [cast("nn.Parameter", p) for module in self.linear for p in (module.weight, module.bias)]
        self._kinds = [ACTIVATIONS.index(kind) for kind in activations_of(self.modules)]
        self._shapes = [parameter.shape for parameter in self.parameters]
        weights = [shape[-2:] if member is None else shape[:-3:-1] for shape in self._shapes[::2]]  # [O, I]
        self._width, (*hidden, self._outputs) = weights[0][1], (outputs for outputs, _ in weights)
        self._sizes, self._hidden = [(inputs, outputs) for outputs, inputs in weights], sum(hidden)
        self._known: tuple[list[int], ctypes.Array[Layer], list[Tensor]] = [], (Layer * 0)(), []
        self._gradients: tuple[list[int], Places] = [], places(())
        library = loaded_library()
        self._count, self._only_outputs = len(self.linear), library.dense_outputs
        self._forward, self._backpropagate, self._jvp = library.dense_forward, library.dense_backward, library.dense_jvp

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """See `rlsdk.kernels.protocol.Kernel`; inputs [N, I], outputs [N, O]."""
        outputs, trace = self.forward(inputs)
        return outputs, lambda grad: self.backward(trace, grad, self.gradients())

    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I], outputs [N, O]."""
        outputs, trace = self.forward(inputs)
        return outputs, lambda grad: self.input_grad(trace, grad)

    def outputs_of_several(self, inputs: Tensor, count: int) -> Tensor | None:
        """One call per batch [N, I] is as fast; see `rlsdk.kernels.protocol.DenseNetwork`."""
        return None

    def forward(self, inputs: Tensor) -> tuple[Tensor, Trace]:
        """Return (outputs [N, O], the trace for `backward` and `jvp`) for inputs [N, I]."""
        x, layers = self._checked(inputs), self._layers()
        rows = x.shape[0]
        hidden, outputs = x.new_empty(rows * self._hidden), x.new_empty(rows, self._outputs)
        if self._forward(layers, self._count, x.data_ptr(), rows, hidden.data_ptr(), outputs.data_ptr()):
            raise _exhausted()
        return outputs, Trace(x, hidden, outputs)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return only the outputs [N, O] for inputs [N, I]."""
        x, layers = self._checked(inputs), self._layers()
        rows = x.shape[0]
        outputs = x.new_empty(rows, self._outputs)
        if self._only_outputs(layers, self._count, x.data_ptr(), rows, outputs.data_ptr()):
            raise _exhausted()
        return outputs

    outputs = __call__

    def backward(self, trace: Trace, grad: Tensor, into: Places | None) -> None:
        """Write the gradient of a loss with respect to every parameter to `into`, given that with respect to the outputs
        [N, O]."""
        self._backward(trace, grad, into, None)

    def input_grad(self, trace: Trace, grad: Tensor, into: Places | None = None) -> Tensor:
        """Return the gradient with respect to the inputs, [N, I]. With `into`, also write the gradients of parameters."""
        result = trace.outputs.new_empty(len(grad), self._width)
        self._backward(trace, grad, into, result.data_ptr())
        return result

    def _backward(self, trace: Trace, grad: Tensor, into: Places | None, input_grad: int | None) -> None:
        layers, (x, hidden, outputs) = self._layers(), trace
        if grad.shape != outputs.shape:
            raise ValueError(f"the gradient has the shape {list(grad.shape)}, the outputs have {list(outputs.shape)}")
        found = as_floats(grad)
        start = layers, self._count, x.data_ptr(), x.shape[0], hidden.data_ptr(), outputs.data_ptr(), found.data_ptr()
        if self._backpropagate(*start, into, input_grad):
            raise _exhausted()

    def jvp(self, trace: Trace, direction: Places) -> Tensor:
        """Return the change of the outputs [N, O] if the parameters change by `direction`."""
        layers, (x, hidden, outputs), change = self._layers(), trace, torch.empty_like(trace.outputs)
        start = layers, self._count, x.data_ptr(), x.shape[0], hidden.data_ptr(), outputs.data_ptr()
        if self._jvp(*start, direction, change.data_ptr()):
            raise _exhausted()
        return change

    def gradients(self) -> Places:
        """Return the addresses of the parameters' `grad`, for `backward`."""
        own: list[Tensor] = list(map(_grad, self.parameters))
        addresses = list(map(Tensor.data_ptr, own))
        if addresses != self._gradients[0]:
            self._gradients = addresses, self.arrays(own)
        return self._gradients[1]

    def arrays(self, tensors: Iterable[Tensor]) -> Places:
        """Return the addresses of tensors [..] shaped like the parameters. The tensors must stay alive.

        Raises:
            UsageError: a tensor has other numbers or another layout than C code can read.
        """
        found = list(tensors)
        for tensor, parameter in zip(found, self.parameters, strict=True):
            if tensor.shape != parameter.shape or as_floats(tensor) is not tensor:
                raise UsageError(
                    f"a gradient is {tensor.dtype} {list(tensor.shape)} with strides {tensor.stride()}; it must be contiguous"
                    f" float32 {list(parameter.shape)}: call zero_grad() of the optimiser"
                )
        return places(map(self._own, found))

    def _own(self, tensor: Tensor) -> Tensor:
        """Return the part of a parameter or gradient [..] or [C, ..] that belongs to this network."""
        return tensor if self.member is None else tensor.detach()[self.member]

    def _checked(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2 or inputs.shape[1] != self._width:
            raise ValueError(f"the network takes inputs [N, {self._width}], not {list(inputs.shape)}")
        return as_floats(inputs)

    def _layers(self) -> ctypes.Array[Layer]:
        """The layers with the addresses of their parameters, which are read again if a parameter has other memory."""
        addresses, (before, layers, _) = list(map(Tensor.data_ptr, self.parameters)), self._known
        if addresses == before:
            return layers
        for parameter, shape in zip(self.parameters, self._shapes, strict=True):
            if parameter.dtype is not torch.float32 or not parameter.is_cpu or parameter.shape != shape:
                raise UsageError(
                    f"a parameter of the policy became {parameter.dtype} {list(parameter.shape)} on {parameter.device}; it must"
                    f" stay torch.float32 {list(shape)} on cpu: call policy.float(), and choose the device when the agent is"
                    " made or loaded"
                )
        memory = list(map(as_floats, self.parameters))
        own, stored_by_inputs = map(self._own, memory), self.member is not None
        pairs = zip(own, own, self._sizes, self._kinds, strict=True)
        layers = (Layer * self._count)(
            *(Layer(w.data_ptr(), b.data_ptr(), *size, kind, stored_by_inputs) for w, b, size, kind in pairs)
        )
        copied = any(used is not parameter for used, parameter in zip(memory, self.parameters, strict=True))
        self._known = [] if copied else addresses, layers, memory  # one assignment, because several threads may predict
        return layers

    def __getstate__(self) -> dict[str, object]:
        """Return the state without addresses, which must not be copied or pickled."""
        return {"modules": self.modules, "member": self.member}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(cast("list[nn.Module]", state["modules"]), cast("int | None", state["member"]))  # type: ignore[misc]


class CompiledEnsemble:
    """Evaluates the members of an ensemble one after another: their layers and outputs then stay in the caches."""

    name = COMPILED.name

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        """Check `can_be_compiled` first."""
        self.modules = list(modules)
        self.members = [CompiledDense(self.modules, member) for member in range(members_of(self.modules))]

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """See `rlsdk.kernels.protocol.Kernel`; inputs [N, I], outputs [C, N, O]."""
        outputs, vjps = zip(*(member.evaluate(inputs) for member in self.members), strict=True)

        def vjp(grad: Tensor) -> None:
            for own, member_vjp in zip(grad, vjps, strict=True):
                member_vjp(own)

        return torch.stack(outputs), vjp

    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I], outputs [C, N, O]."""
        outputs, vjps = zip(*(member.evaluate_inputs(inputs) for member in self.members), strict=True)

        def vjp(grad: Tensor) -> Tensor:
            first, *rest = (member_vjp(own) for own, member_vjp in zip(grad, vjps, strict=True))
            for further in rest:
                first += further
            return first

        return torch.stack(outputs), vjp

    def outputs_of_several(self, inputs: Tensor, count: int) -> Tensor | None:
        """One call per batch [N, I] is as fast; see `rlsdk.kernels.protocol.DenseNetwork`."""
        return None


def _exhausted() -> MemoryError:
    return MemoryError("there is no memory for the layers of a network; use fewer rows or narrower layers")


def members_of(modules: Iterable[nn.Module]) -> int:
    """Return the number of members of an ensemble of dense layers; 0 for a single network."""
    weight = next(cast("nn.Parameter", module.weight) for module in modules if is_linear(module))
    return len(weight) if weight.dim() == 3 else 0


def can_be_compiled(modules: Iterable[nn.Module]) -> bool:
    """Whether modules are dense layers of float32 on the CPU, all of one network or of one ensemble, without hooks."""
    chosen = list(modules)
    if not is_dense(chosen) or any(map(is_hooked, chosen)):
        return False
    parameters = [parameter for module in chosen for parameter in module.parameters()]
    weights, members = [weight.shape for weight in parameters[::2]], members_of(chosen)
    sizes = [shape[-2:] if members else shape[:-3:-1] for shape in weights]  # (inputs, outputs) of each layer
    stacked = (members,) if members else ()
    return (
        all(p.dtype is torch.float32 and p.is_cpu for p in parameters)
        and all(shape[:-2] == stacked for shape in weights)
        and [bias.shape for bias in parameters[1::2]] == [(members, 1, o) if members else (o,) for _, o in sizes]
        and all(one[1] == two[0] for one, two in pairwise(sizes))
    )


def network_of(modules: Iterable[nn.Module], name: str, member: int | None = None) -> DenseNetwork:
    """Return the kernel for learning with the backend of this name. `member` is the index of one member of an ensemble, to
    evaluate it alone."""
    chosen = list(modules)
    if name == COMPILED.name and can_be_compiled(chosen):
        return CompiledEnsemble(chosen) if members_of(chosen) and member is None else CompiledDense(chosen, member)
    return DenseKernel(chosen, without_compiled(chosen) if name == COMPILED.name else BACKENDS[name], member)


def dense_of(modules: Iterable[nn.Module], name: str) -> DenseLayers:
    """Return the dense kernel of a single network with the backend of this name. Numpy or torch evaluates what compiled
    code cannot."""
    chosen = list(modules)
    if name == COMPILED.name and can_be_compiled(chosen) and not members_of(chosen):
        return CompiledDense(chosen)
    return DenseKernel(chosen, without_compiled(chosen) if name == COMPILED.name else BACKENDS[name])


def without_compiled(modules: Sequence[nn.Module]) -> Backend:
    """The fastest backend for layers that compiled code cannot evaluate: numpy for narrow ones, torch for others."""
    return NUMPY if widest(modules) <= NUMPY_WIDTH else TORCH


def widest(modules: Iterable[nn.Module]) -> int:
    """The largest number of outputs of linear layers."""
    return max(cast("nn.Parameter", module.bias).shape[-1] for module in modules if is_linear(module))


def acting_dense(modules: Iterable[nn.Module]) -> DenseLayers:
    """Return the fastest kernel for acting with few rows. Numpy is as fast for wide layers."""
    chosen = list(modules)
    narrow = all(max(parameter.shape) <= NUMPY_WIDTH for module in chosen for parameter in module.parameters())
    return dense_of(chosen, COMPILED.name if narrow and may_compile() else NUMPY.name)
