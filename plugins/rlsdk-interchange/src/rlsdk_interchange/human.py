"""Record demonstrations of a person with keys or a gamepad (needs pygame and a display)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch

from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError
from rlsdk.records import Features, Observation
from rlsdk.runtime import pip_install, print_line
from rlsdk_interchange.controls import Held, player_of
from rlsdk_interchange.recording import PlayerLeftError, record_episodes

FRAMES_PER_SECOND = 15
LEAVE = "escape"
DEAD_ZONE = 0.1
"""Sticks at rest report values up to about this."""


class Controls(Protocol):
    """A source of pressed keys, and of axes and buttons of a gamepad."""

    def held(self, picture: object) -> Held:
        """Show `picture` uint8 [H, W, 3], and return what is pressed and moved since the last picture.

        Raises:
            PlayerLeftError: the person stops playing.
        """
        ...


class Window:
    """A pygame window, with the keyboard and the first gamepad.

    The first key starts, so that a person can look at the picture before. Escape, or closing the window, stops playing.
    """

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
        self.fps, self.screen, self.pad = fps, cast("Any", None), cast("Any", None)
        self._held: dict[str, float] = {}
        try:
            pygame.display.init()  # `pygame.init` also opens sound, and fails without a sound device
        except pygame.error as error:
            raise _no_display(error) from None
        pygame.joystick.init()
        self.clock = pygame.time.Clock()

    def held(self, picture: Any) -> Held:
        pygame, starts = self.pygame, self.screen is None
        try:
            if starts:
                self.screen = pygame.display.set_mode(picture.shape[1::-1])
                pygame.display.set_caption("rlsdk: a key starts, escape stops")
        except pygame.error as error:
            raise _no_display(error) from None
        self.screen.blit(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()
        while not (held := self._pressed()) and starts:
            pass
        return held

    def _pressed(self) -> Held:
        """Wait for the time of the next picture, and return what was held meanwhile, also keys that were released again."""
        self.clock.tick(self.fps)
        tapped: dict[str, float] = {}
        for event in self.pygame.event.get():
            self._note(event)
            tapped |= {name: 1.0 for name in self._held if not name.startswith(("axis", "trigger"))}
        if LEAVE in tapped:
            self.pygame.quit()
            raise PlayerLeftError
        return {**tapped, **self._held}

    def _note(self, event: Any) -> None:
        """Change what is held by one event of pygame."""
        pygame, kind = self.pygame, event.type
        if kind == pygame.QUIT:
            self._held[LEAVE] = 1.0
        elif kind in (pygame.KEYDOWN, pygame.KEYUP):
            self._hold(pygame.key.name(event.key), float(kind == pygame.KEYDOWN))
        elif kind in (pygame.JOYBUTTONDOWN, pygame.JOYBUTTONUP):
            self._hold(f"button{event.button}", float(kind == pygame.JOYBUTTONDOWN))
        elif kind == pygame.JOYHATMOTION:
            for name, amount in zip(("right", "up"), event.value, strict=True):
                self._hold(f"hat-{name}", max(amount, 0))
                self._hold(f"hat-{'left' if name == 'right' else 'down'}", max(-amount, 0))
        elif kind == pygame.JOYAXISMOTION:
            value = min(max(float(event.value), -1.0), 1.0)
            moved = 0.0 if abs(value) < DEAD_ZONE else value
            for suffix, amount in (("", moved), ("+", max(moved, 0.0)), ("-", max(-moved, 0.0))):
                self._hold(f"axis{event.axis}{suffix}", amount)
            self._hold(f"trigger{event.axis}", (value + 1) / 2)  # rests at -1, and is absent until it moves
        elif kind == pygame.JOYDEVICEADDED and self.pad is None:
            self.pad = pygame.joystick.Joystick(event.device_index)  # pygame reports an open gamepad only
        elif kind == pygame.JOYDEVICEREMOVED and self.pad is not None:
            self.pad, self._held = None, {}

    def _hold(self, name: str, amount: float) -> None:
        if amount:
            self._held[name] = amount
        else:
            self._held.pop(name, None)


def _no_display(error: Exception) -> SettingsError:
    return SettingsError(f"--human needs a display: {error}; record an agent or --random instead")


def record_human(
    env: str,
    n_episodes: int,
    path: str | Path,
    *,
    controls: Controls | None = None,
    actions: Mapping[str, int | str] | None = None,
    seed: int | None = None,
) -> Path:
    """Record episodes that a person plays to a data set, and return its path.

    If the person stops earlier, the complete episodes are stored.

    Args:
        env: id of an environment with Discrete or Box actions that renders images.
        n_episodes: number of episodes.
        path: the file, as for `record_episodes`.
        controls: the source of pressed keys; None opens a window of pygame, and prints what the keys do.
        actions: control -> action of a Discrete space, or what it moves in a Box space, as docs/datasets.md explains; "none"
            is the action while nothing else is held. None: the keys that the environment declares, else digits; for a Box
            pairs of keys and the sticks of a gamepad.
        seed: seed of the first reset.

    Raises:
        SettingsError: there is no display, actions are of another space, an action or key does not exist, or no episode was
            completed.
        EnvironmentFault: the environment renders no image.
    """
    envs = make_vec_env(env, 1, env_kwargs={"render_mode": "rgb_array"}, vectorization="sync")
    try:
        player, table = player_of(envs.action_space, actions or {}, _declared(envs))
        source = controls or Window()
        if controls is None:
            print_line(f"keys: {table}; the first key starts, escape stops")

        def act(observation: Observation) -> Features:
            held = source.held(_picture(envs))
            return torch.from_numpy(player(held, bool(observation.is_first[0])))

        return record_episodes(act, envs, n_episodes, path, seed=seed)
    finally:
        envs.close()


def _picture(envs: Any) -> Any:
    """Return the rendered frame, uint8 [H, W, 3]."""
    image = np.asarray(envs.env_method("render")[0])
    if image.ndim != 3 or image.dtype != np.uint8:
        raise EnvironmentFault(f"environment {envs.name!r} draws no uint8 image with render_mode='rgb_array'")
    return image


def _declared(envs: Any) -> dict[str, int]:
    """Return the single keys that an environment declares in `get_keys_to_action`, as gymnasium's `play` reads them.

    Actions that are arrays, as those of a Box space, are left out.
    """
    try:
        combinations = envs.env_method("get_keys_to_action")[0]
    except RlsdkError:
        return {}
    single = {_single(keys): action for keys, action in combinations.items() if len(keys) <= 1}
    return {key: int(action) for key, action in single.items() if np.ndim(action) == 0}


def _single(combination: Any) -> str:
    """Return the name of the only key of a combination; `none` for an empty combination."""
    if not combination:
        return "none"
    text = combination[0] if isinstance(combination[0], str) else chr(combination[0])
    return "space" if text == " " else text
