"""The buffer of fine-tuning: recorded transitions, and those that the agent collects itself."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor

from rlsdk.buffers import ReplayBuffer
from rlsdk.interfaces import BuildContext, State
from rlsdk.records import Features, Observation, Rollout, Transitions
from rlsdk.spaces import choices_of
from rlsdk.tree import map_tensors
from rlsdk_datasets import Dataset, RecordedTransitions


class RecordedAndCollected:
    """Samples transitions of a data set and of a replay buffer. All recorded and all collected steps are equally likely."""

    def __init__(self, dataset: Dataset, context: BuildContext, *, gamma: float, capacity: int) -> None:
        """`capacity`: the number of collected transitions that are stored; the oldest are overwritten."""
        self.recorded, self.gamma = RecordedTransitions(dataset, context, gamma=gamma), gamma
        self.online = ReplayBuffer(context, capacity, gamma)
        self.choices = sum(choices_of(context.action_space))

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions with replacement, the recorded ones first; raises like `RecordedTransitions.sample`."""
        episodes, collected = self.recorded.episodes, len(self.online)
        places = torch.randint(episodes.steps + collected, (size,), generator=generator, device=generator.device)
        chosen = places[places < episodes.steps]
        first = episodes.transitions(chosen, self.gamma)
        if len(chosen) == size:
            return first
        second = self.online.sample(size - len(chosen), generator)
        second = replace(second, index=second.index + episodes.steps)
        return second if len(chosen) == 0 else self._joined(first, second)

    def _joined(self, first: Transitions, second: Transitions) -> Transitions:
        """The rows of two batches [N, ..] and [M, ..] in one, [N + M, ..]."""
        return Transitions(
            observation=self._observations(first.observation, second.observation),
            action=_cat(first.action, second.action),
            next_observation=self._observations(first.next_observation, second.next_observation),
            reward=torch.cat([first.reward, second.reward]),
            discount=torch.cat([first.discount, second.discount]),
            index=torch.cat([first.index, second.index]),
        )

    def _observations(self, first: Observation, second: Observation) -> Observation:
        mask: Tensor | None = None
        # either may lack masks: then all of its actions were allowed
        if first.action_mask is not None or second.action_mask is not None:
            mask = torch.cat([self._mask(first), self._mask(second)])
        return Observation(_cat(first.features, second.features), torch.cat([first.is_first, second.is_first]), mask)

    def _mask(self, observation: Observation) -> Tensor:
        """The masks bool [N, A] of observations, True everywhere if they have none."""
        if observation.action_mask is not None:
            return observation.action_mask
        first = observation.is_first
        return torch.ones(len(first), self.choices, dtype=torch.bool, device=first.device)

    def extend(self, item: Rollout[Features, Features]) -> None:
        """Store collected steps [T, B]."""
        self.online.extend(item)

    def __len__(self) -> int:
        """The number of recorded and collected steps; 0 before the first collected one."""
        # a filled buffer fits only the number of environments that filled it, and has its memory: recordings need neither
        return len(self.recorded) + len(self.online) if len(self.online) else 0

    def bytes_required(self) -> int:
        """The size of the full buffer of collected steps; the recordings are in a file."""
        return self.online.bytes_required()

    def state_dict(self) -> State:
        return {**self.recorded.state_dict(), "collected": self.online.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Check the digest of the data set, and restore the collected steps. Raises UsageError: it is another data set."""
        self.recorded.load_state_dict(state)
        self.online.load_state_dict(state["collected"])


def _cat(first: Features, second: Features) -> Features:
    """Two trees of tensors, [N, ..] and [M, ..], as one of tensors [N + M, ..]."""
    return map_tensors(lambda one, two: torch.cat([one, two]), first, second)
