"""One call of `learn`: where it begins, what it logs to, and what is left behind when it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING

from rlsdk.agent.arguments import positive
from rlsdk.agent.loggers import chosen_sinks
from rlsdk.agent.resumption import begin, leave_moved_episodes, training_env
from rlsdk.agent.stored_replay import require_room
from rlsdk.callbacks import Callback
from rlsdk.environments.standing import standing_of
from rlsdk.settings import flat_scalars
from rlsdk.train import Run, train

if TYPE_CHECKING:
    from rlsdk.agent.agent import Agent


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `learn`, as given."""

    total_timesteps: float
    log_interval: int | None
    name: str
    """Of the run under `tensorboard_log`."""
    fresh: bool
    """Whether steps are counted from 0 again."""
    threads: int | None


def run_training(agent: Agent, request: Request, callbacks: Sequence[Callback]) -> None:
    """Train; raises as `Agent.learn`."""
    env = training_env(agent)
    agent.start_time = time_ns()
    default = 4 if agent.spec.family == "off-policy" else 1
    interval = positive(default if request.log_interval is None else request.log_interval, "log_interval")
    total = positive(request.total_timesteps, "total_timesteps")
    if request.fresh:
        agent._step_offset = agent._total_steps
    leave_moved_episodes(agent)
    if agent.cursor is None:
        require_room(agent)
        agent.cursor = begin(agent, env)
    agent.run = run = _begun(agent, request, Run(agent, agent.cursor, total, callbacks))
    try:
        train(run, env, agent.parts, log_every=interval, threads=request.threads)
    finally:
        agent.run, agent._stored_log = None, run.tally.state_dict()
        agent.standing = standing_of(agent.env)
        if not agent._logger_was_set:
            agent._logger.close()


def _begun(agent: Agent, request: Request, run: Run) -> Run:
    """The run with its sinks, and with the statistics of the last one where that goes on."""
    if not agent._logger_was_set:
        agent._logger.use(chosen_sinks(agent.config, request.name, fresh=request.fresh))
    agent._logger.hyperparameters(flat_scalars(agent.config))
    run.tb_log_name = request.name
    if not request.fresh and agent._stored_log is not None:
        run.tally.load_state_dict(agent._stored_log)
    return run
