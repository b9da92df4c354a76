"""A stack of linear layers and activations run by hand: forward, backward and forward mode without autograd.

Parameters stay where they are: arrays are views of the modules' tensors, so an optimiser, `load_state_dict` or a file sees
what the stack sees. One code serves numpy and torch, single networks and ensembles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor, nn

from rlsdk.engines import products
from rlsdk.engines.libraries import LIBRARIES, NUMPY, TORCH, Activation, Array, Library
from rlsdk.errors import UsageError

Trace = list[Any]
"""The input of a forward pass and what every layer gave, activated; or those of members run one after another."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Views of one layer. `matrix` [.., I, O] whichever way the module keeps its weights."""

    matrix: Array
    bias: Array
    activation: Activation


def stack_of(modules: Sequence[nn.Module], encoder: nn.Module, library: Library | None) -> Stack | None:
    """A stack on top of an encoder without parameters; None where one of them does not fit, or there is no library."""
    return Stack(modules, library) if library and not list(encoder.parameters()) and fits(modules) else None


class Stack:
    """Linear modules (`weight` [O, I] and `bias` [O], or [C, I, O] and [C, 1, O] of C members) and activations between them."""

    def __init__(self, modules: Iterable[nn.Module], library: Library = NUMPY, member: int | None = None) -> None:
        """`member`: one of an ensemble alone. Raises ValueError when there is a module it does not know; ask `fits` first."""
        self.modules, self.library = list(modules), library
        if not fits(self.modules):
            raise ValueError(f"a stack has linear layers with activations between them, not {self.modules}")
        self.linear = [module for module in self.modules if _is_linear(module)]
        self.parameters = [cast("nn.Parameter", p) for module in self.linear for p in (module.weight, module.bias)]
        self._kind = self.parameters[0].dtype, self.parameters[0].device
        self.ensemble, self.member = self.parameters[0].dim() == 3, member
        members = len(self.parameters[0]) if self.ensemble and member is None else 0
        self.members = [Stack(self.modules, library, member) for member in range(members)]
        self._widest = max(parameter.shape[-2:].numel() for parameter in self.parameters[::2])
        self._known: tuple[list[int], list[Layer]] = [], []
        self._gradients: list[Array] = []
        self._gradient_places: list[int] = []

    def forward(self, x: Array) -> tuple[Array, Trace]:
        """(outputs [.., N, O], what `backward` and `tangent` need) for inputs [N, I]."""
        if self.members and self._apart(x):
            outputs, traces = zip(*(member.forward(x) for member in self.members), strict=True)
            return self.library.stacked(outputs), list(traces)
        trace = [x]
        affine = self.library.affine
        for layer in self._bound():
            x = layer.activation.apply(affine(x, layer.matrix, layer.bias))
            trace.append(x)
        return x, trace

    def __call__(self, x: Array) -> Array:
        """Outputs alone."""
        if self.members and self._apart(x):
            return self.library.stacked([member(x) for member in self.members])
        affine = self.library.affine
        for layer in self._bound():
            x = layer.activation.apply(affine(x, layer.matrix, layer.bias))
        return x

    def evaluated(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """(outputs, what brings the gradient of a loss with respect to them into the parameters' `grad`), in tensors."""
        array = self.library.array
        outputs, trace = self.forward(array(x))
        return self.library.tensor(outputs), lambda slope: self.backward(trace, array(slope), self.gradients())

    def backward(self, trace: Trace, slope: Array, into: Sequence[Array] | None) -> None:
        """Write the gradient of a loss with respect to every parameter `into` arrays shaped as they are.

        Args:
            trace: of the forward pass.
            slope: gradient with respect to the outputs, [.., N, O].
            into: as `gradients` and `views` give them; None = only pass back.
        """
        self._pull(trace, slope, into, to_input=False)

    def input_slope(self, trace: Trace, slope: Array, into: Sequence[Array] | None = None) -> Array:
        """The gradient with respect to the inputs, [.., N, I]; parameters' own are formed only where `into` is given."""
        return self._pull(trace, slope, into, to_input=True)

    def _pull(self, trace: Trace, slope: Array, into: Sequence[Array] | None, *, to_input: bool) -> Array:
        layers, library = self._bound(), self.library
        if self.members and isinstance(trace[0], list):
            places = zip(*into, strict=True) if into is not None else [None] * len(trace)
            asked = zip(self.members, trace, slope, places, strict=True)
            back = [member._pull(*of, to_input=to_input) for member, *of in asked]
            return library.stacked(back) if to_input else None
        for i in reversed(range(len(layers))):
            slope = layers[i].activation.pull(slope, trace[i + 1])
            if into is not None:
                x, weight = trace[i], into[2 * i]
                library.product(*((x.mT, slope) if self.ensemble else (slope.mT, x)), out=weight)
                library.total(slope, into[2 * i + 1])
            if i or to_input:
                slope = library.product(slope, layers[i].matrix.mT)
        return slope

    def tangent(self, trace: Trace, direction: Sequence[Array]) -> Array:
        """How the outputs change [.., N, O] when the parameters move in `direction` (as `views` gives it)."""
        if self.members and isinstance(trace[0], list):
            asked = zip(self.members, trace, zip(*direction, strict=True), strict=True)
            return self.library.stacked([member.tangent(*of) for member, *of in asked])
        change: Array = None
        for i, layer in enumerate(self._bound()):
            weight = direction[2 * i] if self.ensemble else direction[2 * i].mT
            moved = self.library.affine(trace[i], weight, direction[2 * i + 1])
            if change is not None:
                moved += self.library.product(change, layer.matrix)
            change = layer.activation.pull(moved, trace[i + 1])
        return change

    def gradients(self) -> list[Array]:
        """Views of the parameters' `grad`, for `backward`."""
        own = [cast("Tensor", parameter.grad) for parameter in self.parameters]
        places = [gradient.data_ptr() for gradient in own]
        if places != self._gradient_places:
            self._gradient_places, self._gradients = places, self.arrays(own)
        return self._gradients

    def arrays(self, tensors: Iterable[Tensor]) -> list[Array]:
        """Tensors shaped as the parameters are, as this library's arrays; biases [.., 1, O]."""
        found = [tensor.detach() if self.member is None else tensor.detach()[self.member] for tensor in tensors]
        return [self.library.array(t.unsqueeze(0) if t.dim() == 1 else t) for t in found]

    def _apart(self, x: Array) -> bool:
        """Whether members are better run one after another, so that what they pass on stays in the cache."""
        return self.library is TORCH and x.ndim == 2 and len(x) * self._widest >= products.WORTH

    def _bound(self) -> list[Layer]:
        """The layers, looked at again where a parameter was given other memory since."""
        places, (before, layers) = list(map(Tensor.data_ptr, self.parameters)), self._known
        if places != before:
            self._require_kind()
            arrays, kinds = self.arrays(self.parameters), _activations(self.modules)
            layers = [
                Layer(
                    arrays[2 * i] if self.ensemble else arrays[2 * i].mT,
                    arrays[2 * i + 1],
                    self.library.activations[kind],
                )
                for i, kind in enumerate(kinds)
            ]
            self._known = places, layers  # at once: agents predict from several threads
        return layers

    def _require_kind(self) -> None:
        """Raises UsageError: parameters were moved or converted, which torch's own layers would refuse when called."""
        for parameter in self.parameters:
            if (parameter.dtype, parameter.device) != self._kind:
                raise UsageError(
                    f"a parameter of the policy became {parameter.dtype} on {parameter.device}; it must stay {self._kind[0]} on"
                    f" {self._kind[1]}: call policy.float(), and choose the device when the agent is made or loaded"
                )

    def __getstate__(self) -> dict[str, Any]:
        """Views of memory are not copied and not sent."""
        return {"modules": self.modules, "library": self.library.name, "member": self.member}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["modules"], LIBRARIES[state["library"]], state["member"])  # type: ignore[misc]


def _is_linear(module: nn.Module) -> bool:
    """Classes derived from them, such as torch's parametrised layers, may compute something else."""
    return type(module) is nn.Linear or type(module).__dict__.get("is_ensemble_linear", False)


def _tensors_of(module: nn.Module) -> tuple[Any, Any]:
    return module._parameters.get("weight"), module._parameters.get("bias")


def _activations(modules: Sequence[nn.Module]) -> list[type[nn.Module]]:
    """What follows each linear layer."""
    following = [*modules[1:], None]
    pairs = zip(modules, following, strict=True)
    return [
        type(after) if after is not None and not _is_linear(after) else nn.Identity
        for module, after in pairs
        if _is_linear(module)
    ]


def fits(modules: Sequence[nn.Module]) -> bool:
    """Whether a `Stack` can run these modules exactly: linear layers with bias, each followed by at most one
    activation it knows, without hooks."""
    if not modules or not _is_linear(modules[0]):
        return False
    for module, before in zip(modules, [None, *modules], strict=False):
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return False
        if _is_linear(module):
            if any(not isinstance(p, nn.Parameter) or not p.is_floating_point() for p in _tensors_of(module)):
                return False
        elif type(module) not in NUMPY.activations or before is None or not _is_linear(before):
            return False
    return True
