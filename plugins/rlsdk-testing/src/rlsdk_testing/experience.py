"""Environments in which every step can be identified by its observation, and replay buffers filled from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlsdk.agent import Agent
from rlsdk.interfaces import Buffer, BuildContext
from rlsdk.records import ActingState, EnvStep, Observation, Rollout
from rlsdk.spaces import Space, choices_of
from rlsdk.training import LocalCollector, begin_acting
from rlsdk.tree import leaves
from rlsdk_testing.subject import Subject

TAG = 1000
"""The first entry of an observation is TAG * environment + episode, the second the step."""
Key = tuple[int, int, int]
"""(environment, episode, step): identifies one step."""


def length_of(env: int, episode: int) -> int:
    """Return the number of steps of an episode. The lengths differ, so that environments do not end at the same time."""
    return 3 + (env + 2 * episode) % 3


def terminates(env: int, episode: int) -> bool:
    """Return whether an episode ends by termination; the other episodes end by a time limit."""
    return (env + episode) % 2 == 0


def reward_of(key: Key) -> float:
    """Return the reward of a step. It differs from the rewards of all steps nearby, and float32 represents it exactly."""
    env, episode, step = key
    return float(1 + step + 8 * env + 64 * (episode % 16))


def mask_of(key: Key, sizes: tuple[int, ...]) -> Tensor:
    """Return the action mask of a step, bool [A]: at least one value of each choice is allowed."""
    env, episode, step = key
    bits = (env * 7 + episode * 13 + step * 29) % 31
    parts = [[(bits >> (j % 5)) & 1 == 1 or j == (step + env) % size for j in range(size)] for size in sizes]
    return torch.tensor([allowed for part in parts for allowed in part], dtype=torch.bool)


def key_of(features: Tensor) -> Key:
    """Return the key of the step that has the observation `features` [2]."""
    tag, step = (round(float(value)) for value in features)
    return tag // TAG, tag % TAG, step


class ScriptedEnvs:
    """A `VectorEnv` of B environments with known episodes. With `fillers` a padding row follows each end of an episode."""

    def __init__(self, context: BuildContext, num_envs: int, info: tuple[str, ...], fillers: bool) -> None:
        self.context, self.num_envs, self.info, self.fillers = context, num_envs, info, fillers
        self.sizes = choices_of(context.action_space)
        self.observation_space: Space = context.observation_space
        self.action_space: Space = context.action_space
        self.at: list[Key] = []
        self.resetting = [False] * num_envs

    def _seen(self, keys: list[Key], first: list[bool]) -> Observation:
        features = torch.tensor([[TAG * env + episode, step] for env, episode, step in keys], dtype=torch.float32)
        mask = torch.stack([mask_of(key, self.sizes) for key in keys]) if self.sizes else None
        return Observation(features, torch.tensor(first), mask)

    def reset(self, seed: int | None = None) -> Observation:
        self.at, self.resetting = [(env, 0, 0) for env in range(self.num_envs)], [False] * self.num_envs
        return self._seen(self.at, [True] * self.num_envs)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def step(self, action: object) -> EnvStep:
        """Make one vector step. The actions have no effect."""
        valid, before = [not resetting for resetting in self.resetting], self.at
        after = [(env, episode, step + 1) for env, episode, step in before]
        over = [ok and step == length_of(env, episode) for ok, (env, episode, step) in zip(valid, after, strict=True)]
        ended = [key for key, done in zip(after, over, strict=True) if done]
        fresh = [not ok if self.fillers else done for ok, done in zip(valid, over, strict=True)]
        self.at = [(k[0], k[1] + 1, 0) if new else k for k, new in zip(after, fresh, strict=True)]
        self.resetting = over if self.fillers else self.resetting
        reward = torch.tensor([reward_of(key) if ok else 0.0 for key, ok in zip(before, valid, strict=True)])
        terminal = torch.tensor([done and terminates(k[0], k[1]) for k, done in zip(after, over, strict=True)])
        return EnvStep(
            self._seen(self.at, fresh),
            reward,
            terminal,
            torch.tensor(over) & ~terminal,
            torch.tensor(valid),
            self._seen(ended, [False] * len(ended)) if ended else None,
            info={name: reward + 0.25 * (i + 1) * torch.tensor(valid) for i, name in enumerate(self.info)},
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was given to the buffer."""

    age: int
    """The number of vector steps before it."""
    action: tuple[Tensor, ...]
    extras: dict[str, Tensor]
    terminated: bool
    ended: bool


class FilledMemory:
    """The replay buffer of a small agent, and a record (`truth`) of the steps that it was given."""

    def __init__(
        self, subject: Subject, num_envs: int, changes: Mapping[str, object] | None = None, *, fillers: bool = False
    ) -> None:
        """Raises NotApplicable if the algorithm has no buffer into which steps are collected."""
        self.agent: Agent = subject.chain_agent(num_envs, 4, **(changes or {}))
        assert self.agent.parts.buffer is not None
        self.buffer: Buffer[object, object] = self.agent.parts.buffer
        self.info = (*subject.spec.info, *self.agent.parts.info)
        self.envs = ScriptedEnvs(self.agent.context, num_envs, self.info, fillers)
        self.acting: ActingState[object] = begin_acting(self.envs, self.agent.parts.behavior_policy, seed=0)
        self.truth: dict[Key, Step] = {}
        self.carries: dict[Key, tuple[Tensor, ...]] = {}
        """Key of the first row of a collected rollout -> the carry before that row."""
        self.steps = 0

    def take(self, steps: int, lengths: tuple[int, ...] = (1,), *, also: Buffer[object, object] | None = None) -> None:
        """Collect `steps` vector steps into the buffer, in rollouts whose lengths repeat `lengths`.

        `also` is another buffer that gets the same rollouts.
        """
        generator, policy, end, turn = Generator().manual_seed(self.steps), self.agent.parts.behavior_policy, 0, 0
        end = self.steps + steps
        while self.steps < end:
            length = min(lengths[turn % len(lengths)], end - self.steps)
            collector = LocalCollector(self.envs, (self.acting,), (generator,))
            rollout = collector.collect(policy, length)
            self._remember(rollout)
            for buffer in (self.buffer, *(() if also is None else (also,))):
                buffer.extend(rollout)
            (self.acting,), turn = collector.acting, turn + 1

    def _remember(self, rollout: Rollout[object, object]) -> None:
        steps = rollout.steps
        extras = steps.extras if isinstance(steps.extras, dict) else {}
        for t in range(len(steps.reward)):
            for env in range(self.envs.num_envs):
                key = key_of(steps.observation.features[t, env])
                if t == 0:
                    self.carries[key] = tuple(leaf[env].clone() for leaf in leaves(rollout.initial_carry) if leaf.dim())
                if bool(steps.valid[t, env]):
                    terminated, truncated = bool(steps.terminated[t, env]), bool(steps.truncated[t, env])
                    action = tuple(leaf[t, env].clone() for leaf in leaves(steps.action))
                    own = {name: value[t, env].clone() for name, value in extras.items() if isinstance(value, Tensor)}
                    self.truth[key] = Step(self.steps + t, action, own, terminated, terminated or truncated)
        self.steps += len(steps.reward)

    @property
    def gamma(self) -> float | None:
        """The setting `gamma`; None if the algorithm has no such setting."""
        return getattr(self.agent.config, "gamma", None)

    def sample(self, size: int, seed: int = 1) -> object:
        """Sample a batch of `size` rows from the buffer, with a new generator that has the seed `seed`."""
        return self.buffer.sample(size, Generator().manual_seed(seed))
