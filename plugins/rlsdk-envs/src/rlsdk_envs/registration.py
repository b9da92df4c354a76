"""The ids of this package. Importing it registers them with gymnasium."""

from __future__ import annotations

import re
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
GAMES = re.findall(
    r"\w+",
    """
    Adventure AirRaid Alien Amidar Assault Asterix Asteroids Atlantis Atlantis2 Backgammon BankHeist BasicMath BattleZone
    BeamRider Berzerk Blackjack Bowling Boxing Breakout Carnival Casino Centipede ChopperCommand CrazyClimber Crossbow
    Darkchambers Defender DemonAttack DonkeyKong DoubleDunk Earthworld ElevatorAction Enduro Entombed Et FishingDerby
    FlagCapture Freeway Frogger Frostbite Galaxian Gopher Gravitar Hangman HauntedHouse Hero HumanCannonball IceHockey
    Jamesbond JourneyEscape Kaboom Kangaroo KeystoneKapers KingKong Klax Koolaid Krull KungFuMaster LaserGates LostLuggage
    MarioBros MiniatureGolf MontezumaRevenge MrDo MsPacman NameThisGame Othello Pacman Phoenix Pitfall Pitfall2 Pong
    Pooyan PrivateEye Qbert Riverraid RoadRunner Robotank Seaquest SirLancelot Skiing Solaris SpaceInvaders SpaceWar
    StarGunner Superman Surround Tennis Tetris TicTacToe3D TimePilot Trondead Turmoil Tutankham UpNDown Venture
    VideoCheckers VideoChess VideoCube VideoPinball WizardOfWor WordZapper YarsRevenge Zaxxon
    """,
)
"""The games of ale-py that one player can play. Their ids `rlsdk/Atari<game>-v4` are registered without ale-py too, so that the
error for a missing ale-py names it."""


def register() -> None:
    """Register the ids with gymnasium. Further calls do nothing."""
    for name in TOYS:
        _register(f"rlsdk/{name}-v0", f"rlsdk_envs.toy:{name}", {})
    flipping = "rlsdk_envs.toy:BitFlippingEnv"
    _register("rlsdk/BitFlipping15-v0", flipping, {"n_bits": 15})
    _register("rlsdk/BitFlipping15Continuous-v0", flipping, {"n_bits": 15, "continuous": True})
    for task in WITHOUT_VELOCITY:
        name, _, version = task.partition("-")
        entry = "rlsdk_envs.registration:without_velocity"
        _register(f"rlsdk/{name}NoVel-{version}", entry, {"task": task}, checked=False)
    for game in GAMES:
        _register(f"rlsdk/Atari{game}-v4", "rlsdk_envs.atari:atari_game", {"game": game}, checked=False)


def _register(identity: str, entry: str, kwargs: dict[str, Any], *, checked: bool = True) -> None:
    if identity not in gymnasium.registry:
        gymnasium.register(identity, entry, kwargs=kwargs, disable_env_checker=not checked)


def without_velocity(task: str, **kwargs: Any) -> Any:
    """The gymnasium environment `task` inside `MaskVelocity`. `kwargs` are arguments of `gymnasium.make`."""
    from rlsdk_envs.wrappers import MaskVelocity

    return MaskVelocity(gymnasium.make(task, **kwargs))
