"""Record demonstrations of a person at the keyboard (needs pygame and a display)."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch

from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError
from rlsdk.records import Features, Observation
from rlsdk.runtime import pip_install
from rlsdk.spaces import Discrete
from rlsdk_interchange.recording import PlayerLeftError, record_episodes

FRAMES_PER_SECOND = 15
LEAVE = "escape"


class Keys(Protocol):
    """A source of pressed keys."""

    def held(self, picture: object) -> Collection[str]:
        """Show `picture` uint8 [H, W, 3], and return the names of the keys that are pressed.

        Raises:
            PlayerLeftError: the person stops playing.
        """
        ...


class PygameKeys:
    """A pygame window. Escape, or closing the window, stops playing."""

    def __init__(self, fps: float = FRAMES_PER_SECOND) -> None:
        """Prepare the display, for `fps` pictures per second. Raises SettingsError if pygame or a display is missing."""
        try:
            import pygame
        except ImportError:
            raise SettingsError(f"--human needs pygame: {pip_install('pygame')}") from None
        shown = {"DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"} & set(os.environ)
        if sys.platform.startswith("linux") and not shown:
            raise SettingsError(
                "--human needs a display, and this machine has none; record an agent or --random instead"
            )
        self.pygame: Any = pygame
        self.fps, self.screen = fps, cast("Any", None)
        try:
            pygame.display.init()  # `pygame.init` also opens sound, and fails without a sound device
        except pygame.error as error:
            raise _no_display(error) from None
        self.clock = pygame.time.Clock()

    def held(self, picture: Any) -> Collection[str]:
        pygame = self.pygame
        try:
            if self.screen is None:
                self.screen = pygame.display.set_mode(picture.shape[1::-1])
        except pygame.error as error:
            raise _no_display(error) from None
        self.screen.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        self.clock.tick(self.fps)
        closed = any(event.type == pygame.QUIT for event in pygame.event.get())
        pressed = pygame.key.get_pressed()
        names = {name for name in NAMES if pressed[pygame.key.key_code(name)]}
        if closed or LEAVE in names:
            pygame.quit()
            raise PlayerLeftError
        return names


def _no_display(error: Exception) -> SettingsError:
    return SettingsError(f"--human needs a display: {error}; record an agent or --random instead")


NAMES = ("left", "right", "up", "down", "space", "return", LEAVE, *"abcdefghijklmnopqrstuvwxyz0123456789")


def record_human(
    env: str,
    n_episodes: int,
    path: str | Path,
    *,
    keys: Keys | None = None,
    actions: Mapping[str, int] | None = None,
    seed: int | None = None,
) -> Path:
    """Record episodes that a person plays to a data set, and return its path.

    If the person stops earlier, the complete episodes are stored.

    Args:
        env: id of an environment with Discrete actions that renders images.
        n_episodes: number of episodes.
        path: the file, as for `record_episodes`.
        keys: the source of pressed keys; None opens a window of pygame.
        actions: key -> action; "none" is the action while no other key is pressed. None: the keys that the environment
            declares, else digits.
        seed: seed of the first reset.

    Raises:
        SettingsError: there is no display, actions are not Discrete, an action or key does not exist, or no episode was
            completed.
        EnvironmentFault: the environment renders no image.
    """
    source = keys or PygameKeys()
    envs = make_vec_env(env, 1, env_kwargs={"render_mode": "rgb_array"}, vectorization="sync")
    try:
        table = _actions_of(envs, actions or {})
        none = table.get("none", min(table.values()))

        def act(observation: Observation) -> Features:
            held = source.held(_picture(envs))
            return torch.tensor([next((action for key, action in table.items() if key in held), none)])

        return record_episodes(act, envs, n_episodes, path, seed=seed)
    finally:
        envs.close()


def _picture(envs: Any) -> Any:
    """Return the rendered frame, uint8 [H, W, 3]."""
    image = np.asarray(envs.env_method("render")[0])
    if image.ndim != 3 or image.dtype != np.uint8:
        raise EnvironmentFault(f"environment {envs.name!r} draws no uint8 image with render_mode='rgb_array'")
    return image


def _actions_of(envs: Any, given: Mapping[str, int]) -> dict[str, int]:
    """Return key -> action: the given ones, else those that the environment declares, else digits.

    Raises:
        SettingsError: actions are not Discrete, or an action or key does not exist.
    """
    space = envs.action_space
    if not isinstance(space, Discrete):
        raise SettingsError(f"--human plays Discrete actions, this environment has {space}; record an agent")
    last = space.start + space.n - 1
    for key, action in given.items():
        if not space.start <= action <= last:
            raise SettingsError(f"--keys {key}={action}: the environment has the actions {space.start} to {last}")
        if key not in (*NAMES, "none") or key == LEAVE:
            raise SettingsError(f"--keys {key}={action}: keys are {', '.join(NAMES[:6])}, a to z, 0 to 9, and none")
    return dict(given) or _declared(envs) or {str(at): space.start + at for at in range(min(10, space.n))}


def _declared(envs: Any) -> dict[str, int]:
    """Return the single keys that an environment declares in `get_keys_to_action`, as gymnasium's `play` reads them."""
    try:
        combinations = envs.env_method("get_keys_to_action")[0]
    except RlsdkError:
        return {}
    return {_single(keys): int(action) for keys, action in combinations.items() if len(keys) <= 1}


def _single(combination: Any) -> str:
    """Return the name of the only key of a combination; `none` for an empty combination."""
    if not combination:
        return "none"
    text = combination[0] if isinstance(combination[0], str) else chr(combination[0])
    return "space" if text == " " else text
