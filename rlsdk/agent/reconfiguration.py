"""New settings for an agent in use: each takes effect in the running algorithm, or is refused."""

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
"""Settings that no part sees; `learn` reads them."""
OF_MEMORIES = frozenset({"gamma", "n_steps"})
"""Settings that a replay buffer is made with."""


def change_settings(agent: AssembledAgent, changes: Mapping[str, object]) -> None:
    """Let the agent use new settings from now on. They are in the files it writes.

    A setting can change if the plugin lists it (`AlgorithmSpec.live`); the plan is made again, and every part with a method
    `reconfigure(config)` gets the new settings. What is refused leaves the agent as it was.

    Raises:
        SettingsError: unknown, mistyped or out of range. UsageError: the setting cannot change while the agent lives.
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
