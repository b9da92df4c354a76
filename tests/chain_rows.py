"""A check that rows of a replay buffer are transitions of `ChainEnv`."""

from __future__ import annotations

import torch

from rlsdk.records import Transitions
from rlsdk_envs.toy import ChainEnv


def untrue(batch: Transitions, gamma: float, length: int = 4) -> str | None:
    """Describe the first row of a batch that is not a transition of `ChainEnv`; None if there is no such row."""
    rules = ChainEnv(length)
    now, after = batch.observation.features, batch.next_observation.features
    for row in range(len(batch.reward)):
        episode, step = (int(v) for v in now[row])
        ends = step == length - 1
        discount = 0.0 if ends and rules.terminates(episode) else gamma
        expected = torch.tensor([episode, step + 1.0])
        if not torch.equal(after[row], expected):
            return f"step {step} of episode {episode} led to {after[row].tolist()}, not to {expected.tolist()}"
        if float(batch.reward[row]) != float(step):
            return f"step {step} has the reward {float(batch.reward[row])}"
        if abs(float(batch.discount[row]) - discount) > 1e-6:
            kind = "a termination" if discount == 0.0 else "a time limit" if ends else "an ordinary step"
            return f"step {step} of episode {episode}, {kind}, has the discount {float(batch.discount[row])}, not {discount}"
    return None
