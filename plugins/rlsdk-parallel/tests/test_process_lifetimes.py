"""Worker processes end when their parent ends, and Ctrl-C does not end them earlier."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.in_processes import LINUX, require_all_end
from tests.runs.test_interrupted_runs import wait_for

ENVIRONMENTS = """
import os, sys, time
from pathlib import Path
import gymnasium
from rlsdk.environments import make_vec_env

class Closing(gymnasium.Wrapper):
    def step(self, action):
        if action == 1:
            time.sleep(1000)
        return super().step(action)
    def close(self):
        (Path(sys.argv[2]) / f"{os.getpid()}-{id(self)}.closed").touch()

def one():
    return Closing(gymnasium.make("CartPole-v1"))

if __name__ == "__main__":
    place = {"vectorization": "async", "workers": 3, "start_method": sys.argv[1]}
    env = make_vec_env(one, 4, **({"collectors": 2} if sys.argv[1] == "collectors" else place))
    env.reset(0)
    print("ready", flush=True)
    if sys.argv[3] == "stepping":
        import torch
        env.step(torch.ones(4, dtype=torch.int64))
    time.sleep(1000)
"""
AHEAD = """
import sys, time
import gymnasium, rlsdk
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env

class Waiting(gymnasium.Wrapper):
    steps = 0
    def step(self, action):
        self.steps += 1
        if self.steps == 40 and sys.argv[3] == "stepping":
            time.sleep(1000)
        return super().step(action)

def one():
    return Waiting(gymnasium.make("CartPole-v1"))

if __name__ == "__main__":
    env = make_vec_env(one, 4, collectors=2, max_lag=1)
    agent = rlsdk.make("ppo", env=env, n_steps=16, batch_size=32, n_epochs=1, seed=0)
    seen = []
    def report(run, report):
        if not seen:
            print("ready", flush=True)
        seen.append(report)
    agent.learn(10**9, LambdaCallback(on_report=report))
"""
WORK = """
import sys, time
from rlsdk.executors import make_executor

def work(item):
    print("ready", flush=True)
    if item:
        time.sleep(1000)

if __name__ == "__main__":
    executor = make_executor("processes", 1)
    executor.map(work, [sys.argv[3] == "stepping"])
    time.sleep(1000)
"""


@pytest.mark.full
@LINUX
@pytest.mark.parametrize(
    ("program", "method"),
    [
        (ENVIRONMENTS, "fork"),
        (ENVIRONMENTS, "forkserver"),
        (ENVIRONMENTS, "spawn"),
        pytest.param(ENVIRONMENTS, "collectors", marks=pytest.mark.slow),
        pytest.param(AHEAD, "", marks=pytest.mark.slow),
        (WORK, ""),
    ],
    ids=["fork", "forkserver", "spawn", "collectors", "collectors-ahead", "executor"],
)
@pytest.mark.parametrize("doing", ["waiting", "stepping"])
def test_processes_end_with_a_killed_parent(tmp_path: Path, program: str, method: str, doing: str) -> None:
    mark, script = uuid.uuid4().hex, tmp_path / "program.py"
    script.write_text(program)
    variables = {**os.environ, "RLSDK_TEST_MARK": mark, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(script), method, str(tmp_path), doing]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables) as process:
        require_all_end(process, mark, settle=0.2, children=1, within=8.0)
    if program is ENVIRONMENTS:
        closed = [path for path in tmp_path.glob("*.closed") if not path.name.startswith(f"{process.pid}-")]
        assert len(closed) == 4, "the environments were closed first"


@pytest.mark.full
@pytest.mark.parametrize(
    "place",
    [
        ("--vectorization", "async"),
        pytest.param(("--collectors", "2"), marks=pytest.mark.slow),
        pytest.param(("--collectors", "2", "--max-lag", "1"), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_ctrl_c_of_a_terminal_goes_to_the_parent_alone(place: tuple[str, ...], tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all processes of a run. The workers ignore it, so the run ends with exit status 130."""
    command = [
        "run",
        "ppo" if "--max-lag" in place else "trpo",
        "--env",
        "Pendulum-v1",
        "--steps",
        "1000000",
        "--n-envs",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    more = [
        *place,
        "--eval-every",
        "0",
        "--eval-episodes",
        "1",
        "--no-preset",
        "--set",
        "n_steps=512",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "rlsdk", *command, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        wait_for(tmp_path / "run" / "run.json")
        time.sleep(1.5)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "died" not in error


STARTING = """
import os, signal, sys, time
from rlsdk_parallel.executors import Processes
from rlsdk_parallel.processes import StatefulProcesses

def make():
    return abs

if __name__ == "__main__":
    caught = []
    signal.signal(signal.SIGINT, lambda *_: caught.append(1))
    stateful = StatefulProcesses([make, make])
    pids = stateful.pids
    mapping = Processes(2)
    answers = mapping.submit(abs, -3)
    time.sleep(0.2)  # they are importing
    os.killpg(os.getpid(), signal.SIGINT)
    print(sorted(stateful.ask({0: -1, 1: -2}).items()), answers.result(), stateful.pids == pids, mapping.repeated, len(caught))
    stateful.close()
    mapping.close()
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signals to hold")
def test_ctrl_c_while_processes_start_does_not_end_them(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(STARTING)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, start_new_session=True, timeout=120, check=True
    )
    assert done.stdout == "[(0, 1), (1, 2)] 3 True 0 1\n"
    assert not done.stderr


UNSENDABLE = """
from rlsdk.errors import WorkError
from rlsdk_parallel.processes import StatefulProcesses

def make():
    return abs

if __name__ == "__main__":
    stateful = StatefulProcesses([make, make])
    try:
        stateful.ask({0: -1, 1: lambda: None})
    except WorkError as error:
        print(str(error).partition(":")[0])
    print(sorted(stateful.ask({0: -2, 1: -3}).items()))
    stateful.close()
"""


@pytest.mark.full
def test_a_request_that_cannot_be_sent_leaves_no_worker_waiting(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(UNSENDABLE)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "the work or an item cannot be sent to another process\n[(0, 2), (1, 3)]\n"


IN_CALLBACK = """
import os, signal, time, weakref
from rlsdk_parallel.workers import obey_parent_only

class Thing:
    pass

def gone(_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.001)

obey_parent_only()
thing = Thing()
seen = weakref.ref(thing, gone)
try:
    del thing
    time.sleep(1000)
except KeyboardInterrupt:
    print("cleaned up")
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM handlers")
def test_an_interrupt_inside_a_callback_of_a_weak_reference_is_neither_lost_nor_printed() -> None:
    done = subprocess.run([sys.executable, "-c", IN_CALLBACK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleaned up\n", "")
