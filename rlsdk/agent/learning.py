"""Runs one call of `learn`: starts the training, sets up its logs, and cleans up after it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from time import time_ns

from rlsdk.agent.acting_copies import acting_copies
from rlsdk.agent.arguments import positive
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.data_sets import observe_data_set
from rlsdk.agent.loggers import chosen_sinks
from rlsdk.agent.resumption import begin, leave_episodes, leave_moved_episodes, training_env
from rlsdk.agent.stored_replay import require_room
from rlsdk.callbacks import Callback, ProgressBar
from rlsdk.callbacks.accepted import as_callbacks
from rlsdk.environments import fingerprint_of
from rlsdk.errors import UsageError
from rlsdk.settings import flat_scalars
from rlsdk.training.length import require_exact, rounded_up
from rlsdk.training.run import Run
from rlsdk.training.train import train
from rlsdk.training.trained_agent import TrainedAgent


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of one call of `learn`."""

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


def callbacks_of(given: object, progress_bar: bool) -> list[Callback]:
    """The callbacks that were passed to `learn`, and the progress bar if it is requested."""
    return [*as_callbacks(given), *([ProgressBar()] if progress_bar else [])]


def run_training(
    agent: AssembledAgent, request: Request, callbacks: Sequence[Callback], user_facing: TrainedAgent
) -> None:
    """Train the agent; raises like `Agent.learn`. `user_facing` is the agent that callbacks get as `run.agent`."""
    if agent.run is not None:
        raise UsageError(
            "a training of this agent is running; call learn again after it (a callback that returns False ends it), or train a"
            " copy: copy.deepcopy(model).learn(...)"
        )
    env = training_env(agent)
    agent.start_time = time_ns()
    default = 4 if agent.parts.plan.log_every == "episodes" else 1
    interval = positive(default if request.log_interval is None else request.log_interval, "log_interval")
    total = positive(request.total_timesteps, "total_timesteps", least=0)
    threads = None if request.threads is None else positive(request.threads, "threads")
    until = None if request.schedule_until is None else positive(request.schedule_until, "schedule_until")
    if request.exact:
        require_exact(agent.parts.plan, agent.context.num_envs, total, agent.spec.id)
    elif (line := rounded_up(agent.parts.plan, agent.context.num_envs, total)) and line not in agent.notices:
        agent.notices.add(line)  # a program that calls learn in a loop is told once
        warnings.warn(f"learn: {line}", stacklevel=4)  # no print: a program that embeds rlsdk can silence a warning
    if request.fresh:
        agent.step_offset = agent.total_steps
    if not total:
        return
    leave_moved_episodes(agent)
    if agent.cursor is None:
        require_room(agent)
        begin(agent, env)
        observe_data_set(agent)
    agent.run = run = _begun(agent, request, Run(user_facing, agent, agent.counts, total, callbacks, until))
    try:
        train(run, env, log_every=interval, threads=threads)
    finally:
        agent.run, agent.stored_log = None, run.episode_statistics.state_dict()
        agent.fingerprint = None if agent.env is None else fingerprint_of(agent.env)
        if run.new_episodes:
            leave_episodes(agent)
        if not agent.logger_was_set:
            agent.logger.close()


def _begun(agent: AssembledAgent, request: Request, run: Run) -> Run:
    """Set up the sinks of a run, and if the training continues, the statistics of the last run; return the run."""
    if not agent.logger_was_set:
        agent.logger.use(chosen_sinks(agent.config, request.name, fresh=request.fresh))
    run.copies = lambda: acting_copies(agent)
    run.copies()  # raises an error about agents that cannot be copied before anything is collected
    agent.logger.hyperparameters(flat_scalars(agent.config))
    run.tb_log_name, run.exact = request.name, request.exact
    if not request.fresh and agent.stored_log is not None:
        run.episode_statistics.load_state_dict(agent.stored_log)
    return run
