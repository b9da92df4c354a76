"""All algorithms work with kernels off, and without the package of kernels; numbers differ by rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rlsdk
from tests.throwaway import python_with

ROOT = Path(__file__).parents[2]
WITHOUT_PACKAGE = """
import sys, warnings
warnings.simplefilter("error", RuntimeWarning)
import rlsdk
from rlsdk.evaluation import evaluate_policy
from rlsdk.registry import plugins
SMALL = {"buffer_size": 100, "learning_starts": 4, "batch_size": 4}
for name, env, settings in (
    ("tqc", "Pendulum-v1", SMALL),
    ("qrdqn", "CartPole-v1", {**SMALL, "train_freq": 1}),
    ("trpo", "Pendulum-v1", {"n_steps": 16, "batch_size": 8, "n_critic_updates": 1}),
    ("maskable-ppo", "CartPole-v1", {"n_steps": 16, "batch_size": 8, "use_masking": False}),
    ("recurrent-ppo", "CartPole-v1", {"n_steps": 16, "batch_size": 8, "n_epochs": 1}),
    ("ars", "CartPole-v1", {"n_delta": 1}),
):
    model = rlsdk.make(name, env=env, seed=0, **settings)
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(32)
    assert any(not p.equal(b) for p, b in zip(model.policy.parameters(), before)), name
    model.predict(model.observation_space.sample(), deterministic=True)
    print(name)
model = rlsdk.make("tqc", env="Pendulum-v1", seed=0, **SMALL)
model.learn(32)
evaluate_policy(model, "Pendulum-v1", 1)
model.save(sys.argv[1])
again = rlsdk.load(sys.argv[1], env="Pendulum-v1")
assert all(a.equal(b) for a, b in zip(model.policy.state_dict().values(), again.policy.state_dict().values()))
again.learn(16, reset_num_timesteps=False)
assert again.num_timesteps == 48
print([m for m in sys.modules if m.startswith("rlsdk_kernels")], any(p.id == "kernels" for p in plugins()))
"""


def in_a_process(
    arguments: list[str], python: str = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [python, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **variables}, check=False
    )


@pytest.fixture(scope="module")
def python_without_the_package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Python of an environment with all packages of this one except rlsdk-kernels."""
    return python_with(tmp_path_factory.mktemp("without"), lambda name: "rlsdk_kernels" not in name)


@pytest.mark.full
def test_all_algorithms_train_without_the_package(python_without_the_package: str, tmp_path: Path) -> None:
    done = in_a_process(["-c", WITHOUT_PACKAGE, str(tmp_path / "agent.rlsdk")], python=python_without_the_package)
    assert done.returncode == 0, done.stderr
    *names, modules = done.stdout.splitlines()
    assert names == ["tqc", "qrdqn", "trpo", "maskable-ppo", "recurrent-ppo", "ars"]
    assert modules == "[] False"


@pytest.mark.full
def test_a_run_is_resumed_without_the_package(python_without_the_package: str, tmp_path: Path) -> None:
    small = ["--set", "learning_starts=20", "--set", "buffer_size=200", "--set", "batch_size=16", "--eval-every", "0"]
    run = ["-m", "rlsdk", "run", "tqc", "--env", "Pendulum-v1", "--seed", "1", "--checkpoint-every", "40", *small]
    for arguments in (
        [*run, "--steps", "120", "--out", str(tmp_path / "whole")],
        [*run, "--steps", "80", "--out", str(tmp_path / "parts")],
        [
            "-m",
            "rlsdk",
            "run",
            "tqc",
            "--env",
            "Pendulum-v1",
            "--out",
            str(tmp_path / "parts"),
            "--resume",
            "--steps",
            "120",
        ],
    ):
        done = in_a_process(arguments, python=python_without_the_package)
        assert done.returncode == 0, done.stderr
    whole, parts = (rlsdk.load(tmp_path / name / "final.rlsdk").policy.state_dict() for name in ("whole", "parts"))
    assert all(value.equal(parts[name]) for name, value in whole.items())


@pytest.mark.slow
def test_parity_updates_and_files_without_kernels() -> None:
    tests = [
        "plugins/rlsdk-tqc/tests",
        "plugins/rlsdk-trpo/tests",
        "plugins/rlsdk-qrdqn/tests",
        "tests/storage/test_golden_files.py",
    ]
    tests += ["tests/networks/test_replaced_layers.py", "tests/math/test_numbers.py", "tests/agent/test_resume.py"]
    done = in_a_process(["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests], RLSDK_KERNELS="off")
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.full
def test_the_switch_is_on_or_off() -> None:
    done = in_a_process(["-c", "from rlsdk.kernels import kernels_off"], RLSDK_KERNELS="of")
    assert "did you mean 'off'" in done.stderr
