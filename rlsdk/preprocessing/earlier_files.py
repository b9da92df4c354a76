"""Running episodes of files written while wrappers around the environment stacked and normalised."""

from __future__ import annotations

from dataclasses import replace

from rlsdk.interfaces import NormalizesEpisodes, Parts, State
from rlsdk.preprocessing.preprocessing import Preprocessing
from rlsdk.records import Observation

RAW = "observations"
"""The entry of running episodes that files have whose observations are as the environment gave them."""


def written_now(episodes: State) -> dict[str, object]:
    """Running episodes, marked."""
    return {**episodes, RAW: "raw"}


def environments_of(preprocessing: Preprocessing, episodes: State, parts: Parts) -> State:
    """The state of the training environments, for what `preprocessing.environment` gives. Raises KeyError or TypeError: the
    file has none."""
    state: State = episodes["environments"]
    wrapped = preprocessing.frames is not None or preprocessing.normalizer is not None
    if RAW in episodes or not wrapped or isinstance(parts.plan, NormalizesEpisodes):
        return state
    inner: State = state["env"]
    return inner if preprocessing.frames is None else {"stacked": inner, "frames": state["frames"]}


def as_given(preprocessing: Preprocessing, observation: Observation, episodes: State, parts: Parts) -> Observation:
    """The observation to act on next, as the environment gave it; where there is a memory it always was."""
    normalizer = preprocessing.normalizer
    if RAW in episodes or normalizer is None or parts.buffer is not None or isinstance(parts.plan, NormalizesEpisodes):
        return observation
    return replace(observation, features=normalizer.observations.denormalize(observation.features))
