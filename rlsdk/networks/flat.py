"""Parameters in one flat buffer with named views: one optimiser call, one norm, one interpolation for a whole network."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, is_

import torch
from torch import Tensor, nn

from rlsdk.errors import UsageError

is_trained, _grad = attrgetter("requires_grad"), attrgetter("grad")


def views_of(flat: Tensor, parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Segments of a vector [D] shaped as the parameters are, end to end in their order."""
    chosen = list(parameters)
    segments = torch.split(flat, [parameter.numel() for parameter in chosen])
    return [segment.view(parameter.shape) for segment, parameter in zip(segments, chosen, strict=True)]


def flatten_parameters(parameters: Iterable[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move the parameters, and their gradients, into two flat float buffers [D]; returns (values, gradients).

    The parameters become views: `load_state_dict`, `state_dict` and autograd work on them as before, and `backward`
    accumulates into the gradient buffer. Contiguous views also keep clear of torch's fused Adam on CPU computing wrong
    updates when a gradient's strides differ from its parameter's.
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
    """Parameters that are views of one vector, and stay so: those given other memory are put back before a step.

    Frozen ones (`requires_grad_(False)`) stay what they are, whichever way gradients were found.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.values, self.gradients = flatten_parameters(self.parameters)
        self._note()

    def _note(self) -> None:
        self._places = list(map(Tensor.data_ptr, self.parameters))
        self._grads = [parameter.grad for parameter in self.parameters]

    def zero_grad(self) -> None:
        """Gradients 0, in the vector; parameters that `p.data = ...`, `zero_grad()` or `to()` took from it come back first."""
        if self._places != list(map(Tensor.data_ptr, self.parameters)) or False in map(
            is_, map(_grad, self.parameters), self._grads
        ):
            self._attach()
        self.gradients.zero_()

    @torch.no_grad()
    def _attach(self) -> None:
        """Raises UsageError: parameters of another dtype, device or shape."""
        views = views_of(self.values, self.parameters) if self._same_sizes() else []
        for parameter, view in zip(self.parameters, views, strict=False):
            if (parameter.dtype, parameter.device) != (view.dtype, view.device):
                views = []
                break
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(parameter)
                parameter.data = view
        if len(views) != len(self.parameters):
            raise UsageError(
                "parameters of the policy were given another dtype, device or shape, in which they cannot be trained; undo it"
                " (policy.float()), and choose the device when the agent is made or loaded"
            )
        for parameter, grad in zip(self.parameters, views_of(self.gradients, self.parameters), strict=True):
            parameter.grad = grad
        self._note()

    def _same_sizes(self) -> bool:
        return sum(parameter.numel() for parameter in self.parameters) == len(self.values)

    def frozen(self) -> list[nn.Parameter]:
        """Those that must not change; their gradients are 0 from now on."""
        if False not in map(is_trained, self.parameters):
            return []
        found = [parameter for parameter in self.parameters if not parameter.requires_grad]
        for parameter in found:
            if parameter.grad is not None:
                parameter.grad.zero_()
        return found

    def frozen_entries(self) -> Tensor | None:
        """bool [D], True where nothing may change, and the gradient 0 there; None: everything is trained."""
        found = set(map(id, self.frozen()))
        if not found:
            return None
        return torch.cat([torch.full((p.numel(),), id(p) in found, device=p.device) for p in self.parameters])
