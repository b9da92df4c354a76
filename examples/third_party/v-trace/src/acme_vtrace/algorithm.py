"""The update from sequences, and the training loop: collect, learn from new steps, then from replayed ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from acme_vtrace.config import VTraceConfig
from acme_vtrace.policy import ActorCriticNetwork, Extras
from acme_vtrace.targets import Clips, v_trace
from rlsdk.buffers import ReplayBuffer, SequenceReplay
from rlsdk.interfaces import BuildContext, Parts, State, Training, require_spaces
from rlsdk.records import Cursor, Metrics, Report, Rollout, Sequences, successors
from rlsdk.spaces import Discrete
from rlsdk.tree import map_tensors
from rlsdk.updates import FlatOptimizer


class VTrace:
    """Actor-critic with clipped importance weights. Source: Espeholt et al. 2018, arXiv:1802.01561, section 4.2."""

    def __init__(self, policy: ActorCriticNetwork, config: VTraceConfig) -> None:
        self.policy, self.config = policy, config
        self.optimizer = FlatOptimizer(policy, "adam", config.learning_rate)

    def update(self, batch: Sequences[tuple[()]], *, progress: float) -> Metrics:
        """Take one gradient step on sequences [T, N]."""
        config, policy, steps = self.config, self.policy, batch.steps
        shape = steps.reward.shape
        observation, following = map_tensors(
            lambda leaf: leaf.flatten(0, 1), (steps.observation, batch.next_observation)
        )
        chosen = policy.distribution(observation)
        log_prob = chosen.log_prob(steps.action.long().flatten() - policy.start).view(shape)
        value = policy.value(observation).view(shape)
        with torch.no_grad():
            targets = v_trace(
                (log_prob - steps.extras["log_prob"]).exp(),
                steps.reward,
                batch.discount,
                (value, policy.value(following).view(shape)),
                batch.continues,
                Clips(config.clip_rho, config.clip_c),
            )
        weight = batch.loss_mask / batch.loss_mask.sum().clamp(min=1)
        policy_loss = -(weight * log_prob * targets.advantage).sum()
        value_loss = (weight * (targets.value - value).square()).sum()
        entropy = (weight * chosen.entropy().view(shape)).sum()
        self.optimizer.zero_grad()
        torch.autograd.backward(policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy)
        self.optimizer.step(config.learning_rate, config.max_grad_norm)
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        return {f"train/{name}": loss.detach() for name, loss in losses.items()}

    def state_dict(self) -> State:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: State, /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def as_sequences(rollout: Rollout[tuple[()], Extras], gamma: float) -> Sequences[tuple[()]]:
    """Convert a rollout [T, B] to the sequences that the replay buffer would return for it."""
    steps = rollout.steps
    discount = gamma * (~steps.terminated).float()
    index = torch.arange(steps.reward.shape[1], device=discount.device)
    return Sequences(steps, successors(rollout), discount, steps.valid, None, index)


@dataclass(frozen=True, slots=True)
class ReplayedRollouts:
    """The training loop: collect `n_steps` of every environment, make an update from them, then `replay_ratio` from replay."""

    buffer: SequenceReplay[tuple[()]]
    n_steps: int
    batch_size: int
    replay_ratio: int
    gamma: float
    needs_environment: ClassVar[bool] = True
    unit: ClassVar[Literal["steps"]] = "steps"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps. A rollout that a callback cut short is stored but not learned from."""
        collector, parts = training.collector, training.parts
        while cursor.env_steps < training.end:
            rollout = collector.collect(parts.behavior_policy, self.n_steps)
            self.buffer.extend(rollout)
            steps = cursor.env_steps + len(rollout.steps.reward) * collector.num_envs
            metrics, updates = None, cursor.updates
            if len(rollout.steps.reward) == self.n_steps:
                progress = training.progress(steps)
                batches = [parts.preprocess_batch(as_sequences(rollout, self.gamma))]
                batches += [parts.sample(self.batch_size, training.streams["replay"]) for _ in range(self.replay_ratio)]
                found = [parts.algorithm.update(batch, progress=progress) for batch in batches]
                metrics = {name: torch.stack([each[name] for each in found]).mean() for name in found[0]}
                updates += len(found)
            cursor = replace(cursor, env_steps=steps, updates=updates)
            yield cursor, Report(steps, updates, rollout.episodes, metrics)


def build(context: BuildContext, config: VTraceConfig) -> Parts:
    """Build the parts of an agent."""
    observations = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
    require_spaces(context, "V-trace", actions=("Discrete",), observations=observations)
    assert isinstance(context.action_space, Discrete)
    policy = ActorCriticNetwork(context.observation_space, context.action_space, config.hidden).to(context.device)
    steps = ReplayBuffer(context, config.buffer_size, config.gamma)
    buffer = SequenceReplay[tuple[()]](steps, length=config.n_steps, extras={"log_prob": torch.zeros(())})
    plan = ReplayedRollouts(buffer, config.n_steps, config.batch_size, config.replay_ratio, config.gamma)
    return Parts(policy=policy, algorithm=VTrace(policy, config), plan=plan, buffer=buffer)
