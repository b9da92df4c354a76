"""Rendering of environments as images and in windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from rlsdk.environments.vector.connected import ConnectedEnv
from rlsdk.errors import message_of


def pictures_of(env: ConnectedEnv) -> list[NDArray[np.uint8] | None]:
    """An image of each environment, uint8 [height, width, 3]; None for an environment that cannot render images."""
    found: list[NDArray[np.uint8] | None] = []
    for i in range(env.num_envs):
        picture = None
        if "rgb_array" in _modes(env, i) or env.get_attr("render_mode", i)[0] == "rgb_array":
            with _rendering(env, i, "rgb_array"):
                picture = env.env_method("render", indices=i)[0]
        found.append(picture if isinstance(picture, np.ndarray) else None)
    return found


def show_windows(env: ConnectedEnv) -> str | None:
    """Render each environment in its own window. Returns None, or the reason why windows cannot be shown."""
    own = set(env.get_attr("render_mode"))
    if own != {"human"} and not env.environments:
        return "the environments are in other processes; make them with render_mode='human'"
    for i in range(env.num_envs):
        if "human" not in _modes(env, i):
            return "the environment has no render mode 'human'"
        try:
            with _rendering(env, i, "human"):
                env.env_method("render", indices=i)
        except Exception as error:  # without a screen, window libraries raise many types of errors
            return f"{type(error).__name__}: {message_of(error)}"
    return None


def tiled(pictures: Sequence[NDArray[np.uint8] | None]) -> NDArray[np.uint8] | None:
    """Images of equal size, uint8 [height, width, 3], as one image with a square grid of tiles; None without images."""
    some = [picture for picture in pictures if picture is not None]
    if not some:
        return None
    columns = math.ceil(math.sqrt(len(some)))
    empty = [np.zeros_like(some[0])] * (-len(some) % columns)
    rows = [np.concatenate((some + empty)[i : i + columns], axis=1) for i in range(0, len(some), columns)]
    return np.concatenate(rows, axis=0)


def _modes(env: ConnectedEnv, index: int) -> Sequence[str]:
    metadata = env.get_attr("metadata", index)[0]
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    return [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, Sequence) else []


@contextmanager
def _rendering(env: ConnectedEnv, index: int, mode: str) -> Iterator[None]:
    """A context in which environment `index` has the render mode `mode`.

    The mode is changed only if the environment supports it, and was made without a mode or `mode` is `human`.
    """
    made = env.get_attr("render_mode", index)[0]
    changes = made != mode and (made is None or mode == "human") and mode in _modes(env, index)
    if changes:
        env.set_attr("render_mode", mode, index)
    try:
        yield
    finally:
        if changes:
            env.set_attr("render_mode", made, index)
