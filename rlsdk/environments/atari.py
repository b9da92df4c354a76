"""Atari games with the usual preprocessing: `rlsdk/AtariBreakout-v4` and its like, for every game that ale-py brings.

Up to 30 idle frames at the start, every fourth frame, the maximum of the last two, grey, 84 x 84 (Mnih et al. 2015,
doi:10.1038/nature14236); the button that starts the game is pressed. Actions do not stick, as in `NoFrameskip-v4` of old.
Rewards are the game's, and episodes end with the game, not with a life (Machado et al. 2018, arXiv:1709.06009): what is
evaluated is the score. `normalize = { norm_obs = false, norm_reward = false, sign_reward = true }` learns from signs alone.
"""

from __future__ import annotations

from typing import Any

import gymnasium

FIRE = 1
"""The action of that name, where a game has it."""


def atari_game(game: str, **kwargs: Any) -> Any:
    """The game of this name, such as `Breakout`; `kwargs` are ale-py's.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py or OpenCV is missing.
    """
    try:
        import ale_py
        import cv2  # noqa: F401  # the wrapper below says less clearly that it is missing
    except ImportError as error:
        raise gymnasium.error.DependencyNotInstalled(f"pip install rlsdk[atari] ({error})") from None
    gymnasium.register_envs(ale_py)
    own = {"frameskip": 1, "repeat_action_probability": 0.0}
    env = gymnasium.make(f"ALE/{game}-v5", **{**own, **kwargs})
    screen: Any = gymnasium.wrappers.AtariPreprocessing(env, grayscale_newaxis=True)
    return PressToStart(screen) if "FIRE" in screen.unwrapped.get_action_meanings() else screen


class PressToStart(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE once at the start of a game and of each life, without which many games wait."""

    def reset(self, **kwargs: Any) -> Any:
        self.env.reset(**kwargs)
        observation, _, terminated, truncated, told = self.env.step(FIRE)
        if terminated or truncated:  # a game that is lost by it
            observation, told = self.env.reset()
        self.lives = told["lives"]
        return observation, told

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lost = info["lives"] < self.lives
        self.lives = info["lives"]
        if lost and not (terminated or truncated):
            observation, more, terminated, truncated, info = self.env.step(FIRE)
            reward = float(reward) + float(more)
        return observation, reward, terminated, truncated, info
