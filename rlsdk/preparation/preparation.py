"""What an agent's settings ask to be done to observations and rewards, and to which of its parts it applies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rlsdk.errors import SettingsError
from rlsdk.interfaces import VectorEnv
from rlsdk.parts import Facts, OffPolicyPlan, Parts, PopulationPlan
from rlsdk.preparation.environment import PreparedEnv
from rlsdk.preparation.frames import FrameStacker
from rlsdk.preparation.normalizer import Normalizer
from rlsdk.preparation.policy import PreparedPolicy
from rlsdk.preparation.replay import NormalizedReplay
from rlsdk.preparation.rewarded_algorithm import RewardedAlgorithm
from rlsdk.preparation.signed_goals import SignedGoals

DEFAULT_GAMMA = 0.99


@dataclass(frozen=True, slots=True)
class Preparation:
    """Frame stacking and normalisation of one agent; either may be absent."""

    facts: Facts
    frames: FrameStacker | None
    normalizer: Normalizer | None

    @property
    def inner_facts(self) -> Facts:
        """The facts that the algorithm is built for: with stacked observations, and functions to normalise data of its own."""
        facts, frames, normalizer = self.facts, self.frames, self.normalizer
        if frames is not None:
            facts = replace(facts, observation_space=frames.space, frames=frames)
        if normalizer is None:
            return facts
        goals = facts.goals
        if goals is not None and normalizer.settings.sign_reward:
            goals = SignedGoals(goals)
        return replace(
            facts,
            goals=goals,
            observation_normalizer=normalizer.normalized,
            reward_normalizer=normalizer.rewards.prepared,
        )

    def applied_to(self, parts: Parts) -> Parts:
        """Parts whose `policy` takes observations as the environment gives them.

        On-policy algorithms collect normalised observations, so that what is learnt from is what was acted on. Replay
        memories keep the raw ones, whose statistics were young when they were seen, and normalise what they give.
        """
        if self.frames is None and self.normalizer is None:
            return parts
        policy = PreparedPolicy(parts.policy, self.frames, self.normalizer, self.facts.device)
        if isinstance(parts.plan, PopulationPlan):
            if self.frames is not None:
                raise SettingsError(
                    "frame_stack is not possible with population methods; stack frames in the environment"
                )
            if self.normalizer is not None and self.normalizer.settings.sign_reward:
                raise SettingsError("sign_reward is not possible with population methods, which compare whole returns")
            return replace(parts, policy=policy, plan=replace(parts.plan, normalizer=self.normalizer))
        collector = parts.collector
        if self.normalizer is None:
            return replace(parts, policy=policy, behavior=collector)
        if not isinstance(parts.plan, OffPolicyPlan):
            rewarded = RewardedAlgorithm(parts.algorithm, self.normalizer.rewards)
            return replace(parts, policy=policy, behavior=collector, algorithm=rewarded)
        assert parts.buffer is not None
        behavior = PreparedPolicy(collector, None, self.normalizer, self.facts.device)
        return replace(parts, policy=policy, behavior=behavior, buffer=NormalizedReplay(parts.buffer, self.normalizer))

    def environment(self, env: VectorEnv, parts: Parts) -> VectorEnv:
        """The training environment for these parts."""
        if isinstance(parts.plan, PopulationPlan) or (self.frames is None and self.normalizer is None):
            return env
        normalize = not isinstance(parts.plan, OffPolicyPlan)
        return PreparedEnv(env, self.frames, self.normalizer, normalize=normalize, device=self.facts.device)


def prepare(facts: Facts, config: Any) -> Preparation:
    """The preparation an agent's settings ask for.

    Raises:
        SettingsError: there is nothing to normalise.
    """
    frames = FrameStacker(facts.observation_space, config.frame_stack) if config.frame_stack > 1 else None
    space = facts.observation_space if frames is None else frames.space
    normalizer = None
    if config.normalize is not None:
        gamma = float(getattr(config, "gamma", DEFAULT_GAMMA))
        normalizer = Normalizer(space, config.normalize, gamma, facts.num_envs, facts.device)
    return Preparation(facts, frames, normalizer)
