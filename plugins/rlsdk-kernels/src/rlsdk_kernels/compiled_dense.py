"""Dense networks in compiled code: one call per pass instead of some ten per layer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from rlsdk.errors import DivergenceError, UsageError
from rlsdk.kernels import is_linear, no_choice
from rlsdk_kernels.backends import COMPILED
from rlsdk_kernels.compiled_library import Layer, as_floats, loaded_library, places, threads_of
from rlsdk_kernels.dense_kernel import activations_of
from rlsdk_kernels.memory import Memory, require_memory

Places = ctypes.Array[ctypes.c_void_p]
"""The addresses of tensors shaped like the weight and bias of each layer."""
_grad = attrgetter("grad")
ACTIVATIONS = (nn.Identity, nn.ReLU, nn.Tanh)  # numbered as in `dense.h`
DIVERGED = 2
"""What functions of `acting.c` return if outputs are not finite."""


class Trace(NamedTuple):
    """What a forward pass leaves for the gradients."""

    inputs: Tensor  # [N, I]
    hidden: Tensor  # the outputs of all layers but the last, one [N, width] after another
    outputs: Tensor  # [N, O] or [C, N, O]


class CompiledDense:
    """Evaluates linear layers on the CPU, with activations between them: a network, or an ensemble of C networks.

    A layer of a network, except the last, may have layer normalization before its activation. The class has the methods of
    `DenseKernel` that networks need which share no layers. Outputs are [N, O], of an ensemble [C, N, O].
    """

    backend = COMPILED
    name = COMPILED.name

    def __init__(self, modules: Iterable[nn.Module], member: int | None = None) -> None:
        """Check `can_be_compiled` first. `member` is the index of one member of an ensemble, to evaluate it alone."""
        self.modules, self.member = list(modules), member
        self.linear = [module for module in self.modules if is_linear(module)]
        self._norms = norms_of(self.modules)
        own = [each for each in self._norms if each is not None]
        self.parameters = [
            cast("nn.Parameter", p) for module in (*self.linear, *own) for p in (module.weight, module.bias)
        ]
        """Weight and bias of each linear layer, then of each normalization."""
        self._shapes, first = [parameter.shape for parameter in self.parameters], self.parameters[0]
        self._stacked = first.dim() == 3
        self._lead = first.shape[:1] if self._stacked and member is None else first.shape[:0]
        # an ensemble stores weights [I, O], a network [O, I]
        weights = self._shapes[: 2 * len(self.linear) : 2]
        sizes = [shape[-2:] if self._stacked else shape[::-1] for shape in weights]
        kinds = [ACTIVATIONS.index(kind) for kind in activations_of(without_norms(self.modules))]
        *hidden, self.output_size = (outputs for _, outputs in sizes)
        self.widest = max(max(size) for size in sizes)
        members, self._count = self._lead.numel(), len(self.linear)
        self.input_size, self._counts = sizes[0][0], (members, self._count)
        self.hidden_size = members * sum(hidden) + sum(len(each.weight) + 1 for each in own)
        self._sizes_and_kinds = [*zip(sizes, kinds, strict=True)] * members
        self._known: tuple[Memory, ctypes.Array[Layer]] = Memory(), (Layer * 0)()
        self._gradients: tuple[Memory, Places] = Memory(), places(())
        library = loaded_library()
        self._forward, self._only_outputs = library.dense_forward, library.dense_outputs
        self._backpropagate, self._jvp = library.dense_backward, library.dense_jvp
        self._threads = threads_of(library)

    def evaluate(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I], outputs [N, O]."""
        outputs, trace = self.forward(inputs)
        return outputs, lambda grad: self.backward(trace, grad, self.gradients())

    def evaluate_inputs(self, inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See `rlsdk.kernels.protocol.DenseNetwork`; inputs [N, I], outputs [N, O]."""
        outputs, trace = self.forward(inputs)
        if self._lead:
            return outputs, lambda grad: self.input_grad(trace, grad).sum(0)
        return outputs, lambda grad: self.input_grad(trace, grad)

    def outputs_of_several(self, inputs: Tensor, count: int) -> Tensor | None:
        """One call per batch [N, I] is as fast; see `rlsdk.kernels.protocol.DenseNetwork`."""
        return None

    def forward(self, inputs: Tensor) -> tuple[Tensor, Trace]:
        """Return (outputs [N, O], the trace for `backward` and `jvp`) for inputs [N, I]."""
        x, layers = self.checked(inputs), self.layers()
        rows = x.shape[0]
        hidden, outputs = x.new_empty(rows * self.hidden_size), x.new_empty(*self._lead, rows, self.output_size)
        if self._forward(layers, *self._counts, x.data_ptr(), rows, hidden.data_ptr(), outputs.data_ptr()):
            raise exhausted()
        return outputs, Trace(x, hidden, outputs)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return only the outputs [N, O] of a network for inputs [N, I]."""
        x = self.checked(inputs)
        outputs = x.new_empty(x.shape[0], self.output_size)
        if self._only_outputs(self.layers(), self._count, x.data_ptr(), x.shape[0], outputs.data_ptr()):
            raise exhausted()
        return outputs

    outputs = __call__

    def call(self, function: Callable[..., int], inputs: Tensor, *arguments: float | None) -> None:
        """Call a function of compiled code with the layers of a network, inputs [N, I] and `arguments`."""
        x = self.checked(inputs)
        if found := function(self.layers(), self._count, x.data_ptr(), x.shape[0], *arguments):
            raise not_acted(found)

    def calls(self, function: Callable[..., int], inputs: Tensor, *others: Tensor) -> Callable[..., None]:
        """Return a function of t and `arguments` that does the same as `call` with `inputs[t]`, for inputs [T, N, I].

        It is faster, because addresses are determined once. Parameters must keep their memory while it is used. `others` are
        tensors whose addresses are in `arguments`.
        """
        if inputs.ndim != 3 or inputs.shape[2] != self.input_size or as_floats(inputs) is not inputs:
            raise ValueError(f"the network takes contiguous float32 inputs [T, N, {self.input_size}] on cpu")
        layers, count, start, rows = self.layers(), self._count, inputs.data_ptr(), inputs.shape[1]
        size, alive = rows * self.input_size * inputs.element_size(), (inputs, others, kept_memory((inputs, *others)))

        def call(t: int, *arguments: float | None, alive: object = alive) -> None:
            if found := function(layers, count, start + t * size, rows, *arguments):
                raise not_acted(found)

        return call

    def backward(self, trace: Trace, grad: Tensor, into: Places | None) -> None:
        """Write the gradient of a loss with respect to every parameter to `into`, given that with respect to the outputs
        [N, O]."""
        self._backward(trace, grad, into, None)

    def input_grad(self, trace: Trace, grad: Tensor, into: Places | None = None) -> Tensor:
        """Return the gradient with respect to the inputs, [N, I]. With `into`, also write the gradients of parameters."""
        result = trace.outputs.new_empty(*grad.shape[:-1], self.input_size)
        self._backward(trace, grad, into, result.data_ptr())
        return result

    def _backward(self, trace: Trace, grad: Tensor, into: Places | None, input_grad: int | None) -> None:
        layers, (x, hidden, outputs) = self.layers(), trace
        if grad.shape != outputs.shape:
            raise ValueError(f"the gradient has the shape {list(grad.shape)}, the outputs have {list(outputs.shape)}")
        found = as_floats(grad)
        start = layers, *self._counts, x.data_ptr(), x.shape[0], hidden.data_ptr(), outputs.data_ptr(), found.data_ptr()
        if self._backpropagate(*start, into, input_grad):
            raise exhausted()

    def jvp(self, trace: Trace, direction: Places) -> Tensor:
        """Return the change of the outputs [N, O] if the parameters change by `direction`."""
        layers, (x, hidden, outputs), change = self.layers(), trace, torch.empty_like(trace.outputs)
        start = layers, self._count, x.data_ptr(), x.shape[0], hidden.data_ptr(), outputs.data_ptr()
        if self._jvp(*start, direction, change.data_ptr()):
            raise exhausted()
        return change

    def gradients(self) -> Places:
        """Return the addresses of the parameters' `grad`, for `backward`."""
        own: list[Tensor] = list(map(_grad, self.parameters))
        if not self._gradients[0].is_that_of(own):
            require_memory(own)
            self._gradients = Memory(own), self.arrays(own)
        return self._gradients[1]

    def trained(self) -> tuple[ctypes.Array[Layer], int, Places]:
        """Return the layers, their number and the addresses of their gradients, for a function that changes the parameters.

        Raises:
            UsageError: a parameter or a gradient is not contiguous.
        """
        layers = self.layers()
        if self._known[0].addresses is None:
            raise UsageError("a parameter of the policy is not contiguous: call zero_grad() of the optimizer")
        return layers, self._count, self.gradients()

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
                    f" float32 {list(parameter.shape)}: call zero_grad() of the optimizer"
                )
        return places(self._parts(found))

    def _parts(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return tensors [..] shaped like the parameters; of an ensemble, the parts of one member after another."""
        if not self._stacked:
            return tensors
        chosen = range(self._counts[0]) if self.member is None else [self.member]
        return [tensor.detach()[member] for member in chosen for tensor in tensors]

    def checked(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2 or inputs.shape[1] != self.input_size:
            raise ValueError(f"the network takes inputs [N, {self.input_size}], not {list(inputs.shape)}")
        return as_floats(inputs)

    def layers(self) -> ctypes.Array[Layer]:
        """The layers with the addresses of their parameters, which are read again if a parameter has other memory or another
        layout.

        Raises:
            UsageError: a parameter has another shape, dtype or device, or has lost its memory.
        """
        if torch.get_num_threads() != self._threads.used:
            self._threads.follow_torch()
        own, (before, layers) = self.parameters, self._known
        # the same as `is_that_of`, without its call
        if before.addresses == list(map(Tensor.data_ptr, own)) and before.read_alike(*own):
            return layers
        for parameter, shape in zip(self.parameters, self._shapes, strict=True):
            if parameter.dtype is not torch.float32 or not parameter.is_cpu or parameter.shape != shape:
                raise UsageError(
                    f"a parameter of the policy became {parameter.dtype} {list(parameter.shape)} on {parameter.device}; it must"
                    f" stay torch.float32 {list(shape)} on cpu: call policy.float(), and choose the device when the agent is"
                    " made or loaded"
                )
        require_memory(self.parameters)
        parts = self._parts(memory := list(map(as_floats, self.parameters)))
        layers = (Layer * len(self._sizes_and_kinds))(*self._described(parts))
        copied = any(used is not parameter for used, parameter in zip(memory, self.parameters, strict=True))
        layers.memory = kept_memory(memory)  # type: ignore[attr-defined]
        known = Memory() if copied else Memory(self.parameters)
        self._known = known, layers  # one assignment, because several threads may predict
        return layers

    def _described(self, parts: list[Tensor]) -> list[Layer]:
        """Return the layers of one member after another, with the addresses of `parts` [..]."""
        count, pairs = len(self._sizes_and_kinds), list(zip(parts[::2], parts[1::2], strict=True))
        found = [
            Layer(weight.data_ptr(), bias.data_ptr(), *size, kind, self._stacked)
            for (weight, bias), (size, kind) in zip(pairs[:count], self._sizes_and_kinds, strict=True)
        ]
        normalized = [(layer, norm) for layer, norm in zip(found, self._norms, strict=False) if norm is not None]
        for (layer, norm), (scale, shift) in zip(normalized, pairs[count:], strict=True):
            layer.scale, layer.shift, layer.eps = scale.data_ptr(), shift.data_ptr(), norm.eps
        return found

    def __getstate__(self) -> dict[str, object]:
        """Return the state without addresses, which must not be copied or pickled."""
        return {"modules": self.modules, "member": self.member}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(cast("list[nn.Module]", state["modules"]), cast("int | None", state["member"]))  # type: ignore[misc]


def norms_of(modules: Sequence[nn.Module]) -> list[nn.LayerNorm | None]:
    """The layer normalization after each linear layer; None if there is none."""
    pairs = zip(modules, [*modules[1:], None], strict=True)
    return [after if type(after) is nn.LayerNorm else None for module, after in pairs if is_linear(module)]


def without_norms(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the modules that are not layer normalizations."""
    return [module for module in modules if type(module) is not nn.LayerNorm]


def kept_memory(tensors: Iterable[Tensor]) -> list[object]:
    """Return what keeps the memory of tensors [..] alive while their addresses are used, for example by a rollout.

    A tensor may get other memory meanwhile: `weight.data = ..`. Torch does not resize memory that numpy reads, so a callback
    that calls `weight.untyped_storage().resize_(0)` gets an error.
    """
    return [tensor.detach().numpy() for tensor in tensors]


def not_acted(found: int) -> MemoryError | DivergenceError:
    """Return the error for the result of a function of `acting.c` that is not 0."""
    return no_choice() if found == DIVERGED else exhausted()


def exhausted() -> MemoryError:
    """Return the error for a network whose layers need more memory than there is."""
    return MemoryError("there is no memory for the layers of a network; use fewer rows or narrower layers")
