"""A training imports only what it uses: neither the library of tensor files nor toy environments (docs/memory.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import io, sys
import rlsdk
from rlsdk.environments import make_vec_env

agent = rlsdk.make("ars", env=make_vec_env("CartPole-v1", 1)).learn(100)
unused = ("safetensors", "rlsdk_envs.toy.any_space", "rlsdk_testing", "rlsdk_lab", "rlsdk_interchange")
assert not [name for name in unused if name in sys.modules], [name for name in unused if name in sys.modules]
agent.save(file := io.BytesIO())
assert "safetensors" not in sys.modules  # rlsdk writes tensors itself
file.seek(0)
rlsdk.load(file)
assert "safetensors" in sys.modules
"""


@pytest.mark.full
def test_a_training_imports_no_library_of_files() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


COMMAND = """
import gc, sys
from rlsdk.__main__ import main

sys.argv = ["rlsdk", *{arguments}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
unused = ("matplotlib", "PIL", "scipy", "pandas", "tensorboard", "rich", "optuna", "onnx", "ray", "jax", "wandb", "mlflow")
unused += ("torch._dynamo", "torch.onnx", "torch.utils.tensorboard", "stable_baselines3", "rlsdk_sb3", "rlsdk_testing")
unused += ("rlsdk_parallel", "rlsdk_interchange", "rlsdk_zoo", "email.mime", "IPython", "pytest")
assert not [name for name in unused if name in sys.modules], [name for name in unused if name in sys.modules]
assert gc.isenabled() and gc.get_threshold()[0] > 0  # objects of users are collected as ever
assert gc.get_freeze_count() > 50_000, gc.get_freeze_count()  # those of torch are not
"""


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """The folder of a run of 0 steps."""
    command = ["run", "ppo", "--env", "CartPole-v1", "--steps", "0", "--eval-episodes", "1", "-q", "--out", "run"]
    _in_process(COMMAND.replace("{arguments}", repr(command)), tmp_path)
    return tmp_path / "run"


def _in_process(program: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.parametrize("command", ["eval run --episodes 1", "inspect run", "run ppo --resume --out run --steps 8 -q"])
def test_short_commands_import_no_more_than_they_use(run_folder: Path, command: str) -> None:
    """Nor does the garbage collector search what they import: see `rlsdk.cli.main.imports_of_command`."""
    program = COMMAND.replace('"scipy", ', "") if command.startswith("eval") else COMMAND  # intervals need scipy
    _in_process(program.replace("{arguments}", repr(command.split())), run_folder.parent)


@pytest.mark.full
def test_a_program_that_calls_a_command_has_its_objects_collected(tmp_path: Path) -> None:
    program = "import gc, torch\n" + COMMAND.replace("import gc, sys", "import sys").replace(
        "assert gc.get_freeze_count() > 50_000", "assert gc.get_freeze_count() == 0"
    )
    command = ["run", "ppo", "--env", "CartPole-v1", "--steps", "0", "--eval-episodes", "1", "-q", "--out", "run"]
    _in_process(program.replace("{arguments}", repr(command)), tmp_path)
