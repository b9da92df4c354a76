"""The preprocessing of observations before networks see them: signed goals, stacked frames, normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.environments.states import read_state
from rlsdk.environments.vector.connected import VectorWrapper
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.interfaces import BuildContext, Parts, Policy, State, Stateful, VectorEnv, VectorEnvAbilities
from rlsdk.interfaces.abilities import plays_episodes, require_inside
from rlsdk.interfaces.parts import GoalRewards
from rlsdk.preprocessing.normalizer import Normalizer, RolloutNormalizer, normalized_batch
from rlsdk.records import Act, EnvStep, Features, Observation
from rlsdk.runtime.process import stored_like
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, dtype_of, map_leaves, map_space, shape_of
from rlsdk.tree import map_tensors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


DEFAULT_GAMMA = 0.99


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The frame stacking and normalization of one agent. Each of them is None if the agent does not use it.

    Policies and algorithms get preprocessed observations. The collector, `predict` and sessions preprocess observations. So do
    policy methods that users call with numpy or torch, and the sampling of a replay buffer.
    """

    context: BuildContext
    frames: FrameStacker | None
    normalizer: Normalizer | None

    @property
    def build_context(self) -> BuildContext:
        """The context for building the algorithm: the space of stacked observations, and functions to normalize other data."""
        context, frames, normalizer = self.context, self.frames, self.normalizer
        if frames is not None:
            context = replace(context, observation_space=frames.space, frames=frames)
        if normalizer is None:
            return context
        goals = context.goals
        if goals is not None and normalizer.settings.sign_reward:
            # rewards for other goals come from the environment, past the signs of the collector
            goals = SignedGoals(goals)
        return replace(
            context,
            goals=goals,
            observation_normalizer=normalizer.observations,
            reward_normalizer=normalizer.rewards.normalize,
        )

    def connected(self, parts: Parts) -> Parts:
        """The parts of the algorithm, connected to the normalizer.

        Batches that the replay buffer samples are normalized.

        Raises:
            SettingsError: the plan plays whole episodes, so that nothing here can stack frames or take signs of rewards.
        """
        normalizer = self.normalizer
        if plays_episodes(parts.plan):
            if self.frames is not None:
                raise SettingsError("frame_stack is not possible with whole episodes; stack frames in the environment")
            if normalizer is not None and normalizer.settings.sign_reward:
                raise SettingsError("sign_reward is not possible where whole returns are compared; leave it out")
        return parts if normalizer is None else replace(parts, preprocess_batch=partial(normalized_batch, normalizer))

    # --- training ----------------------------------------------------------------------------------------------------

    def environment(self, env: VectorEnv) -> VectorEnv:
        """The training environment, with stacked frames if `frame_stack` is set."""
        return env if self.frames is None else FrameStackEnv(env, self.frames, self.context.device)

    def rollouts(self, parts: Parts, *, keeps_raw: bool = False) -> RolloutNormalizer | None:
        """The normalizer of the collector's observations and rewards; None if the collector normalizes nothing.

        `keeps_raw`: whether rollouts stay raw; those for a replay buffer always do.
        """
        if self.normalizer is None:
            return None
        return RolloutNormalizer(self.normalizer, keeps_raw=keeps_raw or parts.buffer is not None)

    def episodes_begin(self) -> None:
        """Set the running returns to 0. Called after the training environments are reset."""
        if self.normalizer is not None:
            # new episodes begin, so the running returns belong to none of them
            self.normalizer.rewards.returns.fill(0.0)

    # --- acting outside of training ----------------------------------------------------------------------------------

    def initial_carry(self, policy: Policy[CarryT, ExtrasT], batch: int) -> CarryT | FramesCarry[CarryT]:
        """The carry of `batch` environments before an episode starts: the policy's carry and the stacked frames."""
        carry = policy.initial_carry(batch)
        return carry if self.frames is None else FramesCarry(self.frames.initial(batch, self.context.device), carry)

    def begin_rollout(
        self, policy: Policy[CarryT, ExtrasT], carry: CarryT | FramesCarry[CarryT]
    ) -> CarryT | FramesCarry[CarryT]:
        """The carry after the policy's `begin_rollout`; unchanged if the policy has no such method."""
        begin: Callable[[CarryT], CarryT] | None = getattr(policy, "begin_rollout", None)
        if begin is None:
            return carry
        return FramesCarry(carry.frames, begin(carry.inner)) if isinstance(carry, FramesCarry) else begin(carry)

    def act(
        self,
        policy: Policy[CarryT, ExtrasT],
        observation: Observation,
        carry: CarryT | FramesCarry[CarryT],
        *,
        deterministic: bool,
        generator: Generator,
    ) -> Act[Any, ExtrasT]:
        """Preprocess raw observations of the environment and let the policy act on them. The statistics do not change."""
        seen, frames = self.observed(observation, carry)
        if not isinstance(carry, FramesCarry):
            return policy.act(seen, carry, deterministic=deterministic, generator=generator)
        act = policy.act(seen, carry.inner, deterministic=deterministic, generator=generator)
        return Act(act.action, FramesCarry(frames, act.carry), act.extras)

    def observed(self, observation: Observation, carry: object = None) -> tuple[Observation, Features | None]:
        """(preprocessed observation, frames for the next carry). The frames are None without frame stacking.

        Args:
            observation: a raw observation of the environment.
            carry: a `FramesCarry` with the last frames. With any other carry, the frames before are zeros.
        """
        if self.frames is None and self.normalizer is None:
            return observation, None
        features, frames = observation.features, None
        if self.frames is not None:
            if isinstance(carry, FramesCarry):
                known = carry.frames
            else:
                # rows of users have no past: older frames are zeros, or repeat the observation where an episode starts
                known = self.frames.initial(len(observation.is_first), self.context.device)
            features, frames = self.frames.push(known, features, observation.is_first)
        if self.normalizer is not None:
            features = self.normalizer.observations(features)
        return Observation(features, observation.is_first, observation.action_mask), frames

    # --- files -------------------------------------------------------------------------------------------------------

    def policy_state(self, policy: Stateful) -> dict[str, object]:
        """The state of a policy for files. The statistics of the normalizer are the entry `normalizer`."""
        state = dict(policy.state_dict())
        return state if self.normalizer is None else {**state, "normalizer": self.normalizer.state_dict()}

    def load_policy_state(self, policy: Stateful, state: State) -> None:
        """Load a state from `policy_state`.

        Raises:
            KeyError, ValueError: the state does not fit the policy.
            ArtifactError: only one of the state and the agent has statistics of a normalizer.
        """
        # a copy, because the entry is taken out of it
        rest = dict(state)
        if (self.normalizer is None) == ("normalizer" in rest):
            raise ArtifactError(
                "statistics of normalization are stored only for agents made with normalize, whose networks need them; leave"
                " normalize unchanged"
            )
        if self.normalizer is not None:
            self.normalizer.load_state_dict(rest.pop("normalizer"))
        policy.load_state_dict(rest)


