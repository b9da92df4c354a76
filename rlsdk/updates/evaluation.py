"""Evaluates an actor-critic network on a batch and computes the gradients of a loss with respect to its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlsdk.interfaces import Distribution
from rlsdk.kernels import KernelChoice, factory
from rlsdk.kernels.protocol import Evaluation, PolicyEvaluator, PolicyVjp, Product
from rlsdk.kernels.reference import backward
from rlsdk.math.natural_gradient import flat_grad
from rlsdk.math.surrogate import mean_of
from rlsdk.networks.actor_critic import ActorCritic
from rlsdk.updates.minibatches import PolicyBatch

Evaluator = PolicyEvaluator[PolicyBatch]


def evaluator_of(network: ActorCritic, rows: int, *, hooked: bool = False) -> Evaluator:
    """Return the fastest evaluator for the network and batches of `rows` rows.

    The gradients of the parameters must already be allocated, as `FlatOptimizer` does. With `hooked`, return the
    autograd evaluator, which calls every module and therefore its hooks.
    """
    width = max(max(parameter.shape) for parameter in network.parameters())
    device = next(network.parameters()).device.type
    choice = KernelChoice(network.kernel_setting, width=width, rows=rows, device=device)
    return factory.policy_evaluator(network.dense_layers(), choice, hooked, AutogradEvaluator(network))


class AutogradEvaluator:
    """Evaluates any network with torch's autograd; see `rlsdk.kernels.protocol.PolicyEvaluator`."""

    name = "autograd"

    def __init__(self, network: ActorCritic) -> None:
        self._network = network

    def prepared(self, rows: PolicyBatch) -> PolicyBatch:
        return rows

    def evaluate(self, rows: PolicyBatch) -> tuple[Evaluation, PolicyVjp]:
        network = self._network
        distribution, value = network.evaluate(rows.observation, rows.memory, rows.starts)
        log_prob, entropy = distribution.log_prob(network.internal(rows.action)), distribution.entropy()

        def vjp(grad_log_prob: Tensor, grad_entropy: Tensor | None, grad_value: Tensor | None) -> None:
            grads = grad_log_prob, grad_entropy, grad_value
            backward((log_prob, entropy, value), grads, retain_graph=grad_value is None)

        def fisher() -> Product:
            with torch.no_grad():
                fixed = network.evaluate(rows.observation, rows.memory, rows.starts)[0]
            divergence = mean_of(distribution.kl_divergence(fixed), rows.weight)
            grad = flat_grad(divergence, network.actor_parameters, create_graph=True)
            return lambda v: flat_grad(grad.dot(v), network.actor_parameters, retain_graph=True)

        return Evaluation(lambda: distribution, log_prob.detach(), entropy.detach(), value.detach(), fisher), vjp

    @torch.no_grad()
    def policy(self, rows: PolicyBatch) -> tuple[Distribution, Tensor]:
        """Return (distribution, log-probabilities [N] of the actions in `rows`)."""
        distribution, _ = self._network.evaluate(rows.observation, rows.memory, rows.starts)
        return distribution, distribution.log_prob(self._network.internal(rows.action))

    def values(self, rows: PolicyBatch, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (values [N], function that backpropagates a gradient [N] to the parameters `critic`)."""
        _, value = self._network.evaluate(rows.observation, rows.memory, rows.starts)
        trained = [parameter for parameter in critic if parameter.requires_grad]

        def vjp(grad: Tensor) -> None:
            if trained and value.requires_grad:
                torch.autograd.backward(value, grad, inputs=trained)

        return value.detach(), vjp
