"""Prints a finished run as text: its learning curve, its files, and commands to try next. `make demo` runs it at the end.

python examples/show_run.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rlsdk.runs import read_metric

WIDTH = 40
"""The number of characters of the longest bar."""
FILES = {
    "learning_curve.png": "evaluations and training episodes as a picture",
    "agent.gif": "the agent for one episode",
    "final.rlsdk": "the agent; best.rlsdk is the one with the best evaluation",
    "metrics.csv": "all numbers of the training",
    "config.toml": "all settings, with explanations",
}
NEXT = {
    "rlsdk list": "the installed algorithms",
    "rlsdk info tqc": "its settings, spaces and paper",
    "rlsdk run tqc --resume --out {folder} --steps 10000": "continue this training",
    "rlsdk run ppo --env CartPole-v1 --steps 20000 --out runs/ppo": "another algorithm and environment",
    "rlsdk run ars --env CartPole-v1 --steps 5000 --seeds 2": "several seeds in parallel",
    "rlsdk new my-algo --family on-policy": "a package for an algorithm of your own",
    "docs/tutorial/1-train.md, examples/notebooks": "the same from Python",
}


def table(steps: list[float], returns: list[float]) -> list[str]:
    """One line per evaluation: steps, mean return, and a bar from the worst return to the best."""
    low, high = min(returns), max(returns)
    bars = [round(WIDTH * (value - low) / ((high - low) or 1.0)) for value in returns]
    rows = zip(steps, returns, bars, strict=True)
    return [f"{int(step):>8,}  {value:>10.1f}  |{'#' * bar}" for step, value, bar in rows]


def main(folder: Path) -> None:
    """Print the learning curve and the files of the run directory `folder`."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    steps, returns = read_metric(folder / "metrics.csv", "eval/mean_reward")
    print(
        f"\nHow {run['algorithm']} learned {run['env']}: mean return of {run['eval_episodes']} episodes, after so many steps\n"
    )
    print("   steps      return")
    print("\n".join(table(steps, returns)))
    print(f"\n{run['env_steps']:,} steps in {run['seconds']:.0f} seconds, evaluations included.\n")
    print("Files")
    for name, text in FILES.items():
        if (folder / name).exists():
            print(f"  {folder / name!s:<28} {text}")
    print("\nTry next, after: . .venv/bin/activate")
    for command, text in NEXT.items():
        print(f"  {command.format(folder=folder):<62} {text}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/show_run.py FOLDER")
    main(Path(sys.argv[1]))
