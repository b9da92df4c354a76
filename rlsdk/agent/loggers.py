"""Chooses the sinks and the logger to which the metrics of an agent are written."""

from __future__ import annotations

from pathlib import Path

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.errors import SettingsError
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.sinks import ConsoleSink, Logger, MetricSink, TensorBoardSink


def chosen_sinks(config: AgentConfig, name: str, *, fresh: bool) -> list[MetricSink]:
    """The sinks that `verbose` and `tensorboard_log` choose; `name` is the name of the run in TensorBoard.

    Raises:
        SettingsError: tensorboard is not installed.
    """
    sinks: list[MetricSink] = [ConsoleSink()] if config.verbose else []
    if config.tensorboard_log:
        sinks.append(TensorBoardSink(Path(config.tensorboard_log), name, continue_last=not fresh))
    return sinks


def set_logger(agent: AssembledAgent, given: MetricSink) -> None:
    """See `Agent.set_logger`."""
    agent.logger, agent.logger_was_set = as_logger(given), True
    agent.logger.current_step = lambda: agent.num_timesteps


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
            f"{given!r} is not a logger; pass what rlsdk.sinks.configure(folder, formats) returns, or an object with"
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
