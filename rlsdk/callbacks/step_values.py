"""The `locals` of callbacks with the documented interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsdk.records import EnvStep
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.train import Run


def training_values(run: Run) -> dict[str, Any]:
    """Entries that are known when training starts."""
    agent = run.agent
    return {
        "self": agent,
        "run": run,
        "report": None,
        "env": agent.get_env(),
        "writer": run.logger.writer,
        "total_timesteps": run.total_timesteps + agent.num_timesteps,
        "reset_num_timesteps": agent.num_timesteps == 0,
        "tb_log_name": run.tb_log_name,
        "log_interval": run.log_interval,
        "n_steps": 0,
    }


def step_values(step: EnvStep, decode: Callable[[Any], Any]) -> dict[str, Any]:
    """Entries of one step, in numpy: arrays over B environments, nested as the spaces are, and one info for each; `decode`
    gives actions as the environments take them."""
    ended = (step.terminated | step.truncated).cpu().numpy()
    action: Any = map_tensors(lambda leaf: leaf.cpu(), step.action)
    return {
        "step": step,
        "actions": _arrays(action),
        "clipped_actions": decode(action),
        "new_obs": _arrays(step.observation.features),
        "rewards": step.reward.cpu().numpy().copy(),
        "dones": ended,
        "infos": _infos(step, ended),
    }


def _infos(step: EnvStep, ended: Any) -> list[dict[str, Any]]:
    """The infos of environments, with the documented entries that vector environments add."""
    given = step.infos if step.infos is not None else [{} for _ in ended]
    cut = (step.truncated & ~step.terminated).tolist()
    infos = [{**info, "TimeLimit.truncated": cut[i]} for i, info in enumerate(given)]
    if step.final_observation is not None:
        finals = _arrays(step.final_observation.features)
        for row, i in enumerate(np.flatnonzero(ended)):
            infos[i]["terminal_observation"] = _row(finals, row)
    for episode in step.episodes:
        infos[episode.env].setdefault("episode", {"r": episode.episode_return, "l": episode.length})
    return infos


def _arrays(value: Any) -> Any:
    """Tensors as arrays of their own."""
    if isinstance(value, dict):
        return {key: _arrays(child) for key, child in value.items()}
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else value.cpu().numpy().copy()


def _row(value: Any, row: int) -> Any:
    if isinstance(value, dict):
        return {key: _row(child, row) for key, child in value.items()}
    return tuple(_row(child, row) for child in value) if isinstance(value, tuple) else value[row]
