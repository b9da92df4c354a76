"""Changes settings of an existing agent. A setting that cannot change raises an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.errors import UsageError
from rlsdk.interfaces import FollowsSettings, Reconfigurable
from rlsdk.interfaces.abilities import ability
from rlsdk.settings import evolve
from rlsdk.settings.agent_config import AgentConfig

OF_THE_AGENT = frozenset({"stats_window_size", "tensorboard_log", "verbose"})
"""Settings that only `learn` reads, not the parts of the agent."""
OF_MEMORIES = frozenset({"gamma", "n_steps"})
"""Settings that a replay buffer uses."""


def change_settings(agent: AssembledAgent, changes: Mapping[str, object]) -> None:
    """Change settings of the agent. Files that are written later contain the new values.

    A setting can change if the plugin lists it in `AlgorithmSpec.live`, or if it is in `OF_THE_AGENT`. The plan is made again,
    and every part with a method `reconfigure(config)` gets the new settings. After an error the agent is unchanged.

    Raises:
        SettingsError: a setting is unknown, mistyped or out of range. UsageError: it cannot change after the agent was made.
    """
    before, config = agent.config, evolve(agent.config, changes)
    changed = {name for name in changes if getattr(config, name) != getattr(before, name)}
    fixed = sorted(changed - OF_THE_AGENT - set(agent.spec.live))
    memory = agent.parts.buffer
    if memory is not None and ability(memory, Reconfigurable) is None:
        fixed += sorted(changed & OF_MEMORIES & set(agent.spec.live))
    if fixed:
        raise UsageError(_refusal(agent, fixed[0]))
    if changed - OF_THE_AGENT:
        try:
            _reconfigure_parts(agent, config)
        except BaseException:
            _reconfigure_parts(agent, before)
            raise
    agent.config = config


def _refusal(agent: AssembledAgent, name: str) -> str:
    kind = agent.class_name
    return (
        f"{name} cannot change while the agent lives; save the agent and load it with the new value:"
        f" {kind}.load(path, {name}=value), or make a new one"
    )


def _reconfigure_parts(agent: AssembledAgent, config: AgentConfig) -> None:
    plan = agent.parts.plan
    new = plan.with_settings(config, agent.context) if isinstance(plan, FollowsSettings) else plan
    built, normalizer = agent.parts, agent.preprocessing.normalizer
    for part in (built.policy, built.algorithm, built.buffer, built.behavior):
        if (able := ability(part, Reconfigurable)) is not None:
            able.reconfigure(config)
    gamma = getattr(config, "gamma", None)
    if normalizer is not None and normalizer.settings.gamma is None and isinstance(gamma, float | int):
        normalizer.rewards.gamma = float(gamma)
    if new != plan:
        agent.parts = replace(agent.parts, plan=new)
