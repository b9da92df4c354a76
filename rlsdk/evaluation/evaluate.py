"""Evaluation of an agent by playing episodes, for users, callbacks and the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import attrs
import numpy as np

from rlsdk.environments import ConnectedEnv, Waiting, connect
from rlsdk.environments.gymnasium_adapter import EnvSource
from rlsdk.environments.wrapping import warn_of_statistics, without_guard
from rlsdk.errors import SettingsError, UsageError, shown
from rlsdk.records import EnvStep, Episode
from rlsdk.runtime.lazy import of_sb3
from rlsdk.runtime.process import limited_threads
from rlsdk.training.train import gathered_infos
from rlsdk.training.trained_agent import ActingSession, TrainedAgent


@attrs.frozen
class Evaluation:
    """The episodes of one evaluation, in the order in which they ended."""

    episodes: tuple[Episode, ...]
    deterministic: bool

    @property
    def returns(self) -> list[float]:
        return [episode.episode_return for episode in self.episodes]

    @property
    def lengths(self) -> list[int]:
        return [episode.length for episode in self.episodes]

    @property
    def success_rate(self) -> float | None:
        """The share of successful episodes among those that report success; None if the environment does not report it."""
        known = [episode.success for episode in self.episodes if episode.success is not None]
        return sum(known) / len(known) if known else None

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation over episodes (population formula)."""
        return float(np.std(self.returns))


def run_episodes(
    agent: TrainedAgent,
    env: EnvSource,
    episodes: int,
    *,
    deterministic: bool = True,
    seed: int | None = None,
    use_masking: bool = True,
) -> Evaluation:
    """Play `episodes` episodes and return them.

    Every environment plays the same number of episodes (or one more). The agent's random generators do not change. An
    evaluation in the agent's own environment ends its unfinished episodes.

    An episode of more than 1,000,000 steps is an error, after a warning, unless the environment has a larger time limit.

    Args:
        agent: the agent that plays.
        env: anything that `learn` accepts.
        episodes: the number of episodes over all environments.
        deterministic: play the mode of the policy instead of samples.
        seed: seed of the environments' reset and of sampled actions.
        use_masking: False plays without the environment's action masks.

    Raises:
        SettingsError: `episodes` is not positive.
        EnvironmentFault: the environment cannot be made, or an episode does not end.
        UnsupportedSpaceError: the spaces of the environment are not those of the agent.
        UsageError: a training of the agent is running in this environment.
        MaskError: the agent needs action masks and the environment has none.
    """
    envs = _connect_checked(agent, env, use_masking)
    quota, finished = _episode_shares(envs, episodes), list[Episode]()
    session = agent.session(envs.num_envs, deterministic=deterministic, seed=seed)
    # A step evaluates few rows: a second thread makes such products several times slower (`runtime.process`).
    with limited_threads(1):
        for step in _play_steps(session, envs, seed, use_masking):
            for episode in step.episodes:
                # Episodes beyond the share of an environment do not count: short ones would be overrepresented.
                if quota[episode.env]:
                    quota[episode.env] -= 1
                    finished.append(episode)
            if not any(quota):
                break
    return Evaluation(tuple(finished), deterministic)


def _connect_checked(agent: TrainedAgent, env: EnvSource, use_masking: bool) -> ConnectedEnv:
    """The environments of an evaluation. They are checked: they fit the agent, and no running training uses them."""
    if isinstance(agent, type) or not hasattr(agent, "session"):
        raise SettingsError(f"an evaluation needs an agent, got {shown(agent)}; pass the model itself")
    envs = connect(env)
    # The evaluation resets these environments, so the agent cannot continue the episodes that run in them.
    if _have_common_environment(envs, without_guard(agent.env)):
        if agent.run is not None:
            raise UsageError("an evaluation during training needs another environment than the training")
        agent.end_episodes()
    agent.require_same_spaces(envs, "the evaluation environment")
    warn_of_statistics(envs, "the evaluation environment")
    if use_masking:
        agent.masks.check_environment(envs)
    return envs


