"""Record episodes to a data set: of an agent, of random actions, or of a function that chooses actions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Generator

from rlsdk.environments import Waiting, connect, make_vec_env, warn_of_statistics
from rlsdk.errors import RlsdkError, SettingsError, UsageError, raised
from rlsdk.exploration import random_actions
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Features, Observation
from rlsdk.runtime import checked_seed, limited_threads
from rlsdk.spaces import Space
from rlsdk_datasets import RecordedEpisode, require_place, write_episodes
from rlsdk_interchange.recorder import Recorder

if TYPE_CHECKING:
    from rlsdk.agent import Agent

ActsOn = Callable[[Observation], Features]
"""Function from B observations to actions [B, ..] in environment units, both on the CPU. Actions may also be numpy arrays."""


class PlayerLeftError(Exception):
    """An `ActsOn` raises it to end the recording. The unfinished episode is not recorded."""


def record_episodes(
    model: Agent | ActsOn | Literal["random"],
    env: object,
    n_episodes: int,
    path: str | Path,
    *,
    deterministic: bool = False,
    seed: int | None = None,
) -> Path:
    """Run `n_episodes` episodes, write them to a data set, and return its path.

    The data of the environment is recorded unchanged: observations before normalization and stacking, true rewards, action
    masks, terminations and truncations. Actions are clipped to their bounds. The random streams of the agent do not change.

    Args:
        model: an agent, "random" for uniformly sampled actions (only those that are allowed), or a function of observations.
        env: anything that `learn` accepts, with the spaces of the agent, but not the training environment.
        n_episodes: number of episodes over all environments. Each environment runs an equal share.
        path: the file; `.safetensors` is appended to a name without suffix. The file is replaced atomically, at the end.
        deterministic: use the mode of the policy instead of samples.
        seed: seed of the first resets and of sampled actions. Each environment derives its own seed from it. The first episode
            of each environment stores that seed: a reset with it returns the same first observation.

    Raises:
        SettingsError: `n_episodes` is not positive.
        UsageError: the function that acts raises an error.
        UnsupportedSpaceError: the environment has other spaces than the agent.
        EnvironmentFault: an episode does not end.
        ArtifactError: the file cannot be written.
    """
    if isinstance(n_episodes, bool) or not isinstance(n_episodes, int) or n_episodes < 1:
        raise SettingsError(f"n_episodes = {n_episodes!r} must be a positive whole number")
    require_place(path)
    envs = connect(env)
    warn_of_statistics(envs, "the recorded environment")
    act = _acting(model, envs, deterministic=deterministic, seed=seed)
    with limited_threads(1):
        episodes = _played(act, envs, n_episodes, seed)
    name = env if isinstance(env, str) else envs.env_id
    return write_episodes(
        path, episodes, envs.observation_space, envs.action_space, name if isinstance(name, str) else None
    )


def record_in(
    model: Agent | Literal["random"],
    env: str,
    n_episodes: int,
    path: str | Path,
    n_envs: int = 1,
    **how: Any,
) -> Path:
    """Call `record_episodes` with `n_envs` environments with the id `env`. `how` contains its further arguments."""
    envs = make_vec_env(env, n_envs)
    try:
        return record_episodes(model, envs, n_episodes, path, **how)
    finally:
        envs.close()


def _acting(
    model: Agent | ActsOn | Literal["random"], envs: VectorEnv, *, deterministic: bool, seed: int | None
) -> ActsOn:
    if model == "random":
        return random_player(envs.action_space, _seeded(seed))
    agent: Any = model
    if hasattr(agent, "require_same_spaces"):
        agent.require_same_spaces(envs, "the environment to record")
        agent.masks.check_environment(envs)
        acts: ActsOn = agent.session(envs.num_envs, deterministic=deterministic, seed=seed).action_on
        return acts
    if not callable(agent):
        raise SettingsError(f"{agent!r} cannot act; give an agent, 'random' or a function of observations")
    return _checked(agent)


def _checked(rule: Callable[[Observation], object]) -> ActsOn:
    """Return a user's function with arrays as actions too; errors are UsageErrors that name its argument and result."""

    def act(observation: Observation) -> Any:
        try:
            action = rule(observation)
        except (PlayerLeftError, RlsdkError):
            raise
        except Exception as error:
            raise UsageError(
                f"the function that acts {raised(error)}; it gets an Observation, whose features are a tensor [B, ..] for"
                " B environments, and returns actions [B, ..]: lambda observation: (observation.features[:, 0] > 0).long()"
            ) from error
        return torch.as_tensor(action) if isinstance(action, np.ndarray) else action

    return act


def random_player(space: Space, generator: Generator) -> ActsOn:
    """Return a function that samples actions uniformly, only those that the mask allows."""

    def act(observation: Observation) -> Features:
        return random_actions(space, len(observation.is_first), observation.action_mask, generator)

    return act


def _seeded(seed: int | None) -> Generator:
    """Return a generator with `seed`; None takes a seed from the operating system."""
    generator = Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(checked_seed(seed))
    return generator


def _played(act: ActsOn, envs: VectorEnv, count: int, seed: int | None) -> list[RecordedEpisode]:
    """Return `count` episodes in the order in which they ended; fewer if `act` raises PlayerLeftError.

    Raises:
        SettingsError: it was raised before an episode was completed.
    """
    quota = [(count + i) // envs.num_envs for i in range(envs.num_envs)]
    observation = envs.reset(seed)
    recorder = Recorder(observation, envs.action_space, getattr(envs, "reset_seeds", ()))
    episodes, waiting = list[RecordedEpisode](), Waiting(envs)
    try:
        while any(quota):
            action = act(observation)
            step = envs.step(action)
            for row, episode in recorder.step(action, step):
                if quota[row]:
                    quota[row] -= 1
                    episodes.append(episode)
            observation = step.observation
            waiting.stepped(step.episodes)
    except PlayerLeftError:
        if not episodes:
            raise SettingsError("no episode was played to its end, so nothing is written") from None
    return episodes
