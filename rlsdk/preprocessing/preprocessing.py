"""The preprocessing of an agent's observations and rewards: frame stacking and normalisation, as its settings select."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from torch import Generator

from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.interfaces import BuildContext, NormalizesEpisodes, Parts, Policy, State, Stateful, VectorEnv
from rlsdk.preprocessing.frame_stack_env import FrameStackEnv
from rlsdk.preprocessing.frames import FramesCarry, FrameStacker
from rlsdk.preprocessing.normalizer import Normalizer
from rlsdk.preprocessing.rollouts import RolloutNormalizer, normalized_batch
from rlsdk.preprocessing.signed_goals import SignedGoals
from rlsdk.records import Act, Features, Observation
from rlsdk.settings.agent_config import AgentConfig

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
DEFAULT_GAMMA = 0.99


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The frame stacking and normalisation of one agent. Each of them is None if the agent does not use it.

    Policies and algorithms get preprocessed observations. The collector, `predict` and sessions preprocess observations. So do
    policy methods that users call with numpy or torch, and the sampling of a replay buffer.
    """

    context: BuildContext
    frames: FrameStacker | None
    normalizer: Normalizer | None

    @property
    def build_context(self) -> BuildContext:
        """The context for building the algorithm: the space of stacked observations, and functions to normalise other data."""
        context, frames, normalizer = self.context, self.frames, self.normalizer
        if frames is not None:
            context = replace(context, observation_space=frames.space, frames=frames)
        if normalizer is None:
            return context
        goals = context.goals
        if goals is not None and normalizer.settings.sign_reward:
            goals = SignedGoals(goals)
        return replace(
            context,
            goals=goals,
            observation_normalizer=normalizer.observations,
            reward_normalizer=normalizer.rewards.normalize,
        )

    def connected(self, parts: Parts) -> Parts:
        """The parts of the algorithm, connected to the normaliser.

        Batches that the replay buffer samples are normalised. Population methods play candidates on normalised observations.

        Raises:
            SettingsError: population methods do not support the settings.
        """
        plan, normalizer = parts.plan, self.normalizer
        if isinstance(plan, NormalizesEpisodes):
            if self.frames is not None:
                raise SettingsError(
                    "frame_stack is not possible with population methods; stack frames in the environment"
                )
            if normalizer is not None and normalizer.settings.sign_reward:
                raise SettingsError("sign_reward is not possible with population methods, which compare whole returns")
            return replace(parts, plan=plan.with_normalizer(None if normalizer is None else normalizer.observations))
        return parts if normalizer is None else replace(parts, preprocess_batch=partial(normalized_batch, normalizer))

    # --- training ----------------------------------------------------------------------------------------------------

    def environment(self, env: VectorEnv) -> VectorEnv:
        """The training environment, with stacked frames if `frame_stack` is set."""
        return env if self.frames is None else FrameStackEnv(env, self.frames, self.context.device)

    def rollouts(self, parts: Parts) -> RolloutNormalizer | None:
        """The normaliser of the collector's observations and rewards; None if the collector normalises nothing."""
        if self.normalizer is None or isinstance(parts.plan, NormalizesEpisodes):
            return None
        return RolloutNormalizer(self.normalizer, keeps_raw=parts.buffer is not None)

    def episodes_begin(self) -> None:
        """Set the running returns to 0. Called after the training environments are reset."""
        if self.normalizer is not None:
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
                known = self.frames.initial(len(observation.is_first), self.context.device)
            features, frames = self.frames.push(known, features, observation.is_first)
        if self.normalizer is not None:
            features = self.normalizer.observations(features)
        return Observation(features, observation.is_first, observation.action_mask), frames

    # --- files -------------------------------------------------------------------------------------------------------

    def policy_state(self, policy: Stateful) -> dict[str, object]:
        """The state of a policy for files. The statistics of the normaliser are the entry `normalizer`."""
        state = dict(policy.state_dict())
        return state if self.normalizer is None else {**state, "normalizer": self.normalizer.state_dict()}

    def load_policy_state(self, policy: Stateful, state: State) -> None:
        """Load a state from `policy_state`.

        Raises:
            KeyError, ValueError: the state does not fit the policy.
            ArtifactError: only one of the state and the agent has statistics of a normaliser.
        """
        rest = dict(state)
        if (self.normalizer is None) == ("normalizer" in rest):
            raise ArtifactError(
                "statistics of normalisation are stored only for agents made with normalize, whose networks need them; leave"
                " normalize unchanged"
            )
        if self.normalizer is not None:
            self.normalizer.load_state_dict(rest.pop("normalizer"))
        policy.load_state_dict(rest)


def preprocessing_of(context: BuildContext, config: AgentConfig) -> Preprocessing:
    """The preprocessing that an agent's settings select.

    Raises:
        SettingsError: there is nothing to normalise, or the settings of normalisation are invalid.
    """
    frames = FrameStacker(context.observation_space, config.frame_stack) if config.frame_stack > 1 else None
    space = context.observation_space if frames is None else frames.space
    normalizer = None
    if config.normalize is not None:
        gamma = float(getattr(config, "gamma", DEFAULT_GAMMA))
        normalizer = Normalizer(space, config.normalize, gamma, context.num_envs, context.device)
    return Preprocessing(context, frames, normalizer)
