"""Measure the time that each part of a training takes, and give advice on how to make it faster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rlsdk.agent import Agent, substituted
from rlsdk.runtime import is_quiet, print_line

SLOW_STEP = 200e-6
"""Seconds per environment step above which other processes are faster, despite the time for communication."""
SEEDS = "several seeds side by side (--seeds) use more cores"
PHASES = ("environment", "acting", "memory", "update", "other")


class Profile:
    """Seconds by kind of work (`PHASES`). After the measurement they add up to `total`."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.total = 0.0
        self.env_steps = 0

    def timed(self, function: Callable[..., Any], kind: str) -> Callable[..., Any]:
        """Return a function that calls `function` and adds the time it takes to `kind`."""

        def measured(*args: object, **kwargs: object) -> object:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[kind] += time.perf_counter() - began

        return measured

    def share(self, kind: str) -> float:
        """Return the share of the total time, from 0 to 1."""
        return self.seconds[kind] / self.total if self.total else 0.0

    def table(self) -> str:
        """Return a table as text, with one line for each kind of work."""
        steps = max(1, self.env_steps)
        lines = [f"{'':12} {'share':>6} {'us per step':>12}"]
        for kind in PHASES:
            lines.append(f"{kind:12} {self.share(kind):>6.1%} {self.seconds[kind] / steps * 1e6:>12.1f}")
        return "\n".join([*lines, f"{'together':12} {1.0:>6.1%} {self.total / steps * 1e6:>12.1f}"])

    def advice(self, n_envs: int, *, images: bool, device: str) -> str:
        """Return one sentence on what would make the training faster."""
        largest = max(PHASES, key=lambda kind: self.seconds[kind])
        cores = os.cpu_count() or 1
        if largest == "environment":
            each = self.seconds["environment"] / max(1, self.env_steps)
            if each > SLOW_STEP and cores > 1:
                how = f"step them in processes (--vectorization async --n-envs {cores})"
                return f"environments take {each * 1e6:.0f} us a step: {how}"
            return f"environments dominate, and step too fast for processes to pay: {SEEDS}"
        if largest == "acting" and n_envs < 8:
            return f"acting dominates with {n_envs} environment(s): --n-envs 8 costs hardly more for each call"
        if largest == "update" and images and device == "cpu":
            return "updates of image networks dominate: an accelerator (--device cuda), or --threads 2 where a core is idle"
        if largest == "update":
            return f"updates dominate: fewer of them (gradient_steps, n_epochs), smaller networks or batches; {SEEDS}"
        if largest == "other":
            return "evaluations, checkpoints and logs dominate: raise --eval-every and --checkpoint-every"
        return f"nothing stands out: {SEEDS}"


class _Timed:
    """A proxy of `inner` that measures the time of some of its methods."""

    def __init__(self, inner: Any, kinds: Mapping[str, str], profile: Profile) -> None:
        # `inner` is public, because checkpoints look for the networks of a part there
        self.inner, self._kinds, self._profile = inner, kinds, profile

    def __getattr__(self, name: str) -> Any:
        if name == "rollout_act":  # the function it returns would not be timed; `act` does the same
            raise AttributeError(name)
        value = getattr(self.inner, name)
        if name not in self._kinds:
            return value
        measured = self._profile.timed(value, self._kinds[name])
        self.__dict__[name] = measured
        return measured


class _TimedMemory(_Timed):
    """A proxy of a replay buffer, which also has a length."""

    def __len__(self) -> int:
        return len(self.inner)


@contextmanager
def profiled(agent: Agent) -> Iterator[Profile]:
    """Measure the time of `learn` inside the block."""
    profile, parts = Profile(), agent.parts
    updates = {"update": "update", "propose": "update", "collected": "update"}
    memory = dict.fromkeys(("extend", "sample", "prioritize"), "memory")
    timed = replace(
        parts,
        algorithm=_Timed(parts.algorithm, updates, profile),
        behavior=_Timed(parts.behavior_policy, {"act": "acting"}, profile),
        buffer=None if parts.buffer is None else _TimedMemory(parts.buffer, memory, profile),
    )
    env = _Timed(agent.env, {"step": "environment", "map": "environment", "reset": "environment"}, profile)
    before, began = agent.num_timesteps, time.perf_counter()
    try:
        with substituted(agent, timed, env):
            yield profile
    finally:
        profile.total = time.perf_counter() - began
        profile.seconds["other"] = max(0.0, profile.total - sum(profile.seconds.values()))
        profile.env_steps = agent.num_timesteps - before


@contextmanager
def printed_profile(agent: Agent, place: str) -> Iterator[None]:
    """Print the profile of the block: to standard error in quiet mode, because standard output then contains only the
    result."""
    with profiled(agent) as profile:
        yield
    stream = sys.stderr if is_quiet() else None
    print_line(f"where the time went, {agent.spec.id} on {place}:\n{profile.table()}", stream)
    advice = profile.advice(agent.context.num_envs, images=agent.context.observes_images, device=agent.device)
    print_line(f"advice: {advice}", stream)
