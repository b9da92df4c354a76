"""The learning curves of the pages of algorithms: each algorithm with its preset on a small task, over several seeds.

python -m benchmarks.curves train [ALGORITHM ...]    writes docs/images/curves/ALGORITHM.csv and .svg; all without
python -m benchmarks.curves draw [ALGORITHM ...]     writes the .svg again from the .csv

The runs themselves stay in the folder `--runs`; a finished one is not repeated. TRPO has the picture of the landing page.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np

from rlsdk_lab.curves import EVALUATION, TRAINING, CurveSettings
from rlsdk_lab.plotting import new_figure, plot_runs, save_figure

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "curves"


@attrs.frozen
class Recipe:
    """How a curve is made.

    env: the environment, whose preset is used.
    seeds: their number, from 0.
    every: steps between evaluations. None: a tenth of all; 0: returns of training episodes are drawn.
    steps: those of a run. None: those of the preset.
    recorded: the agent that records episodes first, and options of `rlsdk record-episodes`.
    updates: whether a step is an update, and not one of the environment.
    """

    env: str
    seeds: int = 3
    every: int | None = None
    steps: int | None = None
    recorded: tuple[str, ...] = ()
    updates: bool = False

    @property
    def metric(self) -> str:
        """The metric that is drawn."""
        return TRAINING if self.every == 0 else EVALUATION

    def commands(self, algorithm: str) -> list[list[str]]:
        """The arguments of `rlsdk` that train the agents, in a folder for the runs."""
        before = []
        if self.recorded:
            agent, *options = self.recorded
            before = [
                ["zoo", "get", f"rlsdk-zoo:{agent}", "--out", "expert.rlsdk"],
                ["record-episodes", "expert.rlsdk", *options, "--seed", "0", "--out", "demo"],
            ]
        dataset = ["--dataset", "demo"] if self.recorded else []
        every = [] if self.every is None else ["--eval-every", str(self.every)]
        steps = [] if self.steps is None else ["--steps", str(self.steps)]
        seeds = ["--seed", "0", "--seeds", str(self.seeds), "--jobs", "1"]
        return [*before, ["run", algorithm, "--env", self.env, *dataset, *seeds, *every, *steps, "--out", "runs"]]


RECIPES = {
    "a2c": Recipe("CartPole-v1", every=25_000),
    "acer": Recipe("Acrobot-v1", every=25_000),
    "acktr": Recipe("CartPole-v1", every=3_000),
    "ars": Recipe("CartPole-v1", seeds=5, every=2_500),
    "bc": Recipe(
        "CartPole-v1", every=100, updates=True, recorded=("ppo/CartPole-v1", "--episodes", "10", "--deterministic")
    ),
    "cql": Recipe(
        "MountainCarContinuous-v0",
        every=1_000,
        updates=True,
        recorded=("sac/MountainCarContinuous-v0", "--episodes", "100"),
    ),
    "crossq": Recipe("Pendulum-v1", every=0, steps=5_000),
    "ddpg": Recipe("Pendulum-v1", seeds=5),
    "discrete-sac": Recipe("CartPole-v1", seeds=5, every=0),
    "dqn": Recipe("MountainCar-v0", seeds=5, every=0),
    "gail": Recipe("CartPole-v1", every=5_000, recorded=("ppo/CartPole-v1", "--episodes", "10", "--deterministic")),
    "iql": Recipe(
        "MountainCarContinuous-v0",
        every=1_000,
        updates=True,
        recorded=("sac/MountainCarContinuous-v0", "--episodes", "100"),
    ),
    "maskable-ppo": Recipe("CartPole-v1", every=5_000),
    "ppo": Recipe("LunarLander-v3", every=0),
    "pqn": Recipe("CartPole-v1", seeds=5, every=0),
    "qrdqn": Recipe("CartPole-v1", every=2_500),
    "recurrent-ppo": Recipe("rlsdk/CartPoleNoVel-v1", every=5_000),
    "sac": Recipe("Pendulum-v1", seeds=5),
    "td3": Recipe("Pendulum-v1", seeds=5),
    "td3-bc": Recipe("Pendulum-v1", every=2_000, updates=True, recorded=("sac/Pendulum-v1", "--episodes", "100")),
    "tqc": Recipe("Pendulum-v1", every=500, steps=8_000),
}


def train(algorithm: str, runs: Path) -> None:
    """Train the agents of a curve below a folder, and write its numbers and its picture."""
    place = runs / algorithm
    place.mkdir(parents=True, exist_ok=True)
    for options in RECIPES[algorithm].commands(algorithm):
        made = place / options[-1]
        # a folder of runs has a summary when all of its seeds have ended; recorded episodes are files
        if not (made / "summary.json").exists() and (made.name == "runs" or not list(place.glob(f"{made.name}*"))):
            subprocess.run([sys.executable, "-m", "rlsdk", *options], cwd=place, check=True)
    seeds = sorted(path.parent for path in (place / "runs").glob("seed-*/run.json"))
    plot_runs(seeds, FOLDER / f"{algorithm}.svg", CurveSettings(metric=RECIPES[algorithm].metric))
    draw(algorithm)


def draw(algorithm: str) -> None:
    """Write the picture of a curve from its numbers."""
    recipe = RECIPES[algorithm]
    with (FOLDER / f"{algorithm}.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    x, value, low, high = (np.array([float(row[name]) for row in rows]) for name in ("x", "value", "low", "high"))
    title = f"{algorithm} on {recipe.env}: mean of {rows[0]['seeds']} seeds, 95 % interval"
    returns = "return of training episodes" if recipe.metric == TRAINING else "mean return of 10 episodes"
    steps = "updates" if recipe.updates else "environment steps"
    figure = new_figure(size=(8.0, 3.8))
    (axes,) = figure.axes
    axes.plot(x, value, color="#0072b2", marker="o" if len(x) < 50 else None, markersize=3)
    axes.fill_between(x, low, high, color="#0072b2", alpha=0.2, linewidth=0)
    axes.set(xlabel=steps, ylabel=returns)
    axes.set_title(title, fontsize=11)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda number, _: f"{number:,.0f}")
    ends = f"{value[-1]:,.0f} [{low[-1]:,.0f} .. {high[-1]:,.0f}]"
    save_figure(figure, FOLDER / f"{algorithm}.svg", f"The {returns} over {steps}. {title}. It ends at {ends}.")


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=__doc__)
    parser.add_argument("command", choices=("train", "draw"))
    parser.add_argument("algorithms", nargs="*", choices=[*RECIPES, []], metavar="ALGORITHM", help="one or more")
    parser.add_argument("--runs", type=Path, default=Path("runs/curves"), help="the folder of the runs")
    options = parser.parse_args()
    for algorithm in options.algorithms or RECIPES:
        if options.command == "train":
            train(algorithm, options.runs)
        else:
            draw(algorithm)


if __name__ == "__main__":
    main()
