"""Atari games with the usual preprocessing: `rlsdk/AtariBreakout-v4` and its like, for every game that ale-py brings.

Up to 30 idle frames at the start, every fourth frame, the maximum of the last two, grey, 84 x 84 (Mnih et al. 2015,
doi:10.1038/nature14236); the button that starts the game is pressed. Actions do not stick, as in `NoFrameskip-v4` of old.
Rewards are the game's, and episodes end with the game, not with a life (Machado et al. 2018, arXiv:1709.06009): what is
evaluated is the score. `normalize = { norm_obs = false, norm_reward = false, sign_reward = true }` learns from signs alone.
"""

from __future__ import annotations

from typing import Any, Protocol, SupportsFloat, SupportsInt, runtime_checkable

import gymnasium
import numpy as np

FIRE = 1
"""The action of that name, where a game has it."""


def require_games() -> None:
    """Raises gymnasium.error.DependencyNotInstalled when ale-py or OpenCV is missing; makes ale-py's games known otherwise."""
    try:
        import ale_py
        import cv2  # noqa: F401  # gymnasium's own message is less clear
    except ImportError as error:
        raise gymnasium.error.DependencyNotInstalled(f"pip install rlsdk[atari] ({error})") from None
    gymnasium.register_envs(ale_py)


class AtariWrapper(gymnasium.Wrapper[object, object, object, object]):
    """The documented preprocessing, put together from gymnasium's wrappers: idle frames, every fourth frame, the maximum of
    two, 84 x 84 grey, uint8 [84, 84, 1]; FIRE where a game waits for it; a lost life ends an episode, rewards are signs."""

    def __init__(  # noqa: PLR0913  # the documented signature
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
            env = PressToStart(env)
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
    """Ends an episode with each life; the next one continues in the same game, which begins again after the last life."""

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
    """The game of this name, such as `Breakout`; `kwargs` are ale-py's.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py or OpenCV is missing.
    """
    require_games()
    own = {"frameskip": 1, "repeat_action_probability": 0.0}
    env = gymnasium.make(f"ALE/{game}-v5", **{**own, **kwargs})
    screen = gymnasium.wrappers.AtariPreprocessing(env, grayscale_newaxis=True)
    return PressToStart(screen) if _waits_for_fire(screen) else screen


class PressToStart(gymnasium.Wrapper[object, object, object, object]):
    """Presses FIRE once at the start of a game and of each life, without which many games wait."""

    def reset(self, **kwargs: Any) -> tuple[object, dict[str, object]]:
        self.env.reset(**kwargs)
        observation, _, terminated, truncated, info = self.env.step(FIRE)
        if terminated or truncated:  # a game that is lost by it
            observation, info = self.env.reset()
        self.lives = _lives(info)
        return observation, info

    def step(self, action: object) -> tuple[object, SupportsFloat, bool, bool, dict[str, object]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lost = _lives(info) < self.lives
        self.lives = _lives(info)
        if lost and not (terminated or truncated):
            observation, more, terminated, truncated, info = self.env.step(FIRE)
            reward = float(reward) + float(more)
        return observation, reward, terminated, truncated, info
