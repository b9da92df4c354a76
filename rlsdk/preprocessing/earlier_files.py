"""Reads the running episodes of older agent files, for which wrappers of the environment stacked frames and normalised."""

from __future__ import annotations

from dataclasses import replace

from rlsdk.interfaces import NormalizesEpisodes, Parts, State
from rlsdk.preprocessing.preprocessing import Preprocessing
from rlsdk.records import Observation

RAW = "observations"
"""The entry of running episodes that marks their observations as raw, that is, as the environment returned them."""


def written_now(episodes: State) -> dict[str, object]:
    """The running episodes with the entry that marks their observations as raw."""
    return {**episodes, RAW: "raw"}


def environments_of(preprocessing: Preprocessing, episodes: State, parts: Parts) -> State:
    """The state of the training environments, in the form that the result of `preprocessing.environment` restores.

    Raises:
        KeyError, TypeError: the file has no such state.
    """
    state: State = episodes["environments"]
    wrapped = preprocessing.frames is not None or preprocessing.normalizer is not None
    if RAW in episodes or not wrapped or isinstance(parts.plan, NormalizesEpisodes):
        return state
    inner: State = state["env"]
    return inner if preprocessing.frames is None else {"stacked": inner, "frames": state["frames"]}


def as_given(preprocessing: Preprocessing, observation: Observation, episodes: State, parts: Parts) -> Observation:
    """The observation to act on next, without normalisation. Files of agents with a replay buffer always stored it raw."""
    normalizer = preprocessing.normalizer
    if RAW in episodes or normalizer is None or parts.buffer is not None or isinstance(parts.plan, NormalizesEpisodes):
        return observation
    return replace(observation, features=normalizer.observations.denormalize(observation.features))
