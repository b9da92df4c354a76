"""Evaluates an actor-critic network of dense layers without autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from torch import Generator, Tensor, nn

from rlsdk.interfaces import ClosedForm, Distribution
from rlsdk.kernels import ActorCriticLayers, PolicyActor, PolicyRows
from rlsdk.records import Observation
from rlsdk.runtime import LastPrepared
from rlsdk.updates import PolicyOutputs
from rlsdk_kernels import compiled_policy
from rlsdk_kernels.backends import COMPILED, TORCH
from rlsdk_kernels.compiled_acting import InPlace, can_act_in_place, pays, sampling_of
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.dense_choice import acting_dense, can_be_compiled, dense_of, sampling_dense, without_compiled
from rlsdk_kernels.dense_kernel import ACTING_ROWS, DenseKernel, DenseLayers, Trace
from rlsdk_kernels.numpy_backend import Array
from rlsdk_kernels.numpy_distributions import sampler_of, taken

# The first dense layers of a network, if policy and value function share them. Their gradient is a sum.


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
        """Backpropagate gradients [N], as the `vjp` of a `rlsdk.kernels.protocol.PolicyEvaluator`.

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


RowsT = TypeVar("RowsT", bound=PolicyRows)
PolicyVjp = Callable[[Tensor, Tensor | None, Tensor | None], None]
"""A function of the gradients of a loss with respect to log-probabilities, entropies and values, float [N] each."""


