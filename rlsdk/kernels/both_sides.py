"""The dense layers of a policy and of its value function; those that belong to both are evaluated once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from rlsdk.kernels.backends import Array, Backend
from rlsdk.kernels.dense_kernel import DenseKernel, Trace
from rlsdk.kernels.protocol import ActorCriticLayers


@dataclass(frozen=True, slots=True)
class Traces:
    """What `BothSides.backward` needs of a forward pass."""

    actor: Trace
    """Of all layers of the policy, the shared ones among them."""
    critic: Trace
    """Of the value function's own layers."""


class BothSides:
    """Two outputs for the same features [N, F]: what the head's linear layer gives [N, O], and values [N, 1]."""

    def __init__(self, layers: ActorCriticLayers, backend: Backend) -> None:
        count = layers.shared if layers.differ_from_there else 0
        self.shared = DenseKernel(layers.actor[:count], backend) if count else None
        self.actor, self.critic = (DenseKernel(side[count:], backend) for side in (layers.actor, layers.critic))
        self.backend = backend

    def forward(self, features: Array) -> tuple[Array, Array, Traces]:
        """(raw outputs [N, O], values [N, 1], traces)."""
        trace = [features] if self.shared is None else self.shared.forward(features)[1]
        raw, actor = self.actor.forward(trace[-1])
        value, critic = self.critic.forward(trace[-1])
        return raw, value, Traces([*trace, *actor[1:]], critic)

    def outputs(self, features: Array) -> tuple[Callable[[], Array], Array]:
        """(gives the raw outputs [N, O]; values [N, 1]) without traces. The raw ones are found when they are asked for, unless
        layers are shared."""
        if self.shared is None:
            return lambda: self.actor(features), self.critic(features)
        pairs = [(self.actor(x), self.critic(x)) for x in map(self.shared, self.shared.blocks(features))]
        raw, value = map(self.backend.join, zip(*pairs, strict=True))
        return lambda: raw, value

    def backward(self, traces: Traces, grad_raw: Array, grad_value: Array | None) -> None:
        """Write the gradient with respect to every parameter into its `grad`, given that with respect to the outputs [N, O]
        and the values [N, 1] (None: not in the loss)."""
        own = traces.actor[-1 - len(self.actor.linear) :]
        if self.shared is None:
            self.actor.backward(own, grad_raw, self.actor.gradients())
            if grad_value is not None:
                self.critic.backward(traces.critic, grad_value, self.critic.gradients())
            return
        grad = self.actor.input_grad(own, grad_raw, self.actor.gradients())
        if grad_value is not None:
            grad += self.critic.input_grad(traces.critic, grad_value, self.critic.gradients())
        self.shared.backward(traces.actor[: 1 + len(self.shared.linear)], grad, self.shared.gradients())

    def values(self, features: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """(values [N, 1], vjp), see `DenseKernel.evaluate`: `vjp` leaves the gradient of shared layers alone."""
        if self.shared is not None:
            features = self.backend.tensor(self.shared(self.backend.array(features)))
        return self.critic.evaluate(features)
