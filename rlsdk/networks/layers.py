"""Layers of any network, evaluated as fast as those of the SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor, nn

from rlsdk.errors import UsageError
from rlsdk.kernels import KernelSlot, factory
from rlsdk.kernels.differentiable import ByModules, Differentiable


class Layers:
    """Calls children of a network one after another, [N, I] -> [N, O], as `nn.Sequential` does.

    On the CPU, compiled code evaluates linear layers of float32 with ReLU or tanh between them, and computes their gradients.
    Torch calls all other layers, and those with hooks. Results differ from torch's by rounding only.

    Make it after the children. It is not a module, so names in the `state_dict` do not change. Children may be replaced
    later, and a copy of the network calls its own children::

        class Network(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.head = mlp(4, (64, 64), "tanh"), nn.Linear(64, 2)
                self._values = Layers(self, "body", "head")

            def forward(self, observation: Tensor) -> Tensor:
                return self._values(observation)
    """

    def __init__(self, network: nn.Module, *names: str) -> None:
        """`names` are the names of the children, in the order of the calls.

        Raises:
            UsageError: there is no name, or the network has no child with one of the names.
        """
        known = [name for name, _ in network.named_children()]
        wrong = ", ".join(repr(name) for name in names if name not in known)
        if wrong or not names:
            raise UsageError(
                f"Layers: {f'there is no child {wrong}' if wrong else 'no name was given'}; give names of children of"
                f" {type(network).__name__}: {', '.join(known) or 'it has none yet, so make them first'}"
            )
        self._network, self._names = network, names
        self._kernel = KernelSlot(self._make, network, only=names)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs [N, O] for inputs [N, I]. If autograd is on, they have a graph."""
        return self._kernel()(x)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """Return (outputs [N, O] without graph, vjp) for inputs [N, I]. For small batches it is faster than autograd.

        `vjp(grad)` takes the gradient of a loss with respect to the outputs, [N, O]. It adds the gradients with respect to the
        parameters to their `grad`, and returns that with respect to the inputs, [N, I]; None if the inputs require none. Call
        it once, before parameters, inputs or outputs change.
        """
        return self._kernel().evaluate(x)

    def _children(self) -> list[nn.Module]:
        return [self._network.get_submodule(name) for name in self._names]

    def _by_modules(self, x: Tensor) -> Tensor:
        return factory.sequential(self._children(), x)

    def _make(self, hooked: bool) -> Differentiable:
        modules = [module for child in self._children() for module in _flat(child)]
        return factory.differentiable_dense(modules, hooked, ByModules(self._by_modules))


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that an `nn.Sequential` calls, also those inside others."""
    if type(module) is not nn.Sequential:
        yield module
    else:
        for child in module:
            yield from _flat(child)
