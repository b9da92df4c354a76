"""Processor time from the prompt to the end: `rlsdk run ppo --steps 0` against a program of stable-baselines3 that makes PPO.

python -m benchmarks.startup --rounds 7     # both, and `import torch` alone, alternately on one core

rlsdk also evaluates the agent, in ten episodes, and writes a run folder. The times are those of the whole process, user and
system, after one run of each that is not counted: it writes the compiled modules.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PEER = 'from stable_baselines3 import PPO\nPPO("MlpPolicy", "CartPole-v1")'
RUN = ["-m", "rlsdk", "run", "ppo", "--env", "CartPole-v1", "-q", "--steps"]
PROGRAMS = {
    "stable-baselines3": ["-c", PEER],
    "rlsdk, 0 steps": [*RUN, "0"],
    "rlsdk, 8 steps": [*RUN, "8"],
    "import torch": ["-c", "import torch"],
}
"""Name -> arguments of Python."""


def seconds(arguments: list[str], folder: str) -> float:
    """Processor time of one process, in seconds."""
    before = os.times()
    # a variable of the shell may keep Python from writing compiled modules, which installed packages have
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    """Measure and print the median of each program, and of its share of the peer's time in the same round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "runs").mkdir()
        for arguments in PROGRAMS.values():
            seconds(arguments, folder)
        times = [{name: seconds(arguments, folder) for name, arguments in PROGRAMS.items()} for _ in range(rounds)]
    for name in PROGRAMS:
        shares = sorted(each[name] / each["stable-baselines3"] for each in times)
        median, share = statistics.median(each[name] for each in times), statistics.median(shares)
        print(f"{name:18} {median:5.2f} s   {share:4.0%} [{shares[0]:.0%}..{shares[-1]:.0%}]")


if __name__ == "__main__":
    main()
