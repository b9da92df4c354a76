"""The work: what is trained, on what, with which settings. Both sides get the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """`algorithm` names the plugin's class and, upper-cased, the peer's; `warmup` steps are not timed."""

    name: str
    algorithm: str
    env: str
    settings: dict[str, Any] = field(default_factory=dict)
    warmup: int = 1040
    chunk: int = 200

    def ours(self, seed: int) -> Callable[[int], object]:
        """A function that trains our agent for so many steps, warmed up."""
        import rlsdk

        model = rlsdk.make(self.algorithm, env=self.env, seed=seed, device="cpu", **self.settings)
        model.learn(self.warmup, threads=None)
        return lambda steps: model.learn(steps, reset_num_timesteps=False, threads=None)

    def theirs(self, seed: int) -> Callable[[int], object]:
        """The same with sb3-contrib."""
        import sb3_contrib

        kind = getattr(sb3_contrib, self.algorithm.upper())
        model = kind("MlpPolicy", self.env, seed=seed, device="cpu", **self.settings)
        model.learn(self.warmup)
        return lambda steps: model.learn(steps, reset_num_timesteps=False)


TQC = {"learning_starts": 1000, "buffer_size": 100_000}
CASES = {
    case.name: case
    for case in (
        Case("tqc-pendulum", "tqc", "Pendulum-v1", TQC),
        Case("tqc-halfcheetah", "tqc", "HalfCheetah-v5", TQC),
    )
}
