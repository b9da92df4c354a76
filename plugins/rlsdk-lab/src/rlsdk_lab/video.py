"""Videos of agents in environments (extra `video`)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.agent import Agent
from rlsdk.buffers import require_memory
from rlsdk.environments import Waiting, make_vec_env
from rlsdk.errors import ArtifactError, EnvironmentFault, SettingsError, shown
from rlsdk.runtime import pip_install
from rlsdk_lab.record_command import has_screen

SUFFIXES = (".mp4", ".gif")
DEFAULT_FPS = 30
FRAMES_BETWEEN_CHECKS = 500
"""Frames after which the free memory is looked at again."""


@attrs.frozen
class Recording:
    """A video file: its path, number of frames, frames per second, and the returns of its episodes."""

    path: Path
    frames: int
    fps: float
    returns: tuple[float, ...]


def record_video(
    agent: Agent, env: str, path: str | Path, *, episodes: int = 1, seed: int = 0, deterministic: bool = True
) -> Recording:
    """Run `episodes` episodes of the environment with id `env` and write the rendered frames to `path` (.mp4 or .gif).

    Raises:
        SettingsError: another suffix, less than one episode, or packages are missing.
        EnvironmentFault: the environment renders no image, or an episode does not end.
        ResourceError: the frames do not fit into memory.
        ArtifactError: the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise SettingsError(f"a video must end in {' or '.join(SUFFIXES)}, not {target.suffix or target.name!r}")
    if episodes < 1:
        raise SettingsError(f"episodes = {episodes} must be a positive whole number")
    if not isinstance(agent, Agent):
        raise SettingsError(f"a video needs an agent, got {shown(agent)}; pass the model itself")
    imageio = _imageio(target.suffix)
    if not has_screen():
        # otherwise the library behind pygame prints an error about the missing screen
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    envs = make_vec_env(env, 1, env_kwargs={"render_mode": "rgb_array"}, vectorization="sync")
    try:
        agent.require_same_spaces(envs, "the environment to record")
        agent.masks.check_environment(envs)
        fps = _frames_per_second(envs.get_attr("metadata")[0])
        frames, returns = _play(agent, envs, episodes, seed, deterministic)
    finally:
        envs.close()
    part = target.with_name(f"{target.stem}.part{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(imageio, part, frames, fps)
        part.replace(target)
    except OSError as error:
        # the text of imageio has a command in further lines
        reason = error.strerror or next(iter(str(error).splitlines()), "")
        raise ArtifactError(f"{target} cannot be written: {reason}; choose another place") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return Recording(target, len(frames), fps, tuple(returns))


def _frames_per_second(metadata: object) -> float:
    """Return the frames per second in the metadata of an environment, or the default."""
    declared = metadata.get("render_fps") if isinstance(metadata, dict) else None
    return float(declared or DEFAULT_FPS)


def _imageio(suffix: str) -> ModuleType:
    try:
        import imageio.v3

        if suffix == ".mp4":
            import imageio_ffmpeg  # noqa: F401  # imageio writes .mp4 with it
    except ImportError:
        raise SettingsError(f"videos need imageio and imageio-ffmpeg: {pip_install('rlsdk-lab[video]')}") from None
    return imageio.v3


def _play(
    agent: Agent, envs: Any, episodes: int, seed: int, deterministic: bool
) -> tuple[list[NDArray[np.uint8]], list[float]]:
    session = agent.session(envs.num_envs, deterministic=deterministic, seed=seed)
    observation, frames, returns = envs.reset(seed), [_frame(envs)], list[float]()
    waiting = Waiting(envs)
    while len(returns) < episodes:
        _require_room(frames)
        step = envs.step(session.action_on(observation))
        observation = step.observation
        returns += [episode.episode_return for episode in step.episodes]
        waiting.stepped(step.episodes)
        if len(returns) < episodes:
            frames.append(_frame(envs))
    return frames, returns


def _require_room(frames: list[NDArray[np.uint8]]) -> None:
    """Raise ResourceError where memory ends before the episodes do: writing needs the frames of a video twice."""
    if len(frames) % FRAMES_BETWEEN_CHECKS == 0:
        needed = (len(frames) + FRAMES_BETWEEN_CHECKS) * frames[0].nbytes
        advice = "record fewer episodes, or give the environment a time limit: --env-kwargs max_episode_steps=1000"
        require_memory(needed, f"a video of more than {len(frames):,} frames", advice)


def _frame(envs: Any) -> NDArray[np.uint8]:
    """Return the rendered frame of the environment, uint8 [H, W, 3]. H and W are padded to even numbers for video encoders."""
    image = np.asarray(envs.env_method("render")[0])
    if image.ndim != 3 or image.dtype != np.uint8:
        raise EnvironmentFault(f"environment {envs.name!r} draws no uint8 image with render_mode='rgb_array'")
    return np.pad(image, ((0, image.shape[0] % 2), (0, image.shape[1] % 2), (0, 0)), mode="edge")


def _write(imageio: ModuleType, path: Path, frames: list[Any], fps: float) -> None:
    if path.suffix == ".gif":
        # in memory: where the disk is full, imageio prints a traceback after its error
        path.write_bytes(imageio.imwrite("<bytes>", np.stack(frames), extension=".gif", duration=1000.0 / fps, loop=0))
        return
    from imageio_ffmpeg import count_frames_and_secs

    imageio.imwrite(path, np.stack(frames), plugin="FFMPEG", fps=fps, macro_block_size=2)
    try:
        written = count_frames_and_secs(str(path))[0]
    except RuntimeError:
        written = 0
    if written < len(frames):  # imageio ignores that ffmpeg failed, for example at the end, where the disk was full
        raise OSError(f"{written} of {len(frames)} frames are in the file; the disk may be full")
