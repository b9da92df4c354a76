"""The hooks that the entry point names: curves of runs, profiles of trainings, and settings files of rl-baselines3-zoo."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from rlsdk.registry import hookimpl

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.registry import AlgorithmSpec, Preset


@hookimpl
def reports() -> dict[str, Callable[[Path], None]]:
    """Name -> function of the folder of a run or sweep that ended."""
    return {"curves": _draw}


def _draw(folder: Path) -> None:
    # imported when a run ends: asking a plugin for its reports must not import torch
    from rlsdk_lab.plotting import plot_ended

    plot_ended(folder)


@hookimpl
def profilers() -> dict[str, Callable[[Agent, str], AbstractContextManager[None]]]:
    """Name -> function (agent, name of the environment) that measures the trainings of the agent inside a `with` block."""
    return {"phases": _measure}


def _measure(agent: Agent, place: str) -> AbstractContextManager[None]:
    from rlsdk_lab.profiling import printed_profile

    return printed_profile(agent, place)


@hookimpl
def preset_files() -> dict[str, Callable[[Path, AlgorithmSpec, str], Preset]]:
    """Suffix of a file -> function (file, algorithm, environment id) that reads a preset."""
    return dict.fromkeys((".yaml", ".yml"), _read)


def _read(path: Path, spec: AlgorithmSpec, env: str) -> Preset:
    from rlsdk_lab.rl_zoo import rl_zoo_preset

    return rl_zoo_preset(path, spec, env)
