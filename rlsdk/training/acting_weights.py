"""Weights that act in a later round, where collectors are ahead of the learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlsdk.interfaces import State
from rlsdk.runtime.stored import count_in


@dataclass(frozen=True, slots=True, eq=False)
class ActingWeights:
    """The weights that will act in a later round."""

    policy: State
    """Of the policy that collects."""
    normalizer: State | None
    """Of the statistics of observations."""
    env_steps: int
    """Environment steps of the learner when it had them."""

    @staticmethod
    def of(policy: State, normalizer: State | None, env_steps: int) -> ActingWeights:
        """These weights, copied: the learner changes its own in place."""
        return ActingWeights(_copied(policy), _copied(normalizer), env_steps)

    def state_dict(self) -> dict[str, object]:
        """As files hold it."""
        statistics = {} if self.normalizer is None else {"normalizer": self.normalizer}
        return {"policy": self.policy, "env_steps": self.env_steps, **statistics}

    @staticmethod
    def from_state(state: State) -> ActingWeights:
        """What `state_dict` gives. Raises KeyError, TypeError or ValueError for something else."""
        return ActingWeights(state["policy"], state.get("normalizer"), count_in(state, "env_steps"))


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return {name: _copied(entry) for name, entry in value.items()} if isinstance(value, Mapping) else value
