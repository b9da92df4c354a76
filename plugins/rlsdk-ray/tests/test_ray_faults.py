"""Failures: nodes that die, a killed program, Ctrl-C in a terminal. Tests that start their own Ray are slow."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from rlsdk.environments import make_vec_env
from rlsdk.errors import PluginError, SettingsError
from rlsdk_ppo import PPO
from rlsdk_ray import RayExecutor, connection
from rlsdk_ray.connection import require_answer
from rlsdk_testing.subject import differing, flat_state
from tests.in_processes import LINUX, require_all_end
from tests.runs.test_interrupted_runs import wait_for

pytestmark = LINUX
PROGRAM = """
import sys, time
from rlsdk_ray import RayExecutor

def work(item):
    time.sleep(1000)

if __name__ == "__main__":
    executor = RayExecutor(2)
    executor.map(abs, [1, 2])
    print("ready", flush=True)
    if sys.argv[1] == "working":
        executor.map(work, [1, 2])
    time.sleep(1000)
"""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A cluster with a head of one CPU, to which this process is connected; tests add nodes."""
    from ray.cluster_utils import Cluster

    # with its usual niceness, Ray's processes would get too little time beside other tests
    os.environ.update(RAY_worker_niceness="0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def slow_square(item: int) -> tuple[int, str]:
    time.sleep(1.0)
    return item * item, ray.get_runtime_context().get_node_id()


@pytest.mark.slow
def test_a_node_that_dies_changes_no_result(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    executor = RayExecutor(3)
    assert len({place for _, place in executor.map(slow_square, range(6))}) == 2, "both nodes work"
    threading.Timer(1.5, lambda: cluster.remove_node(node, allow_graceful=False)).start()
    found = executor.map(slow_square, range(12))
    executor.close()
    assert [square for square, _ in found] == [i * i for i in range(12)]
    assert executor.repeated > 0


@pytest.mark.slow
def test_collectors_of_a_node_that_dies_are_replaced(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    spare = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()

    def trained(executor: str) -> tuple[dict[str, Any], int]:
        envs = make_vec_env("CartPole-v1", 6, collectors=3, executor=executor)
        agent = PPO("MlpPolicy", envs, n_steps=16, batch_size=32, seed=3).learn(96)
        if executor == "ray":
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
        agent.learn(192, reset_num_timesteps=False)
        envs.close()
        return flat_state(agent), envs.restarts

    there, restarts = trained("ray")
    assert spare is not None
    assert not differing(there, trained("in-process")[0])
    assert restarts == 1


@pytest.mark.slow
def test_a_node_with_other_versions_is_refused(cluster: Any, tmp_path: Path) -> None:
    info = tmp_path / "rlsdk_ars-0.0.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlsdk-ars\nVersion: 0.0.7\n")
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(tmp_path)})
    cluster.wait_for_nodes()
    with pytest.raises(PluginError, match=r"other versions than the program: rlsdk-ars 0\.1\.0 \(0\.0\.7 there\)"):
        RayExecutor(1)


@pytest.mark.slow
@pytest.mark.parametrize("doing", ["waiting", "working"])
def test_everything_ends_with_a_killed_program(doing: str, tmp_path: Path) -> None:
    mark, script = uuid.uuid4().hex, tmp_path / "program.py"
    script.write_text(PROGRAM)
    variables = {**os.environ, "RLSDK_TEST_MARK": mark, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), doing]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        require_all_end(process, mark, settle=1.0, children=2, within=10.0)


@pytest.mark.slow
def test_ctrl_c_saves_the_runs(tmp_path: Path) -> None:
    """Both seeds stop at their next step and save; the same command with --resume continues them."""
    command = [sys.executable, "-m", "rlsdk", "run", "ppo", "--env", "CartPole-v1", "--no-preset", "--seeds", "2"]
    more = ["--executor", "ray", "--eval-every", "0", "--eval-episodes", "1", "--set", "n_steps=64", "--out", "runs"]
    with subprocess.Popen(
        [*command, *more, "--steps", "100000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        for seed in (0, 1):
            wait_for(tmp_path / "runs" / f"seed-{seed}" / "metrics.csv", 120)
        time.sleep(3.0)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    for seed in (0, 1):
        record = json.loads((tmp_path / "runs" / f"seed-{seed}" / "run.json").read_text())
        assert record["status"] == "interrupted"
        assert list((tmp_path / "runs" / f"seed-{seed}").rglob("*.rlsdk"))


@pytest.mark.parametrize(("message", "starts"), [("The current node timed out during startup.", 2), ("no memory", 1)])
def test_a_start_that_took_too_long_is_tried_again(message: str, starts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def init(**options: object) -> None:
        begun.append(options)
        raise RuntimeError(message)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(SettingsError, match=f"no Ray can be started on this machine: .*{message}"):
        connection._start({})
    assert len(begun) == starts


# --- addresses -----------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_addresses_where_no_ray_answers_are_refused_within_seconds() -> None:
    began = time.monotonic()
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))
        for address, message in (
            (f"127.0.0.1:{silent.getsockname()[1]}", "no Ray answers at .*: timed out"),
            (f"127.0.0.1:{closed.getsockname()[1]}", "no Ray answers at .*refused"),
            ("ray://127.0.0.1:10001", "is an address of Ray's client"),
            ("127.0.0.1", "give host:port, such as 10.0.0.1:6379, or auto"),
        ):
            with pytest.raises(SettingsError, match=message):
                require_answer(address)
    assert time.monotonic() - began < 60.0  # measured: 5 s; Ray itself waits for minutes


@pytest.mark.slow
def test_the_address_of_the_environment_is_joined_and_left(cluster: Any) -> None:
    address = cluster.address
    ray.shutdown()
    code = (
        "from rlsdk.executors import capacity, make_executor; import ray; print(capacity('ray'));"
        "executor = make_executor('ray', 1); print(executor.map(abs, [-3])); executor.close(); print(ray.is_initialized())"
    )
    variables = {**os.environ, "RAY_ADDRESS": address}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "[3]", "False"], done.stderr
    require_answer(address)
