"""How good a clone is, by the number of recorded episodes; and what a clone saves the algorithm that continues from it.

python -m benchmarks.cloning docs/images     writes cloning.csv, cloning-then-ppo.csv, and the pictures with their
texts; what the files hold already is not measured again

Experts are agents of rlsdk-zoo. Returns are means over 20 deterministic episodes; three seeds each.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.interchange import record_episodes, zoo
from rlsdk.settings import Dataset
from rlsdk_bc import BC
from rlsdk_ppo import PPO

EXPERTS = {"CartPole-v1": "ppo/CartPole-v1", "Pendulum-v1": "sac/Pendulum-v1"}
UPDATES = {"CartPole-v1": 1500, "Pendulum-v1": 1500}
EPISODES = (1, 3, 10, 30)
SEEDS = (0, 1, 2)
EVALUATED = 20
STEPS, EVERY = 16_384, 2_048
"""Of PPO, and between its evaluations."""
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
    expert = zoo.load(EXPERTS[env])
    data = record_episodes(
        expert, env, episodes, folder / f"{env}-{episodes}-{seed}", deterministic=True, seed=1000 * seed
    )
    return BC("MlpPolicy", None, dataset=Dataset.at(data), seed=seed).learn(UPDATES[env])


def by_episodes(env: str, rows: Rows, folder: Path) -> None:
    """The returns of an expert and its clones."""
    if not rows.has(env, "expert", 0):
        rows.add((env, "expert", 0, 0, mean_return(zoo.load(EXPERTS[env]), env)))
    for episodes in EPISODES:
        for seed in SEEDS:
            if not rows.has(env, "bc", seed, episodes):
                rows.add((env, "bc", seed, episodes, mean_return(clone(env, episodes, seed, folder), env)))


def then_ppo(rows: Rows, folder: Path) -> None:
    """The returns of PPO on CartPole, alone and from a clone of a single episode, after every so many steps."""
    env = "CartPole-v1"
    for seed, who in product(SEEDS, ("ppo", "bc, then ppo")):
        if rows.has(env, who, seed, STEPS):
            continue
        envs = make_vec_env(env, 8)
        settings: dict[str, Any] = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98}
        settings |= {"learning_rate": 1e-3, "seed": seed}
        if who == "ppo":
            agent = PPO("MlpPolicy", envs, **settings)
        else:
            clone(env, 1, seed, folder).save(folder / f"clone-{seed}")
            agent = PPO.load_policy(folder / f"clone-{seed}", envs, **settings)
        found = [(env, who, seed, 0, mean_return(agent, env))]
        for step in range(EVERY, STEPS + 1, EVERY):
            agent.learn(EVERY, reset_num_timesteps=False)
            found.append((env, who, seed, step, mean_return(agent, env)))
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
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    texts = []
    for axis, env in zip(figure.subplots(1, 2), EXPERTS, strict=True):
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
        found = series(trained, "CartPole-v1", who)
        means = {x: sum(values) / len(values) for x, values in found.items()}
        axis.plot(list(means), list(means.values()), label=who)
        axis.fill_between(list(means), [min(v) for v in found.values()], [max(v) for v in found.values()], alpha=0.2)
        reached = next((f"{x:,}" for x, value in means.items() if value >= 475), "none of the")
        texts.append(f"{who}: {means[0]:.0f} before training, a mean return of 475 after {reached} steps.")
    axis.set(title="CartPole-v1", xlabel="environment steps of PPO", ylabel="mean return")
    axis.legend()
    save(figure, folder / "cloning-then-ppo", "CartPole-v1, mean of 3 seeds. " + " ".join(texts))


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
        for env in EXPERTS:
            by_episodes(env, clones, Path(data))
    draw(folder, sorted(clones.read()), sorted(trained.read()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
