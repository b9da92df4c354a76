"""TD3+BC and behavior cloning from the same recordings of a half-trained agent, on Pendulum.

python -m benchmarks.improving docs/images     writes improving.csv; results it already has are not measured again

SAC is trained for a fraction of its preset's steps and records episodes with its exploration noise, as for the "medium" data
sets of arXiv:2004.07219. Each seed of the learners has a separate recording. Returns are means over 20 deterministic episodes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.cloning import Rows, mean_return
from rlsdk_bc import BC
from rlsdk_datasets import Dataset, summary_of
from rlsdk_interchange import record_episodes
from rlsdk_sac import SAC
from rlsdk_td3_bc import TD3BC

ENV = "Pendulum-v1"
SEEDS = (0, 1, 2, 3, 4)
RECORDER_SEED, RECORDER_STEPS = 10, 3000
EPISODES = 100
UPDATES = 20_000


def measure(rows: Rows, seed: int, medium: SAC, folder: Path) -> None:
    """Measure the return of the recorded episodes, and the returns of both learners."""
    data = record_episodes(medium, ENV, EPISODES, folder / f"medium-{seed}", seed=1000 * seed)
    if not rows.has(ENV, "recorded", seed, EPISODES):
        rows.add((ENV, "recorded", seed, EPISODES, float(summary_of(data).returns.mean())))
    if not rows.has(ENV, "bc", seed, UPDATES):
        # the same networks, batch size and normalization as TD3+BC
        clone = BC(
            "MlpPolicy",
            None,
            dataset=Dataset.at(data),
            batch_size=256,
            policy_kwargs={"net_arch": [256, 256]},
            normalize={"norm_reward": False},
            seed=seed,
        )
        rows.add((ENV, "bc", seed, UPDATES, mean_return(clone.learn(UPDATES), ENV)))
    if not rows.has(ENV, "td3-bc", seed, UPDATES):
        learner = TD3BC("MlpPolicy", None, dataset=Dataset.at(data), seed=seed)
        rows.add((ENV, "td3-bc", seed, UPDATES, mean_return(learner.learn(UPDATES), ENV)))


def main(folder: Path) -> None:
    """Measure the results that the file does not have yet."""
    rows = Rows(folder / "improving.csv", "episodes_or_updates")
    medium = SAC("MlpPolicy", ENV, seed=RECORDER_SEED, learning_rate=1e-3).learn(RECORDER_STEPS)
    if not rows.has(ENV, "recorder", RECORDER_SEED, RECORDER_STEPS):
        rows.add((ENV, "recorder", RECORDER_SEED, RECORDER_STEPS, mean_return(medium, ENV)))
    with tempfile.TemporaryDirectory() as data:
        for seed in SEEDS:
            measure(rows, seed, medium, Path(data))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.improving", description=__doc__)
    parser.add_argument("folder", type=Path, help="where improving.csv is written")
    main(parser.parse_args().folder)
