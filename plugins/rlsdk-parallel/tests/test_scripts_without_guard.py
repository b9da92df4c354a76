"""Scripts that start processes run only once, with or without `if __name__ == "__main__":`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlsdk_parallel.workers import Script

ENVIRONMENT = """
import gymnasium
print("the script runs", __name__)

class Short(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.1), False, {}

gymnasium.register("Short-v0", entry_point=Short)
"""
TRAINING = """
from rlsdk.environments import make_vec_env
from rlsdk_ppo import PPO
envs = make_vec_env({source}, 2, {place})
print(PPO("MlpPolicy", envs, n_steps=8, batch_size=16, n_epochs=1, seed=0).learn(16).num_timesteps)
envs.close()
"""
POOL = """
from rlsdk.executors import make_executor

def square(number):
    return number * number

def main():
    executor = make_executor("processes", 1)
    print(list(executor.map(square, [2, 3])))
    executor.close()
"""


def run(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    return subprocess.run([sys.executable, str(script)], check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.full
@pytest.mark.parametrize("source", ["Short", "'Short-v0'"])
@pytest.mark.parametrize("place", ["collectors=2", "vectorization='async', start_method='spawn'"])
def test_environments_of_a_script_are_stepped_in_processes(tmp_path: Path, source: str, place: str) -> None:
    done = run(tmp_path, ENVIRONMENT + TRAINING.format(source=source, place=place))
    assert done.stdout.splitlines() == ["the script runs __main__", "16"], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_a_function_of_such_a_script_cannot_be_sent(tmp_path: Path) -> None:
    done = run(tmp_path, POOL + "try:\n    main()\nexcept Exception as error:\n    print(type(error).__name__, error)")
    (line,) = done.stdout.splitlines()
    assert line.startswith("UsageError worker 0: its process needs a class or function of ")
    assert line.endswith("put the code that trains under `if __name__ == '__main__':`")
    assert not done.stderr


@pytest.mark.full
def test_a_function_of_a_script_with_the_guard_can_be_sent(tmp_path: Path) -> None:
    done = run(tmp_path, POOL + "\nif __name__ == '__main__':\n    main()")
    assert done.stdout == "[4, 9]\n", done.stderr


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        ("if __name__ == '__main__': main()", True),
        ('import os\nif "__main__" == __name__ and os.name:\n    main()', True),
        ("def f():\n    if __name__: pass", False),
        ("# if __name__ == '__main__':", False),
    ],
)
def test_the_guard_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, guarded: bool) -> None:
    (tmp_path / "main.py").write_text(text)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "main.py"), raising=False)
    assert (Script.unguarded() is None) == guarded
