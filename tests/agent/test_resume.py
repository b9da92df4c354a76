"""A training that stops and resumes from a file gives exactly the same result as a training without a stop."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk import tree
from rlsdk.callbacks import Callback, CheckpointCallback, EvalCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, EnvironmentFault, UsageError
from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk.records import Episode, Report
from rlsdk.training.run import EpisodeStatistics
from rlsdk_envs.toy import BitFlippingEnv, FakeImageEnv, SimpleMultiObsEnv, TMazeEnv
from tests.stateful_environments import Own, Secretive

REPLAY = {"learning_starts": 60, "buffer_size": 500}


class Log:
    """A sink that stores the logged metrics, without those that measure time."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def write(self, step: int, values: dict[str, float]) -> None:
        self.rows.append((step, {name: v for name, v in values.items() if not name.startswith("time/")}))

    def close(self) -> None: ...


class StopAtCheckpoint(Callback):
    def on_checkpoint(self, run: Any, path: Path) -> bool | None:
        return False


class WriteAtEnd(Callback):
    """Logs at the end of training, so that there are metrics to compare even if no episode ended."""

    def on_training_end(self, run: Any) -> bool | None:
        run.log()
        return None


def everything(agent: Any) -> dict[str, Any]:
    """Return weights, optimizer states, statistics, random streams and replay buffer of an agent as a flat dict."""
    state = {"policy": agent.get_parameters()["policy"], "algorithm": agent.parts.algorithm.state_dict()}
    state["streams"] = agent.streams.state_dict()
    if agent.replay_buffer is not None:
        state["replay"] = agent.replay_buffer.state_dict()
    return tree.flatten(state)


def assert_equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[name], value), name
        else:
            assert found[name] == value, name


def assert_resumes(make: Callable[[], Any], make_env: Callable[[], Any], folder: Path, total: int, every: int) -> None:
    """Train once without a stop and once with a stop at the first checkpoint; require equal states and metrics."""
    whole, log = make(), Log()
    whole.set_logger(log)
    whole.learn(total, [CheckpointCallback(every, folder / "whole", keep=99), WriteAtEnd()], log_interval=1)
    first = make()
    first.learn(total, [CheckpointCallback(every, folder / "first", keep=99), StopAtCheckpoint()], log_interval=1)
    (path,) = (folder / "first").glob("*.rlsdk")
    resumed, later = type(whole).load(path, env=make_env(), force_reset=False), Log()
    stopped_at = resumed.num_timesteps
    assert 0 < stopped_at < total
    resumed.set_logger(later)
    rest = [CheckpointCallback(every, folder / "resumed"), WriteAtEnd()]
    resumed.learn(total - stopped_at, rest, log_interval=1, reset_num_timesteps=False)
    assert resumed.num_timesteps == whole.num_timesteps
    assert_equal(everything(resumed), everything(whole))
    assert later.rows == [row for row in log.rows if row[0] > stopped_at]
    assert later.rows, "nothing was logged, so nothing was compared"


def test_a_log_continues_with_all_its_counts_and_sums() -> None:
    log = EpisodeStatistics(3)
    for number in range(5):
        episodes = (Episode(number, 2.0 * number, 7 + number, (None, True, False)[number % 3]),)
        log.add(Report(10 * number, number, episodes, {} if number % 2 else None), {"train/a": 1.5 * number})
    log.logged = 4
    again = EpisodeStatistics(3)
    again.load_state_dict(log.state_dict())
    assert vars(again) == vars(log)


