"""Attributes of agents, and arguments of their methods, that stable-baselines3 documents."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import torch

from rlsdk.errors import UsageError
from rlsdk.records import Episode
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.registry import AlgorithmSpec


def _last_episodes(agent: Agent) -> list[Episode]:
    """The last `stats_window_size` episodes. If a callback has `on_step`, they include those of the current round."""
    statistics = agent.episode_statistics
    window = () if statistics is None else statistics.window
    return [*window, *(() if agent.run is None else agent.run.episodes_in_round)][-agent.config.stats_window_size :]


def _episode_infos(agent: Agent) -> deque[dict[str, float]]:
    """{"r": return, "l": length} for each of the last episodes."""
    last, size = _last_episodes(agent), agent.config.stats_window_size
    return deque(({"r": episode.episode_return, "l": episode.length} for episode in last), maxlen=size)


def _successes(agent: Agent) -> deque[bool]:
    last, size = _last_episodes(agent), agent.config.stats_window_size
    return deque((episode.success for episode in last if episode.success is not None), maxlen=size)


def _finished_episodes(agent: Agent) -> int:
    statistics, run = agent.episode_statistics, agent.run
    finished = 0 if statistics is None else statistics.finished_episodes
    return finished + (0 if run is None else len(run.episodes_in_round))


def _last_observation(agent: Agent) -> object:
    """The observation to act on next, numpy [B, ..]; None before training."""
    if not agent.acting:
        return None
    groups = [state.observation.features for state in agent.acting]
    joined = map_tensors(lambda *leaves: torch.cat(leaves), *groups)
    return map_tensors(lambda leaf: leaf.cpu().numpy().copy(), joined)


DERIVED: dict[str, Callable[[Any], object]] = {
    "n_envs": lambda agent: agent.context.num_envs,
    "lr_schedule": lambda agent: agent.config.learning_rate,
    "policy_class": lambda agent: type(agent.parts.policy),
    "ep_info_buffer": _episode_infos,
    "ep_success_buffer": _successes,
    "_n_updates": lambda agent: agent.counts.updates,
    "_episode_num": _finished_episodes,
    "_current_progress_remaining": lambda agent: 1.0 if agent.run is None else agent.run.progress_remaining,
    "_last_obs": _last_observation,
}
"""Attribute of stable-baselines3 -> the function that computes it when it is read."""


EVALUATION = "evaluate with a callback: learn(..., callback=rlsdk.callbacks.EvalCallback(env, eval_freq=steps))"
OF_CONSTRUCTORS: dict[str, tuple[tuple[object, ...], str, tuple[str, ...]]] = {
    "_init_setup_model": ((True, False), "", ("on-policy", "off-policy", "population")),
    "create_eval_env": ((False, None), EVALUATION, ("on-policy", "off-policy")),
    "rollout_buffer_class": (
        (None,),
        "rollouts are records, rlsdk.records.Rollout, which every update gets",
        ("on-policy",),
    ),
    "rollout_buffer_kwargs": (
        (None, {}),
        "rollouts are records, rlsdk.records.Rollout, without settings",
        ("on-policy",),
    ),
}
"""Argument of constructors -> (accepted values, replacement for other values, families of algorithms that have it)."""
OF_LEARN: dict[str, tuple[tuple[object, ...], str]] = {
    "eval_env": ((None,), EVALUATION),
    "eval_freq": ((None, -1), EVALUATION),
    "n_eval_episodes": ((None, 5), EVALUATION),
    "eval_log_path": ((None,), EVALUATION),
}
"""Argument of `learn` -> (accepted values, replacement for other values)."""
ASYNC_EVAL = (
    "async_eval is not needed and has no effect: candidates are played side by side, in other processes where the environment"
    ' is made by make_vec_env(..., vectorization="async")'
)


def without_effect(spec: AlgorithmSpec, arguments: Mapping[str, object], method: str) -> dict[str, object]:
    """The arguments of a method without those that only stable-baselines3 has and that have no effect.

    Args:
        spec: the algorithm. An argument that is one of its settings stays.
        arguments: the arguments, by name.
        method: "learn" or "the constructor".

    Raises:
        UsageError: an argument that has no effect has a value that is not accepted.
    """
    rest = dict(arguments)
    if method == "learn":
        for name, (accepted, instead) in OF_LEARN.items():
            if name in rest:
                _require(f"learn({name}=)", rest.pop(name), accepted, instead)
        if spec.family == "population" and rest.pop("async_eval", None) is not None:
            warnings.warn(ASYNC_EVAL, stacklevel=5)
        return rest
    own = {field.name for field in attrs.fields(spec.config_type)}
    for name, (accepted, instead, families) in OF_CONSTRUCTORS.items():
        if name in rest and name not in own and spec.family in families:
            _require(name, rest.pop(name), accepted, instead)
    return rest


def _require(name: str, value: object, accepted: tuple[object, ...], instead: str) -> None:
    if not any(value is good or (type(value) is type(good) and value == good) for good in accepted):
        raise UsageError(f"{name} = {value!r} has no counterpart here; {instead}")
