"""Checks of a user's environment before training, with advice."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check

from rlsdk.environments.adapters.checks import (
    FLAGS,
    STEP,
    Indices,
    by_caller,
    call_of,
    mended_by,
    number,
    require_info,
    spec_of,
    success,
)
from rlsdk.environments.adapters.masks import GoalRules, MaskRule, mask_methods
from rlsdk.environments.adapters.observations import stack, to_actions, to_gymnasium, to_space
from rlsdk.environments.vector.connected import missing_members, seed_spaces
from rlsdk.environments.vector.custom_vector import CustomVectorEnv
from rlsdk.errors import EnvironmentFault, MaskError, ObservationError, RlsdkError, message_of, raised, shown
from rlsdk.spaces import Dict, Space, map_leaves

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
"""Gymnasium's message about episodes of one step, which can be trained in, and flags of numpy, which `_play` looks at."""


@attrs.frozen
class Advice:
    """A property of an environment that works but probably impairs learning, and what to change."""

    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"


def check_env(env: Any, warn: bool = True, skip_render_check: bool = True, steps: int = 300) -> list[Advice]:
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
        return _check_vector(env, steps)
    about_api, pair = _about_api(env, skip_render_check)
    advice = [
        *about_api,
        *_about_actions(env.action_space),
        *_about_observations(env.observation_space),
        *_about_masks(env, pair[1]),
        *_play(env, pair[0], steps),
    ]
    if warn:
        for item in advice:
            warnings.warn(str(item), UserWarning, stacklevel=2)
    return advice


def _check_vector(env: Any, steps: int) -> list[Advice]:
    """Play `steps` random vector steps of an object with the members of `rlsdk.interfaces.VectorEnv`. Returns no advice."""
    if len(missing_members(env)) > 3 or isinstance(env, gymnasium.vector.VectorEnv):
        raise EnvironmentFault(
            f"{shown(env)} is not a gymnasium.Env; derive its class from gymnasium.Env, or give it the members of"
            " rlsdk.interfaces.VectorEnv"
        )
    vector = CustomVectorEnv(env)
    actions = to_gymnasium(vector.action_space)
    actions.seed(0)
    vector.reset(0)
    for step in range(steps):
        given = [actions.sample() for _ in range(vector.num_envs)]
        taken = vector.step(to_actions(vector.action_space, given, vector.num_envs))
        if not bool(taken.reward.isfinite().all()):
            raise EnvironmentFault(
                f"{vector.name}, step {step}: the rewards are {taken.reward.tolist()}; they must be finite"
            )
        for name in ("observation", "final_observation"):
            if (seen := getattr(taken, name)) is not None:
                _require_finite(vector.observation_space, seen.features, f"{vector.name}, step {step}, {name}")
    return []


def _require_finite(space: Space, features: object, where: str) -> None:
    """Raises EnvironmentFault when a number in `features`, tensors [B, ..] nested as the space, is NaN or infinite."""

    def check(path: str, _: Space, leaf: torch.Tensor) -> None:
        if not bool(leaf.isfinite().all()):
            raise EnvironmentFault(f"{path} holds NaN or infinity")

    map_leaves(space, check, features, path=where)


def _about_api(env: gymnasium.Env[object, object], skip_render_check: bool) -> tuple[list[Advice], tuple[Space, Space]]:
    """(advice, (observation space, action space)) from gymnasium's own check. The errors in `HARMLESS` become advice.

    Raises:
        EnvironmentFault: gymnasium's check finds another error.
    """
    try:
        pair = to_space(env.observation_space, "observation"), to_space(env.action_space, "action")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gymnasium_check(env, skip_render_check=skip_render_check, skip_close_check=True)
    except RlsdkError:
        raise
    except Exception as error:
        message = message_of(error)
        for pattern, (about, text) in HARMLESS.items():
            if re.search(pattern, message):
                return [Advice(about, f"{text} ({message})")], pair
        if AT_ONCE in message:
            return [], pair
        if not by_caller(error):
            raise EnvironmentFault(f"{type(env).__name__} {raised(error)}") from error
        raise EnvironmentFault(f"{type(env).__name__} breaks gymnasium's API: {message}{mended_by(error)}") from error
    return [], pair


def _about_masks(env: gymnasium.Env[object, object], actions: Space) -> list[Advice]:
    """Check that an action mask has the length of the action space and allows at least one value of every choice."""
    methods, rule = mask_methods([env]), MaskRule(actions)
    if methods is None:
        return []
    name = type(env).__name__
    _asked(f"{name}.reset", lambda: env.reset(seed=0))
    mask = _asked(f"{name}.action_masks", methods[0])
    if not rule.size:
        return (
            []
            if not np.asarray(mask).size
            else [Advice("action masks", "a Box action has nothing to mask; `action_masks` is never called")]
        )
    try:
        rule.require_choice(rule.row(mask)[None])
    except MaskError as error:
        raise EnvironmentFault(f"{name}.action_masks: {error}") from None
    return []


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
        found.append(Advice(path, "float64 is stored and learnt from as float32; declare float32"))
    return found


