"""The moving pictures of the pages of algorithms: a trained agent of rlsdk-zoo plays the first episode of seed 0.

python -m benchmarks.animations [ALGORITHM ...]     write docs/images/agents/ALGORITHM.gif; all without

They are of classic control, which needs no screen and gives small files. PPO has the picture of the landing page.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rlsdk_lab.video import record_video
from rlsdk_zoo import load

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "agents"
LONGEST = 100
"""Frames of a picture."""
AGENTS = {
    "a2c": "Acrobot-v1",
    "acer": "MountainCar-v0",
    "acktr": "Acrobot-v1",
    "ars": "CartPole-v1",
    "bc": "CartPole-v1",
    "cql": "MountainCarContinuous-v0",
    "crossq": "Pendulum-v1",
    "ddpg": "Pendulum-v1",
    "discrete-sac": "Acrobot-v1",
    "dqn": "MountainCar-v0",
    "gail": "CartPole-v1",
    "iql": "MountainCarContinuous-v0",
    "maskable-ppo": "CartPole-v1",
    "pqn": "CartPole-v1",
    "qrdqn": "Acrobot-v1",
    "recurrent-ppo": "rlsdk/CartPoleNoVel-v1",
    "sac": "Pendulum-v1",
    "td3": "Pendulum-v1",
    "td3-bc": "Pendulum-v1",
    "tqc": "Pendulum-v1",
    "trpo": "MountainCar-v0",
}
"""Algorithm -> the environment of its agent in rlsdk-zoo."""


def write(algorithm: str) -> Path:
    """Record the agent of an algorithm and return the picture."""
    env = AGENTS[algorithm]
    path = FOLDER / f"{algorithm}.gif"
    print(record_video(load(f"{algorithm}/{env}"), f"{env}?max_episode_steps={LONGEST}", path))
    return path


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.animations", description=__doc__)
    parser.add_argument("algorithms", nargs="*", choices=[*AGENTS, []], metavar="ALGORITHM", help="of rlsdk-zoo")
    for algorithm in parser.parse_args().algorithms or AGENTS:
        write(algorithm)


if __name__ == "__main__":
    main()
