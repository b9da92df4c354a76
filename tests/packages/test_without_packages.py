"""rlsdk and one algorithm alone, without any other package of this project, train, evaluate and resume."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.throwaway import python_with

TRAINS = """
import time, warnings
import gymnasium
import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError, UnknownNameError
from rlsdk.registry import plugins

class Slow(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("Pendulum-v1"))

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


if __name__ == "__main__":
    assert [plugin.id for plugin in plugins()] == ["tqc"], [plugin.id for plugin in plugins()]
    small = {"buffer_size": 100, "learning_starts": 4, "batch_size": 4, "seed": 0}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        envs = make_vec_env(Slow, 2)
    (found,) = [str(warning.message) for warning in caught if "processes" in str(warning.message)]
    print(type(envs).__name__, found)
    rlsdk.make("tqc", env=envs, **small).learn(16)
    envs.close()
    for given in ({"collectors": 2}, {"vectorization": "processes"}, {"vectorization": "async"}):
        try:
            make_vec_env("Pendulum-v1", 2, **given)
        except (SettingsError, UnknownNameError) as error:
            print(error)
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Python of an environment with the packages of this one; of this project it has rlsdk and rlsdk-tqc alone."""
    return python_with(
        tmp_path_factory.mktemp("bare"), lambda name: "rlsdk_" not in name or bool(re.search(r"rlsdk_tqc\b", name))
    )


@pytest.mark.full
def test_one_algorithm_alone_trains(bare_python: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(TRAINS)
    small = [
        part for name, value in (("learning_starts", 20), ("batch_size", 8)) for part in ("--set", f"{name}={value}")
    ]
    run = [
        "-m",
        "rlsdk",
        "run",
        "tqc",
        "--env",
        "Pendulum-v1",
        "--eval-every",
        "0",
        "--eval-episodes",
        "1",
        "--out",
        "out",
    ]
    printed = []
    for command in (
        ["script.py"],
        [*run, "--steps", "40", "--checkpoint-every", "20", *small],
        [*run, "--steps", "60", "--resume"],
        ["-m", "rlsdk", "eval", "out/final.rlsdk", "--episodes", "1"],
    ):
        done = subprocess.run(
            [bare_python, *command], capture_output=True, text=True, cwd=tmp_path, env={**os.environ}, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        printed.append(done.stdout)
    slow, collectors, processes, environments = printed[0].splitlines()
    assert re.match(
        r"SyncVectorEnv environment 'Pendulum-v1': its 2 copies would be faster in processes, which are in rlsdk-parallel:"
        r" pip install .*rlsdk-parallel",
        slow,
    )
    assert re.match(
        r"the argument collectors is in rlsdk-parallel, which is not installed: pip install .*rlsdk-parallel",
        collectors,
    )
    assert re.match(r"vectorization 'processes' is in rlsdk-parallel, which is not installed", processes)
    assert re.match(
        r"vectorization 'async' is in rlsdk-parallel, which is not installed; install it: pip install .*rlsdk-parallel",
        environments,
    )
