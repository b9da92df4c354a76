"""Offline algorithms on data sets of mixed quality, with normalized scores.

python -m benchmarks.offline docs/images     writes offline.csv, and prints a table; results it already has are not measured
again

Half of the episodes of a data set are those of random actions, the other half those of a weak agent. All learners have the
same networks, batches, learning rates and numbers of updates. Returns are means over 20 deterministic episodes. A score is 0
for random actions and 100 for an agent of rlsdk-zoo. Each seed of the learners has a separate recording.
IQL then continues in the environment for 5,000 steps.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import rlsdk
import rlsdk_zoo as zoo
from benchmarks.cloning import Rows, mean_return
from rlsdk.environments import make_vec_env, to_space
from rlsdk.registry import preset
from rlsdk_datasets import Dataset, RecordedEpisode, write_episodes

SEEDS = (0, 1, 2, 3, 4)
RECORDER_SEED = 10
UPDATES = 6_000
NETWORKS, BATCH, TAU = {"net_arch": [64, 64]}, 128, 0.02
LEARNERS = ("bc", "td3-bc", "iql", "cql")
TUNED, TUNING_STEPS = "iql, then fine-tuned", 5_000
"""The row of an IQL agent that continues in the environment, and its number of environment steps there."""


@dataclass(frozen=True)
class Task:
    """An environment, and how its data are recorded."""

    expert: str
    """The agent of rlsdk-zoo whose score is 100."""
    weak: str
    """The algorithm of the weak agent, with its preset."""
    steps: int
    """The steps of its training; 0: the expert, with random actions."""
    share: float = 0.0
    """The share of random actions in the episodes of the weak agent."""
    episodes: int = 50
    """The number of episodes of each of the two."""
    settings: Mapping[str, object] = field(default_factory=dict)


TASKS = {
    "Pendulum-v1": Task("sac/Pendulum-v1", "sac", 3_000, settings={"learning_rate": 1e-3}),
    "MountainCarContinuous-v0": Task("sac/MountainCarContinuous-v0", "sac", 0, share=0.5),
    "CartPole-v1": Task("ppo/CartPole-v1", "ppo", 4_096),
}


@cache
def weak_agent(env: str) -> rlsdk.Agent:
    """The weak agent of a task."""
    task = TASKS[env]
    if not task.steps:
        return zoo.load(task.expert)
    known = preset(task.weak, env)
    assert known is not None
    settings: dict[str, Any] = {**known.settings, **task.settings, "seed": RECORDER_SEED}
    return rlsdk.make(task.weak, env=make_vec_env(env, known.n_envs or 1), **settings).learn(task.steps)


def episode(env: gymnasium.Env[Any, Any], agent: rlsdk.Agent | None, share: float, seed: int) -> RecordedEpisode:
    """Play an episode with the exploration of `agent`, and with the share of random actions; None: all are random."""
    dice, seen = np.random.default_rng(seed), [env.reset(seed=seed)[0]]
    env.action_space.seed(seed)
    acting = None if agent is None else agent.session(deterministic=False, seed=seed)
    actions, rewards, ended = list[Any](), list[float](), False
    while True:
        action = env.action_space.sample()
        if acting is not None:
            own = acting.act(seen[-1])
            action = own if dice.random() >= share else action
        observation, reward, ended, truncated, _ = env.step(action)
        seen.append(observation)
        actions.append(action)
        rewards.append(float(reward))
        if ended or truncated:
            break
    shown, chosen = (torch.as_tensor(np.stack(each)) for each in (seen, actions))
    return RecordedEpisode(shown, chosen, torch.tensor(rewards), terminated=ended)


def record(env: str, seed: int, folder: Path) -> tuple[Path, float]:
    """Write the data set of a seed; returns the file and the mean return of its episodes."""
    task, place, episodes = TASKS[env], gymnasium.make(env), []
    weak = weak_agent(env)
    for number in range(task.episodes):
        first = 10_000 * seed + 2 * number
        episodes += [episode(place, None, 1.0, first), episode(place, weak, task.share, first + 1)]
    spaces = to_space(place.observation_space), to_space(place.action_space)
    mean = float(np.mean([float(each.rewards.sum()) for each in episodes]))
    return write_episodes(folder / f"{env}-{seed}", episodes, *spaces, env), mean


def settings_of(learner: str, env: str) -> dict[str, Any]:
    """The settings of a learner: its preset, and what all learners share."""
    known = preset(learner, env)
    given: dict[str, Any] = {"normalize": {"norm_reward": False}, "learning_rate": 1e-3}
    if known is not None and learner in ("iql", "cql"):
        given |= known.settings
    given |= {} if learner == "bc" else {"tau": TAU}
    return {**given, "batch_size": BATCH, "policy_kwargs": NETWORKS}


def measure(rows: Rows, env: str, seed: int, folder: Path) -> None:
    """Measure the recorded episodes, and all learners that can act in the environment."""
    continuous = isinstance(gymnasium.make(env).action_space, gymnasium.spaces.Box)
    learners = [each for each in LEARNERS if continuous or each != "td3-bc"]
    if all(rows.has(env, each, seed, UPDATES) for each in ("recorded", *learners, TUNED)):
        return
    data, mean = record(env, seed, folder)
    if not rows.has(env, "recorded", seed, UPDATES):
        rows.add((env, "recorded", seed, UPDATES, mean))
    for learner in learners:
        is_tuned = learner != "iql" or rows.has(env, TUNED, seed, UPDATES)
        if rows.has(env, learner, seed, UPDATES) and is_tuned:
            continue
        agent = rlsdk.make(learner, env=None, dataset=Dataset.at(data), seed=seed, **settings_of(learner, env))
        agent.learn(UPDATES)
        if not rows.has(env, learner, seed, UPDATES):
            rows.add((env, learner, seed, UPDATES, mean_return(agent, env)))
        if not is_tuned:
            rows.add((env, TUNED, seed, UPDATES, mean_return(fine_tuned(agent, env, data), env)))


def fine_tuned(agent: rlsdk.Agent, env: str, data: Path) -> rlsdk.Agent:
    """The agent after `TUNING_STEPS` steps in the environment, from the recorded and the new steps."""
    file = agent.save(data.with_name("offline"))
    assert file is not None
    return rlsdk.load(file, env, dataset=Dataset.at(data), fine_tuning=True).learn(TUNING_STEPS)


def main(folder: Path, only: list[str]) -> None:
    """Measure the results that the file does not have yet, and print the table of scores."""
    rows = Rows(folder / "offline.csv", "updates")
    for env, task in TASKS.items():
        if only and env not in only:
            continue
        if not rows.has(env, "random", 0, 0):
            place = gymnasium.make(env)
            returns = [float(episode(place, None, 1.0, seed).rewards.sum()) for seed in range(200)]
            rows.add((env, "random", 0, 0, float(np.mean(returns))))
        if not rows.has(env, "expert", 0, 0):
            rows.add((env, "expert", 0, 0, mean_return(zoo.load(task.expert), env)))
    # all environments with one seed first, so that a run that is interrupted has results of each
    for seed, env in product(SEEDS, only or TASKS):
        with tempfile.TemporaryDirectory() as data:
            measure(rows, env, seed, Path(data))
    print(table(rows))


def table(rows: Rows) -> str:
    """The scores of all learners: the mean over seeds, and each seed."""
    lines = ["| environment | learner | score, mean over seeds | per seed | mean return |", "|---|---|---|---|---|"]
    for env in TASKS:
        found = {(who, seed): value for place, who, seed, _, value in rows.read() if place == env}
        if ("expert", 0) not in found:
            continue
        low, high = found["random", 0], found["expert", 0]
        for who in ("recorded", *LEARNERS, TUNED):
            returns = np.array([found[who, seed] for seed in SEEDS if (who, seed) in found])
            if len(returns):
                scores = 100.0 * (returns - low) / (high - low)
                each = ", ".join(f"{score:.0f}" for score in scores)
                lines.append(f"| {env} | {who} | **{scores.mean():.0f}** | {each} | {returns.mean():,.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=__doc__)
    parser.add_argument("folder", type=Path, help="where offline.csv is written")
    parser.add_argument("only", nargs="*", help="environments to measure; none = all")
    given = parser.parse_args()
    main(given.folder, given.only)
