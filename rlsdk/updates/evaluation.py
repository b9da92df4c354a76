"""What an update asks of an actor-critic network about a batch, and how a loss gets back into its parameters.

By hand for plain dense networks, by autograd for all others; both write the same gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from rlsdk.buffers.minibatches import PolicyBatch
from rlsdk.engines import choose
from rlsdk.interfaces import ClosedForm, Distribution
from rlsdk.math.natural_gradient import flat_grad
from rlsdk.math.surrogate import mean_of
from rlsdk.networks.actor_critic import ActorCritic
from rlsdk.networks.flat import views_of
from rlsdk.networks.sides import Sides, sides_of

Slopes = tuple[Tensor, Tensor | None, Tensor]
"""The gradient of a loss with respect to log-probabilities, entropies (None: not in the loss) and values, float [N] each."""
Product = Callable[[Tensor], Tensor]
"""A matrix times a vector [D]."""


class Pull(Protocol):
    """Brings the gradient of a loss, given with respect to what was evaluated, into the parameters' `grad`, which is taken to
    be zero. What is None is not in the loss."""

    def __call__(self, of_log_prob: Tensor, of_entropy: Tensor | None, of_value: Tensor | None) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """N steps under the network as it is; but for the distribution's, tensors have no graph."""

    distribution: Distribution
    log_prob: Tensor  # float [N], of the actions taken
    entropy: Tensor  # float [N]
    value: Tensor  # float [N]
    pull: Pull
    fisher: Callable[[], Product]
    """The policy's Fisher information, averaged over the rows that count, times a direction in `actor_parameters`."""


