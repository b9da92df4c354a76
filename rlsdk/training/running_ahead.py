"""Collecting ahead of the learner: the next rounds are collected with older weights while the learner updates.

Round r is collected with the weights that the learner had `max_lag` rounds earlier; the first rounds use the initial
weights. This does not depend on the time that collecting and learning take, so the result depends on `max_lag` only.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace

from rlsdk.environments import CollectorsVectorEnv
from rlsdk.environments.vector.collectors_vector import Places
from rlsdk.errors import EnvironmentFault
from rlsdk.training.acting_weights import ActingWeights
from rlsdk.training.collecting_copy import Counts, Part, Shared
from rlsdk.training.trained_agent import DrivenAgent


@dataclass(frozen=True, slots=True)
class Round:
    """The number and kind of the steps of one round."""

    length: int
    begins: bool
    env_steps: int
    """Steps of all environments before the round."""
    counts: Counts | None


@dataclass(frozen=True, slots=True, eq=False)
class _Collected:
    parts: list[Part]
    states: Places
    """The states of the environments after the round."""


class RunningAhead:
    """The rounds of one training that are being collected, the earliest first."""

    def __init__(self, env: CollectorsVectorEnv, agent: DrivenAgent) -> None:
        self.env, self.agent = env, agent
        self._flying: deque[tuple[Round, Future[_Collected]]] = deque()

    def take(self, wanted: Round, shared: Shared, own: list[Part]) -> list[Part]:
        """Return the parts of the rollout of round `wanted`; wait until it is collected.

        Args:
            wanted: the round.
            shared: contains the current weights, which act `max_lag` rounds later.
            own: the acting state of each collector.

        Raises:
            EnvironmentFault: rounds with other settings have begun, and the environment states before them cannot be
                read.
        """
        lag, now = self.env.max_lag, ActingWeights.of(shared.policy, shared.normalizer, wanted.env_steps)
        ahead = (*self.agent.ahead[-lag:], now)
        ahead += (now,) * (lag + 1 - len(ahead))
        if self._flying and self._flying[0][0] != wanted and not self.leave():
            raise EnvironmentFault(
                f"environment {self.env.name!r}: its state cannot be read, so a round that its collectors began cannot be begun"
                " again with other settings; leave out max_lag"
            )
        if not self._flying:
            self._begin(wanted, shared, ahead[0], own)
        _, future = self._flying.popleft()
        try:
            found = future.result()
        except BaseException:
            self._flying.clear()
            raise
        self.agent.ahead, self.env.standing = ahead[1:], found.states
        self.env.lag = (wanted.env_steps - ahead[0].env_steps) // (wanted.length * self.env.num_envs)
        return found.parts

    def begin_further(self, after: Round, shared: Shared, own: list[Part], end: int, *, exact: bool) -> None:
        """Begin the rounds after round `after` whose weights are known, up to `end` environment steps. With `exact`, the last
        one is shorter."""
        size = after.length * self.env.num_envs
        for number, weights in list(enumerate(self.agent.ahead, start=1))[len(self._flying) :]:
            steps = after.env_steps + number * size
            if steps >= end:
                break
            counts = after.counts and replace(after.counts, env_steps=steps)
            length = min(after.length, (end - steps) // self.env.num_envs) if exact else after.length
            self._begin(Round(length, True, steps, counts), shared, weights, own)
        if not self._flying:
            self.env.standing = None

    def _begin(self, wanted: Round, shared: Shared, weights: ActingWeights, own: list[Part]) -> None:
        """Begin a round after those that have begun. If there are none, `own` contains the acting states."""
        before = self._flying[-1][1] if self._flying else None
        sent = replace(
            shared,
            policy=weights.policy,
            normalizer=weights.normalizer,
            length=wanted.length,
            begins=wanted.begins,
            counts=wanted.counts,
        )

        def work() -> _Collected:
            parts = own if before is None else [replace(part, rollout=None) for part in before.result().parts]
            return _Collected(self.env.collect(sent, parts), self.env.states)

        self._flying.append((wanted, self.env.begin(work)))

    def leave(self) -> bool:
        """Discard the rounds that have begun and restore the environments to the state before them.

        Returns False if their state cannot be read.
        """
        self._flying.clear()
        return self.env.rewind()
