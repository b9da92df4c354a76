"""The update of ACKTR: one natural gradient step, of bounded length, on the whole rollout."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlsdk.interfaces import State
from rlsdk.kernels import Structure
from rlsdk.math import explained_variance, mean_of, normalized
from rlsdk.networks import ActorCritic, ActorCriticCarry, Estimates, auxiliary_losses_refused
from rlsdk.records import Metrics, Rollout
from rlsdk.runtime import count_in
from rlsdk.updates import FlatOptimizer, PolicyBatch, policy_batch
from rlsdk_acktr.config import ACKTRConfig
from rlsdk_acktr.fisher import FisherInformation, score_of
from rlsdk_acktr.recording import recorded


class KroneckerActorCritic:
    """The algorithm of Wu et al. 2017, arXiv:1708.05144, sections 3.1 and 3.2, with momentum, and with a cold phase of plain
    gradient steps at the start."""

    def __init__(self, network: ActorCritic, config: ACKTRConfig, generator: Generator, *, continuous: bool) -> None:
        """`continuous`: whether advantages are normalized if the setting `normalize_advantage` is None."""
        self.network, self.config, self.generator, self.continuous = network, config, generator, continuous
        network.stores_estimates = False
        chosen, arguments = config.policy_kwargs.optimizer_class, config.policy_kwargs.optimizer_kwargs or {}
        self.is_sgd = chosen is None
        momentum = {"momentum": config.momentum} if chosen is None else {}
        self.optimizer = FlatOptimizer(network, chosen or "sgd", config.learning_rate(1.0), {**momentum, **arguments})
        self.structure = Structure(network)
        self.structure.changed()
        self.fisher = FisherInformation(network)
        self.updates = 0

    def reconfigure(self, config: ACKTRConfig) -> None:
        """Use new settings from the next update on."""
        self.config = config

    @auxiliary_losses_refused("ACKTR")
    def update(self, batch: Rollout[ActorCriticCarry, Estimates], *, progress: float) -> Metrics:
        """Take one step on a rollout. Metrics are 0-d.

        Raises:
            DivergenceError: the Fisher information is not finite.
        """
        config, network = self.config, self.network
        if self.structure.changed():
            before, self.fisher = self.fisher, FisherInformation(network)
            self.fisher.keep(before)
        self.optimizer.zero_grad()
        rows = policy_batch(
            batch, network, gamma=config.gamma, lam=1.0 if config.gae_lambda is None else config.gae_lambda
        )
        if network.has_train_mode:
            network.train()
        metrics = self._find_gradients(rows)
        rate = config.learning_rate(1.0 - progress)
        metrics["train/step_scale"] = self._step(rate)
        self.updates += 1
        metrics["train/explained_variance"] = explained_variance(rows.value, rows.target)
        std = network.action_std()
        return metrics if std is None else {**metrics, "train/std": std}

    def _find_gradients(self, rows: PolicyBatch) -> dict[str, Tensor]:
        """Update the Fisher information, and compute the gradient of the loss of N rows into the optimizer. Metrics are 0-d."""
        config, network, weight = self.config, self.network, rows.weight
        with recorded(block.layer for block in self.fisher.layers.values()) as calls:
            distribution, value = network.evaluate(rows.observation, rows.memory, rows.starts)
        log_prob = distribution.log_prob(network.internal(rows.action))
        score = score_of(log_prob, value, weight, config.vf_fisher_coef, self.generator)
        if score.requires_grad:  # False if all parameters are frozen
            self.fisher.observe(score, calls, weight, len(rows), config.stats_decay)
        normalize = self.continuous if config.normalize_advantage is None else config.normalize_advantage
        advantage = normalized(rows.advantage, weight) if normalize else rows.advantage
        policy_loss = mean_of(-advantage * log_prob, weight)
        value_loss = mean_of((rows.target - value).square(), weight)
        entropy_loss = -mean_of(distribution.entropy(), weight)
        loss = policy_loss + config.vf_coef * value_loss + config.ent_coef * entropy_loss
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        found = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy_loss": entropy_loss, "loss": loss}
        return {f"train/{name}": term.detach() for name, term in found.items()}

    def _step(self, rate: float) -> Tensor:
        """Step along the plain gradient in the cold phase, later along the natural gradient.

        Returns the factor, 0-d, that bounds the step in the Fisher metric (section 3.2); 1 in the cold phase.
        """
        config, gradients = self.config, self.optimizer.gradients
        scale = torch.ones((), device=gradients.device)
        if self.updates == config.cold_iter:
            self.optimizer.load_state_dict({})  # momentum of plain gradients has another scale
        if self.updates >= config.cold_iter:
            plain = gradients.clone()
            self.fisher.precondition(config, refresh=(self.updates - config.cold_iter) % config.kfac_update == 0)
            length = (plain.dot(gradients) * rate**2).clamp(min=torch.finfo(plain.dtype).tiny)
            scale = (config.kfac_clip / length).sqrt().clamp(max=1.0)
            gradients.mul_(scale)
        bound = config.max_grad_norm if self.updates < config.cold_iter else None
        self.optimizer.step(rate * (1.0 - config.momentum) if self.is_sgd else rate, bound)
        return scale

    def state_dict(self) -> State:
        """The optimizer, the Fisher information and the number of updates. The weights are stored with the policy."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "fisher": self.fisher.state_dict(),
            "counters": {"updates": self.updates},
        }

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.fisher.load_state_dict(state["fisher"])
        self.updates = count_in(state["counters"], "updates")
