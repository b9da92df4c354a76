"""Dense networks in compiled code: one call per pass instead of some ten per layer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels.backends import BACKENDS, COMPILED
from rlsdk.kernels.compiled_library import Layer, as_floats, loaded_library, places
from rlsdk.kernels.dense_kernel import BLOCK, DenseKernel, DenseLayers, activations_of
from rlsdk.kernels.hooks import is_hooked
from rlsdk.kernels.numpy_backend import NUMPY
from rlsdk.kernels.protocol import ACTIVATIONS, is_dense
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
    """Evaluates linear layers on the CPU, with activations between them.

    It has the methods of `DenseKernel` that networks need which share no layers.
    """

    backend = COMPILED
    name = COMPILED.name

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        """Check `can_be_compiled` first."""
        self.modules = list(modules)
        self.linear = [module for module in self.modules if isinstance(module, nn.Linear)]
        self.parameters = [cast("nn.Parameter", p) for module in self.linear for p in (module.weight, module.bias)]
        self._kinds = [ACTIVATIONS.index(kind) for kind in activations_of(self.modules)]
        self._width, self._outputs = self.linear[0].in_features, self.linear[-1].out_features
        self._hidden = sum(layer.out_features for layer in self.linear[:-1])
        self._known: tuple[list[int], ctypes.Array[Layer], list[Tensor]] = [], (Layer * 0)(), []
        self._gradients: tuple[list[int], Places] = [], places(())
        library = loaded_library()
        self._forward, self._backward_pass, self._jvp = (
            library.dense_forward,
            library.dense_backward,
            library.dense_jvp,
        )

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
        rows = len(x)
        hidden, outputs = x.new_empty(rows * self._hidden), x.new_empty(rows, self._outputs)
        self._require(self._forward(layers, len(layers), x.data_ptr(), rows, hidden.data_ptr(), outputs.data_ptr()))
        return outputs, Trace(x, hidden, outputs)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return only the outputs [N, O] for inputs [N, I]."""
        x, layers = self._checked(inputs), self._layers()
        rows = len(x)
        hidden, outputs = x.new_empty(min(rows, BLOCK) * self._hidden), x.new_empty(rows, self._outputs)
        source, target = x.data_ptr(), outputs.data_ptr()
        for start in range(0, rows, BLOCK):
            now = min(rows - start, BLOCK)
            self._require(self._forward(layers, len(layers), source, now, hidden.data_ptr(), target))
            source, target = source + 4 * now * self._width, target + 4 * now * self._outputs
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
        layers, (x, hidden, outputs), rows = self._layers(), trace, len(trace.outputs)
        if grad.shape != outputs.shape:
            raise ValueError(f"the gradient has the shape {list(grad.shape)}, the outputs have {list(outputs.shape)}")
        found = as_floats(grad)
        start = layers, len(layers), x.data_ptr(), rows, hidden.data_ptr(), outputs.data_ptr(), found.data_ptr()
        self._require(self._backward_pass(*start, into, input_grad))

    def jvp(self, trace: Trace, direction: Places) -> Tensor:
        """Return the change of the outputs [N, O] if the parameters change by `direction`."""
        layers, (x, hidden, outputs), change = self._layers(), trace, torch.empty_like(trace.outputs)
        start = layers, len(layers), x.data_ptr(), len(x), hidden.data_ptr(), outputs.data_ptr()
        self._require(self._jvp(*start, direction, change.data_ptr()))
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
        return places(found)

    def _checked(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2 or inputs.shape[1] != self._width:
            raise ValueError(f"the network takes inputs [N, {self._width}], not {list(inputs.shape)}")
        return as_floats(inputs)

    def _layers(self) -> ctypes.Array[Layer]:
        """The layers with the addresses of their parameters, which are read again if a parameter has other memory."""
        addresses, (before, layers, _) = list(map(Tensor.data_ptr, self.parameters)), self._known
        if addresses == before:
            return layers
        for parameter in self.parameters:
            if parameter.dtype is not torch.float32 or not parameter.is_cpu:
                raise UsageError(
                    f"a parameter of the policy became {parameter.dtype} on {parameter.device}; it must stay torch.float32 on"
                    " cpu: call policy.float(), and choose the device when the agent is made or loaded"
                )
        memory = list(map(as_floats, self.parameters))
        pairs = zip(memory[::2], memory[1::2], self._kinds, strict=True)
        layers = (Layer * len(self.linear))(
            *(Layer(w.data_ptr(), b.data_ptr(), w.shape[1], w.shape[0], kind) for w, b, kind in pairs)
        )
        copied = any(own is not parameter for own, parameter in zip(memory, self.parameters, strict=True))
        self._known = [] if copied else addresses, layers, memory  # one assignment, because several threads may predict
        return layers

    @staticmethod
    def _require(failed: int) -> None:
        if failed:
            raise MemoryError("there is no memory for the layers of a network")

    def __getstate__(self) -> dict[str, object]:
        """Return the state without addresses, which must not be copied or pickled."""
        return {"modules": self.modules}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(cast("list[nn.Module]", state["modules"]))  # type: ignore[misc]


def can_be_compiled(modules: Iterable[nn.Module]) -> bool:
    """Whether modules are dense layers of float32 on the CPU, of one network, without hooks."""
    chosen = list(modules)
    parameters = [parameter for module in chosen for parameter in module.parameters()]
    return (
        is_dense(chosen)
        and not any(map(is_hooked, chosen))
        and all(p.dim() < 3 and p.dtype is torch.float32 and p.is_cpu for p in parameters)
    )


def dense_of(modules: Iterable[nn.Module], name: str, member: int | None = None) -> DenseLayers:
    """Return the dense kernel with the backend of this name. Numpy is used for what compiled code cannot evaluate.

    `member` is the index of one member of an ensemble, to evaluate it alone.
    """
    chosen = list(modules)
    if name == COMPILED.name and member is None and can_be_compiled(chosen):
        return CompiledDense(chosen)
    return DenseKernel(chosen, NUMPY if name == COMPILED.name else BACKENDS[name], member)


def acting_dense(modules: Iterable[nn.Module]) -> DenseLayers:
    """Return the fastest kernel for acting with few rows."""
    return dense_of(modules, COMPILED.name if may_compile() else NUMPY.name)
