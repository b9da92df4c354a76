"""The returns of clones by the number of recorded episodes, and the steps that PPO saves if it starts from a clone.

python -m benchmarks.cloning docs/images     writes cloning.csv, cloning-then-ppo.csv, and the pictures with their
texts. Results that the files already have are not measured again.

Experts are agents of rlsdk-zoo, algorithms use their presets. Returns are means over 20 deterministic episodes, with three
seeds each.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import rlsdk
import rlsdk_zoo as zoo
from rlsdk.environments import make_vec_env
from rlsdk.evaluation import run_episodes
from rlsdk.registry import preset
from rlsdk_bc import BC
from rlsdk_datasets import Dataset
from rlsdk_interchange import record_episodes
from rlsdk_ppo import PPO
from rlsdk_sb3 import EvalCallback

LANDER, GOAL, STEPS, EVERY = "LunarLander-v3", 200, 655_360, 32_768
"""The environment in which PPO continues from a clone, the return to reach, the steps of PPO, and the steps between
evaluations."""


EXPERTS = {
    "CartPole-v1": "ppo/CartPole-v1",
    "Pendulum-v1": "sac/Pendulum-v1",
    "HalfCheetah-v5": "ppo/HalfCheetah-v5",
    LANDER: "ppo/LunarLander-v3",
}
BY_EPISODES = ("CartPole-v1", "Pendulum-v1", "HalfCheetah-v5")
EPISODES = (1, 3, 10, 30)
SEEDS = (0, 1, 2)
EVALUATED = 20
Row = tuple[str, str, int, int, float]
"""(environment, learner, seed, episodes or steps, mean return)."""


def mean_return(agent: rlsdk.Agent, env: str) -> float:
    """The mean return of deterministic episodes."""
    envs = make_vec_env(env, 10)
    try:
        return run_episodes(agent, envs, EVALUATED, seed=10_000).mean
    finally:
        envs.close()


def clone(env: str, episodes: int, seed: int, folder: Path) -> BC:
    """Train a clone of the expert. Each seed has separate episodes."""
    known, file = preset("bc", env), folder / f"{env}-{episodes}-{seed}"
    assert known is not None
    data = record_episodes(zoo.load(EXPERTS[env]), env, episodes, file, deterministic=True, seed=1000 * seed)
    settings: dict[str, Any] = {**known.settings, "dataset": Dataset.at(data), "seed": seed}
    return BC("MlpPolicy", None, **settings).learn(known.steps)


def by_episodes(env: str, rows: Rows, folder: Path) -> None:
    """Measure the returns of an expert and its clones."""
    if not rows.has(env, "expert", 0):
        rows.add((env, "expert", 0, 0, mean_return(zoo.load(EXPERTS[env]), env)))
    for episodes in EPISODES:
        for seed in SEEDS:
            if not rows.has(env, "bc", seed, episodes):
                rows.add((env, "bc", seed, episodes, mean_return(clone(env, episodes, seed, folder), env)))


def then_ppo(rows: Rows, folder: Path) -> None:
    """Measure the returns of PPO with its preset every `EVERY` steps, started with and without a clone of three episodes."""
    known = preset("ppo", LANDER)
    assert known is not None
    for seed, who in product(SEEDS, ("ppo", "bc, then ppo")):
        if rows.has(LANDER, who, seed, STEPS):
            continue
        settings: dict[str, Any] = {**known.settings, "seed": seed}
        envs = make_vec_env(LANDER, 16)
        if who == "ppo":
            agent = PPO("MlpPolicy", envs, **settings)
        else:
            clone(LANDER, 3, seed, folder).save(folder / f"clone-{seed}")
            agent = PPO.load_policy(folder / f"clone-{seed}", envs, **settings)
        found = [(LANDER, who, seed, 0, mean_return(agent, LANDER))]
        agent.learn(
            STEPS,
            callback=EvalCallback(
                make_vec_env(LANDER, 10), n_eval_episodes=EVALUATED, eval_freq=EVERY, log_path=folder, verbose=0
            ),
        )
        played = np.load(folder / "evaluations.npz")
        found += [
            (LANDER, who, seed, int(step), float(returns.mean()))
            for step, returns in zip(played["timesteps"], played["results"], strict=True)
        ]
        envs.close()
        rows.add(*found)


class Rows:
    """A CSV file of results, to which rows are added."""

    def __init__(self, path: Path, x: str) -> None:
        """`x`: the name of the fourth column."""
        self.path = path
        if not path.exists():
            path.write_text(f"environment,who,seed,{x},mean_return\n")

    def read(self) -> list[Row]:
        """Return all rows of the file."""
        with self.path.open(newline="") as stream:
            return [(a, b, int(c), int(d), float(e)) for a, b, c, d, e in list(csv.reader(stream))[1:]]

    def has(self, env: str, who: str, seed: int, x: int = 0) -> bool:
        """Whether the file has a row with these first columns."""
        return (env, who, seed, x) in {row[:4] for row in self.read()}

    def add(self, *rows: Row) -> None:
        """Append rows to the file, and print the last one."""
        with self.path.open("a", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows((*row[:4], f"{row[4]:.1f}") for row in rows)
        print(*rows[-1], flush=True)


def series(rows: Sequence[Row], env: str, who: str) -> dict[int, list[float]]:
    """The returns of all seeds, as episodes or steps -> returns."""
    found: dict[int, list[float]] = {}
    for where, name, _, x, value in rows:
        if (where, name) == (env, who):
            found.setdefault(x, []).append(value)
    return found


def draw(folder: Path, clones: Sequence[Row], trained: Sequence[Row]) -> None:
    """Draw the two pictures, and write a text for each."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    texts = []
    for axis, env in zip(figure.subplots(1, len(BY_EPISODES)), BY_EPISODES, strict=True):
        found, (expert,) = series(clones, env, "bc"), series(clones, env, "expert")[0]
        means = {x: sum(values) / len(values) for x, values in found.items()}
        axis.plot(list(means), list(means.values()), marker="o", label="behavior cloning, mean of 3 seeds")
        axis.fill_between(list(means), [min(v) for v in found.values()], [max(v) for v in found.values()], alpha=0.2)
        axis.axhline(expert, linestyle="--", color="gray", label="expert")
        axis.set(title=env, xlabel="recorded episodes", ylabel="mean return", xscale="log")
        axis.set_xticks(list(means), [str(x) for x in means])
        axis.legend()
        listed = ", ".join(f"{x}: {value:.0f}" for x, value in means.items())
        texts.append(f"{env}: mean return of a clone by recorded episodes, {listed}; its expert {expert:.0f}.")
    save(figure, folder / "cloning", " ".join(texts))
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis, texts = figure.subplots(), []
    for who in ("ppo", "bc, then ppo"):
        found = series(trained, LANDER, who)
        means = {x: sum(values) / len(values) for x, values in found.items()}
        axis.plot(list(means), list(means.values()), label=who)
        axis.fill_between(list(means), [min(v) for v in found.values()], [max(v) for v in found.values()], alpha=0.2)
        reached = next((f"{x:,}" for x, value in means.items() if value >= GOAL), "none of the")
        texts.append(f"{who}: {means[0]:.0f} before training, a mean return of {GOAL} after {reached} steps.")
    axis.set(title=LANDER, xlabel="environment steps of PPO", ylabel="mean return")
    axis.legend()
    save(figure, folder / "cloning-then-ppo", f"{LANDER}, mean of 3 seeds. " + " ".join(texts))


def save(figure: Figure, path: Path, text: str) -> None:
    """Write a picture, and next to it a text that describes it."""
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    path.with_suffix(".txt").write_text(text + "\n")
    print(text)


def main(folder: Path) -> None:
    """Measure what is missing, write and draw."""
    clones, trained = Rows(folder / "cloning.csv", "episodes"), Rows(folder / "cloning-then-ppo.csv", "steps")
    with tempfile.TemporaryDirectory() as data:
        then_ppo(trained, Path(data))
        for env in BY_EPISODES:
            by_episodes(env, clones, Path(data))
    draw(folder, sorted(clones.read()), sorted(trained.read()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cloning", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the tables and pictures are written")
    main(parser.parse_args().folder)
