"""Checks of a user's environment before training, with advice."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, SupportsFloat, TypeVar

import attrs
import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check
from torch import Generator, Tensor

from rlsdk.environments import ConnectedEnv, GoalRules, connect
from rlsdk.errors import EnvironmentFault, MaskError, RlsdkError, message_of, raised, shown
from rlsdk.exploration import random_actions
from rlsdk.records import Features
from rlsdk.spaces import Dict, Space, choices_of, map_leaves

ResultT = TypeVar("ResultT")
HARMLESS = {
    "eterminis|random number generator|same seed": (
        "seed",
        "the environment ignores its seed; call super().reset(seed=seed) and draw random numbers from self.np_random",
    ),
    "share an object": ("observation", "it is overwritten by the next step; rlsdk copies it, other programs may not"),
}
"""Errors of gymnasium's check that do not prevent training: pattern of the message -> (topic, text) of the advice."""
MOST_GOALS = 8
"""The number of goals for which rewards are computed."""
AT_ONCE = "truncates after 1 step"
"""Gymnasium's message about episodes of one step, which can be trained in."""


@attrs.frozen
class Advice:
    """A property of an environment that works but probably impairs learning, and what to change."""

    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"


def check_env(env: object, warn: bool = True, skip_render_check: bool = True, steps: int = 300) -> list[Advice]:
    """Check an environment and play `steps` random steps of it.

    Violations of gymnasium's API, or of the spaces that the environment declares, raise an error. Properties that probably
    impair learning are returned as advice. For a vector environment there is no advice.

    Args:
        env: a gymnasium environment, or an object with the members of `rlsdk.interfaces.VectorEnv`.
        warn: also emit the advice as a UserWarning.
        skip_render_check: do not check rendering.
        steps: the number of random steps.

    Raises:
        EnvironmentFault: the environment is wrong; the message names the fault.
        UnsupportedSpaceError: rlsdk does not support its spaces.
    """
    if not isinstance(env, gymnasium.Env):
        # a vector environment of gymnasium is refused: it returns no records, and its environments are checked one by one
        if isinstance(env, gymnasium.vector.VectorEnv) or not hasattr(env, "num_envs"):
            raise EnvironmentFault(
                f"{shown(env)} is not a gymnasium.Env; derive its class from gymnasium.Env, or give it the members of"
                " rlsdk.interfaces.VectorEnv"
            )
        _play(connect(env), type(env).__name__, steps)
        return []
    watched = _Watched(env)
    vector, name = connect(watched), type(env).__name__
    # before gymnasium's check, whose errors name neither the step nor what was wrong with it
    played = _play(vector, name, steps, watched)
    advice = [
        *_about_api(env, skip_render_check),
        *_about_actions(env.action_space),
        *_about_observations(env.observation_space),
        *_about_masks(env, vector.action_space),
        *watched.advice(),
        *_about_goals(vector, name, played),
    ]
    if not played.ended and getattr(env.spec, "max_episode_steps", None) is None:
        text = f"none ended in {steps} random steps and there is no time limit; add max_episode_steps"
        advice.append(Advice("episodes", text))
    if warn:
        for item in advice:
            warnings.warn(str(item), UserWarning, stacklevel=2)
    return advice


class _Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Looks at what an environment returns before rlsdk converts it: the types of flags, and numbers for advice."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.count, self.outside, self.largest, self.ended = 0, 0, 0.0, False

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.ended = False
        result = self.env.reset(**kwargs)
        if isinstance(result, tuple) and result:
            self._see(result[0])
        return result

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        result: Any = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            got = f"{len(result)} values" if isinstance(result, tuple) else shown(result)
            wanted = "it must return (observation, reward, terminated, truncated, info)"
            raise EnvironmentFault(f"step returned {got}; {wanted}")
        observation, reward, terminated, truncated, info = result
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_):
                raise EnvironmentFault(f"{name} is {shown(value)} ({type(value).__name__}); it must be a bool")
        self.ended = bool(terminated or truncated)
        self._see(observation)
        return observation, reward, terminated, truncated, info

    def _see(self, observation: object) -> None:
        if isinstance(observation, np.ndarray) and observation.dtype.kind == "f":
            self.largest = max(self.largest, float(np.abs(observation).max(initial=0.0)))
        self.outside += not self.env.observation_space.contains(observation)
        self.count += 1

    def advice(self) -> list[Advice]:
        found = []
        if self.outside:
            text = f"{self.outside} of {self.count} observations lie outside the observation space"
            found.append(Advice("observation", text))
        if self.largest > 100.0:
            found.append(Advice("observation", f"values up to {self.largest:.3g}: normalize them to about [-1, 1]"))
        return found