def require_episodes(count: object) -> None:
    """Raises SettingsError if the number of episodes of an evaluation is not a positive whole number."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SettingsError(f"n_eval_episodes = {shown(count, 60)} must be a positive whole number")


def _episode_shares(envs: ConnectedEnv, episodes: int) -> list[int]:
    """The number of episodes that each environment plays. Raises as `require_episodes`."""
    require_episodes(episodes)
    return [(episodes + i) // envs.num_envs for i in range(envs.num_envs)]


def _play_steps(session: ActingSession, envs: ConnectedEnv, seed: int | None, use_masking: bool) -> Iterator[EnvStep]:
    """Step the environments without end, and yield each step with its action."""
    observation, waiting = envs.reset(seed), Waiting(envs)
    while True:
        action = session.action_on(observation if use_masking else replace(observation, action_mask=None))
        step = replace(envs.step(action), action=action)
        yield step
        observation = step.observation
        waiting.stepped(step.episodes)


def require_display(envs: ConnectedEnv) -> None:
    """Raises SettingsError unless all environments were made with `render_mode="human"`."""
    try:
        modes = set(envs.get_attr("render_mode"))
    except (UsageError, AttributeError):
        # a vector environment without separate environments
        modes = {getattr(getattr(envs, "env", None), "render_mode", None)}
    if modes != {"human"}:
        raise SettingsError('render=True: make the environment with render_mode="human" and pass it as env')


def _have_common_environment(envs: ConnectedEnv | None, others: ConnectedEnv | None) -> bool:
    """Whether the two vector environments have an environment in common, so that a step in one changes the other."""
    mine, theirs = ([] if vector is None else [vector, *vector.environments] for vector in (envs, others))
    return any(a is b for a in mine for b in theirs)


def evaluate_policy(  # noqa: PLR0913  # the signature of stable-baselines3
    model: TrainedAgent,
    env: EnvSource,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: Callable[..., object] | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
    use_masking: bool = True,
) -> Any:
    """Play episodes, and return (mean, standard deviation) of the episode returns, before any normalization of rewards.

    Args:
        model: the agent.
        env: anything that `learn` accepts; use another environment than that of the training.
        n_eval_episodes: number of episodes, distributed evenly over the environments.
        deterministic: play the mode of the policy instead of samples.
        render: require environments that were made with `render_mode="human"`.
        callback: called as `callback(locals, globals)` after every step, for each environment that is not finished. `locals`
            has `i` (number of the environment), `reward`, `done`, `info`. For all environments it has `rewards`, `dones`,
            `infos`, `actions`, `new_observations`, `current_rewards`, `current_lengths`, `episode_rewards`,
            `episode_lengths`, `episode_counts`.
        reward_threshold: the mean return that must be reached.
        return_episode_rewards: return (returns, lengths), a list each, instead of mean and deviation.
        warn: has no effect; accepted for compatibility.
        use_masking: play with the environment's action masks.

    Raises:
        SettingsError: the mean return is below the threshold, or an argument is invalid.
        UnsupportedSpaceError, UsageError, MaskError: see `run_episodes`.
    """
    envs = connect(env)
    if render:
        require_display(envs)
    if callback is None:
        evaluation = run_episodes(model, envs, n_eval_episodes, deterministic=deterministic, use_masking=use_masking)
    else:
        envs, session = (
            _connect_checked(model, envs, use_masking),
            model.session(envs.num_envs, deterministic=deterministic),
        )
        known = {"model": model, "env": envs, "n_eval_episodes": n_eval_episodes}
        play, shares = of_sb3("called_back", "evaluate_policy(callback=)"), _episode_shares(envs, n_eval_episodes)
        with gathered_infos(envs, True), limited_threads(1):
            episodes = play(_play_steps(session, envs, None, use_masking), session.decode, known, shares, callback)
        evaluation = Evaluation(tuple(episodes), deterministic)
    if reward_threshold is not None and evaluation.mean < reward_threshold:
        raise SettingsError(f"mean return {evaluation.mean:.2f} is below reward_threshold = {reward_threshold}")
    if return_episode_rewards:
        return evaluation.returns, evaluation.lengths
    return evaluation.mean, evaluation.std
