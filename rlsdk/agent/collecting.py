"""Which agents can train in environments that are in collectors."""

from __future__ import annotations

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.environments import CollectorsVectorEnv, ConnectedEnv
from rlsdk.errors import SettingsError
from rlsdk.interfaces import NormalizesEpisodes
from rlsdk.settings import evolve


def take_groups(agent: AssembledAgent, env: ConnectedEnv) -> None:
    """Let a new agent have a group for each collector, unless its settings choose other groups; raises as
    `require_collecting`."""
    if env.collectors > 1 and agent.config.env_groups == 1:
        agent.config = evolve(agent.config, {"env_groups": env.collectors})
    require_collecting(agent, env)


def require_collecting(agent: AssembledAgent, env: ConnectedEnv) -> None:
    """Check that the agent can train in environments that are in collectors.

    Raises:
        SettingsError: its algorithm, its groups or its device do not allow it.
    """
    count, groups, plan, name = env.collectors, agent.config.env_groups, agent.parts.plan, agent.spec.id
    if count == 1:
        return
    reason = None
    if isinstance(plan, NormalizesEpisodes):
        reason = "plays whole episodes, which executors do: use --vectorization processes"
    elif not plan.needs_environment:
        reason = "learns without an environment"
    if reason is not None:
        raise SettingsError(f"{name} cannot use collectors: it {reason}; leave out collectors = {count}")
    if groups % count:
        raise SettingsError(
            f"env_groups = {groups} cannot be shared by {count} collectors; choose env_groups = {count} or a multiple, or"
            " another number of collectors"
        )
    if agent.context.device != "cpu" and isinstance(env, CollectorsVectorEnv):
        raise SettingsError(
            f"collectors act on the cpu, the agent is on {agent.context.device}; choose device = 'cpu', or leave out collectors"
        )