def preprocessing_of(context: BuildContext, config: AgentConfig) -> Preprocessing:
    """The preprocessing that an agent's settings select.

    Raises:
        SettingsError: there is nothing to normalize, or the settings of normalization are invalid.
    """
    frames = FrameStacker(context.observation_space, config.frame_stack) if config.frame_stack > 1 else None
    space = context.observation_space if frames is None else frames.space
    normalizer = None
    if config.normalize is not None:
        gamma = float(getattr(config, "gamma", DEFAULT_GAMMA))
        normalizer = Normalizer(space, config.normalize, gamma, context.num_envs, context.device)
    return Preprocessing(context, frames, normalizer)


class SignedGoals:
    """Gives the signs of rewards for replaced goals, because the replay buffer stores signs of all other rewards."""

    def __init__(self, inner: GoalRewards) -> None:
        self.inner = inner

    def compute_reward(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """(signs of rewards [M], terminated bool [M] or None); see `GoalRewards.compute_reward`."""
        reward, terminated = self.inner.compute_reward(achieved, goal)
        return reward.sign(), terminated


@dataclass(frozen=True, slots=True, eq=False)
class FramesCarry(Generic[CarryT]):
    """The last `count - 1` observations of each environment, [B, count - 1, ..] per leaf, and the policy's carry."""

    frames: Features
    inner: CarryT


class FrameStacker:
    """Stacks the last `count` observations, the newest last. At the start of an episode the first observation is repeated.

    Vectors are concatenated, images are concatenated along their channels, and Discrete values become a MultiDiscrete.
    """

    def __init__(self, space: Space, count: int) -> None:
        self.single, self.count = space, count
        self.space = map_space(space, self._stacked)
        self.frames: Features = None
        """The last frames of the training environments. They persist between two calls of `learn`."""

    def _stacked(self, leaf: Space) -> Space:
        count = self.count
        if isinstance(leaf, Discrete):
            return MultiDiscrete((leaf.n,) * count, (leaf.start,) * count)
        if isinstance(leaf, MultiDiscrete):
            return MultiDiscrete(leaf.nvec * count, leaf.start * count)
        if isinstance(leaf, MultiBinary):
            return MultiBinary((leaf.shape[0] * count, *leaf.shape[1:]))
        assert isinstance(leaf, Box)
        axis = _axis(leaf)
        low, high = (np.concatenate([np.atleast_1d(bound)] * count, axis) for bound in (leaf.low, leaf.high))
        return Box(low, high, low.shape, leaf.dtype)

    def newest(self, features: Features) -> Features:
        """The newest frame [.., *single] of stacked observations."""

        def last(path: str, leaf: Space, values: Tensor) -> Tensor:
            shape = shape_of(leaf)
            if not shape:
                return values[..., -1]
            axis = _axis(leaf) if isinstance(leaf, Box) else 0
            size = shape[axis]
            place = axis - len(shape)
            return values.narrow(place, values.shape[place] - size, size)

        return map_leaves(self.single, last, features)

    def joined(self, frames: Features) -> Features:
        """The stacked observations of frames [N, count, *single], the newest last."""
        return map_leaves(self.single, lambda path, leaf, rows: _joined(leaf, rows), frames)

    def initial(self, batch: int, device: str) -> Features:
        """The last frames of `batch` environments before an episode starts: zeros, [B, count - 1, ..] per leaf."""

        def zeros(path: str, leaf: Space) -> Tensor:
            return torch.zeros(
                batch, self.count - 1, *shape_of(leaf), dtype=getattr(torch, dtype_of(leaf)), device=device
            )

        return map_leaves(self.single, zeros)

    def push(self, frames: Features, features: Features, is_first: Tensor) -> tuple[Features, Features]:
        """(stacked observations, next `frames`) for the newest observations.

        Args:
            frames: the last frames, [B, count - 1, ..] per leaf.
            features: the newest observations, [B, ..] per leaf.
            is_first: bool [B], True where an episode starts; its older frames are replaced by the newest observation.
        """
        history = map_leaves(self.single, lambda path, leaf, old, new: _history(old, new, is_first), frames, features)
        return self.joined(history), map_leaves(self.single, lambda path, leaf, rows: rows[:, 1:], history)


def _history(frames: Tensor, newest: Tensor, is_first: Tensor) -> Tensor:
    rows = torch.cat([frames, newest.unsqueeze(1)], dim=1)
    where = is_first.view(-1, *(1,) * (rows.dim() - 1))
    # older frames of another episode must not be seen, so the first one is repeated
    return torch.where(where, newest.unsqueeze(1), rows)


def _axis(leaf: Box) -> int:
    """The axis of an observation along which frames are concatenated."""
    return 2 if len(leaf.shape) == 3 and leaf.channels_last else 0


def _joined(leaf: Space, rows: Tensor) -> Tensor:
    """Concatenate frames: [B, count, ...] -> [B, ...] with one axis `count` times as long. Scalars become vectors."""
    if rows.dim() == 2:
        return rows
    if isinstance(leaf, Box) and _axis(leaf) == 2:
        return rows.movedim(1, -2).flatten(-2)
    return rows.flatten(1, 2)


class FrameStackEnv(VectorWrapper):
    """The vector environment `env` with stacked observations, like those of `gymnasium.wrappers.FrameStackObservation`."""

    def __init__(self, env: VectorEnv, stacker: FrameStacker, device: str) -> None:
        super().__init__(env)
        self.stacker, self.device = stacker, device

    @property
    def observation_space(self) -> Space:
        return self.stacker.space

    def reset(self, seed: int | None = None) -> Observation:
        observation = self.env.reset(seed)
        self.stacker.frames = self.stacker.initial(self.num_envs, self.device)
        return self._stacked(observation)

    def step(self, action: Features) -> EnvStep:
        step = self.env.step(action)
        final = step.final_observation
        if final is not None:
            ended = step.terminated | step.truncated
            # before the reset observation is pushed: the last observation belongs to the frames before it
            frames = map_tensors(lambda rows: rows[ended], self.stacker.frames)
            final = replace(final, features=self.stacker.push(frames, final.features, final.is_first)[0])
        return replace(step, observation=self._stacked(step.observation), final_observation=final)

    def _stacked(self, observation: Observation) -> Observation:
        stacker = self.stacker
        features, stacker.frames = stacker.push(stacker.frames, observation.features, observation.is_first)
        return Observation(features, observation.is_first, observation.action_mask)

    def get_state(self) -> State:
        """The state of the environments and the last frames. Raises OpaqueValue where an environment cannot be read."""
        return {"stacked": read_state(self.env), "frames": tree.number(self.stacker.frames)}

    def set_state(self, state: State) -> None:
        """Restore a state from `get_state`. Raises ValueError when the frames do not fit, and as `set_state` of `env`."""
        cast("VectorEnvAbilities", self.env).set_state(state["stacked"])
        fresh = self.stacker.initial(self.num_envs, self.device)
        frames: Tensor = stored_like(fresh, state["frames"])
        # encoders use discrete values as indices
        require_inside(self.stacker.single, frames, "the file's frames")
        self.stacker.frames = frames
