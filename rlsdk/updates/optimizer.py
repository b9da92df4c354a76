"""An optimiser of all parameters of a network, which are views of one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_

import torch
from torch import Tensor, nn

from rlsdk.kernels import Structure, factory, reference
from rlsdk.kernels.compiler_import import step
from rlsdk.kernels.vector_steps import SMALLEST_MOMENT, STEPS_BETWEEN_CLEARING, VectorStep, next_steps
from rlsdk.networks.flat import FlatParameters, is_trained
from rlsdk.updates.optimizer_choice import ELEMENTWISE, maker
from rlsdk.updates.optimizer_state import moved_state, own_state
from rlsdk.updates.tensor_optimizer import TensorOptimizer, stacked_in


def _clear_decayed(state: Mapping[str, object]) -> None:
    """Set moments [D] to 0 that have decayed to almost 0.

    Without gradients, as in a ReLU unit that is never active, moments decay to subnormal numbers and remain there. CPUs
    calculate with these many times as slowly.
    """
    for moments in state.values():
        if isinstance(moments, Tensor) and moments.dim() and moments.is_floating_point():
            moments.masked_fill_(moments.abs() < SMALLEST_MOMENT * torch.finfo(moments.dtype).tiny, 0.0)


class FlatOptimizer:
    """Applies a torch optimiser to all `parameters`, as one vector if it computes every number separately.

    Other optimisers, such as LARS, and functions that choose parameters by their shape get the tensors as they are.
    `backward` accumulates gradients in one flat buffer. Call `zero_grad`, then `backward`, then `step`.
    """

    def __init__(
        self,
        parameters: nn.Module | Iterable[nn.Parameter],
        choice: str | Callable[..., torch.optim.Optimizer] | None,
        learning_rate: float,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Create the optimiser.

        Args:
            parameters: the parameters to train. If it is a module, parameters that are replaced in it later are trained
                too.
            choice: a name, a class or function that creates the optimiser, or None for Adam.
            learning_rate: the first learning rate.
            arguments: further arguments of the optimiser.

        Raises:
            SettingsError: the optimiser does not take `arguments`.
        """
        self._structure = Structure(parameters) if isinstance(parameters, nn.Module) else None
        self._choice = "adam" if choice is None else choice
        self._make, self._first_rate = maker(self._choice, learning_rate, arguments), learning_rate
        self._begin(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
        if self._structure is not None:
            self._structure.changed()

    def _begin(self, parameters: Iterable[nn.Parameter]) -> None:
        self._memory = FlatParameters(parameters)
        self.gradients = self._memory.gradients
        self.flat = nn.Parameter(self._memory.values)
        self.flat.grad = self.gradients
        self._by_tensor = self._tensor_optimizer()
        """None: the optimiser gets the vector, which is faster; else it gets tensors that are views of it."""
        self.optimizer = self._make([self.flat]) if self._by_tensor is None else self._by_tensor.optimizer
        self._kernel = factory.optimizer_step(self._choice, self.optimizer, self.flat)
        self._make_step = factory.vector_step(self.flat)
        self._clip = factory.clip_norm(self.gradients, reference.clip_norm)

    def _tensor_optimizer(self) -> TensorOptimizer | None:
        """The optimiser of the tensors as they are; None if the vector has the same result."""
        known = isinstance(self._choice, str) or any(self._choice is kind for kind in ELEMENTWISE)
        if known or not self._memory.parameters:
            return None
        stacked = stacked_in(None if self._structure is None else self._structure.roots[0])
        made = TensorOptimizer(self._make, self._memory, stacked, self._first_rate)
        return None if made.is_elementwise() else made  # a function may return Adam of all tensors, for example

    def adopt(self, parameters: Iterable[nn.Parameter]) -> None:
        """Train these parameters from now on. Parameters that were trained before retain their moments; new ones start
        with 0."""
        wanted, before, flat = list(parameters), self._memory.parameters, self.flat
        if len(wanted) == len(before) and all(map(is_, wanted, before)):
            return
        state, tensors = self.optimizer.state.get(flat, {}), self._by_tensor
        self._begin(wanted)
        if self._by_tensor is not None and tensors is not None:
            self._by_tensor.continue_from(tensors)
        if moved := moved_state(state, flat, before, wanted):
            self.optimizer.state[self.flat] = moved

    def zero_grad(self) -> None:
        """Set the gradients to zero, before `backward`. Parameters that were replaced in the network are adopted here."""
        if self._structure is not None and self._structure.changed():
            self.adopt(self._structure.roots[0].parameters())
        self._memory.clear()

    def step(self, learning_rate: float | Tensor, max_norm: float | None = None) -> None:
        """Apply the accumulated gradients. With `max_norm`, first scale them down to that global norm.

        The learning rate is a tensor 0-d if the step belongs to a CUDA graph.
        """
        self._memory.renew_views()
        if self._make_step is not None:
            following = self._following(learning_rate, max_norm)
            if following is not None and self._make_step(following):
                return
        frozen = self._memory.frozen() if False in map(is_trained, self._memory.parameters) else []
        if max_norm is not None:
            self._clip(self.gradients, max_norm)
        before = [parameter.detach().clone() for parameter in frozen]
        if self._by_tensor is None:
            self.optimizer.param_groups[0]["lr"] = learning_rate
        else:
            self._by_tensor.set_rates(learning_rate)
        state = self.optimizer.state.get(self.flat, {})
        if not self._kernel(self.optimizer, state):
            step(self.optimizer)
        # the step count is saved, so a resumed training clears the same moments
        if self.flat.is_cpu and int(state.get("step", 1)) % STEPS_BETWEEN_CLEARING == 0:
            _clear_decayed(state)
        for parameter, value in zip(frozen, before, strict=True):  # momentum and weight decay change them
            parameter.data.copy_(value)

    def next_steps(self, learning_rate: float, max_norm: float | None = None) -> VectorStep | None:
        """Set the gradients to zero; return what compiled code needs to make the next steps itself. None: call `step`."""
        self.zero_grad()
        self._memory.renew_views()
        return self._following(learning_rate, max_norm)

    def _following(self, learning_rate: float | Tensor, max_norm: float | None) -> VectorStep | None:
        """Return what compiled code needs to make the next steps itself; None: only `step` can make them."""
        if self._by_tensor is not None:
            return None
        self.optimizer.param_groups[0]["lr"] = learning_rate
        state, is_frozen = self.optimizer.state.get(self.flat, {}), False in map(is_trained, self._memory.parameters)
        return None if is_frozen else next_steps(self.optimizer, self.flat, state, max_norm)

    def state_dict(self) -> dict[str, object]:
        """The optimiser's moments and step count, without the parameters, which are part of the network's state."""
        if self._by_tensor is not None:
            return self._by_tensor.state_dict()
        state = self.optimizer.state.get(self.flat, {})
        return {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Raises ValueError if the state does not fit this optimiser. The check is needed because fused steps do not
        check memory."""
        if self._by_tensor is not None:
            self._by_tensor.load_state_dict(state)
            return
        moments = own_state(self._make, self.flat, state)
        self.optimizer.state.clear()
        if moments:
            self.optimizer.state[self.flat] = moments
