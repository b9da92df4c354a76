"""The ids of rlsdk's environments. Importing `rlsdk.environments` registers them with gymnasium."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium

TOYS = (
    "BitFlippingEnv",
    "ChainEnv",
    "FakeImageEnv",
    "HybridActionEnv",
    "IdentityEnv",
    "IdentityEnvBox",
    "IdentityEnvMultiBinary",
    "IdentityEnvMultiDiscrete",
    "InvalidActionEnvDiscrete",
    "InvalidActionEnvMultiBinary",
    "InvalidActionEnvMultiDiscrete",
    "MaskedChoiceEnv",
    "SimpleMultiObsEnv",
    "TMazeEnv",
    "TableEnv",
)
"""Environment classes of `rlsdk_envs.toy` whose constructors need no arguments. Their ids are rlsdk/<class>-v0."""
WITHOUT_VELOCITY = (
    "CartPole-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
)
"""Environments of gymnasium that have a version without velocities, `rlsdk/<name>NoVel-<version>`."""


GAME = re.compile(r"rlsdk/Atari(\w+)-v4")
FOR_SEVERAL_PLAYERS = ("combat", "joust", "maze_craze", "warlords")
"""Games of ale-py that one player cannot play."""


def register() -> None:
    """Register rlsdk's environments with gymnasium. Further calls do nothing."""
    for name in TOYS:
        _register(f"rlsdk/{name}-v0", f"rlsdk_envs.toy:{name}", {})
    flipping = "rlsdk_envs.toy:BitFlippingEnv"
    _register("rlsdk/BitFlipping15-v0", flipping, {"n_bits": 15})
    _register("rlsdk/BitFlipping15Continuous-v0", flipping, {"n_bits": 15, "continuous": True})
    for task in WITHOUT_VELOCITY:
        name, _, version = task.partition("-")
        entry = "rlsdk_envs.registration:without_velocity"
        _register(f"rlsdk/{name}NoVel-{version}", entry, {"task": task}, checked=False)
    for game in games():
        register_game(f"rlsdk/Atari{game}-v4")


def register_game(identity: str) -> None:
    """Register the Atari game of an id such as `rlsdk/AtariPong-v4` with gymnasium, even if ale-py is not installed.

    Other ids are ignored.
    """
    found = GAME.fullmatch(identity)
    if found:
        _register(identity, "rlsdk_envs.atari:atari_game", {"game": found[1]}, checked=False)


def _register(identity: str, entry: str, kwargs: dict[str, Any], *, checked: bool = True) -> None:
    if identity not in gymnasium.registry:
        gymnasium.register(identity, entry, kwargs=kwargs, disable_env_checker=not checked)


def games() -> list[str]:
    """The names of the Atari games of the installed ale-py, such as `Pong`. ale-py is not imported.

    The list is empty if ale-py is not installed.
    """
    found = find_spec("ale_py")
    if found is None or found.origin is None:
        return []
    names = sorted(
        path.stem for path in (Path(found.origin).parent / "roms").glob("*.bin") if path.stem not in FOR_SEVERAL_PLAYERS
    )
    return ["".join(part.title() for part in name.split("_")) for name in names]
