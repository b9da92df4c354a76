"""The first dense layers of a policy, where they belong to its value function too: their gradient is a sum."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlsdk.kernels.dense_kernel import DenseKernel, Trace
from rlsdk.kernels.numpy_backend import Array
from rlsdk.kernels.protocol import ActorCriticLayers


class SharedLayers:
    """Passes back what both sides pass to these layers."""

    def __init__(self, layers: ActorCriticLayers, critic: DenseKernel) -> None:
        """`critic`: of the layers that belong to the value function alone."""
        count, backend = layers.shared, critic.backend
        self.first, self.actor = DenseKernel(layers.actor[:count], backend), DenseKernel(layers.actor[count:], backend)
        self.critic, self.depth = critic, len(self.first.linear)
        """`depth`: of the trace of the whole actor, what the critic reads."""

    @torch.no_grad()
    def vjp(
        self,
        traces: tuple[Trace, Trace],
        head_vjp: Callable[[Tensor, Tensor | None], Array],
        grad_log_prob: Tensor,
        grad_entropy: Tensor | None,
        grad_value: Tensor | None,
    ) -> None:
        """See `rlsdk.kernels.protocol.PolicyVjp`; gradients are [N]. `traces`: of the whole actor, and of the critic's own
        layers; `head_vjp`: gives the gradient with respect to what the actor gave [N, O]."""
        actor, critic = traces
        grad = self.actor.input_grad(actor[self.depth :], head_vjp(grad_log_prob, grad_entropy), self.actor.gradients())
        if grad_value is not None:
            grad_values = self.critic.backend.array(grad_value)[:, None]
            grad += self.critic.input_grad(critic, grad_values, self.critic.gradients())
        self.first.backward(actor[: self.depth + 1], grad, self.first.gradients())