CASES: dict[str, tuple[str, Any, int, int, dict[str, Any]]] = {
    "tqc": ("tqc", "Pendulum-v1", 420, 230, {**REPLAY, "batch_size": 16}),
    "tqc-mujoco": ("tqc", "HalfCheetah-v5", 200, 150, {**REPLAY, "batch_size": 16, "normalize": True}),
    "tqc-gsde": ("tqc", "Pendulum-v1", 420, 230, {**REPLAY, "batch_size": 16, "use_sde": True, "train_freq": 8}),
    "tqc-secretive": ("tqc", Secretive, 300, 230, {**REPLAY, "batch_size": 16, "normalize": True}),
    "tqc-secretive-shared": (
        "tqc",
        Secretive,
        300,
        230,
        {**REPLAY, "batch_size": 16, "optimize_memory_usage": True, "frame_stack": 2},
    ),
    "tqc-hindsight": (
        "tqc",
        lambda: BitFlippingEnv(4, continuous=True),
        200,
        130,
        {**REPLAY, "batch_size": 16, "policy": "MultiInputPolicy", "replay_buffer_class": "hindsight"},
    ),
    "qrdqn": ("qrdqn", "CartPole-v1", 300, 200, {**REPLAY, "batch_size": 16}),
    "discrete-sac": (
        "discrete-sac",
        "CartPole-v1",
        300,
        200,
        {**REPLAY, "batch_size": 16, "n_steps": 3, "target_entropy_scale": "lin_0.9"},
    ),
    "pqn": ("pqn", "CartPole-v1", 512, 256, {"n_steps": 64, "batch_size": 32, "normalize": True}),
    "qrdqn-images": (
        "qrdqn",
        lambda: FakeImageEnv(36, 1, action_space=gym.spaces.Discrete(3)),
        160,
        90,
        {**REPLAY, "batch_size": 8, "policy": "CnnPolicy", "frame_stack": 2, "optimize_memory_usage": True},
    ),
    "qrdqn-prioritized": (
        "qrdqn",
        "CartPole-v1",
        300,
        200,
        {**REPLAY, "batch_size": 16, "replay_buffer_class": "prioritized", "n_steps": 3},
    ),
    "ars": ("ars", "CartPole-v1", 1500, 500, {"policy": "LinearPolicy", "normalize": True, "n_delta": 2}),
    "trpo": ("trpo", "Pendulum-v1", 512, 256, {"n_steps": 64, "normalize": True}),
    "trpo-mujoco": ("trpo", "HalfCheetah-v5", 512, 256, {"n_steps": 64, "normalize": True}),
    "trpo-secretive": ("trpo", Secretive, 512, 256, {"n_steps": 64, "normalize": True, "frame_stack": 3}),
    "maskable-ppo": ("maskable-ppo", "rlsdk/InvalidActionEnvDiscrete-v0", 512, 256, {"n_steps": 64, "batch_size": 32}),
    "trpo-dict": ("trpo", lambda: SimpleMultiObsEnv(), 256, 128, {"n_steps": 32, "policy": "MultiInputPolicy"}),
    "recurrent-ppo": ("recurrent-ppo", "rlsdk/CartPoleNoVel-v1", 512, 256, {"n_steps": 64, "batch_size": 32}),
    "recurrent-ppo-maze": ("recurrent-ppo", lambda: TMazeEnv(), 512, 256, {"n_steps": 64, "batch_size": 32}),
}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param(name, count, marks=() if count == (1, 4)[number % 2] else pytest.mark.slow)
        for number, name in enumerate(CASES)
        for count in (1, 4)
    ],
)
def test_stopped_and_resumed_equals_never_stopped(name: str, count: int, tmp_path: Path) -> None:
    algorithm, source, total, every, settings = CASES[name]

    def make_env() -> Any:
        return make_vec_env(source, count)

    def make() -> Any:
        return rlsdk.make(algorithm, env=make_env(), seed=7, **settings)

    assert_resumes(make, make_env, tmp_path, total, every)


def test_environments_in_processes_are_taken_up_too(tmp_path: Path) -> None:
    def make_env() -> Any:
        return make_vec_env("CartPole-v1", 3, vectorization="async", workers=2)

    def make() -> Any:
        return rlsdk.make("trpo", env=make_env(), seed=1, n_steps=32, normalize=True)

    assert_resumes(make, make_env, tmp_path, 400, 150)


@pytest.mark.parametrize("vectorization", ["native", "vector"])
def test_vector_environments_are_taken_up_too(vectorization: str, tmp_path: Path) -> None:
    def make_env() -> Any:
        if vectorization == "native":  # one object with the random numbers of all environments
            return make_vec_env("CartPole-v1", 3, vectorization="native")
        # a list of environments, whose state is not stored
        return gym.make_vec("CartPole-v1", 3, vectorization_mode="sync")

    def make() -> Any:
        return rlsdk.make("trpo", env=make_env(), seed=1, n_steps=32)

    assert_resumes(make, make_env, tmp_path, 400, 150)


# --- the state of one environment --------------------------------------------------------------------------------------


def test_other_environments_than_those_of_the_file_are_refused_where_episodes_are_to_go_on(tmp_path: Path) -> None:
    rlsdk.make("trpo", env="CartPole-v1", n_steps=32, seed=0).learn(32).save(tmp_path / "agent")
    wrapped = gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))
    agent = rlsdk.load(tmp_path / "agent", env=wrapped, force_reset=False)
    with pytest.raises(ArtifactError, match="another kind"):
        agent.learn(32)
    rlsdk.load(tmp_path / "agent", env=wrapped).learn(32)  # by default, new episodes begin
    two = rlsdk.load(tmp_path / "agent", env=make_vec_env("CartPole-v1", 2), force_reset=False)
    with pytest.raises(ArtifactError, match="state of 1 environments, there are 2"):
        two.learn(32)


