"""One update of TRPO: a natural gradient step under a KL bound, then regression of the value function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Generator, Tensor, nn

from rlsdk.interfaces import State
from rlsdk.kernels import Structure, fixed_layers
from rlsdk.math import explained_variance, flat_grad, mean_of, normalized
from rlsdk.networks import ActorCritic, FlatParameters, auxiliary_losses_refused
from rlsdk.records import Metrics, Rollout
from rlsdk.runtime import count_in
from rlsdk.updates import FlatOptimizer, PolicyBatch, adam_arguments, evaluator_of, in_order, policy_batch, shuffled
from rlsdk_trpo.config import TRPOConfig
from rlsdk_trpo.loss import longest_step, surrogate, surrogate_grad

Objective = Callable[[], tuple[Tensor, Tensor]]
"""(surrogate objective, KL divergence) of the current policy, 0-d."""


class TrustRegionPolicy:
    """Algorithm 1 of arXiv:1502.05477 with conjugate gradients and a line search (appendix C)."""

    def __init__(
        self, network: ActorCritic, config: TRPOConfig, generator: Generator, *, kl_parts: int = 1, num_envs: int = 1
    ) -> None:
        """`kl_parts`: the divisor of KL divergences before they are compared with `target_kl`."""
        self.network, self.config, self.kl_parts, self.generator = network, config, kl_parts, generator
        self.structure = Structure(network)
        self.structure.changed()
        self.actor = FlatParameters(network.actor_parameters)
        self.critic = self._critic_parameters()
        """The parameters that the policy does not depend on."""
        kwargs = config.policy_kwargs
        self.optimizer = FlatOptimizer(
            self.critic,
            kwargs.optimizer_class,
            config.learning_rate(1.0),
            adam_arguments(kwargs.optimizer_class, kwargs.optimizer_kwargs),
        )
        self.num_envs = num_envs
        self.kernel = evaluator_of(network, self._policy_rows(config))
        self.value_kernel = evaluator_of(network, config.batch_size)
        self.updates = 0

    def _policy_rows(self, config: TRPOConfig) -> int:
        """The number of rows of one policy step."""
        return max(1, config.n_steps * self.num_envs // config.sub_sampling_factor)

    def reconfigure(self, config: TRPOConfig) -> None:
        """Use new settings from the next update on."""
        if self._policy_rows(config) != self._policy_rows(self.config):
            self.kernel = evaluator_of(self.network, self._policy_rows(config), hooked=self.structure.hooked)
        if config.batch_size != self.config.batch_size:
            self.value_kernel = evaluator_of(self.network, config.batch_size, hooked=self.structure.hooked)
        self.config = config

    def _critic_parameters(self) -> list[nn.Parameter]:
        actor = {id(parameter) for parameter in self.network.actor_parameters}
        return [parameter for parameter in self.network.parameters() if id(parameter) not in actor]

    def _refit(self) -> None:
        """Collect the parameters and choose the kernels again, after layers or parameters were replaced or hooks added."""
        network, config, hooked = self.network, self.config, self.structure.hooked
        self.actor, self.critic = FlatParameters(network.actor_parameters), self._critic_parameters()
        self.optimizer.adopt(self.critic)
        self.kernel = evaluator_of(network, self._policy_rows(config), hooked=hooked)
        self.value_kernel = evaluator_of(network, config.batch_size, hooked=hooked)

    @auxiliary_losses_refused("TRPO")
    @fixed_layers()
    def update(self, batch: Rollout[Any, Any], *, progress: float) -> Metrics:
        """Learn from a rollout. If the line search fails, the policy does not change and `is_line_search_success` is 0."""
        config = self.config
        if self.structure.changed():
            self._refit()
        self.actor.zero_grad()
        self.optimizer.zero_grad()
        rows = self.kernel.prepared(policy_batch(batch, self.network, gamma=config.gamma, lam=config.gae_lambda))
        if self.network.has_train_mode:
            self.network.train()
        metrics = self._policy_step(self._policy_batch(rows), config.target_kl(1.0 - progress))
        loss = self._fit_values(rows, config.learning_rate(1.0 - progress))
        self.updates += 1
        context = {"train/value_loss": loss, "train/explained_variance": explained_variance(rows.value, rows.target)}
        std = self.network.action_std()
        return {**metrics, **context, **({} if std is None else {"train/std": std})}

    def _policy_batch(self, rows: PolicyBatch) -> PolicyBatch:
        """The rows of the policy step: all valid rows, or a share of 1 / `sub_sampling_factor` of them."""
        count = max(1, len(rows) // self.config.sub_sampling_factor)
        if self.network.recurrent:
            return next(in_order(rows, count, self.generator)) if count < len(rows) else rows
        everything = count == len(rows) and rows.weight is None
        return rows if everything else next(shuffled(rows, count, self.generator))

    def _policy_step(self, rows: PolicyBatch, bound: float) -> dict[str, Tensor]:
        """Take the longest natural gradient step on N rows whose KL divergence is below `bound`. Returns metrics, 0-d."""
        config = self.config
        advantage = normalized(rows.advantage, rows.weight) if config.normalize_advantage else rows.advantage
        if rows.weight is not None:
            advantage = advantage * rows.weight * (len(rows) / rows.weight.sum())
        before, vjp = self.kernel.evaluate(rows)
        with torch.no_grad():
            # a copy: a distribution may contain views of parameters, which the line search changes
            old = deepcopy(self.kernel.policy(rows)[0])

        def evaluate() -> tuple[Tensor, Tensor]:
            distribution, log_prob = self.kernel.policy(rows)
            kl = mean_of(distribution.kl_divergence(old), rows.weight) / self.kl_parts
            return surrogate(log_prob, rows.log_prob, advantage), kl

        self.actor.zero_grad()
        vjp(surrogate_grad(before.log_prob, rows.log_prob, advantage), None, None)
        frozen = self.actor.frozen_entries()
        gradient, fisher = self.actor.gradients.clone(), before.fisher()

        def product(vector: Tensor) -> Tensor:
            damped = fisher(vector) / self.kl_parts + config.cg_damping * vector
            return damped if frozen is None else damped.masked_fill_(frozen, 0.0)

        direction = conjugate_gradient(product, gradient, max_iter=config.cg_max_steps)
        curvature = direction.dot(product(direction))
        step = direction * longest_step(bound, curvature)
        if not bool(step.isfinite().all()) or not bool((curvature > 0.0).all()):
            step = torch.zeros_like(step)  # no gradient, or no curvature: the policy does not change
        return self._line_search(evaluate, surrogate(before.log_prob, rows.log_prob, advantage), step, bound)

    @torch.no_grad()
    def _line_search(self, evaluate: Objective, before: Tensor, step: Tensor, bound: float) -> dict[str, Tensor]:
        """Shorten `step` [D] until the objective rises and the KL divergence is below `bound`. If no length succeeds, the
        policy does not change. Returns metrics, 0-d."""
        config, start, share = self.config, self.actor.values.clone(), 1.0
        objective, kl, success = before, torch.zeros_like(before), False
        for _ in range(config.line_search_max_iter if bool(step.any()) else 0):
            self.actor.values.copy_(start).add_(step, alpha=share)
            objective, kl = evaluate()
            success = bool((kl < bound) & (objective > before))
            if success:
                break
            share *= config.line_search_shrinking_factor
        if not success:
            self.actor.values.copy_(start)
            objective, kl = before, torch.zeros_like(before)
        return {
            "train/objective": objective,
            "train/kl_divergence_loss": kl,
            "train/is_line_search_success": before.new_tensor(float(success)),
        }

    def _fit_values(self, rows: PolicyBatch, rate: float) -> Tensor:
        """Regress the value function on the returns [N]. The policy's parameters do not change. Returns the mean loss, 0-d."""
        split = in_order if self.network.recurrent else shuffled
        rows, total, count = rows.of_values(), rows.value.new_zeros(()), 0
        for _ in range(self.config.n_critic_updates):
            for minibatch in split(rows, self.config.batch_size, self.generator):
                value, vjp = self.value_kernel.values(minibatch, self.critic)
                error = value - minibatch.target
                share = 1.0 / len(minibatch) if minibatch.weight is None else minibatch.weight / minibatch.weight.sum()
                grad = error * (2.0 * share)
                self.optimizer.zero_grad()
                vjp(grad)
                self.optimizer.step(rate)
                total += error.dot(grad)  # twice the mean squared error
                count += 1
        return 0.5 * total / max(1, count)

    def state_dict(self) -> State:
        """The state of the value function's optimizer and the number of updates. The weights are stored with the policy."""
        return {"optimizer": self.optimizer.state_dict(), "counters": {"updates": self.updates}}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = count_in(state["counters"], "updates")