@dataclass
class _RandomSteps:
    """What random steps gave: whether an episode ended, and (observation [B, ..], reward [B]) of the first steps."""

    ended: bool = False
    first: list[tuple[Features, Tensor]] = field(default_factory=list)


def _play(vector: ConnectedEnv, name: str, steps: int, watched: _Watched | None = None) -> _RandomSteps:
    """Play random steps. Every observation must fit the space, also the last one of an episode, and all numbers be finite.

    Raises:
        EnvironmentFault: a value is wrong; the message begins with `name` and the step.
    """
    generator, played = Generator().manual_seed(0), _RandomSteps()
    observation = _named(f"{name}, reset", lambda: vector.reset(0))
    for step in range(steps):
        action = random_actions(vector.action_space, vector.num_envs, observation.action_mask, generator)
        where = f"{name}, step {step}"
        try:
            taken = _named(where, lambda action=action: vector.step(action))  # type: ignore[misc]
        except EnvironmentFault as error:
            if watched is None or not watched.ended:
                raise
            cause = str(error).removeprefix(where)
            raise EnvironmentFault(f"{where}, the last observation of its episode{cause}") from error
        if not bool(taken.reward.isfinite().all()):
            raise EnvironmentFault(f"{where}: the rewards are {taken.reward.tolist()}; they must be finite")
        last, observation = taken.final_observation, taken.observation
        for kind, seen in (("observation", observation), ("final_observation", last)):
            if seen is not None:
                _require_finite(vector.observation_space, seen.features, f"{where}, {kind}")
        played.ended |= last is not None
        if len(played.first) < MOST_GOALS:
            played.first.append(((last or observation).features, taken.reward))
    return played


def _named(where: str, call: Callable[[], ResultT]) -> ResultT:
    """What the environment answers; the messages of its errors begin with the place."""
    try:
        return call()
    except (EnvironmentFault, MaskError) as error:
        raise EnvironmentFault(f"{where}: {error}") from error


def _require_finite(space: Space, features: object, where: str) -> None:
    """Raises EnvironmentFault when a number in `features`, tensors [B, ..] nested as the space, is NaN or infinite."""

    def check(path: str, _: Space, leaf: torch.Tensor) -> None:
        if not bool(leaf.isfinite().all()):
            raise EnvironmentFault(f"{path} holds NaN or infinity")

    map_leaves(space, check, features, path=where)


