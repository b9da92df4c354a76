"""Linear layers and activations without autograd: forward, vector-Jacobian and Jacobian-vector products.

Arrays are views of the modules' parameters: the optimizer, `load_state_dict` and the kernel use the same memory. The
same code serves numpy and torch, single networks and ensembles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels import is_dense, is_hooked, is_linear
from rlsdk_kernels import backends
from rlsdk_kernels.backends import BACKENDS, TORCH
from rlsdk_kernels.memory import Memory, require_memory
from rlsdk_kernels.numpy_backend import NUMPY, Activation, Array, Backend

Trace = Array
"""The list of the input of a forward pass and the output of every layer after its activation; or the traces of members."""
_grad = attrgetter("grad")
BLOCK = 2048
"""The number of rows that are evaluated together if no trace is needed.

The outputs of layers then stay in the caches, in memory that the previous block has freed. New memory pages from the
operating system cost more than the arithmetic of narrow layers.
"""
ACTING_ROWS = 32
"""Up to this number of rows, acting is faster in numpy for any width."""


class DenseLayers(Protocol):
    """The methods of a dense kernel that other kernels call; see `DenseKernel`.

    The type of traces and of arrays shaped like the parameters depends on the kernel.
    """

    @property
    def backend(self) -> Backend: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Sequence[nn.Parameter]: ...
    @property
    def linear(self) -> Sequence[nn.Module]: ...
    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]: ...
    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]: ...
    def outputs_of_several(self, inputs: Tensor, count: int) -> Tensor | None: ...
    def outputs(self, inputs: Tensor) -> Tensor: ...
    def forward(self, x: Array, /) -> tuple[Array, Array]: ...
    def __call__(self, x: Array, /) -> Array: ...
    def backward(self, trace: Array, grad: Array, into: Array) -> None: ...
    def input_grad(self, trace: Array, grad: Array, into: Array = None) -> Array: ...
    def jvp(self, trace: Array, direction: Array) -> Array: ...
    def gradients(self) -> Array: ...
    def arrays(self, tensors: Iterable[Tensor]) -> Array: ...


@dataclass(frozen=True, slots=True)
class Layer:
    """Views of the parameters of one layer. `matrix` is [.., I, O] for both layouts of the module's weights."""

    matrix: Array
    bias: Array
    activation: Activation | None