def hessian_vector_product(
    parameters: Sequence[nn.Parameter], grad: Tensor, vector: Tensor, damping: float, *, retain_graph: bool = True
) -> Tensor:
    """Return (H + damping) v [D], with v = `vector` and H the Hessian of a function with respect to `parameters`.

    `grad` is the function's flat gradient [D], computed with `create_graph=True`.
    """
    return flat_grad(grad.dot(vector), parameters, retain_graph=retain_graph) + damping * vector


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, max_iter: int = 10, residual_tol: float = 1e-10
) -> Tensor:
    """An x with A x close to b, for a symmetric positive definite A given by `product(v)` = A v.

    Source: Hestenes, Stiefel 1952. The solver stops when the squared residual is below `residual_tol`, or after `max_iter`
    products. It also stops, and returns the current x, when A is not positive definite along a search direction.

    Args:
        product: the function v -> A v, float [D] -> float [D].
        b: right-hand side, float [D].
        max_iter: the largest number of products.
        residual_tol: the squared norm of b - A x below which the solver stops.
    """
    x, residual = torch.zeros_like(b), b.clone()
    direction, size = b.clone(), float(b.dot(b))
    for _ in range(max_iter):
        if size < residual_tol:
            break
        along = product(direction)
        curvature = float(direction.dot(along))
        # then the quadratic model has no minimum along this direction
        if not curvature > 0.0:  # this is also True for NaN
            break
        step = size / curvature
        x.add_(direction, alpha=step)
        residual.sub_(along, alpha=step)
        following = float(residual.dot(residual))
        direction.mul_(following / size).add_(residual)
        size = following
    return x