def _about_api(env: gymnasium.Env[object, object], skip_render_check: bool) -> list[Advice]:
    """Return the advice from gymnasium's own check. The errors in `HARMLESS` become advice.

    Raises:
        EnvironmentFault: gymnasium's check finds another error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gymnasium_check(env, skip_render_check=skip_render_check, skip_close_check=True)
    except RlsdkError:
        raise
    except Exception as error:
        message, name = message_of(error), type(env).__name__
        for pattern, (about, text) in HARMLESS.items():
            if re.search(pattern, message):
                return [Advice(about, f"{text} ({message})")]
        if AT_ONCE in message:
            return []
        if not isinstance(error, AssertionError | gymnasium.error.Error):  # of the environment's own code
            raise EnvironmentFault(f"{name} {raised(error)}") from error
        raise EnvironmentFault(f"{name} breaks gymnasium's API: {message}") from error
    return []


def _about_masks(env: gymnasium.Env[object, object], actions: Space) -> list[Advice]:
    masks = env.get_wrapper_attr("action_masks") if env.has_wrapper_attr("action_masks") else None
    if choices_of(actions) or not callable(masks) or not np.size(masks()):
        return []
    return [Advice("action masks", "a Box action has nothing to mask; `action_masks` is never called")]


def _about_actions(space: object) -> list[Advice]:
    if not isinstance(space, spaces.Box):
        return []
    found = []
    if not np.isfinite(space.low).all() or not np.isfinite(space.high).all():
        found.append(
            Advice(
                "action space",
                "it has no finite bounds; squashed policies need them: declare them, or use TransformAction",
            )
        )
    elif not (np.allclose(space.low, -space.high) and np.allclose(space.high, 1.0)):
        found.append(
            Advice("action space", f"bounds {space.low.min()} to {space.high.max()}; [-1, 1] suits Gaussian policies")
        )
    if space.dtype != np.float32:
        found.append(Advice("action space", f"dtype {space.dtype}; policies answer float32, declare it so"))
    return found


def _about_observations(space: object, path: str = "observation") -> list[Advice]:
    if isinstance(space, spaces.Dict):
        return [a for key, child in space.spaces.items() for a in _about_observations(child, f"{path}[{key!r}]")]
    if isinstance(space, spaces.Tuple):
        return [a for i, child in enumerate(space.spaces) for a in _about_observations(child, f"{path}[{i}]")]
    if not isinstance(space, spaces.Box):
        return []
    found = []
    if len(space.shape) == 3 and (space.dtype != np.uint8 or space.low.min() != 0 or space.high.max() != 255):
        found.append(Advice(path, "three dimensions, but not uint8 from 0 to 255: it will not be treated as an image"))
    if len(space.shape) == 3 and space.dtype == np.uint8 and min(sorted(space.shape)[1:]) < 36:
        found.append(Advice(path, f"image of {space.shape}: the default CNN needs 36 x 36 pixels or more"))
    if len(space.shape) == 2:
        found.append(Advice(path, f"shape {space.shape} will be flattened to a vector"))
    if space.dtype == np.float64:
        found.append(Advice(path, "float64 is stored and learned from as float32; declare float32"))
    return found


def _about_goals(vector: ConnectedEnv, name: str, played: _RandomSteps) -> list[Advice]:
    """Check that `compute_reward`, if the environment has it, gives a batch of goals the rewards that it gives single ones.

    Raises:
        EnvironmentFault: it does not; hindsight replay calls it with batches.
    """
    parts = vector.observation_space.spaces if isinstance(vector.observation_space, Dict) else {}
    goals = {"achieved_goal", "desired_goal"} <= set(parts) and played.first
    if not goals or not vector.env_method("has_wrapper_attr", "compute_reward")[0]:
        return []
    rules = GoalRules(lambda: vector)
    rows = (played.first * MOST_GOALS)[:MOST_GOALS]
    rewards = torch.cat([reward for _, reward in rows])
    achieved, goal = (_batch(parts[key], [row[key] for row, _ in rows]) for key in ("achieved_goal", "desired_goal"))
    if MOST_GOALS in goal.shape[1:]:  # the length of a goal would look like the number of rows
        achieved, goal, rewards = achieved[1:], goal[1:], rewards[1:]
    together, _ = rules.compute_reward(achieved, goal)
    alone = torch.cat([rules.compute_reward(achieved[i : i + 1], goal[i : i + 1])[0] for i in range(len(goal))])
    if not torch.allclose(together, alone):
        raise EnvironmentFault(
            f"{name}.compute_reward gives {len(goal)} stacked goals the rewards {together.tolist()}, and one by one"
            f" {alone.tolist()}; compute each row by itself, for example with axis=-1"
        )
    if not torch.allclose(together, rewards):
        return [
            Advice("goals", "compute_reward of a step's goals is not its reward: hindsight replay learns other rewards")
        ]
    return []


def _batch(space: Space, goals: list[Any]) -> Tensor:
    """Goals [1, ..] as one tensor [M, ..], as hindsight replay stores them. Raises EnvironmentFault if they are nested."""
    if not all(isinstance(goal, Tensor) for goal in goals):
        raise EnvironmentFault(
            f"goals of {space} are nested; compute_reward takes arrays, so declare a Box, or MultiBinary"
        )
    return torch.cat(goals)