def test_a_file_written_in_the_middle_of_a_round_begins_episodes_anew(tmp_path: Path) -> None:
    class SaveInside(Callback):
        def on_step(self, run: Any, step: Any) -> bool | None:
            if run.num_timesteps == 50:
                run.agent.save(tmp_path / "inside")
            return None

    rlsdk.make("trpo", env="CartPole-v1", n_steps=32, seed=0).learn(64, SaveInside())
    agent = rlsdk.load(tmp_path / "inside", env="CartPole-v1", force_reset=False)
    assert agent.num_timesteps == 32
    assert agent._assembled.stored_cursor is not None
    assert agent._assembled.stored_cursor.episodes is None
    agent.learn(32, reset_num_timesteps=False)


def test_environments_used_for_something_else_begin_anew(tmp_path: Path) -> None:
    env = gym.make("CartPole-v1")
    agent = rlsdk.make("trpo", env=env, n_steps=32, seed=0).learn(32)
    evaluate_policy(agent, env, 2)  # evaluates in the training environment
    agent.save(tmp_path / "agent")
    assert rlsdk.load(tmp_path / "agent", force_reset=False)._assembled.stored_cursor.episodes is None
    agent.learn(32, reset_num_timesteps=False)
    assert agent.num_timesteps == 64
    with pytest.raises(UsageError, match="another environment"):
        agent.learn(64, EvalCallback(env, eval_freq=32))


def test_an_environment_that_fails_in_a_round_leaves_no_episodes(tmp_path: Path) -> None:
    class Failing(Own):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            self.total += 1.0
            if self.total > 40.0:
                raise OSError("the plug was pulled")
            return np.zeros(1, np.float32), 0.0, False, False, {}

    agent = rlsdk.make("trpo", env=Failing(), n_steps=32, seed=0)
    with pytest.raises(EnvironmentFault, match="the plug was pulled"):
        agent.learn(96)
    agent.save(tmp_path / "agent")
    stored = rlsdk.load(tmp_path / "agent", force_reset=False)._assembled.stored_cursor
    assert (stored.counts.env_steps, stored.episodes) == (32, None), "the environment is further than what was learned"


# --- the command line --------------------------------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rlsdk.cli.main", "run", "tqc", *arguments, "--eval-episodes", "2"]


def metrics(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as stream:
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in csv.DictReader(stream)]


SETTINGS = ["learning_starts=50", "batch_size=16", "policy_kwargs.net_arch=[16]", "policy_kwargs.n_quantiles=5"]
OPTIONS = ["--env", "Pendulum-v1", "--seed", "4", "--steps", "1000", "--checkpoint-every", "200", "--eval-every", "250"]
OPTIONS += [part for setting in SETTINGS for part in ("--set", setting)]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    subprocess.run([*command(*OPTIONS), "--out", str(folder)], check=True, capture_output=True)
    return folder


@pytest.mark.full
@pytest.mark.parametrize(
    "damage", [pytest.param(False, id="whole", marks=pytest.mark.slow), pytest.param(True, id="damaged")]
)
def test_a_run_that_is_killed_and_resumed_equals_one_that_was_not(
    damage: bool, whole_run: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    process = subprocess.Popen([*command(*OPTIONS), "--out", str(killed)], stdout=-3, stderr=-3)
    end = time.monotonic() + 120
    while not (killed / "checkpoints" / "step_000000600.rlsdk").exists():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    newest = max((killed / "checkpoints").glob("step_*.rlsdk"))
    if damage:
        data = bytearray(newest.read_bytes())
        data[len(data) // 2] ^= 1
        newest.write_bytes(data)
    done = subprocess.run(command("--resume", "--out", str(killed)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (newest.name in done.stderr and "left out" in done.stderr) == damage
    step = int(newest.stem.removeprefix("step_")) - 200 * damage
    assert f"at step {step:,} of 1,000" in done.stdout
    assert_equal(everything(rlsdk.load(killed / "final")), everything(rlsdk.load(whole_run / "final")))
    assert metrics(killed) == metrics(whole_run)
    assert_equal(everything(rlsdk.load(killed / "best")), everything(rlsdk.load(whole_run / "best")))
