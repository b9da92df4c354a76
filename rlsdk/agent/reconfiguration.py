"""New settings for an agent that lives: each takes effect in the running algorithm, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlsdk.errors import UsageError
from rlsdk.exploration.new_settings import reconfigure_behavior
from rlsdk.parts import Facts, OffPolicyPlan, OnPolicyPlan, Plan
from rlsdk.settings import evolve
from rlsdk.settings.frequency import TrainFrequency

if TYPE_CHECKING:
    from rlsdk.agent import Agent

OF_THE_AGENT = frozenset({"stats_window_size", "tensorboard_log", "verbose"})
"""Settings that no part sees; `learn` reads them."""
OF_MEMORIES = frozenset({"gamma", "n_steps"})
"""Settings that a replay memory is made with."""


def change_settings(agent: Agent, changes: Mapping[str, Any]) -> None:
    """Let the agent use new settings from now on. They are in the files it writes.

    A setting can change where the plugin says so (`AlgorithmSpec.live`); the plan is made again, and every part with a method
    `reconfigure(config)` gets the new settings. What is refused leaves the agent as it was.

    Raises:
        SettingsError: unknown, mistyped or out of range. UsageError: the setting cannot change while the agent lives.
    """
    before, config = agent.config, evolve(agent.config, changes)
    changed = {name for name in changes if getattr(config, name) != getattr(before, name)}
    fixed = sorted(changed - OF_THE_AGENT - set(agent.spec.live))
    memory = agent.built.buffer
    if memory is not None and not hasattr(memory, "reconfigure"):
        fixed += sorted(changed & OF_MEMORIES & set(agent.spec.live))
    if fixed:
        raise UsageError(_refusal(agent, fixed[0]))
    if changed - OF_THE_AGENT:
        try:
            _tell_parts(agent, config)
        except BaseException:
            _tell_parts(agent, before)
            raise
    agent._config = config


def _refusal(agent: Agent, name: str) -> str:
    kind = type(agent).__name__
    return (
        f"{name} cannot change while the agent lives; save the agent and load it with the new value:"
        f" {kind}.load(path, {name}=value), or make a new one"
    )


def _tell_parts(agent: Agent, config: Any) -> None:
    plan = agent.parts.plan
    new = plan_with(plan, config, agent.facts)
    built, normalizer = agent.built, agent.preparation.normalizer
    parts: tuple[Any, ...] = (built.policy, built.algorithm, built.buffer)
    for part in parts:
        if hasattr(part, "reconfigure"):
            part.reconfigure(config)
    reconfigure_behavior(built.behavior, config)
    if normalizer is not None and normalizer.settings.gamma is None and hasattr(config, "gamma"):
        normalizer.rewards.gamma = float(config.gamma)
    if new != plan:
        agent.parts = replace(agent.parts, plan=new)


def plan_with(plan: Plan, config: Any, facts: Facts) -> Plan:
    """`plan` with the settings that `config` has under the names of the SDK; what it has not stays.

    Raises:
        SettingsError: advantages of a single step cannot be normalised.
    """
    if isinstance(plan, OffPolicyPlan):
        names = ("gradient_steps", "batch_size", "learning_starts")
        changes = {name: getattr(config, name) for name in names if hasattr(config, name)}
        if isinstance(frequency := getattr(config, "train_freq", None), TrainFrequency):
            changes |= {"train_every": frequency.count, "episodes": frequency.unit == "episode"}
        return replace(plan, **changes)
    if isinstance(plan, OnPolicyPlan):
        if hasattr(config, "n_steps") and hasattr(config, "normalize_advantage"):
            return OnPolicyPlan.of(config, facts)
        return replace(plan, n_steps=getattr(config, "n_steps", plan.n_steps))
    episodes = getattr(config, "n_eval_episodes", plan.episodes)
    offset = getattr(config, "alive_bonus_offset", plan.alive_bonus_offset)
    return replace(plan, episodes=episodes, alive_bonus_offset=offset)
