"""Builds an agent from its settings: random streams, networks, replay buffer, data set and algorithm."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import attrs
import torch

from rlsdk.agent.assembled import AssembledAgent, in_plain_modes, networks_of, warn_of_unused_settings
from rlsdk.agent.attributes import without_effect
from rlsdk.agent.prediction import InputReader
from rlsdk.agent.training_state import move, require_room
from rlsdk.environments import ConnectedEnv, connect, to_gymnasium
from rlsdk.environments.adapters.masks import GoalRules, MaskValidator
from rlsdk.environments.adapters.observations import ActionDecoder, ObservationBatcher
from rlsdk.environments.wrapping import warn_of_statistics
from rlsdk.errors import ArtifactError, PluginError, ResourceError, SettingsError, UsageError
from rlsdk.interfaces import AlgorithmAbilities, BufferAbilities, BuildContext, PlanAbilities
from rlsdk.interfaces.abilities import ability, plays_episodes, require_parts
from rlsdk.networks.layers import architecture, initialization
from rlsdk.preprocessing import preprocessing_of
from rlsdk.registry import AlgorithmSpec
from rlsdk.registry.loading import require_usable
from rlsdk.runtime.process import Streams, choose_device, fresh_seed
from rlsdk.settings import structure
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.constructor import bind
from rlsdk.settings.load import DataReference
from rlsdk.spaces import Space, in_order_of
from rlsdk.training.collector import require_groups

ConfigT = TypeVar("ConfigT", bound=AgentConfig)


def from_arguments(
    spec: AlgorithmSpec,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    class_name: str,
    order: tuple[Space, Space] | None = None,
) -> AssembledAgent:
    """Build an agent from the arguments of the constructor of an agent class.

    `order`: the spaces whose order of Dict keys the agent's spaces take over, because weights belong to keys by position; None:
    those of the environment. Records of environments are read by key, so that an agent may have another order. An agent without
    environment has these spaces.

    Raises:
        UsageError: there is no environment. SettingsError, UnsupportedSpaceError, EnvironmentFault, ResourceError: as for
        the constructor of `Agent`.
    """
    require_usable(spec)
    named = without_effect(spec, kwargs, "the constructor")
    # `env` is the second field of all settings; the agent holds it beside them, so that they are checked only once
    given = args[1] if len(args) > 1 else named.pop("env", None)
    config = bind(spec.config_type, (args[0], None, *args[2:]) if len(args) > 1 else args, named)
    if given is None:
        return _without_environment(spec, config, class_name, order)
    env = connect(given, spec.default_envs)
    spaces = env.observation_space, env.action_space
    if order is not None:
        spaces = in_order_of(spaces[0], order[0]), in_order_of(spaces[1], order[1])
    agent = assemble(spec, config, spaces, env.num_envs, env, class_name=class_name)
    if isinstance(given, str):
        agent.env_name = given
    agent.masks.check_environment(env)
    warn_of_statistics(env, "the training environment")
    env.check_agent(agent, new=True)
    require_room(agent)
    warn_of_small_minibatches(agent)
    warn_of_unused_settings(agent)
    return agent


def _without_environment(
    spec: AlgorithmSpec, config: AgentConfig, class_name: str, known: tuple[Space, Space] | None
) -> AssembledAgent:
    """Build an agent with `known` spaces, or one that learns from a data set and has its spaces.

    Raises:
        UsageError: there are no spaces, or the plan needs an environment and they are not `known`.
    """
    spaces = recorded_spaces(config) if known is None else known
    agent = None if spaces is None else assemble(spec, config, spaces, 1, None, class_name=class_name)
    if agent is None or (known is None and agent.parts.plan.needs_environment):
        raise UsageError(
            "an agent needs an environment to learn in; env=None is for load(path), which has the spaces, and for algorithms"
            " that learn from a data set: give theirs"
        )
    return agent


@in_plain_modes
def assemble(
    spec: AlgorithmSpec,
    config: ConfigT,
    spaces: tuple[Space, Space],
    num_envs: int,
    env: ConnectedEnv | None,
    *,
    class_name: str = "Agent",
) -> AssembledAgent[ConfigT]:
    """Build an agent with new parameters, of a plugin that is usable. `config` has no `env`.

    Args:
        spaces: (observation space, action space).

    Raises:
        SettingsError, UnsupportedSpaceError: the settings do not fit each other or the spaces.
    """
    if config.policy not in spec.policies:
        raise SettingsError(f"unknown policy {config.policy!r}; {spec.id} has {', '.join(spec.policies)}")
    require_groups(num_envs, config.env_groups)
    seed = fresh_seed() if config.seed is None else int(config.seed)
    device, reason = choose_device(config.device, config.policy, "cpu" if env is None else env.device)
    use = spec.action_masks if getattr(config, "use_masking", True) else "ignored"
    agent = AssembledAgent(
        spec=spec,
        class_name=class_name,
        config=config,
        env=env,
        env_name=None if env is None else env.env_id,
        seed=seed,
        device_reason=reason,
        streams=Streams(seed, device),
        masks=MaskValidator(spaces[1], spec.id, used=use != "ignored", required=use == "required"),
        decode_action=ActionDecoder(spaces[1]),
        stack=ObservationBatcher(spaces[0]),
    )
    agent.context = BuildContext(
        *spaces,
        num_envs,
        device,
        agent.streams,
        use != "ignored" and env is not None and env.has_masks,
        use == "ignored",
        GoalRules(lambda: agent.env),
        # networks of users see sorted keys: files hold their weights in this order
        to_gymnasium=partial(to_gymnasium, by_name=True),
        algorithm=spec.id,
    )
    build_parts(agent)
    agent.logger.current_step = lambda: agent.num_timesteps
    return agent


def build_parts(agent: AssembledAgent) -> None:
    """Build the parts of an agent (networks, replay buffer, algorithm, plan) from its context and settings.

    Raises:
        PluginError: the plugin declares live settings, but its algorithm has no method `reconfigure`.
        SettingsError: `env_groups` is more than 1, and the algorithm does not collect step by step.
        ArtifactError: a file that a setting names cannot be read.
    """
    agent.preprocessing = preprocessing_of(agent.context, agent.config)
    # weights depend on the seed alone: not on the threads, nor on what was drawn before
    with initialization(agent.seed):
        with _files_named(agent):
            made = agent.spec.build(agent.preprocessing.build_context, agent.config)
        built = require_parts(made, agent.spec.id, agent.spec.info)
    if agent.spec.live and ability(built.algorithm, AlgorithmAbilities, "reconfigure") is None:
        raise PluginError(
            f"{agent.spec.id!r} declares live settings ({', '.join(agent.spec.live)}), but"
            f" {type(built.algorithm).__name__} has no method reconfigure(config); add it, or leave `live` out"
        )
    by_steps = built.plan.needs_environment and not plays_episodes(built.plan)
    if agent.config.env_groups > 1 and not by_steps:
        raise SettingsError(
            f"env_groups = {agent.config.env_groups} is for algorithms that collect step by step; {agent.spec.id} does not:"
            " leave it out"
        )
    move(built, agent.context.device)
    agent.parts = agent.preprocessing.connected(built)
    # a file holds settings, no layers: replaced layers are found by comparing
    agent.made_as = architecture(*networks_of(built))
    # the methods of such a policy accept observations of users, in numpy or torch
    if hasattr(type(agent.parts.policy), "reader"):
        setattr(agent.parts.policy, "reader", InputReader(agent.preprocessing))  # noqa: B010  # few policies declare it


@contextmanager
def _files_named(agent: AssembledAgent) -> Iterator[None]:
    """Turn an OSError about a file inside the block into an ArtifactError that names the setting with the path, and an error
    of torch about memory into a ResourceError."""
    try:
        yield
    except RuntimeError as error:
        if "allocate" not in str(error):  # torch has no class of its own for it
            raise
        raise ResourceError(f"{agent.spec.id}: its networks do not fit into memory; lower net_arch") from error
    except OSError as error:
        values = attrs.asdict(agent.config, recurse=False)
        names = [name for name, value in values.items() if error.filename and str(value) == str(error.filename)]
        # no setting names it: the plugin chose the file
        if not names:
            raise ArtifactError(
                f"the agent cannot be built: {error}; give the setting that names the file again"
            ) from error
        raise ArtifactError(
            f"{names[0]} = {values[names[0]]} cannot be read: {error.strerror or error}; give the place of the file, for an"
            f" agent file with load(path, custom_objects={{{names[0]!r}: ...}})"
        ) from error


def reseed(agent: AssembledAgent, seed: int) -> None:
    """Seed every random stream of the agent with `seed`; raises SettingsError if it is out of range."""
    agent.seed = int(structure({"policy": agent.config.policy, "seed": seed}, type(agent.config)).seed)
    agent.streams.reseed(agent.seed)


def warn_of_small_minibatches(agent: AssembledAgent) -> None:
    """Warn if `batch_size` is larger than a rollout, or does not divide its number of steps."""
    size, plan = getattr(agent.config, "batch_size", None), ability(agent.parts.plan, PlanAbilities, "n_steps")
    if plan is None or not size:
        return
    rollout = plan.n_steps * agent.context.num_envs
    of = f"a rollout of n_steps x environments = {plan.n_steps} x {agent.context.num_envs} = {rollout} steps"
    if size > rollout:
        what = f"is more than {of}: minibatches of {rollout} are used; lower batch_size or raise n_steps"
    else:
        what = f"does not divide {of}: its last minibatch has {rollout % size}; choose a divisor"
    if rollout % size:
        warnings.warn(f"batch_size = {size} {what}", stacklevel=5)


def recorded_spaces(config: AgentConfig) -> tuple[Space, Space] | None:
    """(observation space, action space) of the first data set in the settings; None if there is none. Raises as
    `DataReference.contents`.
    """
    for field in attrs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, DataReference) and value.path is not None:
            return value.contents()[1]
    return None


def observe_data_set(agent: AssembledAgent) -> None:
    """Update the statistics of `normalize` with all observations and rewards of a data set, once before the first update. An
    agent that learns from an environment computes them from its steps instead."""
    normalizer, buffer = agent.preprocessing.normalizer, agent.parts.buffer
    if normalizer is None or agent.parts.plan.needs_environment or agent.counts.updates:
        return
    if (recorded := ability(buffer, BufferAbilities, "observations")) is not None:
        for features in recorded.observations():
            normalizer.observations.update(features)
    rewarded = ability(buffer, BufferAbilities, "episode_rewards")
    if rewarded is not None and normalizer.settings.norm_reward:
        for rewards in rewarded.episode_rewards():
            ended = torch.zeros(len(rewards), 1, dtype=torch.bool)
            ended[-1] = True
            never = torch.zeros_like(ended)
            normalizer.rewards.observe(rewards.unsqueeze(1), ended, never, torch.ones_like(ended))
