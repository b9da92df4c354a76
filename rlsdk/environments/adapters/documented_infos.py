"""The infos of a step with the entries that vector environments of stable-baselines3 add."""

from __future__ import annotations

import numpy as np

from rlsdk.environments.adapters.nested import Arrays, rows_of
from rlsdk.records import EnvStep


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
