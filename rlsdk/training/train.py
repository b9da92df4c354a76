"""Runs a training from start to end."""

from __future__ import annotations

import torch

from rlsdk.errors import PluginError
from rlsdk.interfaces import VectorEnv
from rlsdk.runtime.freed_memory import keep_freed_memory
from rlsdk.runtime.threads import affordable, limited_threads
from rlsdk.training import plan_errors
from rlsdk.training.collectors import left
from rlsdk.training.run import Rounds, Run
from rlsdk.training.watched_env import Watched, gathered_infos


def train(run: Run, env: VectorEnv | None, *, log_every: int, threads: int | None) -> None:
    """Run the agent's plan until the end of `run`, or until a callback stops it.

    Args:
        run: counts, sinks and callbacks.
        env: the training environment, on the agent's device; None if the plan needs none.
        log_every: finished episodes or rounds between two logs, see `Plan.log_every`.
        threads: threads of torch and numpy while training; None does not change their settings.
    """
    agent = run.driven
    run.log_interval = log_every
    watching = [callback for callback in run.callbacks if callback.watches_steps or callback.watches_rollouts]
    infos = any(callback.needs_infos for callback in watching)
    watched = env if env is None or not watching else Watched(env, run, infos=infos)
    rounds = Rounds(run, watched)
    keep_freed_memory()
    with (
        gathered_infos(agent.env, infos),
        limited_threads(affordable(threads)),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        run.notify("on_training_start")
        try:
            while not rounds.played():
                pass
        except PluginError as error:
            raise plan_errors.of_algorithm(error, run.agent.spec.id) from None
        finally:
            # discard rounds collected ahead; a continued training collects them again with the same weights
            agent.in_round = agent.in_round or not left(rounds.collector)
            run.notify("on_training_end")
