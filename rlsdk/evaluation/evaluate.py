"""The evaluator: one function for users, callbacks and the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import attrs
import numpy as np

from rlsdk.environments import ConnectedEnv, connect
from rlsdk.environments.env_in_training import itself
from rlsdk.environments.gymnasium_adapter import EnvSource
from rlsdk.errors import SettingsError, UsageError
from rlsdk.evaluation.statistics import Statistics, summarise
from rlsdk.records import EnvStep, Episode
from rlsdk.runtime.threads import limited_threads
from rlsdk.training.step_values import Locals, require_two_arguments, step_values
from rlsdk.training.trained_agent import ActingSession, TrainedAgent
from rlsdk.training.watched_env import gathered_infos


@attrs.frozen
class Evaluation:
    """Episodes of one evaluation, in the order they ended."""

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
        """Share of episodes that reported success; None where the environment does not report it."""
        known = [episode.success for episode in self.episodes if episode.success is not None]
        return sum(known) / len(known) if known else None

    def statistics(self, confidence: float = 0.95) -> Statistics:
        """Mean, deviation, interquartile mean and a bootstrap confidence interval of the mean (extra `stats`)."""
        return summarise(self.returns, confidence)

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

    Every environment plays its share, so short episodes do not crowd out long ones. The agent's own random streams are
    not touched: training continues as if nothing had happened. `use_masking=False` plays without the environment's masks.

    Raises:
        SettingsError: `episodes` is not positive.
        EnvironmentFault: the environment's spaces are not the agent's.
        UsageError: it is the one the agent is being trained in.
    """
    envs = _connected(agent, env, use_masking)
    quota, finished = _shares(envs, episodes), list[Episode]()
    session = agent.session(envs.num_envs, deterministic=deterministic, seed=seed)
    with limited_threads(1):
        for step in _played(session, envs, seed, use_masking):
            for episode in step.episodes:
                if quota[episode.env]:
                    quota[episode.env] -= 1
                    finished.append(episode)
            if not any(quota):
                break
    return Evaluation(tuple(finished), deterministic)


def _connected(agent: TrainedAgent, env: EnvSource, use_masking: bool) -> ConnectedEnv:
    """The environments of an evaluation, checked: they fit the agent, and no training uses them."""
    envs = connect(env)
    if _shared(envs, itself(agent.env)):
        if agent.run is not None:
            raise UsageError("an evaluation during training needs another environment than the training")
        agent.end_episodes()
    agent.require_same_spaces(envs, "the evaluation environment")
    if use_masking:
        agent.masks.check_environment(envs)
    return envs


