"""The hooks that the entry point names: environments by their ids, and the function that makes vector environments of them.

Neither imports JAX or torch. The ids are those of gymnax 1.0 and brax 0.14; others of these packages work too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from rlsdk.registry import hookimpl

GYMNAX = re.findall(
    r"\S+",
    """
    Acrobot-v1 Asterix-MinAtar BernoulliBandit-misc Breakout-MinAtar CartPole-v1 Catch-bsuite DeepSea-bsuite
    DiscountingChain-bsuite FourRooms-misc Freeway-MinAtar FrozenLake-misc GaussianBandit-misc MNISTBandit-bsuite
    MemoryChain-bsuite MetaMaze-misc MountainCar-v0 MountainCarContinuous-v0 Pendulum-v1 PointRobot-misc Pong-misc
    Reacher-misc Seaquest-MinAtar SimpleBandit-bsuite SpaceInvaders-MinAtar Swimmer-misc UmbrellaChain-bsuite
    """,
)
BRAX = re.findall(
    r"\S+",
    """
    ant fast halfcheetah hopper humanoid humanoidstandup inverted_double_pendulum inverted_pendulum pusher reacher swimmer
    walker2d
    """,
)
IDS = (*(f"gymnax/{name}" for name in GYMNAX), *(f"brax/{name}" for name in BRAX))
"""The ids that gymnasium knows after this package was imported."""


@hookimpl
def environments() -> dict[str, Callable[..., object]]:
    """Namespace -> function that makes one environment of an id that gymnasium does not know."""
    register()
    return {"brax": _single, "gymnax": _single}


@hookimpl
def vectorizers() -> dict[str, Callable[..., object]]:
    """Name -> function of an environment and a number that makes a vector environment."""
    return {"jax": partial(_call, "vector", "make_jax_vec_env")}


def register() -> None:
    """Register the ids with gymnasium. Further calls do nothing."""
    import gymnasium

    for identity in IDS:
        if identity not in gymnasium.registry:
            entry = "rlsdk_jax.single:make_single"
            gymnasium.register(identity, entry, kwargs={"task": identity}, disable_env_checker=True)


def _single(identity: str, **settings: object) -> object:
    return _call("single", "make_single", task=identity, **settings)


def _call(module: str, function: str, *arguments: object, **settings: object) -> object:
    """Call a function of a module of this package, which is imported now: it imports torch, and the call imports JAX."""
    from importlib import import_module

    return getattr(import_module(f"rlsdk_jax.{module}"), function)(*arguments, **settings)
