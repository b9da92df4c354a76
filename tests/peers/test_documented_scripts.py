"""The example scripts in the manuals of stable-baselines3 and sb3-contrib run with only their imports changed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted(
    path for path in (Path(__file__).parents[1] / "documented_scripts").glob("*.py") if path.stem != "__init__"
)
FEW = {"maskable_ppo": 5000}
"""Script -> training steps in the fast test, 300 for others. This script expects a mean return of 90 after training."""


def cut_short(source: str, steps: int) -> str:
    """The script with at most `steps` training steps, 2 instead of 20 evaluation episodes, and 60 rounds instead of
    `while True`."""
    budget = re.compile(r"(\.learn\((?:total_timesteps=)?)([\d_]+)")
    source = budget.sub(lambda found: found[1] + str(min(int(found[2]), steps)), source)
    source = source.replace("n_eval_episodes=20", "n_eval_episodes=2").replace(
        'render_mode="human"', 'render_mode="rgb_array"'
    )
    return endless_loop_ends(source, 60)


def endless_loop_ends(source: str, rounds: int) -> str:
    return source.replace("while True:", f"for _ in range({rounds}):")


def run(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    script = folder / "script.py"
    script.write_text(source)
    return runpy.run_path(str(script), run_name="__main__")


def test_there_are_sixteen() -> None:
    assert len(SCRIPTS) == 16


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_documented_script_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = script.read_text()
    short = cut_short(source, FEW.get(script.stem, 300))
    names = run(short, tmp_path, monkeypatch)
    assert names["model"].num_timesteps > 0  # type: ignore[attr-defined]
    saved = re.findall(r'\.save\("(\w+)"\)', source)
    assert [path.stem for path in tmp_path.glob("*.rlsdk")] == saved


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_documented_script_runs_at_full_length(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts run with all their steps, without `reward_threshold`: which seeds reach it depends on the
    library's random numbers. The next test checks the mean."""
    source = script.read_text().replace("reward_threshold=90, ", "")
    run(endless_loop_ends(source, 500), tmp_path, monkeypatch)


@pytest.mark.slow
def test_the_return_that_a_script_asks_for_is_that_of_the_average_seed() -> None:
    """`maskable_ppo` expects a return of 90. Over these seeds with 20 episodes each, sb3-contrib 2.9.2 reaches 88.4
    on average (86.1 to 92.4), and rlsdk 90.7."""
    from rlsdk.evaluation.evaluate import evaluate_policy
    from rlsdk_envs.toy import InvalidActionEnvDiscrete
    from rlsdk_maskable_ppo import MaskablePPO

    returns = []
    for seed in (32, 0, 1, 2, 3, 4, 5, 6):
        env = InvalidActionEnvDiscrete(dim=80, n_invalid_actions=60)
        model = MaskablePPO("MlpPolicy", env, gamma=0.4, seed=seed).learn(5000)
        returns.append(evaluate_policy(model, env, n_eval_episodes=20, warn=False)[0])
    assert sum(returns) / len(returns) >= 88.4
