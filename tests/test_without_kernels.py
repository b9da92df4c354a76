"""All algorithms work with kernels off, and without the modules of kernels; numbers differ by rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITHOUT_MODULES = """
import importlib.abc, sys, warnings
warnings.simplefilter("ignore")
NEEDED = {"action_values", "compiler_import", "differentiable", "factory", "hooks", "layer_factory", "losses", "protocol",
          "reference", "returns", "structure", "switch", "vector_steps"}

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("rlsdk.kernels.") and name.split(".")[2] not in NEEDED:
            raise ModuleNotFoundError(f"no module {name}", name=name)

sys.meta_path.insert(0, Hidden())
import rlsdk
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
print(sorted(m for m in sys.modules if m.startswith("rlsdk.kernels.")))
"""


def in_a_process(arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **variables}, check=False
    )


def test_all_algorithms_train_without_the_modules_of_kernels() -> None:
    done = in_a_process(["-c", WITHOUT_MODULES])
    assert done.returncode == 0, done.stderr
    *names, modules = done.stdout.splitlines()
    assert names == ["tqc", "qrdqn", "trpo", "maskable-ppo", "recurrent-ppo", "ars"]
    assert modules == str(
        [
            f"rlsdk.kernels.{name}"
            for name in (
                "action_values",
                "compiler_import",
                "differentiable",
                "factory",
                "hooks",
                "layer_factory",
                "losses",
                "protocol",
                "reference",
                "returns",
                "structure",
                "switch",
                "vector_steps",
            )
        ]
    )


@pytest.mark.slow
def test_parity_updates_and_files_without_kernels() -> None:
    tests = [
        "plugins/rlsdk-tqc/tests",
        "plugins/rlsdk-trpo/tests",
        "plugins/rlsdk-qrdqn/tests",
        "tests/test_golden_files.py",
    ]
    tests += ["tests/test_replaced_layers.py", "tests/test_numbers.py", "tests/test_resume.py"]
    done = in_a_process(["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests], RLSDK_KERNELS="off")
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_switch_is_on_or_off() -> None:
    done = in_a_process(["-c", "import rlsdk.kernels"], RLSDK_KERNELS="of")
    assert "did you mean 'off'" in done.stderr
