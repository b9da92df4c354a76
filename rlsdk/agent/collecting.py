"""Checks that an agent can train in environments that are in collectors."""

from __future__ import annotations

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.environments import CollectorsVectorEnv, ConnectedEnv
from rlsdk.errors import SettingsError
from rlsdk.interfaces import AllowsLag, NormalizesEpisodes
from rlsdk.interfaces.abilities import ability
from rlsdk.settings import evolve
from rlsdk.training import OffPolicyPlan


def take_groups(agent: AssembledAgent, env: ConnectedEnv) -> None:
    """Give a new agent one group of environments per collector, unless `env_groups` is set; raises like
    `require_collecting`."""
    if env.collectors > 1 and agent.config.env_groups == 1:
        agent.config = evolve(agent.config, {"env_groups": env.collectors})
    require_collecting(agent, env)


def require_collecting(agent: AssembledAgent, env: ConnectedEnv) -> None:
    """Check that the agent can train in environments that are in collectors.

    Raises:
        SettingsError: its algorithm, number of groups or device does not allow it.
    """
    count, groups, plan, name = env.collectors, agent.config.env_groups, agent.parts.plan, agent.spec.id
    if count == 1 and not isinstance(env, CollectorsVectorEnv):
        return
    reason = None
    if isinstance(plan, NormalizesEpisodes):
        reason = "plays whole episodes, which executors do: use --vectorization processes"
    elif not plan.needs_environment:
        reason = "learns without an environment"
    if reason is not None:
        raise SettingsError(f"{name} cannot use collectors: it {reason}; leave out collectors = {count}")
    if env.max_lag:
        _require_lag(agent, env.max_lag)
    if groups % count:
        raise SettingsError(
            f"env_groups = {groups} cannot be shared by {count} collectors; choose env_groups = {count} or a multiple, or"
            " another number of collectors"
        )
    if agent.context.device != "cpu" and isinstance(env, CollectorsVectorEnv):
        raise SettingsError(
            f"collectors act on the cpu, the agent is on {agent.context.device}; choose device = 'cpu', or leave out collectors"
        )


def _require_lag(agent: AssembledAgent, max_lag: int) -> None:
    """Raise SettingsError if the algorithm cannot learn from steps that an older policy collected."""
    plan, allowing = agent.parts.plan, ability(agent.parts.algorithm, AllowsLag)
    if isinstance(plan, OffPolicyPlan):
        if plan.episodes:
            raise SettingsError(
                f"max_lag = {max_lag} needs rounds of a length that is known before; give train_freq in steps, or leave out"
                " max_lag"
            )
    elif allowing is None or not allowing.allows_lag:
        raise SettingsError(
            f"{agent.spec.id} learns only from rollouts of its current policy, without importance weights that correct for an"
            f" older one; leave out max_lag = {max_lag}"
        )
