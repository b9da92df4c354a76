"""Making an agent: from settings and an environment, or by the id of its algorithm."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlsdk.agent.networks import architecture_of
from rlsdk.agent.prediction import InputReader
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.device import choose_device
from rlsdk.environments import to_gymnasium
from rlsdk.environments.actions import ActionDecoder
from rlsdk.environments.goals import GoalRules
from rlsdk.environments.masks import MaskGate
from rlsdk.environments.observations import Stacker
from rlsdk.environments.requests import without_requests
from rlsdk.errors import PluginError, SettingsError
from rlsdk.networks.initialisation import initialisation
from rlsdk.parts import Facts, OnPolicyPlan, require_parts
from rlsdk.preparation import prepare
from rlsdk.registry import agent_type, require_usable
from rlsdk.registry import load as load_plugin
from rlsdk.seeding import Streams, fresh_seed
from rlsdk.settings import docstring, evolve
from rlsdk.sinks import Logger

if TYPE_CHECKING:
    from rlsdk.agent.agent import Agent
    from rlsdk.registry import AlgorithmSpec


@in_plain_modes
def assemble(agent: Agent, config: Any, spaces: tuple[Any, Any], num_envs: int, env: Any | None) -> None:
    """Give a bare agent its settings, streams and parts. `spaces`: of observations and of actions.

    Raises:
        SettingsError, UnsupportedSpaceError: the settings do not fit each other, or the spaces.
    """
    spec = agent.spec
    require_usable(spec)
    if config.policy not in spec.policies:
        raise SettingsError(f"unknown policy {config.policy!r}; {spec.id} has {', '.join(spec.policies)}")
    agent._env = env
    bare, _ = without_requests(config.env)
    agent.env_name = bare if isinstance(bare, str) else getattr(env, "recipe", None)
    agent._config = evolve(config, {"env": None})
    agent._seed = fresh_seed() if config.seed is None else int(config.seed)
    device, agent.device_reason = choose_device(config.device, config.policy)
    agent.streams = Streams(agent._seed, device)
    use = spec.action_masks if getattr(config, "use_masking", True) else "ignored"
    agent.masks = MaskGate(spaces[1], use, spec.id)
    masks = use != "ignored" and getattr(env, "has_masks", False)
    goals = GoalRules(lambda: agent.env)
    ignored = use == "ignored"
    agent.facts = Facts(*spaces, num_envs, device, agent.streams, masks, ignored, goals, to_gymnasium=to_gymnasium)
    build_parts(agent)
    agent.cursor = agent._stored_cursor = agent.run = None
    agent.in_round, agent.start_time = False, 0
    agent._stored_log = agent._pending_replay = agent.standing = agent.numpy_env = None
    agent._step_offset = 0
    agent._logger, agent._logger_was_set = Logger(), False
    agent._logger.current_step = lambda: agent.num_timesteps
    agent.decode_action, agent._stack = ActionDecoder(spaces[1]), Stacker(spaces[0])


def build_parts(agent: Agent) -> None:
    """Networks, memory and update for the agent's facts and settings.

    Raises:
        PluginError: the plugin lists settings that can change, and its algorithm has no way to take them.
    """
    agent.preparation = prepare(agent.facts, agent.config)
    with initialisation(agent.seed):
        built = require_parts(agent.spec.build(agent.preparation.inner_facts, agent.config), agent.spec.id)
    if agent.spec.live and not callable(getattr(built.algorithm, "reconfigure", None)):
        raise PluginError(
            f"{agent.spec.id!r} says that {', '.join(agent.spec.live)} can change while an agent lives, but"
            f" {type(built.algorithm).__name__} has no method reconfigure(config); add it, or leave `live` out"
        )
    agent.built = built
    agent.parts = agent.preparation.applied_to(built)
    agent._made_as = architecture_of(built)
    policy: Any = agent.parts.policy
    if hasattr(policy, "reader"):
        policy.reader = InputReader(agent.facts.observation_space, agent.facts.action_space, agent.facts.device)


def warn_of_small_minibatches(agent: Agent) -> None:
    """Say so where the last minibatch of every rollout is smaller than the others."""
    size, plan = getattr(agent.config, "batch_size", None), agent.parts.plan
    if not isinstance(plan, OnPolicyPlan) or not size:
        return
    rollout = plan.n_steps * agent.facts.num_envs
    if rollout % size:
        warnings.warn(
            f"batch_size = {size} does not divide a rollout of n_steps x environments = {plan.n_steps} x"
            f" {agent.facts.num_envs} = {rollout} steps: its last minibatch has {rollout % size}; choose a divisor",
            stacklevel=4,
        )


def described(agent: Agent) -> str:
    """One line: what the agent is, where it trains and how far it is."""
    if "_config" not in vars(agent):
        return f"{type(agent).__name__}(not made yet)"
    count = agent.facts.num_envs
    place = agent.env_name or ("its own environment" if agent.env is not None else "no environment")
    envs = "1 environment" if count == 1 else f"{count} environments"
    return (
        f"<{type(agent).__name__} {agent.config.policy} on {place}, {envs}, {agent.num_timesteps:,} steps,"
        f" seed {agent.seed}, {agent.facts.device}>"
    )


def agent_class(spec: AlgorithmSpec) -> type[Agent]:
    """The plugin's own class, or one made for a spec that names none."""
    from rlsdk.agent.agent import Agent

    if (own := agent_type(spec)) is not None:
        return own
    return type(spec.id.replace("-", "_").upper(), (Agent,), {"spec": spec, "__doc__": docstring(spec.config_type)})


def make(algorithm: str, *, env: Any, policy: str | None = None, **settings: Any) -> Agent:
    """An agent by the id of its algorithm: `rlsdk.make("tqc", env="Pendulum-v1", learning_rate=1e-3)`.

    Raises:
        PluginError: unknown or broken algorithm. SettingsError, EnvironmentFault: as the class itself.
    """
    spec = load_plugin(algorithm)
    return agent_class(spec)(policy or spec.policies[0], env, **settings)


def load(path: str | Path | IO[bytes], env: Any = None, device: str = "auto", **kwargs: Any) -> Agent:
    """The agent in a file; the file knows its algorithm. Arguments as `Agent.load`."""
    from rlsdk.agent.agent import Agent

    return Agent.load(path, env, device, **kwargs)
