"""The values of a step, in numpy, as callbacks and loops of stable-baselines3 read them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments import rows_of
from rlsdk.errors import SettingsError
from rlsdk.records import EnvStep, Episode, Features
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.callbacks import Run

Array: TypeAlias = "NDArray[np.bool_ | np.integer[Any] | np.floating[Any]]"
Arrays: TypeAlias = "Array | dict[str, Arrays] | tuple[Arrays, ...]"
"""Numpy arrays, nested like a space."""
Locals = dict[str, Any]
"""The documented entries of a step or of an evaluation, by name."""


def require_two_arguments(function: Callable[..., object]) -> None:
    """Raises SettingsError if a function cannot be called as f(locals, globals)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # written in C: its arguments are not known
    try:
        signature.bind({}, {})
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise SettingsError(f"callback {name}{signature} must take two arguments: f(locals, globals) -> bool") from None


def step_values(step: EnvStep, decode: Callable[[Tensor], object], seconds: float) -> Locals:
    """The entries of one step in numpy: arrays over B environments, nested like the spaces, and one info per
    environment.

    Args:
        step: the step.
        decode: converts actions to the form that the environments take.
        seconds: the time since the training or evaluation began.
    """
    ended = (step.terminated | step.truncated).cpu().numpy()
    finals = None if step.final_observation is None else _arrays(step.final_observation.features)
    action = map_tensors(lambda leaf: leaf.cpu(), step.action)
    return {
        "step": step,
        "actions": _arrays(action),
        "clipped_actions": decode(action),
        "new_obs": _arrays(step.observation.features),
        "rewards": step.reward.cpu().numpy().copy(),
        "dones": ended,
        "infos": documented_infos(step, finals, seconds),
    }


def _arrays(value: Features) -> Arrays:
    """Copy tensors into arrays."""
    if isinstance(value, dict):
        return {key: _arrays(child) for key, child in value.items()}
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else value.cpu().numpy().copy()


def documented_infos(step: EnvStep, finals: Arrays | None, seconds: float) -> list[dict[str, object]]:
    """One info for each of B environments, with the entries that stable-baselines3 adds.

    All have the entry `TimeLimit.truncated`. Where an episode ended, they also have `terminal_observation` and `episode` (`r`
    return, `l` number of steps, `t` seconds).

    Args:
        step: the step of the environments.
        finals: the last observations of the K episodes that ended, [K, ..]; None if no episode ended.
        seconds: the time since the loop began.
    """
    ended = (step.terminated | step.truncated).numpy(force=True)
    cut = (step.truncated & ~step.terminated).tolist()
    infos = [{**info, "TimeLimit.truncated": cut[i]} for i, info in enumerate(step.infos or [{} for _ in ended])]
    if finals is not None:
        for row, i in enumerate(np.flatnonzero(ended)):
            infos[i]["terminal_observation"] = rows_of(finals, row)
    for episode in step.episodes:
        context = {"r": episode.episode_return, "l": episode.length, "t": round(seconds, 6)}
        infos[episode.env].setdefault("episode", context)
    return infos


_known: WeakKeyDictionary[Run, tuple[EnvStep, Locals]] = WeakKeyDictionary()
"""The values of the last step of each run, as several callbacks may ask for them."""


def values_of(run: Run, step: EnvStep) -> Locals:
    """The `locals` of a step of a training; computed once per step."""
    known = _known.get(run)
    if known is None or known[0] is not step:
        before = max(0, run.steps_in_round // run.agent.context.num_envs - 1)  # without the current step
        values = step_values(step, run.agent.decode_action, time.perf_counter() - run.began)
        known = _known[run] = step, {**values, "n_steps": before}
    return known[1]


def called_back(
    played: Iterable[EnvStep],
    decode: Callable[[Tensor], object],
    known: Locals,
    shares: Sequence[int],
    callback: Callable[[Locals, Locals], object],
) -> list[Episode]:
    """The episodes of an evaluation, after which `callback(locals, globals)` is called for each environment that is not done.

    Args:
        played: the steps, without end.
        decode: converts actions to the form that the environments take.
        known: the entries of `locals` that are known before the first step.
        shares: the number of episodes that each environment plays.
        callback: the function.

    Raises:
        SettingsError: it does not take two arguments.
    """
    require_two_arguments(callback)
    finished, began = list[Episode](), time.perf_counter()
    counts, rewards, lengths = (np.zeros(len(shares), dtype) for dtype in (int, float, int))
    scope = {**known, "n_envs": len(shares), "episode_rewards": [], "episode_lengths": [], "episode_counts": counts}
    for step in played:
        values = step_values(step, decode, time.perf_counter() - began)
        rewards, lengths = rewards + values["rewards"], lengths + step.valid.numpy(force=True)
        ended = {episode.env: episode for episode in step.episodes}
        scope |= {**values, "new_observations": values["new_obs"]}
        scope |= {"current_rewards": rewards, "current_lengths": lengths}
        for i in np.flatnonzero(counts < shares):
            names = (("reward", "rewards"), ("done", "dones"), ("info", "infos"))
            callback({**scope, "i": int(i), **{one: values[all_][i] for one, all_ in names}}, {})
            if (episode := ended.get(int(i))) is not None:
                finished.append(episode)
                scope["episode_rewards"].append(episode.episode_return)
                scope["episode_lengths"].append(episode.length)
                counts[i] += 1
        over = np.isin(np.arange(len(shares)), list(ended))
        rewards, lengths = np.where(over, 0.0, rewards), np.where(over, 0, lengths)
        if (counts >= shares).all():
            break
    return finished