class _Seen:
    """All observations of a check. Each must fit the space; they are counted and measured for advice."""

    def __init__(self, env: gymnasium.Env[object, object], space: Space) -> None:
        self.env, self.space = env, space
        self.count, self.outside, self.largest = 0, 0, 0.0

    def __call__(self, observation: object, when: str) -> None:
        """Raises EnvironmentFault when the observation does not fit the space; `when` is its place in the message."""
        try:
            stack(self.space, [observation])
        except ObservationError as error:
            raise EnvironmentFault(f"{type(self.env).__name__}, {when}: {error}") from None
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
            found.append(Advice("observation", f"values up to {self.largest:.3g}: normalise them to about [-1, 1]"))
        return found


def _play(env: gymnasium.Env[object, object], space: Space, steps: int) -> list[Advice]:
    """Play random steps. Every observation must fit the space, also the last one of an episode, and rewards of goals must be
    those of batches. Advice is given on endless episodes and on large numbers."""
    reset, seen, ended = f"{type(env).__name__}.reset", _Seen(env, space), 0
    goals = list[tuple[Any, float]]()
    seed_spaces(env, 0)
    observation, _ = _asked(reset, lambda: env.reset(seed=0))
    seen(observation, "reset")
    for step in range(steps):
        observation, reward, over = _step(env, step)
        seen(observation, f"step {step}{', the last observation of its episode' * over}")
        if len(goals) < MOST_GOALS:
            goals.append((observation, reward))
        if over:
            ended += 1
            observation, _ = _asked(reset, env.reset)
            seen(observation, f"the reset after step {step}")
    found = [*seen.advice(), *_about_goals(env, space, goals)]
    if not ended and _unlimited(env):
        text = f"none ended in {steps} random steps and there is no time limit; add max_episode_steps"
        found.append(Advice("episodes", text))
    return found


def _batch(space: Space, goals: list[object]) -> torch.Tensor:
    """Goals as one tensor [M, ..], as hindsight replay stores them. Raises EnvironmentFault if they are nested."""
    found = stack(space, goals)
    if not isinstance(found, torch.Tensor):
        raise EnvironmentFault(
            f"goals of {space} are nested; compute_reward takes arrays, so declare a Box, or MultiBinary"
        )
    return found


class _One:
    """An environment, as `GoalRules` calls it."""

    def __init__(self, env: gymnasium.Env[object, object]) -> None:
        self.env, self.name = env, type(env).__name__

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        return [call_of(self.env, name, args, kwargs)]


def _about_goals(env: gymnasium.Env[object, object], space: Space, steps: Sequence[tuple[Any, float]]) -> list[Advice]:
    """Check that `compute_reward`, if the environment has it, gives a batch of goals the rewards that it gives single ones.

    `steps`: (observation, reward) of some steps.

    Raises:
        EnvironmentFault: it does not; hindsight replay calls it with batches.
    """
    parts = space.spaces if isinstance(space, Dict) else {}
    if not {"achieved_goal", "desired_goal"} <= set(parts) or not env.has_wrapper_attr("compute_reward") or not steps:
        return []
    rules = GoalRules(lambda: _One(env))
    rows, rewards = zip(*(list(steps) * MOST_GOALS)[:MOST_GOALS], strict=True)
    achieved, goal = (_batch(parts[name], [row[name] for row in rows]) for name in ("achieved_goal", "desired_goal"))
    if MOST_GOALS in goal.shape[1:]:  # the length of a goal would look like the number of rows
        achieved, goal, rewards = achieved[1:], goal[1:], rewards[1:]
    together, _ = rules.compute_reward(achieved, goal)
    alone = torch.cat([rules.compute_reward(achieved[i : i + 1], goal[i : i + 1])[0] for i in range(len(goal))])
    if not torch.allclose(together, alone):
        raise EnvironmentFault(
            f"{type(env).__name__}.compute_reward gives {len(goal)} stacked goals the rewards {together.tolist()}, and one by"
            f" one {alone.tolist()}; compute each row by itself, for example with axis=-1"
        )
    if not torch.allclose(together, torch.tensor(rewards)):
        return [
            Advice("goals", "compute_reward of a step's goals is not its reward: hindsight replay learns other rewards")
        ]
    return []


def _step(env: gymnasium.Env[object, object], step: int) -> tuple[Any, float, bool]:
    """(observation, reward, whether the episode is over) after a random step.

    Raises:
        EnvironmentFault: a returned value is not what gymnasium's API requires; the message names it.
    """
    where = f"{type(env).__name__}, step {step}"
    result: object = _asked(where, lambda: env.step(env.action_space.sample()))
    if not isinstance(result, tuple) or len(result) != 5:
        raise EnvironmentFault(f"{where}: {STEP}")
    observation, reward, terminated, truncated, info = result
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if type(value) not in FLAGS:
            raise EnvironmentFault(f"{where}: {name} is {shown(value)} ({type(value).__name__}); it must be a bool")
    try:
        require_info(info)
        success(info)
        given = number(reward)
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{where} {error}") from None
    if not np.isfinite(given):
        raise EnvironmentFault(f"{where}: the reward is {reward}; it must be finite")
    return observation, given, bool(terminated or truncated)


def _asked(where: str, call: Callable[[], ResultT]) -> ResultT:
    """What the environment answers; its errors name the place."""
    try:
        return call()
    except RlsdkError:
        raise
    except Exception as error:
        raise EnvironmentFault(f"{where} {raised(error)}{mended_by(error)}") from error


def _unlimited(env: gymnasium.Env[object, object]) -> bool:
    spec = spec_of(env)
    return spec is None or spec.max_episode_steps is None
