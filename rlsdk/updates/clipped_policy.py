"""The update of proximal policy optimization, its losses and statistics. Source: Schulman et al. 2017, arXiv:1707.06347."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from rlsdk.interfaces import Distribution, State
from rlsdk.kernels import KernelChoice, KernelSlot, factory, fixed_layers
from rlsdk.kernels.factory import graphed
from rlsdk.kernels.protocol import (
    LossGrads,
    LossTerms,
    Minibatches,
    PolicyEvaluator,
    PolicyLoss,
    PolicyOutputs,
    PolicyRows,
    PolicySteps,
    PolicyVjp,
    Product,
)
from rlsdk.kernels.reference import backward
from rlsdk.math.surrogate import (
    approximate_kl,
    clipped_surrogate,
    clipped_surrogate_grad,
    flat_grad,
    mean_of,
    normalized,
    value_error,
    value_error_grad,
)
from rlsdk.networks.actor_critic import ActorCritic, ActorCriticCarry, Estimates
from rlsdk.records import Metrics, Rollout
from rlsdk.runtime.process import count_in
from rlsdk.settings.actor_critic import ClippedPolicyConfig
from rlsdk.updates.minibatches import PolicyBatch, in_order, policy_batch, shuffled, shuffled_order
from rlsdk.updates.optimizer import FlatOptimizer, adam_arguments

COMMON = ("train/policy_gradient_loss", "train/value_loss", "train/entropy_loss")
METRICS = (*COMMON, "train/approx_kl", "train/clip_fraction", "train/loss")  # in the order of `protocol.LOSSES`
KL = METRICS.index("train/approx_kl")
Numbers = tuple[float, float, float | None]
"""The learning rate, and the clip ranges of the ratio and of values."""


class ClippedPolicy:
    """Makes several epochs of minibatch updates on one rollout. The clipped objective limits the distance from the
    collecting policy."""

    allows_lag = True
    """The probability ratio refers to the policy that collected the rollout, so that policy may be an older one."""

    def __init__(
        self,
        network: ActorCritic,
        config: ClippedPolicyConfig,
        generator: Generator,
        *,
        cut_every: int | None = None,
        burn_in: int = 0,
        num_envs: int = 1,
    ) -> None:
        """Create the update.

        Args:
            network: the actor-critic network.
            config: the settings. With `batch_size` None, the whole rollout is one minibatch.
            generator: samples the order of the rows.
            cut_every: number of steps after which gradients through the recurrent state are cut; None = never within a
                segment.
            burn_in: see `in_order`.
            num_envs: the number of environments, the columns of a rollout.
        """
        self.num_envs = num_envs
        self.network, self.config, self.generator = network, config, generator
        self.cut_every, self.burn_in = cut_every, burn_in
        choice, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs
        self.optimizer = FlatOptimizer(network, choice, config.learning_rate(1.0), adam_arguments(choice, arguments))
        self._kernels = KernelSlot(self._make_kernels, network)
        self.updates = 0
        """The number of epochs begun so far, as stable-baselines3 counts updates."""

    def _rows_at_once(self, config: ClippedPolicyConfig) -> int:
        return config.batch_size or config.n_steps * self.num_envs

    def reconfigure(self, config: ClippedPolicyConfig) -> None:
        """Use the settings of `config` from the next update on, except those of networks."""
        self.cut_every = getattr(config, "sequence_length", self.cut_every)
        self.burn_in = getattr(config, "burn_in", self.burn_in)
        self.config = config
        self._kernels.refit()  # the fastest kernel depends on batch_size

    def _make_kernels(self, hooked: bool) -> PolicyKernels:
        # kernels look up the gradients' memory once, so it has to exist before they are made
        self.optimizer.zero_grad()  # allocates the gradients of new parameters
        return policy_kernels(self.network, self._rows_at_once(self.config), hooked=hooked)

    @fixed_layers()
    def update(self, batch: Rollout[ActorCriticCarry, Estimates], *, progress: float) -> Metrics:
        """Learn from a rollout. Metrics are means over its minibatches."""
        config, remaining, network = self.config, 1.0 - progress, self.network
        # beyond 1.5 times the target the rollout is used up: no further step, as in OpenAI's implementation
        clip, limit = config.clip_range(remaining), 1.5 * config.target_kl if config.target_kl is not None else None
        clip_value = None if config.clip_range_vf is None else config.clip_range_vf(remaining)
        rate = config.learning_rate(remaining)
        rows = policy_batch(batch, network, gamma=config.gamma, lam=config.gae_lambda, cut_every=self.cut_every)
        kernels = self._kernels()
        rows = kernels.evaluator.prepared(rows)
        if network.has_train_mode:
            network.train()
        size, total, count = config.batch_size or len(rows), torch.zeros(len(METRICS), device=rows.value.device), 0
        terms = LossTerms(clip, clip_value, config.ent_coef, config.vf_coef, config.normalize_advantage)
        # a memory learns from consecutive steps, other networks from rows in random order
        divided = partial(in_order, burn_in=self.burn_in) if network.recurrent else shuffled
        for epochs in (config.n_epochs,) if limit is None else (1,) * config.n_epochs:  # each may be the last one
            self.updates += epochs
            step = None if kernels.steps is None else self.optimizer.next_steps(rate, config.max_grad_norm)
            is_last = False
            if kernels.steps is not None and step is not None:  # compiled code makes all steps of these epochs itself
                order = torch.stack([shuffled_order(rows, self.generator) for _ in range(epochs)])
                sums, made, is_last = kernels.steps(rows, Minibatches(order, size, limit), terms, step)
                total, count = total.add_(sums), count + made
            else:
                for minibatch in chain.from_iterable(divided(rows, size, self.generator) for _ in range(epochs)):
                    total += (seen := self._learn(minibatch, (rate, clip, clip_value), limit))
                    count += 1
                    if is_last := limit is not None and float(seen[KL]) > limit:
                        break
            if is_last:
                break
        # 0 minibatches if all rows are padding
        metrics = dict(zip(METRICS, (total / max(count, 1)).unbind(), strict=True))
        metrics["train/explained_variance"] = factory.explained_variance(rows.value, rows.target)
        limits = {"train/clip_range": clip, "train/clip_range_vf": clip_value}
        metrics |= {name: rows.value.new_full((), value) for name, value in limits.items() if value is not None}
        std = network.action_std()
        return metrics if std is None else {**metrics, "train/std": std}

    @graphed("updates")
    def _learn(self, rows: PolicyBatch, numbers: Numbers, limit: float | None) -> Tensor:
        """Make a step, unless the KL divergence is above `limit`; return the means [6]."""
        # The loss (arXiv:1707.06347, eq. 9), of which `policy_loss` and compiled kernels compute the gradient in closed
        # form; test_policy_loss.py of rlsdk-kernels holds them equal to autograd's:
        #   ratio = (log_prob - rows.log_prob).exp()
        #   policy_loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        #   value_loss = (rows.target - value).square().mean()
        #   loss = policy_loss + vf_coef * value_loss - ent_coef * entropy.mean()
        config, (rate, clip, clip_value) = self.config, numbers
        terms = LossTerms(clip, clip_value, config.ent_coef, config.vf_coef, config.normalize_advantage)
        kernels = self._kernels.kernel  # `update` has checked that they are the current ones
        now, vjp = kernels.evaluator.evaluate(rows)
        seen, grads = kernels.loss(rows, now, terms)
        if limit is None or not float(seen[KL]) > limit:  # a divergence that is NaN makes the step, and is reported
            self.optimizer.zero_grad()
            vjp(*grads)
            self.optimizer.step(rate, config.max_grad_norm)
        return seen

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict(), "counters": {"updates": self.updates}}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = count_in(state["counters"], "updates")


class PolicyKernels(NamedTuple):
    """The fastest implementations of an update for the present layers of a network; see `policy_kernels`."""

    evaluator: Evaluator
    loss: PolicyLoss
    steps: PolicySteps | None
    """Makes several gradient steps in one call; None: call `evaluator`, `loss` and the optimizer for each step."""


def policy_kernels(network: ActorCritic, rows: int, *, hooked: bool) -> PolicyKernels:
    """Return the fastest implementations for the network and batches of `rows` rows; see `evaluator_of`."""
    evaluator, loss = evaluator_of(network, rows, hooked=hooked), policy_loss_of(network)
    return PolicyKernels(evaluator, loss, factory.policy_steps(evaluator, loss))


def policy_loss_of(network: ActorCritic) -> PolicyLoss:
    """Return the fastest implementation of the loss for this network."""
    device = next(network.parameters()).device.type
    return factory.policy_loss(KernelChoice(network.kernel_setting, device=device), policy_loss)


def policy_loss(rows: PolicyRows, now: PolicyOutputs, terms: LossTerms) -> tuple[Tensor, LossGrads]:
    """Return (the means named in `rlsdk.kernels.protocol.LOSSES`, [6]; the gradients of the loss).

    The gradients are float [N], with respect to log-probability, entropy and value.
    """
    weight = rows.weight
    advantage = normalized(rows.advantage, weight) if terms.normalize_advantage else rows.advantage
    values = value_error(now.value, rows.value, rows.target, terms.clip_value)
    # padding rows have weight 0, so means are over the rows that count
    share = torch.full_like(now.value, 1.0 / len(rows)) if weight is None else weight / weight.sum()
    if terms.clip is None:
        # the plain policy gradient, of A2C and behavior cloning
        policy, grad_log_prob = -advantage * now.log_prob, -advantage * share
        divergence = outside = torch.zeros_like(policy)
    else:
        log_ratio = now.log_prob - rows.log_prob
        ratio = log_ratio.exp()
        policy, divergence = clipped_surrogate(ratio, advantage, terms.clip), approximate_kl(ratio, log_ratio)
        # for the log only: the fraction of rows whose ratio is clipped
        outside = ((ratio - 1.0).abs() > terms.clip).to(policy.dtype)
        grad_log_prob = clipped_surrogate_grad(ratio, advantage, terms.clip) * share
    losses = policy - terms.ent_coef * now.entropy + terms.vf_coef * values
    means = torch.stack((policy, values, -now.entropy, divergence, outside, losses)) @ share
    # None saves the backward pass through the entropy, which is off by default
    grad_entropy = -terms.ent_coef * share if terms.ent_coef else None
    grad_value = value_error_grad(now.value, rows.value, rows.target, terms.clip_value) * (share * terms.vf_coef)
    return means, (grad_log_prob, grad_entropy, grad_value)


Evaluator = PolicyEvaluator[PolicyBatch]


def evaluator_of(network: ActorCritic, rows: int, *, hooked: bool = False) -> Evaluator:
    """Return the fastest evaluator for the network and batches of `rows` rows.

    The gradients of the parameters must already be allocated, as `FlatOptimizer` does. With `hooked`, return the
    autograd evaluator, which calls every module and therefore its hooks.
    """
    # the widest layer and the number of rows decide which kernel is the fastest
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

    def evaluate(self, rows: PolicyBatch) -> tuple[PolicyOutputs, PolicyVjp]:
        network = self._network
        distribution, value = network.evaluate(rows.observation, rows.memory, rows.starts)
        log_prob, entropy = distribution.log_prob(network.internal(rows.action)), distribution.entropy()

        def vjp(grad_log_prob: Tensor, grad_entropy: Tensor | None, grad_value: Tensor | None) -> None:
            grads = grad_log_prob, grad_entropy, grad_value
            # TRPO differentiates the policy alone and needs the same graph again for its curvature
            backward((log_prob, entropy, value), grads, retain_graph=grad_value is None)

        def fisher() -> Product:
            with torch.no_grad():
                # the divergence from a copy without gradient is 0 with gradient 0 here; its second derivative is the
                # Fisher matrix
                fixed = network.evaluate(rows.observation, rows.memory, rows.starts)[0]
            divergence = mean_of(distribution.kl_divergence(fixed), rows.weight)
            grad = flat_grad(divergence, network.actor_parameters, create_graph=True)
            return lambda v: flat_grad(grad.dot(v), network.actor_parameters, retain_graph=True)

        return PolicyOutputs(lambda: distribution, log_prob.detach(), entropy.detach(), value.detach(), fisher), vjp

    @torch.no_grad()
    def policy(self, rows: PolicyBatch) -> tuple[Distribution, Tensor]:
        """Return (distribution, log-probabilities [N] of the actions in `rows`)."""
        distribution, _ = self._network.evaluate(rows.observation, rows.memory, rows.starts)
        return distribution, distribution.log_prob(self._network.internal(rows.action))

    def values(self, rows: PolicyBatch, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (values [N], function that backpropagates a gradient [N] to the parameters `critic`)."""
        _, value = self._network.evaluate(rows.observation, rows.memory, rows.starts)
        # autograd refuses frozen parameters as inputs
        trained = [parameter for parameter in critic if parameter.requires_grad]

        def vjp(grad: Tensor) -> None:
            if trained and value.requires_grad:
                torch.autograd.backward(value, grad, inputs=trained)

        return value.detach(), vjp