class DenseKernel:
    """Evaluates linear layers with activations between them.

    A linear layer has `weight` [O, I] and `bias` [O], or, for C members of an ensemble, [C, I, O] and [C, 1, O].
    """

    def __init__(self, modules: Iterable[nn.Module], backend: Backend = NUMPY, member: int | None = None) -> None:
        """`member` is the index of one member of an ensemble, to evaluate it alone.

        Raises:
            ValueError: the modules are not dense, or have hooks; check `is_dense` first.
        """
        self.modules, self.backend = list(modules), backend
        if not is_dense(self.modules) or any(map(is_hooked, self.modules)):
            raise ValueError(
                f"a dense kernel has linear layers with activations between them and no hooks, not {self.modules}"
            )
        self.linear = [module for module in self.modules if is_linear(module)]
        self.parameters = [cast("nn.Parameter", p) for module in self.linear for p in (module.weight, module.bias)]
        self._kind = self.parameters[0].dtype, self.parameters[0].device
        self.ensemble, self.member = self.parameters[0].dim() == 3, member
        members = len(self.parameters[0]) if self.ensemble and member is None else 0
        self.members = [DenseKernel(self.modules, backend, member) for member in range(members)]
        self._widest = max(parameter.shape[-2:].numel() for parameter in self.parameters[::2])
        self._shapes = [parameter.shape for parameter in self.parameters]
        self._known: tuple[Memory, list[Layer]] = Memory(), []
        self._gradients: tuple[Memory, list[Array]] = Memory(), []

    @property
    def name(self) -> str:
        return self.backend.name

    # --- tensors -----------------------------------------------------------------------------------------------------

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I], outputs [.., N, O]."""
        with torch.no_grad():
            outputs, trace = self.forward(self.backend.array(inputs))
        return self.backend.tensor(outputs), lambda grad: self.backward(
            trace, self.backend.array(grad), self.gradients()
        )

    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I], outputs [.., N, O]."""
        with torch.no_grad():
            outputs, trace = self.forward(self.backend.array(inputs))

        def vjp(grad: Tensor) -> Tensor:
            found = self.backend.tensor(self.input_grad(trace, self.backend.array(grad)))
            return found.sum(0) if self.ensemble and self.member is None else found

        return self.backend.tensor(outputs), vjp

    def outputs_of_several(self, inputs: Tensor, count: int) -> Tensor | None:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I], outputs [N, O]."""
        if self.ensemble or self.backend is not NUMPY:
            return None
        x = inputs.numpy().reshape(count, -1, inputs.shape[-1])
        for layer in self._layers():
            x = np.matmul(x, layer.matrix)  # rounds like `dot` for each batch, unlike one product
            x += layer.bias
            if layer.activation is not None:
                x = layer.activation.apply(x)
        return torch.from_numpy(x).flatten(0, 1)

    # --- arrays ------------------------------------------------------------------------------------------------------

    def forward(self, x: Array) -> tuple[Array, Trace]:
        """Return (outputs [.., N, O], the trace for `backward` and `jvp`) for inputs [N, I]."""
        if self.members and self._is_split(x):
            outputs, traces = zip(*map(DenseKernel.forward, self.members, repeat(x)), strict=True)
            return self.backend.stack(outputs), list(traces)
        trace = [x]
        for layer in self._layers():
            x = self.backend.affine(x, layer.matrix, layer.bias)
            if layer.activation is not None:
                x = layer.activation.apply(x)
            trace.append(x)
        return x, trace

    def __call__(self, x: Array) -> Array:
        """Return only the outputs [.., N, O] for inputs [N, I]."""
        if self.members and self._is_split(x):
            return self.backend.stack(list(map(DenseKernel.__call__, self.members, repeat(x))))
        if len(x) > BLOCK and x.ndim == 2:
            return self.backend.join(list(map(self, self.blocks(x))))
        for layer in self._layers():
            x = self.backend.affine(x, layer.matrix, layer.bias)
            if layer.activation is not None:
                x = layer.activation.apply(x)
        return x

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return only the outputs [.., N, O] for inputs [N, I], both tensors."""
        return self.backend.tensor(self(self.backend.array(inputs)))

    def blocks(self, x: Array) -> list[Array]:
        """Divide the rows of [N, I] into blocks of `BLOCK` rows."""
        return [x[start : start + BLOCK] for start in range(0, len(x), BLOCK)]

    def backward(self, trace: Trace, grad: Array, into: Sequence[Array] | None) -> None:
        """Write the gradient of a loss with respect to every parameter to the arrays `into`.

        Args:
            trace: the trace of the forward pass.
            grad: the gradient with respect to the outputs, [.., N, O].
            into: arrays as `gradients` and `arrays` return them; None: gradients of parameters are not computed.
        """
        self.backpropagate(trace, grad, into, to_input=False)

    def input_grad(self, trace: Trace, grad: Array, into: Sequence[Array] | None = None) -> Array:
        """Return the gradient with respect to the inputs, [.., N, I]. With `into`, also compute the gradients of parameters."""
        return self.backpropagate(trace, grad, into, to_input=True)

    def backpropagate(self, trace: Trace, grad: Array, into: Sequence[Array] | None, *, to_input: bool) -> Array:
        layers, backend = self._layers(), self.backend
        if self.members and isinstance(trace[0], list):
            places = zip(*into, strict=True) if into is not None else [None] * len(trace)
            each = zip(self.members, trace, grad, places, strict=True)
            found = [member.backpropagate(*arguments, to_input=to_input) for member, *arguments in each]
            return backend.stack(found) if to_input else None
        for i in reversed(range(len(layers))):
            if (activation := layers[i].activation) is not None:
                grad = activation.vjp(grad, trace[i + 1])
            if into is not None:
                x, weight = trace[i], into[2 * i]
                backend.product(*((x.mT, grad) if self.ensemble else (grad.mT, x)), out=weight)
                backend.sum_rows(grad, out=into[2 * i + 1])
            if i or to_input:
                grad = backend.product(grad, layers[i].matrix.mT)
        return grad

    def jvp(self, trace: Trace, direction: Sequence[Array]) -> Array:
        """Return the change of the outputs [.., N, O] if the parameters change by `direction`, arrays as `arrays`
        returns them."""
        if self.members and isinstance(trace[0], list):
            each = zip(self.members, trace, zip(*direction, strict=True), strict=True)
            return self.backend.stack([member.jvp(*arguments) for member, *arguments in each])
        change: Array = None
        for i, layer in enumerate(self._layers()):
            weight = direction[2 * i] if self.ensemble else direction[2 * i].mT
            moved = self.backend.affine(trace[i], weight, direction[2 * i + 1])
            if change is not None:
                moved += self.backend.product(change, layer.matrix)
            change = moved if layer.activation is None else layer.activation.vjp(moved, trace[i + 1])
        return change

    def gradients(self) -> list[Array]:
        """Return views of the parameters' `grad`, for `backward`."""
        own: list[Tensor] = list(map(_grad, self.parameters))
        if not self._gradients[0].is_that_of(own):
            require_memory(own)
            self._gradients = Memory(own), self.arrays(own)
        return self._gradients[1]

    def arrays(self, tensors: Iterable[Tensor]) -> list[Array]:
        """Convert tensors shaped like the parameters to arrays of the backend; biases become [.., 1, O]."""
        found = [tensor.detach() if self.member is None else tensor.detach()[self.member] for tensor in tensors]
        return [self.backend.array(t.unsqueeze(0) if t.dim() == 1 else t) for t in found]

    def _is_split(self, x: Array) -> bool:
        """Whether running members one after another is faster, because intermediate results then stay in the cache."""
        return self.backend is TORCH and x.ndim == 2 and x.shape[0] * self._widest >= backends.WORTH

    def _layers(self) -> list[Layer]:
        """The layers. Their views are made again if a parameter has other memory, or another layout, than before."""
        own, (before, layers) = self.parameters, self._known
        # the same as `is_that_of`, without its call
        if before.addresses != list(map(Tensor.data_ptr, own)) or not before.read_alike(*own):
            self._require_kind()
            arrays, kinds = self.arrays(self.parameters), activations_of(self.modules)
            layers = [
                Layer(
                    arrays[2 * i] if self.ensemble else arrays[2 * i].mT,
                    arrays[2 * i + 1],
                    self.backend.activations[kind],
                )
                for i, kind in enumerate(kinds)
            ]
            self._known = Memory(self.parameters), layers  # one assignment, because several threads may predict
        return layers

    def _require_kind(self) -> None:
        """Raises UsageError if parameters were moved, converted or shaped otherwise, which torch's own layers would refuse when
        they are called, or have lost their memory."""
        for parameter, shape in zip(self.parameters, self._shapes, strict=True):
            if (parameter.dtype, parameter.device) != self._kind or parameter.shape != shape:
                raise UsageError(
                    f"a parameter of the policy became {parameter.dtype} {list(parameter.shape)} on {parameter.device}; it must"
                    f" stay {self._kind[0]} {list(shape)} on {self._kind[1]}: call policy.float(), and choose the device when"
                    " the agent is made or loaded"
                )
        require_memory(self.parameters)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without views of memory, which must not be copied or pickled."""
        return {"modules": self.modules, "backend": self.backend.name, "member": self.member}

    def __setstate__(self, state: dict[str, object]) -> None:
        modules, member = cast("list[nn.Module]", state["modules"]), cast("int | None", state["member"])
        self.__init__(modules, BACKENDS[str(state["backend"])], member)  # type: ignore[misc]


def activations_of(modules: Sequence[nn.Module]) -> list[type[nn.Module]]:
    """The class of the activation after each linear layer; `nn.Identity` if there is none."""
    following = [*modules[1:], None]
    pairs = zip(modules, following, strict=True)
    return [
        type(after) if after is not None and not is_linear(after) else nn.Identity
        for module, after in pairs
        if is_linear(module)
    ]
