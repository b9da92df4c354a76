"""Trains an agent of rlsdk with the first weights and the random numbers of the peer.

Two trainings with other random numbers differ mostly by chance. With the same numbers, they are the same training until
rounding errors have grown, which takes hundreds of updates. So a few runs show whether both programs learn the same.
This module is for algorithms with a replay buffer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np
import torch

from benchmarks.equal_run import PEER_SEEDS, Recorder, peer_agent
from rlsdk.environments import make_vec_env
from rlsdk.exploration import behavior
from rlsdk.networks import DiscreteValuePolicy
from rlsdk.records import Act
from rlsdk.settings import action_noise
from rlsdk_interchange.sb3 import import_sb3

ALGORITHMS = ("sac", "tqc", "crossq", "td3", "ddpg", "dqn", "qrdqn")


class FirstSeed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Begins the first episode with `seed`, as the peer does, whichever seed it gets."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        super().__init__(env)
        self.first: int | None = seed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seed, self.first = self.first, None
        return self.env.reset(seed=seed, options=options)


class Numbers:
    """The three sources of random numbers of the peer: torch, numpy, and its action space."""

    def __init__(self, space: Any) -> None:
        self.space = space
        self.keep()

    def keep(self) -> None:
        """Remember where the sources are."""
        self.state = torch.get_rng_state(), np.random.get_state(), self.space.np_random.bit_generator.state

    def put_back(self) -> None:
        """Continue from where the sources were at `keep`."""
        torch.set_rng_state(self.state[0])
        np.random.set_state(self.state[1])
        self.space.np_random.bit_generator.state = self.state[2]


def random_actions(space: Any, batch: int) -> torch.Tensor:
    """Draw actions [B, ..] from the space."""
    return torch.as_tensor(np.stack([space.sample() for _ in range(batch)]))


@contextmanager
def sources_of(numbers: Numbers) -> Iterator[None]:
    """Acting draws from `numbers` here, in the order of the peer."""
    warm_up, greedy = behavior.UniformWarmUp.act, DiscreteValuePolicy.act

    def warms_up(*given: Any, **named: Any) -> Any:
        numbers.keep()
        return warm_up(*given, **named)

    def uniform(_: object, batch: int, __: object) -> torch.Tensor:
        # the policy of rlsdk acts during the warm-up too, that of the peer does not
        numbers.put_back()
        return random_actions(numbers.space, batch)

    def explores(policy: Any, observation: Any, carry: Any, **named: Any) -> Any:
        if np.random.rand() < float(policy.epsilon):
            return Act(random_actions(numbers.space, len(observation.is_first)), carry, ())
        return greedy(policy, observation, carry, **{**named, "deterministic": True})

    def normal(like: torch.Tensor, _: object) -> torch.Tensor:
        return torch.as_tensor(np.random.normal(size=like.shape), dtype=like.dtype)

    with ExitStack() as stack:
        for target, name, replacement in (
            (behavior.UniformWarmUp, "act", warms_up),
            (behavior, "uniform_actions", uniform),
            (action_noise, "_standard_normal", normal),
            (DiscreteValuePolicy, "act", explores),
            (DiscreteValuePolicy, "act_in_place", lambda *_: None),  # it draws in compiled code
        ):
            stack.enter_context(patch.object(target, name, replacement))
        yield


@contextmanager
def twin(peer: Any, algorithm: str, envs: Sequence[Callable[[], gymnasium.Env[Any, Any]]], seed: int) -> Iterator[Any]:
    """An agent of rlsdk that trains as the peer would: with its weights, and with its random numbers.

    Args:
        peer: an agent of stable-baselines3 or sb3-contrib that was just made with `seed`. It can train afterwards.
        algorithm: the id of the plugin.
        envs: functions that make the environments.
        seed: the seed of the peer.
    """
    numbers, count = Numbers(peer.action_space), len(envs)
    start = numbers.state
    with tempfile.TemporaryDirectory() as folder, sources_of(numbers):
        peer.save(path := Path(folder) / "peer.zip")
        seeded = [lambda each=each, i=i: FirstSeed(each(), seed + i) for i, each in enumerate(envs)]
        agent: Any = import_sb3(path, algorithm, env=make_vec_env(seeded, vectorization="sync"))
        buffer = agent.parts.buffer

        def draw(size: int, _: object) -> torch.Tensor:
            rows = np.random.randint(0, len(buffer) // count, size=size)
            return torch.as_tensor(rows * count + np.random.randint(0, high=count, size=size))

        buffer.draw = draw
        agent.parts.algorithm.generator = torch.default_generator
        agent.streams._generators["action"] = torch.default_generator
        numbers.put_back()  # building the agent drew some
        yield agent
        numbers.state = start
        numbers.put_back()


def coupled(spec: Mapping[str, Any], seed: int, envs: Sequence[Callable[[], Recorder]]) -> None:
    """Train an agent of rlsdk with the first weights and the random numbers of run `seed` of the peer."""
    peer = peer_agent(spec, seed, [lambda: gymnasium.make(spec["env"]) for _ in envs])
    with twin(peer, spec["algorithm"], envs, PEER_SEEDS + seed) as agent:
        agent.learn(spec["steps"], threads=1)