class ActorCriticKernel(Generic[RowsT]):
    """Evaluates the network for learning; see `rlsdk.kernels.protocol.PolicyEvaluator`.

    The `grad` of the parameters must be allocated.
    """

    def __init__(self, layers: ActorCriticLayers, name: str) -> None:
        """`name` is that of the backend."""
        parts = layers.actor, layers.critic[layers.shared :]
        if name == COMPILED.name and (layers.shared or not all(map(can_be_compiled, parts))):
            name = without_compiled([*layers.actor, *layers.critic]).name
        self.layers, (self.actor, self.critic) = layers, (dense_of(part, name) for part in parts)
        self.backend, self.name = self.actor.backend, self.actor.name
        self._has_no_graph = self.backend is COMPILED and layers.head.sampling is not None
        self.shared = SharedLayers(layers, self.critic) if layers.shared else None

    def compiled_networks(self) -> tuple[CompiledDense, CompiledDense] | None:
        """Return actor and critic if compiled code evaluates them and samples the actions; else None."""
        if self._has_no_graph and isinstance(self.actor, CompiledDense) and isinstance(self.critic, CompiledDense):
            return self.actor, self.critic
        return None

    @torch.no_grad()
    def prepared(self, rows: RowsT) -> RowsT:
        """Return the rows with encoded observations, which is possible once because the encoder has no parameters."""
        if self.layers.is_vector:
            return rows
        encoded = self.layers.encoder(rows.observation.features)
        return replace(rows, observation=replace(rows.observation, features=encoded))  # type: ignore[type-var]

    def evaluate(self, rows: RowsT) -> tuple[PolicyOutputs, PolicyVjp]:
        if self._has_no_graph:  # the context manager would take longer than the distribution
            return self._evaluate(rows)
        with torch.no_grad():
            return self._evaluate(rows)

    def _evaluate(self, rows: RowsT) -> tuple[PolicyOutputs, PolicyVjp]:
        array, action = self.backend.array, self.layers.head.from_environment(rows.action)
        raw, actor_trace = self.actor.forward(array(rows.observation.features))
        value, critic_trace = self.critic.forward(actor_trace[self.shared.depth if self.shared else 0])

        @cache
        def distribution() -> ClosedForm:
            return self._distribution(rows.observation, raw)

        def fisher() -> Callable[[Tensor], Tensor]:
            share = 1.0 / len(rows) if rows.weight is None else (rows.weight / rows.weight.sum()).unsqueeze(1)
            return lambda v: self._fisher_product(distribution(), actor_trace, share, v)

        log_prob, entropy, head_vjp = self._taken(rows.observation, raw, action, distribution)

        def vjp(grad_log_prob: Tensor, grad_entropy: Tensor | None, grad_value: Tensor | None) -> None:
            with torch.no_grad():  # a decorator would take some 12 microseconds per batch
                self.actor.backward(actor_trace, head_vjp(grad_log_prob, grad_entropy), self.actor.gradients())
                if grad_value is not None:
                    self.critic.backward(critic_trace, array(grad_value)[:, None], self.critic.gradients())

        back = partial(self.shared.vjp, (actor_trace, critic_trace), head_vjp) if self.shared else vjp
        return PolicyOutputs(distribution, log_prob, entropy, self.backend.tensor(value[:, 0]), fisher), back

    def _taken(
        self, observation: Observation, raw: Array, action: Tensor, distribution: Callable[[], ClosedForm]
    ) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor | None], Array]]:
        """Return (log-probabilities [N] of internal actions, entropies [N], vjp).

        `vjp` returns the gradient with respect to `raw` [N, O] and writes that of the head's own parameters to their
        `grad`.
        """
        head, array = self.layers.head, self.backend.array
        if head.sampling is not None:
            mask = observation.action_mask if self.layers.use_masks else None
            if self.backend is COMPILED:
                return compiled_policy.taken(raw, action, mask, head)
            found = taken(np.asarray(raw), action, mask, head.sampling)

            def numpy_vjp(grad_log_prob: Tensor, grad_entropy: Tensor | None) -> Array:
                grad, *rest = found.vjp(grad_log_prob.numpy(), None if grad_entropy is None else grad_entropy.numpy())
                for parameter, own in zip(head.own_parameters, rest, strict=True):
                    cast("Tensor", parameter.grad).numpy()[:] = own
                return array(torch.from_numpy(grad))

            return torch.from_numpy(found.log_prob), torch.from_numpy(found.entropy), numpy_vjp
        policy = distribution()

        def vjp(grad_log_prob: Tensor, grad_entropy: Tensor | None) -> Array:
            grad, *rest = policy.vjp(action, grad_log_prob, grad_entropy)
            for parameter, own in zip(head.own_parameters, rest, strict=True):
                torch.sum(own, 0, out=cast("Tensor", parameter.grad))
            return array(grad)

        return policy.log_prob(action), policy.entropy(), vjp

    @torch.no_grad()
    def policy(self, rows: RowsT) -> tuple[Distribution, Tensor]:
        """Return (distribution, log-probabilities [N] of the actions taken)."""
        raw = self.actor(self.backend.array(rows.observation.features))
        distribution = self._distribution(rows.observation, raw)
        return distribution, distribution.log_prob(self.layers.head.from_environment(rows.action))

    def values(self, rows: RowsT, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (values [N], vjp)."""
        features = rows.observation.features
        value, vjp = self.critic.evaluate(features if self.shared is None else self.shared.first.evaluate(features)[0])
        return value.squeeze(1), lambda grad: vjp(grad.unsqueeze(1))

    def _distribution(self, observation: Observation, raw: Array) -> ClosedForm:
        """The distribution over internal actions, given the output of the head's linear layer, [N, O]."""
        mask = observation.action_mask if self.layers.use_masks else None
        return self.layers.head.of(self.backend.tensor(raw), mask)

    @torch.no_grad()
    def _fisher_product(self, distribution: ClosedForm, trace: Trace, share: Tensor | float, v: Tensor) -> Tensor:
        """Compute J^T M J v [D]: J is the Jacobian of the network, M the Fisher information of the distribution."""
        actor, result, own = self.actor, torch.empty_like(v), self.layers.head.own_parameters
        given, found = self._views(v), self._views(result)
        change = self.backend.tensor(actor.jvp(trace, actor.arrays(given[id(p)] for p in actor.parameters)))
        grad, *rest = distribution.fisher_product(change, *(given[id(p)].expand_as(change) for p in own))
        into = actor.arrays(found[id(p)] for p in actor.parameters)
        actor.backward(trace, self.backend.array(grad * share), into)
        for parameter, grad in zip(own, rest, strict=True):
            torch.sum(grad * share, 0, out=found[id(parameter)])
        return result

    def _views(self, flat: Tensor) -> dict[int, Tensor]:
        """Divide a vector [D] into segments with the shapes of the parameters, by the parameter's id."""
        parameters = self.layers.actor_parameters
        segments = torch.split(flat, [parameter.numel() for parameter in parameters])
        return {id(p): segment.view(p.shape) for p, segment in zip(parameters, segments, strict=True)}


class ActorCriticActing:
    """Acts in compiled code or numpy for few rows, for which calls of torch would take longer than the arithmetic.

    On accelerators, and for values of many rows, it calls `reference`.
    """

    def __init__(self, layers: ActorCriticLayers, reference: PolicyActor) -> None:
        self.layers, self.reference, self.head = layers, reference, layers.head
        self.actor, self.critic = acting_dense(layers.actor), acting_dense(layers.critic)
        self.many_rows, self.sampler = DenseKernel(layers.actor, TORCH), sampler_of(noise := layers.head.sampling)
        network = None if noise is None else sampling_dense(layers.actor)
        self.compiled = None if noise is None or network is None else sampling_of(network, noise)
        """Evaluates the actor and samples in one call; None: compiled code cannot."""
        self.acts_in_place = self.compiled is not None and layers.is_vector
        self._last: LastPrepared[InPlace] = LastPrepared()

    def act(self, observation: Observation, deterministic: bool, generator: Generator) -> Tensor:
        """Return actions [B, ..] in environment units."""
        first, layers = observation.is_first, self.layers
        if not first.is_cpu:
            return self.reference.act(observation, deterministic, generator)
        features, mask = self._features(observation), observation.action_mask if layers.use_masks else None
        rows, compiled = first.shape[0], self.compiled
        if compiled is not None and not deterministic and pays(compiled.network, rows):
            return self.head.to_environment(compiled(features, mask, generator))
        raw = (self.actor if rows <= ACTING_ROWS else self.many_rows).outputs(features)
        if self.sampler is not None and not deterministic:
            return self.head.to_environment(self.sampler(raw, mask, generator))
        with torch.no_grad():
            distribution = self.head.of(raw, mask)
            action = distribution.mode() if deterministic else distribution.sample(generator)
        return self.head.to_environment(action)

    def act_in_place(self, observation: Observation, generator: Generator) -> InPlace | None:
        """Return (a function of t that acts on row t of observations [T, B, ..], its storage of actions [T, B, ..]); None if
        compiled code cannot."""
        compiled, features = self.compiled, observation.features
        mask = observation.action_mask if self.layers.use_masks else None
        if compiled is None or not self.acts_in_place:
            return None
        known = features, mask, generator, *compiled.known()
        if (found := self._last.find(*known)) is not None:
            return found
        if not can_act_in_place(compiled.network, features, mask):
            return None
        act, internal = compiled.in_place(features, mask, generator)
        rows = self.head.to_environment(internal.flatten(0, 1))
        action = rows.view(*internal.shape[:2], *rows.shape[1:])
        return self._last.remember((act, action), *known) if action.data_ptr() == internal.data_ptr() else None

    def forward(self, observation: Observation) -> tuple[Callable[[], Distribution], Tensor]:
        """Return (function that creates the distribution, values [N] without graph)."""
        if not observation.is_first.is_cpu:
            return self.reference.forward(observation)
        seen, mask = self._features(observation), observation.action_mask if self.layers.use_masks else None
        values = self.critic.outputs(seen)[:, 0]
        return lambda: self.head.of(self.actor.outputs(seen), mask), values

    def values(self, observation: Observation) -> Tensor:
        """The values [N]."""
        if not observation.is_first.is_cpu:
            return self.reference.values(observation)
        return self.critic.outputs(self._features(observation)).flatten()

    def _features(self, observation: Observation) -> Tensor:
        """The input of actor and critic, float32 [N, F]."""
        seen, layers = observation.features, self.layers
        return seen if layers.is_vector else layers.encoder(seen)  # type: ignore[no-any-return]
