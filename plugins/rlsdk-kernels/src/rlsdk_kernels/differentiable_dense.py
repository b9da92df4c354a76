"""Dense layers in compiled code that are differentiated as torch's modules are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from rlsdk.kernels import Differentiable, is_transformed
from rlsdk_kernels.compiled_dense import CompiledDense, Trace
from rlsdk_kernels.compiled_library import as_floats, places


class DifferentiableDense:
    """Evaluates dense layers of one network, [N, I] -> [N, O]."""

    def __init__(self, modules: Sequence[nn.Module], most_rows: int | None, reference: Differentiable) -> None:
        """`reference` calls the modules. It evaluates inputs that are not float32 [N, I] on the CPU with N <= `most_rows`.

        Check `can_be_compiled` first.
        """
        self.network, self.reference, self.most_rows = CompiledDense(modules), reference, most_rows

    def __call__(self, x: Tensor) -> Tensor:
        """See `Differentiable`; inputs [N, I]."""
        network = self.network
        if not self._fits(x):
            return self.reference(x)
        if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in network.parameters)):
            return cast("Tensor", _Evaluate.apply(x, self, *network.parameters))  # type: ignore[no-untyped-call]
        return network(x)

    def evaluate(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor | None]]:
        """See `Differentiable`; inputs [N, I]."""
        if not self._fits(x):
            return self.reference.evaluate(x)
        outputs, trace = self.network.forward(x)

        def vjp(grad: Tensor) -> Tensor | None:
            parameters = self.network.parameters
            of_inputs, grads = self.gradients(trace, grad, [p.requires_grad for p in parameters], x.requires_grad)
            for parameter, found in zip(parameters, grads, strict=True):
                if found is not None:
                    parameter.grad = found if parameter.grad is None else parameter.grad.add_(found)
            return of_inputs

        return outputs, vjp

    def gradients(
        self, trace: Trace, grad: Tensor, trained: Sequence[bool], to_inputs: bool
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return the gradients with respect to the inputs [N, I], if `to_inputs`, and to the `trained` parameters."""
        network = self.network
        if not any(trained):
            return network.input_grad(trace, grad) if to_inputs else None, [None] * len(trained)
        grads, of_inputs = [parameter.new_empty(parameter.shape) for parameter in network.parameters], None
        if to_inputs:
            of_inputs = network.input_grad(trace, grad, places(grads))
        else:
            network.backward(trace, grad, places(grads))
        return of_inputs, [found if needs else None for found, needs in zip(grads, trained, strict=True)]

    def _fits(self, x: Tensor) -> bool:
        shape = x.shape
        fits = x.dtype is torch.float32 and x.is_cpu and len(shape) == 2 and shape[1] == self.network.input_size
        return fits and (self.most_rows is None or shape[0] <= self.most_rows) and not is_transformed()


class _Evaluate(torch.autograd.Function):
    """The outputs of `DifferentiableDense` for inputs [N, I] and its parameters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layers: DifferentiableDense, *parameters: Tensor) -> Tensor:
        outputs, trace = layers.network.forward(x)
        ctx.layers = layers
        # torch raises an error in `backward` if one of them was changed in between
        ctx.save_for_backward(x, trace.hidden, outputs, *parameters)
        return outputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layers, (x, hidden, outputs, *parameters) = ctx.layers, ctx.saved_tensors
        to_inputs, _, *trained = ctx.needs_input_grad
        if not torch.is_grad_enabled():
            of_inputs, grads = layers.gradients(Trace(as_floats(x), hidden, outputs), grad, trained, to_inputs)
            return of_inputs, None, *grads
        # create_graph=True: the gradients need a graph themselves
        needs = to_inputs, *trained
        wanted = [tensor for tensor, needed in zip((x, *parameters), needs, strict=True) if needed]
        found = iter(torch.autograd.grad(layers.reference(x), wanted, grad, create_graph=True))
        of_inputs, *rest = [next(found) if needed else None for needed in needs]
        return of_inputs, None, *rest
