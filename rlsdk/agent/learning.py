"""One call of `learn`: starts the training, sets up its logs, and cleans up after it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time_ns

import torch
from typing_extensions import TypeVar

from rlsdk.agent import training_state
from rlsdk.agent.assembled import AssembledAgent, require_same_layers
from rlsdk.agent.assembly import assemble, observe_data_set
from rlsdk.agent.attributes import positive
from rlsdk.callbacks import Callback
from rlsdk.environments import connect
from rlsdk.environments.vector.connected import fingerprint_of
from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import PlanAbilities, VectorEnv
from rlsdk.interfaces.abilities import ability
from rlsdk.interfaces.parts import Training
from rlsdk.records import Cursor
from rlsdk.registry import AlgorithmSpec
from rlsdk.registry.loading import require_usable
from rlsdk.runtime.process import limited_threads
from rlsdk.settings import evolve, flat_scalars
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.sinks import ConsoleSink, Logger, MetricSink, TensorBoardSink
from rlsdk.spaces import Space
from rlsdk.training.collector import NoCollector
from rlsdk.training.run import Run
from rlsdk.training.train import require_exact, rounded_up, train
from rlsdk.training.trained_agent import TrainedAgent

SettingsT = TypeVar("SettingsT", bound=AgentConfig, default=AgentConfig)


@dataclass(frozen=True, slots=True)
class LearnCall:
    """The arguments of one call of `learn` that are checked here, in one record: functions take six parameters at most."""

    total_timesteps: float
    log_interval: int | None
    name: str
    """The name of the run in the folder `tensorboard_log`."""
    fresh: bool
    """Whether steps are counted from 0 again (`reset_num_timesteps`)."""
    threads: int | None
    schedule_until: float | None = None
    """The agent's count of steps at which schedules end; None: at the end of this call."""
    exact: bool = False
    """Whether the last round is cut at `total_timesteps`."""


def run_training(
    agent: AssembledAgent, call: LearnCall, callbacks: Sequence[Callback], user_facing: TrainedAgent
) -> None:
    """Train the agent; raises like `Agent.learn`. `user_facing` is its `Agent`, which callbacks get as `run.agent`."""
    if agent.run is not None:
        raise UsageError(
            "a training of this agent is running; call learn again after it (a callback that returns False ends it), or train a"
            " copy: copy.deepcopy(model).learn(...)"
        )
    env = training_state.training_env(agent)
    agent.start_time = time_ns()
    default = 4 if agent.parts.plan.log_every == "episodes" else 1
    interval = positive(default if call.log_interval is None else call.log_interval, "log_interval")
    total = positive(call.total_timesteps, "total_timesteps", least=0)
    threads = None if call.threads is None else positive(call.threads, "threads")
    until = None if call.schedule_until is None else positive(call.schedule_until, "schedule_until")
    if call.exact:
        require_exact(agent.parts.plan, agent.context.num_envs, total, agent.spec.id)
    elif (line := rounded_up(agent.parts.plan, agent.context.num_envs, total)) and line not in agent.notices:
        # a program that calls learn in a loop gets it once
        agent.notices.add(line)
        # no print: a program that embeds rlsdk can silence a warning
        warnings.warn(f"learn: {line}", stacklevel=4)
    if call.fresh:
        agent.step_offset = agent.total_steps
    if not total:
        return
    training_state.leave_moved_episodes(agent)
    if agent.cursor is None:
        training_state.require_room(agent)
        training_state.begin(agent, env)
        observe_data_set(agent)
    run = Run(
        user_facing, driven=agent, cursor=agent.counts, total_timesteps=total, callbacks=callbacks, schedule_until=until
    )
    agent.run = _begun(agent, call, run)
    try:
        train(run, env, log_every=interval, threads=threads)
    finally:
        # also after an error or Ctrl-C, so that the agent can be saved and `learn` called again
        agent.run, agent.stored_log = None, run.episode_statistics.state_dict()
        # the next `learn` compares it, as somebody may step the environments meanwhile
        agent.fingerprint = None if agent.env is None else fingerprint_of(agent.env)
        if run.new_episodes:
            training_state.leave_episodes(agent)
        if not agent.logger_was_set:
            agent.logger.close()


