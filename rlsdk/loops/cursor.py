"""Where a training run stands. A loop takes one and yields the next; nothing else remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlsdk.interfaces import Policy, VectorEnv
from rlsdk.records import Observation


@dataclass(frozen=True, slots=True)
class Cursor:
    """The observation to act on next, the behaviour policy's carry, and totals since the agent was made."""

    observation: Observation
    carry: Any
    env_steps: int = 0
    updates: int = 0

    @staticmethod
    def begin(env: VectorEnv, policy: Policy[Any, Any], seed: int | None) -> Cursor:
        """The start of training: environments reset, an empty carry."""
        return Cursor(env.reset(seed), policy.initial_carry(env.num_envs))
