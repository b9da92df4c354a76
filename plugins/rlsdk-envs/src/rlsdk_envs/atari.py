"""Atari games with the usual preprocessing: ids such as `rlsdk/AtariBreakout-v4`, for every game of ale-py.

An episode begins with up to 30 frames of no-op actions, and the action FIRE where a game needs it to start. Each action is
repeated for four frames. An observation is the maximum of the last two frames, gray, 84 x 84 pixels (Mnih et al. 2015,
doi:10.1038/nature14236). There are no sticky actions, as in the earlier ids `...NoFrameskip-v4`.
Rewards are those of the game, and an episode ends with the game, not with a life (Machado et al. 2018, arXiv:1709.06009).
So evaluations report the score. Agents with `normalize = { norm_obs = false, norm_reward = false, sign_reward = true }` learn
from the signs of rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, SupportsInt, runtime_checkable

import gymnasium
import numpy as np

from rlsdk.environments import ConnectedEnv, make_vec_env
from rlsdk.runtime import pip_install

FIRE = 1
"""The number of the action FIRE in games that have it."""
SECOND = 2
"""The action after FIRE: UP in games with all actions. stable-baselines3 takes it, because some games wait for it."""


def require_games() -> None:
    """Register the games of ale-py with gymnasium.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py or OpenCV is missing.
    """
    try:
        import ale_py
        import cv2  # noqa: F401  # gymnasium's own message is less clear
    except ImportError as error:
        raise gymnasium.error.DependencyNotInstalled(f"{pip_install('rlsdk-envs[atari]')} ({error})") from None
    gymnasium.register_envs(ale_py)


class AtariWrapper(gymnasium.Wrapper[object, object, object, object]):
    """The preprocessing of stable-baselines3's `AtariWrapper`, made of wrappers of gymnasium.

    By default, an episode begins with up to 30 frames of no-op actions. In games with the action FIRE, FIRE and the action with
    number 2 (UP, if the game has all actions) follow. Each action is repeated for four frames. An observation is the maximum of
    the last two frames, gray, uint8 [84, 84, 1]. A lost life ends an episode, and rewards are replaced by their signs.
    """

    def __init__(  # noqa: PLR0913  # the signature of stable-baselines3
        self,
        env: gymnasium.Env[object, object],
        noop_max: int = 30,
        frame_skip: int = 4,
        screen_size: int = 84,
        terminal_on_life_loss: bool = True,
        clip_reward: bool = True,
        action_repeat_probability: float = 0.0,
    ) -> None:
        wrappers = gymnasium.wrappers
        if action_repeat_probability > 0.0:
            env = wrappers.StickyAction(env, action_repeat_probability)
        env = wrappers.AtariPreprocessing(env, noop_max, frame_skip, screen_size, grayscale_newaxis=True)
        if terminal_on_life_loss:
            env = EpisodicLife(env)
        if _waits_for_fire(env):
            env = PressToStart(env, (FIRE, SECOND) if SECOND in env.action_space else (FIRE,))
        super().__init__(
            wrappers.TransformReward(env, lambda reward: float(np.sign(float(reward)))) if clip_reward else env
        )


@runtime_checkable
class HasActionMeanings(Protocol):
    """A game that names its actions."""

    def get_action_meanings(self) -> list[str]: ...


def _waits_for_fire(env: gymnasium.Env[object, object]) -> bool:
    game = env.unwrapped
    return isinstance(game, HasActionMeanings) and "FIRE" in game.get_action_meanings()


def _lives(info: dict[str, object]) -> int:
    lives = info.get("lives")
    return int(lives) if isinstance(lives, SupportsInt) else 0


class EpisodicLife(gymnasium.Wrapper[object, object, object, object]):
    """Ends an episode with each lost life. The next episode continues the same game; after the last life a new game begins."""

    lives, over = 0, True

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        observation: object = None
        info: dict[str, object] = {}
        if not self.over:
            observation, _, terminated, truncated, info = self.env.step(0)  # the action that does nothing
            self.over = terminated or truncated
        if self.over or kwargs.get("seed") is not None:
            observation, info = self.env.reset(**kwargs)
        self.lives, self.over = _lives(info), False
        return observation, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.over = terminated or truncated
        lost, self.lives = _lives(info) < self.lives, _lives(info)
        return observation, reward, bool(terminated or lost), truncated, info


def atari_game(game: str, **kwargs: Any) -> gymnasium.Env[object, object]:
    """The preprocessed Atari game `game`, such as `Breakout`. `kwargs` are arguments of ale-py's environment.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py or OpenCV is missing.
    """
    require_games()
    own = {"frameskip": 1, "repeat_action_probability": 0.0}
    env = gymnasium.make(f"ALE/{game}-v5", **{**own, **kwargs})
    screen = gymnasium.wrappers.AtariPreprocessing(env, grayscale_newaxis=True)
    return PressToStart(screen) if _waits_for_fire(screen) else screen


class PressToStart(gymnasium.Wrapper[object, object, object, object]):
    """Takes `actions`, by default FIRE, once at the start of a game and of each life. Many games wait for it."""

    def __init__(self, env: gymnasium.Env[object, object], actions: tuple[int, ...] = (FIRE,)) -> None:
        super().__init__(env)
        self.actions = actions

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        observation, info = self.env.reset(**kwargs)
        for action in self.actions:
            observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:  # the action ended the game
                observation, info = self.env.reset()
        self.lives = _lives(info)
        return observation, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lost = _lives(info) < self.lives
        self.lives = _lives(info)
        for start in self.actions if lost else ():
            if not (terminated or truncated):
                observation, more, terminated, truncated, info = self.env.step(start)
                reward = float(reward) + float(more)
        return observation, reward, terminated, truncated, info


def make_atari_env(  # the signature of stable-baselines3
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    *,
    monitor_dir: str | Path | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    **more: Any,
) -> ConnectedEnv:
    """`n_envs` copies of an Atari game, each inside `AtariWrapper`, made by `make_vec_env`.

    Args:
        env_id: gymnasium id of ale-py, such as `ALE/Breakout-v5` or `BreakoutNoFrameskip-v4`. The wrapper skips frames, not
            the game.
        n_envs: number of copies.
        seed: seed of the first reset that gets no seed.
        monitor_dir: folder for one monitor file per copy.
        wrapper_kwargs: arguments of `AtariWrapper`.
        env_kwargs: arguments of `gymnasium.make`.
        more: further arguments of `make_vec_env`, such as `vectorization`.

    Raises:
        SettingsError: an argument is unknown. EnvironmentFault: there is no such game, or ale-py or OpenCV is missing.
    """

    def make() -> AtariWrapper:
        require_games()
        return AtariWrapper(gymnasium.make(env_id, **{"frameskip": 1, **(env_kwargs or {})}), **(wrapper_kwargs or {}))

    return make_vec_env(make, n_envs, seed, monitor_dir=monitor_dir, **more)
