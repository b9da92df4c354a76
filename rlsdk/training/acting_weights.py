"""The weights that act in later rounds, if collectors are ahead of the learner."""

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
    """The state of the policy that collects."""
    normalizer: State | None
    """The state of the statistics of observations; None without normalisation."""
    env_steps: int
    """The learner's number of environment steps when it had these weights."""

    @staticmethod
    def of(policy: State, normalizer: State | None, env_steps: int) -> ActingWeights:
        """Copy these weights, because the learner changes its own in place."""
        return ActingWeights(_copied(policy), _copied(normalizer), env_steps)

    def state_dict(self) -> dict[str, object]:
        """The state as files store it."""
        statistics = {} if self.normalizer is None else {"normalizer": self.normalizer}
        return {"policy": self.policy, "env_steps": self.env_steps, **statistics}

    @staticmethod
    def from_state(state: State) -> ActingWeights:
        """Restore the result of `state_dict`. Raises KeyError, TypeError or ValueError for other values."""
        return ActingWeights(state["policy"], state.get("normalizer"), count_in(state, "env_steps"))


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return {name: _copied(entry) for name, entry in value.items()} if isinstance(value, Mapping) else value
