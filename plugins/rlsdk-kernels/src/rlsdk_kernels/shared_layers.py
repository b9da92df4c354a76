"""The first dense layers of a network, if policy and value function share them. Their gradient is a sum."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlsdk.kernels import ActorCriticLayers
from rlsdk_kernels.dense_kernel import DenseKernel, DenseLayers, Trace
from rlsdk_kernels.numpy_backend import Array


class SharedLayers:
    """Backpropagates the gradients of actor and critic through the layers that both share."""

    def __init__(self, layers: ActorCriticLayers, critic: DenseLayers) -> None:
        """`critic` contains the layers of the value function alone."""
        count, backend = layers.shared, critic.backend
        self.first, self.actor = DenseKernel(layers.actor[:count], backend), DenseKernel(layers.actor[count:], backend)
        self.critic, self.depth = critic, len(self.first.linear)
        """`depth`: the index of the critic's input in the trace of the whole actor."""

    @torch.no_grad()
    def vjp(
        self,
        traces: tuple[Trace, Trace],
        head_vjp: Callable[[Tensor, Tensor | None], Array],
        grad_log_prob: Tensor,
        grad_entropy: Tensor | None,
        grad_value: Tensor | None,
    ) -> None:
        """Backpropagate gradients [N], as the `vjp` of a `rlsdk.kernels.PolicyEvaluator`.

        Args:
            traces: the traces of the whole actor, and of the critic's own layers.
            head_vjp: returns the gradient with respect to the actor's output [N, O].
            grad_log_prob: gradient with respect to log-probabilities.
            grad_entropy: gradient with respect to entropies; None: not in the loss.
            grad_value: gradient with respect to values; None: not in the loss.
        """
        actor, critic = traces
        grad = self.actor.input_grad(actor[self.depth :], head_vjp(grad_log_prob, grad_entropy), self.actor.gradients())
        if grad_value is not None:
            grad_values = self.critic.backend.array(grad_value)[:, None]
            grad += self.critic.input_grad(critic, grad_values, self.critic.gradients())
        self.first.backward(actor[: self.depth + 1], grad, self.first.gradients())