class Evaluator(Protocol):
    """Evaluates batches of one network."""

    name: str

    def prepared(self, rows: PolicyBatch) -> PolicyBatch:
        """What can be done once for all the batches that will be drawn from `rows`; these are what is evaluated."""
        ...

    def __call__(self, rows: PolicyBatch) -> Evaluation: ...

    def policy(self, rows: PolicyBatch) -> tuple[Distribution, Tensor]:
        """(distribution, log-probabilities [N] of the actions taken) alone, without graph."""
        ...

    def values(self, rows: PolicyBatch, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        """(values [N] without graph, what brings the gradient of a loss, given with respect to them, into the `grad` of
        `critic`, the parameters that no action depends on)."""
        ...


def evaluator_of(network: ActorCritic, rows: int, *, hooked: bool = False) -> Evaluator:
    """The fastest evaluator that fits the network, for batches of so many rows. The parameters' gradients are allocated
    already, as `FlatOptimizer` does. `hooked`: autograd, which calls every module."""
    width = max(max(parameter.shape) for parameter in network.parameters())
    device = next(network.parameters()).device.type
    library = choose(network.engine, width=width, rows=rows, device=device)
    sides = None if library is None or hooked or _share_layers(network) else sides_of(network, library)
    return Autograd(network) if sides is None else ByHand(network, sides)


def _share_layers(network: ActorCritic) -> bool:
    """Whether some layer belongs to both sides: its gradient is a sum, which autograd forms."""
    return not set(network.body.parameters()).isdisjoint(network.critic_body.parameters())


class Autograd:
    """Any network."""

    name = "autograd"

    def __init__(self, network: ActorCritic) -> None:
        self.network = network

    def prepared(self, rows: PolicyBatch) -> PolicyBatch:
        return rows

    def __call__(self, rows: PolicyBatch) -> Evaluation:
        network = self.network
        distribution, value = network.evaluate(rows.observation, rows.memory, rows.starts)
        log_prob, entropy = distribution.log_prob(network.internal(rows.action)), distribution.entropy()

        def pull(of_log_prob: Tensor, of_entropy: Tensor | None, of_value: Tensor | None) -> None:
            slopes = (log_prob, of_log_prob), (entropy, of_entropy), (value, of_value)
            there = [(output, slope) for output, slope in slopes if slope is not None and output.requires_grad]
            outputs, given = [output for output, _ in there], [slope for _, slope in there]
            if there:
                torch.autograd.backward(outputs, given, retain_graph=of_value is None)

        def fisher() -> Product:
            with torch.no_grad():
                fixed = network.evaluate(rows.observation, rows.memory, rows.starts)[0]
            divergence = mean_of(distribution.kl_divergence(fixed), rows.weight)
            slope = flat_grad(divergence, network.actor_parameters, create_graph=True)
            return lambda v: flat_grad(slope.dot(v), network.actor_parameters, retain_graph=True)

        return Evaluation(distribution, log_prob.detach(), entropy.detach(), value.detach(), pull, fisher)

    @torch.no_grad()
    def policy(self, rows: PolicyBatch) -> tuple[Distribution, Tensor]:
        distribution, _ = self.network.evaluate(rows.observation, rows.memory, rows.starts)
        return distribution, distribution.log_prob(self.network.internal(rows.action))

    def values(self, rows: PolicyBatch, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        _, value = self.network.evaluate(rows.observation, rows.memory, rows.starts)
        trained = [parameter for parameter in critic if parameter.requires_grad]

        def pull(slope: Tensor) -> None:
            if trained and value.requires_grad:
                torch.autograd.backward(value, slope, inputs=trained)

        return value.detach(), pull


class ByHand:
    """Plain dense networks."""

    def __init__(self, network: ActorCritic, sides: Sides) -> None:
        self.network, self.sides = network, sides
        self.name = sides.actor.library.name
        self._gradients = sides.actor.gradients(), sides.critic.gradients()

    @torch.no_grad()
    def prepared(self, rows: PolicyBatch) -> PolicyBatch:
        """Encoded: that takes no parameters."""
        encoded = self.network.encoder(rows.observation.features)
        return replace(rows, observation=replace(rows.observation, features=encoded))

    @torch.no_grad()
    def __call__(self, rows: PolicyBatch) -> Evaluation:
        network, sides, library = self.network, self.sides, self.sides.actor.library
        features = library.array(rows.observation.features)
        raw, actor_trace = sides.actor.forward(features)
        value, critic_trace = sides.critic.forward(features)
        head, action = cast("Any", network.head), network.internal(rows.action)
        distribution = self._distribution(rows, raw)

        @torch.no_grad()
        def pull(of_log_prob: Tensor, of_entropy: Tensor | None, of_value: Tensor | None) -> None:
            slope, *rest = distribution.slope(action, of_log_prob, of_entropy)
            sides.actor.backward(actor_trace, library.array(slope), self._gradients[0])
            for gradient in rest:  # a deviation that belongs to no layer
                torch.sum(gradient, 0, out=head.log_std.grad)
            if of_value is not None:
                sides.critic.backward(critic_trace, library.array(of_value.unsqueeze(1)), self._gradients[1])

        def fisher() -> Product:
            share = 1.0 / len(rows) if rows.weight is None else (rows.weight / rows.weight.sum()).unsqueeze(1)
            return lambda v: self._fisher_product(distribution, actor_trace, share, v)

        values = library.tensor(value).squeeze(1)
        return Evaluation(distribution, distribution.log_prob(action), distribution.entropy(), values, pull, fisher)

    @torch.no_grad()
    def policy(self, rows: PolicyBatch) -> tuple[Distribution, Tensor]:
        distribution = self._distribution(
            rows, self.sides.actor(self.sides.actor.library.array(rows.observation.features))
        )
        return distribution, distribution.log_prob(self.network.internal(rows.action))

    def _distribution(self, rows: PolicyBatch, raw: Any) -> ClosedForm:
        """Over internal actions, given what the head's linear layer gave."""
        mask = rows.observation.action_mask if self.network.use_masks else None
        found: ClosedForm = cast("Any", self.network.head).of(self.sides.actor.library.tensor(raw), mask)
        return found

    def values(self, rows: PolicyBatch, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        value, pull = self.sides.critic.evaluated(rows.observation.features)
        return value.squeeze(1), lambda slope: pull(slope.unsqueeze(1))

    @torch.no_grad()
    def _fisher_product(self, distribution: ClosedForm, trace: Any, share: Tensor | float, v: Tensor) -> Tensor:
        """J^T M J v: forwards through the network, through the distribution's own information M, and back."""
        stack, parameters, result = self.sides.actor, self.network.actor_parameters, torch.empty_like(v)
        given = dict(zip(map(id, parameters), views_of(v, parameters), strict=True))
        found = dict(zip(map(id, parameters), views_of(result, parameters), strict=True))
        own = [p for p in parameters if not any(p is other for other in stack.parameters)]
        change = stack.library.tensor(stack.tangent(trace, stack.arrays(given[id(p)] for p in stack.parameters)))
        pulled, *rest = distribution.curvature(change, *(given[id(p)].expand_as(change) for p in own))
        into = stack.arrays(found[id(p)] for p in stack.parameters)
        stack.backward(trace, stack.library.array(pulled * share), into)
        for parameter, slope in zip(own, rest, strict=True):
            torch.sum(slope * share, 0, out=found[id(parameter)])
        return result
