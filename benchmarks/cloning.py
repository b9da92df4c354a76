"""How good a clone is, by the number of recorded episodes; and what a clone saves the algorithm that continues from it.

python -m benchmarks.cloning docs/images     writes cloning.csv, cloning-then-ppo.csv, and the pictures with their
texts; what the files hold already is not measured again

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
from rlsdk.callbacks import EvalCallback
from rlsdk.environments import make_vec_env
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.interchange import record_episodes, zoo
from rlsdk.registry import preset
from rlsdk.settings import Dataset
from rlsdk_bc import BC
from rlsdk_ppo import PPO

LANDER, GOAL, STEPS, EVERY = "LunarLander-v3", 200, 655_360, 32_768
"""Where PPO continues from a clone, the return to reach, its steps, and the steps between its evaluations."""


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
"""(environment, who, seed, episodes or steps, mean return)."""


def mean_return(agent: rlsdk.Agent, env: str) -> float:
    """Over deterministic episodes."""
    envs = make_vec_env(env, 10)
    try:
        return run_episodes(agent, envs, EVALUATED, seed=10_000).mean
    finally:
        envs.close()


def clone(env: str, episodes: int, seed: int, folder: Path) -> BC:
    """A clone of the expert. Each seed has episodes of its own."""
    known, file = preset("bc", env), folder / f"{env}-{episodes}-{seed}"
    assert known is not None
    data = record_episodes(zoo.load(EXPERTS[env]), env, episodes, file, deterministic=True, seed=1000 * seed)
    settings: dict[str, Any] = {**known.settings, "dataset": Dataset.at(data), "seed": seed}
    return BC("MlpPolicy", None, **settings).learn(known.steps)


def by_episodes(env: str, rows: Rows, folder: Path) -> None:
    """The returns of an expert and its clones."""
    if not rows.has(env, "expert", 0):
        rows.add((env, "expert", 0, 0, mean_return(zoo.load(EXPERTS[env]), env)))
    for episodes in EPISODES:
        for seed in SEEDS:
            if not rows.has(env, "bc", seed, episodes):
                rows.add((env, "bc", seed, episodes, mean_return(clone(env, episodes, seed, folder), env)))


def then_ppo(rows: Rows, folder: Path) -> None:
    """The returns of PPO with its preset, alone and from a clone of three episodes, after every so many steps."""
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
    """A CSV file that grows; what it holds already is not measured again."""

    def __init__(self, path: Path, x: str) -> None:
        """`x`: what the fourth column counts."""
        self.path = path
        if not path.exists():
            path.write_text(f"environment,who,seed,{x},mean_return\n")

    def read(self) -> list[Row]:
        """All of them."""
        with self.path.open(newline="") as stream:
            return [(a, b, int(c), int(d), float(e)) for a, b, c, d, e in list(csv.reader(stream))[1:]]

    def has(self, env: str, who: str, seed: int, x: int = 0) -> bool:
        """Whether it was measured."""
        return (env, who, seed, x) in {row[:4] for row in self.read()}

    def add(self, *rows: Row) -> None:
        """Append and print."""
        with self.path.open("a", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows((*row[:4], f"{row[4]:.1f}") for row in rows)
        print(*rows[-1], flush=True)


def series(rows: Sequence[Row], env: str, who: str) -> dict[int, list[float]]:
    """The returns over seeds, by episodes or steps."""
    found: dict[int, list[float]] = {}
    for where, name, _, x, value in rows:
        if (where, name) == (env, who):
            found.setdefault(x, []).append(value)
    return found


def draw(folder: Path, clones: Sequence[Row], trained: Sequence[Row]) -> None:
    """The two pictures, each with its text."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    texts = []
    for axis, env in zip(figure.subplots(1, len(BY_EPISODES)), BY_EPISODES, strict=True):
        found, (expert,) = series(clones, env, "bc"), series(clones, env, "expert")[0]
        means = {x: sum(values) / len(values) for x, values in found.items()}
        axis.plot(list(means), list(means.values()), marker="o", label="behaviour cloning, mean of 3 seeds")
        axis.fill_between(list(means), [min(v) for v in found.values()], [max(v) for v in found.values()], alpha=0.2)
        axis.axhline(expert, linestyle="--", color="grey", label="expert")
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
    """A picture, and beside it what it shows, in words."""
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
