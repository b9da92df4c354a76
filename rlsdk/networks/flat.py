"""Stores all parameters of a network in one flat buffer with views, so that optimisers and norms need a single call."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, is_

import torch
from torch import Tensor, nn

from rlsdk.errors import UsageError

is_trained, _grad = attrgetter("requires_grad"), attrgetter("grad")


def views_of(flat: Tensor, parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Divide a vector [D] into consecutive segments with the shapes of the parameters, in their order."""
    chosen = list(parameters)
    segments = torch.split(flat, [parameter.numel() for parameter in chosen])
    return [segment.view(parameter.shape) for segment, parameter in zip(segments, chosen, strict=True)]


def flatten_parameters(parameters: Iterable[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move the parameters, and their gradients, into two flat float buffers [D]; returns (values, gradients).

    The parameters become views: `load_state_dict`, `state_dict` and autograd work as before, and `backward` accumulates
    into the gradient buffer. Contiguous views also avoid a bug of torch's fused Adam on CPU. It computes wrong updates
    if the strides of a gradient differ from those of its parameter.
    """
    chosen = list(parameters)
    if not chosen:
        return torch.zeros(0), torch.zeros(0)
    values = torch.cat([p.detach().reshape(-1) for p in chosen])
    gradients = torch.zeros_like(values)
    start = 0
    for parameter in chosen:
        end = start + parameter.numel()
        parameter.data = values[start:end].view(parameter.shape)
        parameter.grad = gradients[start:end].view(parameter.shape)
        start = end
    return values, gradients


class FlatParameters:
    """Parameters that are views of one vector. If one gets other memory or another layout, `zero_grad` makes it a view again.

    Frozen parameters (`requires_grad_(False)`) do not change, however the gradients were computed.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.values, self.gradients = flatten_parameters(self.parameters)
        self._note()

    def _note(self) -> None:
        self._places = list(map(Tensor.data_ptr, self.parameters))
        self._grads = [parameter.grad for parameter in self.parameters]

    def zero_grad(self) -> None:
        """Set the gradients in the vector to 0. Call it before the forward pass, or `clear` instead.

        Parameters that `p.data = ...`, `zero_grad()` or `to()` removed from the vector become views of it again.
        """
        self.renew_views()
        self.clear()

    def clear(self) -> None:
        """The same as `zero_grad`, except for parameters that keep their memory in another layout."""
        if self._places != list(map(Tensor.data_ptr, self.parameters)) or False in map(
            is_, map(_grad, self.parameters), self._grads
        ):
            self._attach()
        self.gradients.zero_()

    def renew_views(self) -> None:
        """Make parameters in another layout, as after `p.data = p.data.T`, views of the vector again.

        It overwrites their memory, which a backward pass may still read.
        """
        if False in map(Tensor.is_contiguous, self.parameters):
            self._attach()

    @torch.no_grad()
    def _attach(self) -> None:
        """Raises UsageError if parameters have another dtype, device or shape than before."""
        size, kind = sum(map(Tensor.numel, self.parameters)), (self.values.dtype, self.values.device)
        if size != len(self.values) or any((p.dtype, p.device) != kind for p in self.parameters):
            raise UsageError(
                "parameters of the policy were given another dtype, device or shape, in which they cannot be trained; undo it"
                " (policy.float()), and choose the device when the agent is made or loaded"
            )
        for parameter, view in zip(self.parameters, views_of(self.values, self.parameters), strict=True):
            if parameter.data_ptr() != view.data_ptr() or not parameter.is_contiguous():
                view.copy_(parameter.clone())  # it may lie in the memory of the view
                parameter.data = view
        for parameter, grad in zip(self.parameters, views_of(self.gradients, self.parameters), strict=True):
            parameter.grad = grad
        self._note()

    def frozen(self) -> list[nn.Parameter]:
        """Return the parameters that must not change, and set their gradients to 0."""
        found = [parameter for parameter in self.parameters if not parameter.requires_grad]
        for parameter in found:
            if parameter.grad is not None:
                parameter.grad.zero_()
        return found

    def frozen_entries(self) -> Tensor | None:
        """bool [D], True for entries that must not change, whose gradients are set to 0; None if all parameters are trained."""
        found = set(map(id, self.frozen()))
        if not found:
            return None
        return torch.cat([torch.full((p.numel(),), id(p) in found, device=p.device) for p in self.parameters])