def _begun(agent: AssembledAgent, call: LearnCall, run: Run) -> Run:
    """Set up the sinks of a run, and if the training continues, the statistics of the last run; return the run."""
    if not agent.logger_was_set:
        agent.logger.use(chosen_sinks(agent.config, call.name, fresh=call.fresh))
    run.copies = partial(acting_copies, agent)
    agent.logger.hyperparameters(flat_scalars(agent.config))
    run.tb_log_name, run.exact = call.name, call.exact
    if not call.fresh and agent.stored_log is not None:
        run.episode_statistics.load_state_dict(agent.stored_log)
    return run


def acting_copies(agent: AssembledAgent) -> Callable[[VectorEnv], AssembledAgent]:
    """A function that makes agents with the same settings for other environments, in other processes. It can be pickled.

    Raises:
        UsageError: layers were replaced, so that the settings no longer describe the networks.
    """
    require_same_layers(agent, "collectors cannot have copies of the policy")
    context, config = agent.context, evolve(agent.config, {"env_groups": 1})
    # the learner's spaces, whose order of keys its weights have, and its number of environments: steps are counted over all
    return partial(_copy, agent.spec, config, (context.observation_space, context.action_space), context.num_envs)


def _copy(
    spec: AlgorithmSpec, config: SettingsT, spaces: tuple[Space, Space], num_envs: int, env: VectorEnv
) -> AssembledAgent[SettingsT]:
    # the collector may be on a machine with another version
    require_usable(spec)
    return assemble(spec, config, spaces, num_envs, connect(env))


def chosen_sinks(config: AgentConfig, name: str, *, fresh: bool) -> list[MetricSink]:
    """The sinks that `verbose` and `tensorboard_log` choose; `name` is the name of the run in TensorBoard.

    Raises:
        SettingsError: tensorboard is not installed.
    """
    sinks: list[MetricSink] = [ConsoleSink()] if config.verbose else []
    if config.tensorboard_log:
        sinks.append(TensorBoardSink(Path(config.tensorboard_log), name, continue_last=not fresh))
    return sinks


def as_logger(given: object) -> Logger:
    """`given` itself if it is a logger, or a logger that writes to `given` if it is a sink.

    Raises:
        SettingsError: it is neither.
    """
    if isinstance(given, Logger):
        return given
    if (
        isinstance(given, type)
        or not isinstance(given, MetricSink)
        or not callable(given.write)
        or not callable(given.close)
    ):
        raise SettingsError(
            f"{given!r} is not a logger; pass what rlsdk_sb3.configure(folder, formats) returns, or an object with"
            " write(step, values) and close()"
        )
    return Logger(output_formats=[given])


def dump_logs(agent: AssembledAgent, iteration: int) -> None:
    """Write the metrics of the running training, or the recorded values if none is running."""
    if iteration > 0:
        agent.logger.record("time/iterations", iteration, exclude="tensorboard")
    if agent.run is not None:
        agent.run.log()
    else:
        agent.logger.dump()


def update_from_buffer(
    agent: AssembledAgent, gradient_steps: int | None, batch_size: int | None
) -> Mapping[str, float]:
    """See `Agent.train`."""
    if agent.parts.buffer is None:
        raise UsageError(
            f"{agent.spec.id} stores no experience to train from; learn(total_timesteps) collects and trains"
        )
    training_state.restore_replay(agent)
    if gradient_steps is None:
        raise SettingsError("train needs the number of updates, train(gradient_steps=100)")
    if not len(agent.parts.buffer):
        raise UsageError("train needs a filled replay buffer; call learn, or load_replay_buffer, first")
    plan = ability(agent.parts.plan, PlanAbilities, "learn_offline")
    if plan is None:
        raise UsageError(
            f"{type(agent.parts.plan).__name__}, the training loop of {agent.spec.id}, has no learn_offline; call learn"
        )
    size = None if batch_size is None else positive(batch_size, "batch_size")
    count, steps = positive(gradient_steps, "gradient_steps"), agent.total_steps
    collector = NoCollector(agent.context.num_envs)
    training = Training(collector, agent.parts, agent.streams, steps, steps, agent.context.device)
    with limited_threads(1), torch.inference_mode(False), torch.enable_grad():
        metrics = plan.learn_offline(training, count, size)
    agent.counts = Cursor(agent.counts.env_steps, agent.counts.updates + count)
    return {name: float(value) for name, value in metrics.items()}
