"""The learning curve on the landing page: TRPO of rlsdk and of sb3-contrib, the same settings, seeds and processor.

python -m benchmarks.landing train     # both sides, seed after seed; writes docs/images/learning_curve.json
python -m benchmarks.landing draw      # writes docs/images/learning_curve.svg from that file

Both sides train in pieces of 8,192 steps. After each piece ten episodes are played with the deterministic policy.
Times are processor time of training alone, without these evaluations.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rlsdk
from benchmarks.arguments import positive
from rlsdk.environments import make_vec_env
from rlsdk.evaluation import evaluate_policy
from rlsdk.registry import preset
from rlsdk_lab import estimate, mean
from rlsdk_lab.plotting import new_figure, save_figure

DATA = Path(__file__).parents[1] / "docs" / "images" / "learning_curve.json"
PICTURE = DATA.with_suffix(".svg")
DESCRIPTION = (
    "Two plots of the mean return of TRPO on CartPole-v1, for rlsdk and for sb3-contrib with the same settings. Against "
    "environment steps both curves rise to 500. Against processor time rlsdk reaches 500 several times earlier."
)
ALGORITHM, ENV = "trpo", "CartPole-v1"
PIECE, PIECES, EPISODES = 8_192, 12, 10
SIDES = ("rlsdk", "sb3-contrib")
Point = dict[str, float]
"""Steps, processor seconds and the mean return of an evaluation."""


def _trained(learn: Callable[[], Any], steps: Callable[[], int], evaluate: Callable[[], float]) -> Iterator[Point]:
    """Train in pieces, and yield a point before the first and after each piece."""
    spent = 0.0
    yield {"steps": 0, "seconds": 0.0, "return": round(evaluate(), 2)}
    for _ in range(PIECES):
        began = time.process_time()
        learn()
        spent += time.process_time() - began
        yield {"steps": steps(), "seconds": round(spent, 3), "return": round(evaluate(), 2)}


def _ours(seed: int, settings: dict[str, Any], n_envs: int) -> list[Point]:
    envs, others = (make_vec_env(ENV, count, vectorization="sync") for count in (n_envs, 1))
    agent: Any = rlsdk.make(ALGORITHM, env=envs, seed=seed, device="cpu", **settings)

    def evaluate() -> float:
        return float(np.mean(evaluate_policy(agent, others, EPISODES)[0]))

    return list(_trained(lambda: agent.learn(PIECE, reset_num_timesteps=False), lambda: agent.num_timesteps, evaluate))


def _peer(seed: int, settings: dict[str, Any], n_envs: int) -> list[Point]:
    import sb3_contrib
    from stable_baselines3.common import env_util, evaluation

    torch.set_num_threads(1)
    envs = env_util.make_vec_env(ENV, n_envs, seed=seed)
    others = env_util.make_vec_env(ENV, 1, seed=seed + 1000)
    model = sb3_contrib.TRPO("MlpPolicy", envs, seed=seed, device="cpu", **settings)

    def evaluate() -> float:
        return float(np.mean(evaluation.evaluate_policy(model, others, EPISODES)[0]))

    return list(_trained(lambda: model.learn(PIECE, reset_num_timesteps=False), lambda: model.num_timesteps, evaluate))


def train(seeds: int) -> None:
    """Train both sides alternately, so that a busy machine slows both. The file is written after each seed."""
    known = preset(ALGORITHM, ENV)
    assert known is not None
    settings, n_envs = dict(known.settings), known.n_envs or 1
    runs: dict[str, list[list[Point]]] = {side: [] for side in SIDES}
    for seed in range(seeds):
        for side, trained in zip(SIDES, (_ours, _peer), strict=True):
            runs[side].append(trained(seed, settings, n_envs))
            print(side, seed, runs[side][-1][-1], flush=True)
        described = {"algorithm": ALGORITHM, "env": ENV, "settings": settings, "n_envs": n_envs, "episodes": EPISODES}
        versions = {name: version(name) for name in ("rlsdk", "sb3-contrib", "torch", "gymnasium")}
        record = {**described, "versions": versions, "date": time.strftime("%Y-%m-%d"), "runs": runs}
        DATA.write_text(f"{json.dumps(record)}\n", encoding="utf-8")


def summary(record: dict[str, Any], side: str) -> dict[str, np.ndarray[Any, Any]]:
    """Per point: steps, seconds, and the mean return over seeds with its 95 % bootstrap interval."""
    runs = record["runs"][side]
    columns = {name: np.array([[point[name] for point in run] for run in runs]) for name in runs[0][0]}
    found = [estimate([values], mean) for values in columns["return"].T]
    return {
        "steps": columns["steps"].mean(0),
        "seconds": columns["seconds"].mean(0),
        "mean": np.array([each.value for each in found]),
        "low": np.array([each.low for each in found]),
        "high": np.array([each.high for each in found]),
    }


def draw() -> None:
    """Write the picture: return against environment steps, and against processor time."""
    record = json.loads(DATA.read_text(encoding="utf-8"))
    figure = new_figure(columns=2, size=(9.0, 3.6))
    labels = {"steps": "environment steps", "seconds": "processor time in seconds"}
    for axes, (name, label) in zip(figure.axes, labels.items(), strict=True):
        for side, color in zip(SIDES, ("#0072b2", "#d55e00"), strict=True):
            points = summary(record, side)
            axes.plot(points[name], points["mean"], color=color, marker="o", markersize=3, label=side)
            axes.fill_between(points[name], points["low"], points["high"], color=color, alpha=0.2, linewidth=0)
        axes.set_xlabel(label)
    figure.axes[0].set_ylabel(f"mean return of {record['episodes']} episodes")
    figure.axes[1].legend(loc="lower right", frameon=False)
    count = len(record["runs"][SIDES[0]])
    figure.suptitle(
        f"{record['algorithm'].upper()} on {record['env']}: mean of {count} seeds, 95 % interval", fontsize=11
    )
    save_figure(figure, PICTURE, DESCRIPTION)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.landing", description=__doc__)
    parser.add_argument("command", choices=("train", "draw"))
    parser.add_argument("--seeds", type=positive, default=5)
    options = parser.parse_args()
    if options.command == "train":
        train(options.seeds)
    draw()


if __name__ == "__main__":
    main()