def _shares(envs: ConnectedEnv, episodes: int) -> list[int]:
    """How many episodes each environment plays."""
    if not isinstance(episodes, int) or episodes < 1:
        raise SettingsError(f"n_eval_episodes = {episodes!r} must be a positive whole number")
    return [(episodes + i) // envs.num_envs for i in range(envs.num_envs)]


def _played(session: ActingSession, envs: ConnectedEnv, seed: int | None, use_masking: bool) -> Iterator[EnvStep]:
    """Steps without end, each with the action that led to it."""
    observation = envs.reset(seed)
    while True:
        action = session.action_on(observation if use_masking else replace(observation, action_mask=None))
        step = replace(envs.step(action), action=action)
        yield step
        observation = step.observation


def _called_back(
    session: ActingSession, known: Locals, callback: Callable[[Locals, Locals], object], use_masking: bool
) -> Evaluation:
    """Play episodes and call `callback(locals, globals)` after every step, for each environment that still plays."""
    require_two_arguments(callback)
    envs, finished, began = known["env"], list[Episode](), time.perf_counter()
    shares = _shares(envs, known["n_eval_episodes"])
    counts, rewards, lengths = (np.zeros(envs.num_envs, dtype) for dtype in (int, float, int))
    scope = {**known, "n_envs": envs.num_envs, "episode_rewards": [], "episode_lengths": [], "episode_counts": counts}
    with gathered_infos(envs, True), limited_threads(1):
        for step in _played(session, envs, None, use_masking):
            values = step_values(step, session.decode, time.perf_counter() - began)
            rewards, lengths = rewards + values["rewards"], lengths + step.valid.numpy()
            ended = {episode.env: episode for episode in step.episodes}
            scope |= {**values, "new_observations": values["new_obs"]}
            scope |= {"current_rewards": rewards, "current_lengths": lengths}
            for i in np.flatnonzero(counts < shares):
                names = (("reward", "rewards"), ("done", "dones"), ("info", "infos"))
                callback({**scope, "i": int(i), **{one: values[all_][i] for one, all_ in names}}, {})
                if (episode := ended.get(int(i))) is not None:
                    finished.append(episode)
                    scope["episode_rewards"].append(episode.episode_return)
                    scope["episode_lengths"].append(episode.length)
                    counts[i] += 1
            over = np.isin(np.arange(envs.num_envs), list(ended))
            rewards, lengths = np.where(over, 0.0, rewards), np.where(over, 0, lengths)
            if (counts >= shares).all():
                break
    return Evaluation(tuple(finished), session.deterministic)


def require_display(envs: ConnectedEnv) -> None:
    """Raises SettingsError when environments do not show themselves while they are stepped."""
    try:
        modes = set(envs.get_attr("render_mode"))
    except (UsageError, AttributeError):  # vectors that have no separate environments
        modes = {getattr(getattr(envs, "env", None), "render_mode", None)}
    if modes != {"human"}:
        raise SettingsError('render=True: make the environment with render_mode="human" and pass it as env')


def _shared(envs: ConnectedEnv | None, others: ConnectedEnv | None) -> bool:
    """Whether playing in one moves the other."""
    mine, theirs = ([] if vector is None else [vector, *vector.environments] for vector in (envs, others))
    return any(a is b for a in mine for b in theirs)


def evaluate_policy(  # noqa: PLR0913  # the documented signature
    model: TrainedAgent,
    env: EnvSource,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: Callable[[Locals, Locals], object] | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
    use_masking: bool = True,
) -> Any:
    """(mean, standard deviation) of the true episode returns; with `return_episode_rewards` (returns, lengths).

    Args:
        model: the agent.
        env: anything `learn` accepts; use another one than the training environment.
        n_eval_episodes: episodes, spread evenly over the environments.
        deterministic: play the policy's mode.
        render: the environments must show themselves: made with `render_mode="human"`.
        callback: called as `callback(locals, globals)` after every step, for each environment that still plays; `locals` has
            `i` (its number), `reward`, `done`, `info`, and over all environments `rewards`, `dones`, `infos`, `actions`,
            `new_observations`, `current_rewards`, `current_lengths`, `episode_rewards`, `episode_lengths`, `episode_counts`.
        reward_threshold: the mean return that must be reached.
        return_episode_rewards: return lists instead of mean and deviation.
        warn: accepted for compatibility; the evaluator itself sees true rewards, there is nothing to warn of.
        use_masking: play with the environment's action masks.

    Raises:
        SettingsError: the threshold is missed, or an argument makes no sense.
    """
    if not hasattr(model, "session"):
        raise SettingsError(f"evaluate_policy needs an agent, got a {type(model).__name__}; pass the model itself")
    envs = connect(env)
    if render:
        require_display(envs)
    if callback is None:
        evaluation = run_episodes(model, envs, n_eval_episodes, deterministic=deterministic, use_masking=use_masking)
    else:
        session = model.session(envs.num_envs, deterministic=deterministic)
        known = {"model": model, "env": _connected(model, envs, use_masking), "n_eval_episodes": n_eval_episodes}
        evaluation = _called_back(session, known, callback, use_masking)
    if reward_threshold is not None and evaluation.mean < reward_threshold:
        raise SettingsError(f"mean return {evaluation.mean:.2f} is below reward_threshold = {reward_threshold}")
    if return_episode_rewards:
        return evaluation.returns, evaluation.lengths
    return evaluation.mean, evaluation.std
