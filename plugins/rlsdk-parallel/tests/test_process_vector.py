"""Environments in processes, which may crash or hang."""

from __future__ import annotations

import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault
from rlsdk.tree import leaves
from rlsdk_envs.toy import ChainEnv
from rlsdk_parallel.environment_worker import ByValue, groups
from rlsdk_parallel.process_vector import ProcessVectorEnv
from rlsdk_tqc import TQC
from tests.chain_rows import untrue


def transitions(env: Any, steps: int = 230) -> list[torch.Tensor]:
    """Return observations, rewards and ends of episodes for fixed actions and a fixed seed."""
    generator = torch.Generator().manual_seed(1)
    rows = [env.reset(seed=11).features]
    for _ in range(steps):
        step = env.step(torch.rand(env.num_envs, 1, generator=generator) * 4 - 2)
        rows += [step.observation.features, step.reward, step.terminated, step.truncated, step.observation.is_first]
        rows += [] if step.final_observation is None else [step.final_observation.features]
    env.close()
    return rows


def test_processes_give_the_same_as_this_process() -> None:
    one, two = (transitions(make_vec_env("Pendulum-v1", 2, vectorization=kind)) for kind in ("sync", "async"))
    assert len(one) == len(two)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_training_is_the_same_to_the_bit_either_way() -> None:
    weights = []
    for kind in ("sync", "async"):
        env = make_vec_env("Pendulum-v1", 2, vectorization=kind)
        settings = {"buffer_size": 500, "learning_starts": 20, "batch_size": 16, "seed": 3}
        model = TQC("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, **settings).learn(420)
        weights.append(torch.cat([v.flatten() for v in model.get_parameters()["policy"].values()]))
        env.close()
    assert torch.equal(*weights)


class Breaking(ChainEnv):
    """Raises an error, hangs, or kills its process at its fourth step."""

    def __init__(self, how: str) -> None:
        super().__init__(length=50)
        self.how = how

    def step(self, action: Any) -> Any:
        if self.position == 3:
            if self.how == "raise":
                return self.somewhere_deep()
            if self.how == "hang":
                time.sleep(60)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

    def somewhere_deep(self) -> Any:
        raise ZeroDivisionError("wheel came off")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", r"(?s)raised ZeroDivisionError in step.*wheel came off.*--- in its process ---.*somewhere_deep"),
        ("kill", r"the process of number [01] died \(exit code -9\)"),
        ("hang", r"did not answer for 1\.0 s"),
    ],
)
def test_a_process_that_fails_is_an_error_within_two_seconds(how: str, words: str) -> None:
    env = make_vec_env(lambda: Breaking(how), 2, vectorization="async", timeout=1.0)
    assert isinstance(env, ProcessVectorEnv)
    env.reset(seed=0)
    for _ in range(3):
        env.step(torch.zeros(2, 1))
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match=words):
        env.step(torch.zeros(2, 1))
    assert time.monotonic() - began < 40.0  # measured: under 1.2 s; without the limit the step ends after 60 s or never
    assert not any(process.is_alive() for process in env.processes)


def test_a_worker_killed_from_outside() -> None:
    env = make_vec_env("Pendulum-v1", 2, vectorization="async")
    assert isinstance(env, ProcessVectorEnv)
    env.reset(seed=0)
    os.kill(env.processes[1].pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFault, match=r"number 1 died \(exit code -9\)"):
        transitions(env, steps=3)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_any_number_of_processes_gives_the_same(workers: int) -> None:
    one = transitions(make_vec_env("Pendulum-v1", 5, vectorization="sync"), 210)
    two = transitions(make_vec_env("Pendulum-v1", 5, vectorization="async", workers=workers), 210)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.full
def test_other_ways_to_start_processes(method: str) -> None:
    one = transitions(make_vec_env("Pendulum-v1", 2, vectorization="sync"), 5)
    two = transitions(make_vec_env("Pendulum-v1", 2, vectorization="async", start_method=method), 5)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_nested_observations_come_through_shared_memory() -> None:
    from rlsdk_envs.toy import SimpleMultiObsEnv

    rows = []
    for kind in ("sync", "async"):
        env = make_vec_env(SimpleMultiObsEnv, 3, vectorization=kind)
        seen = [env.reset(3)]
        steps = [env.step(torch.zeros(3, 2)) for _ in range(30)]
        seen += [s.observation for s in steps] + [s.final_observation for s in steps if s.final_observation]
        rows.append([leaf for observation in seen for leaf in leaves(observation)])
        env.close()
    assert all(torch.equal(a, b) for a, b in zip(*rows, strict=True))


@pytest.mark.parametrize("how", ["kill", "hang"])
def test_a_process_can_be_replaced(how: str, tmp_path: Path) -> None:
    """One of two environments dies (or hangs) once; stepping continues with a new process and a warning."""
    flag = tmp_path / "done"

    class Once(ChainEnv):
        def step(self, action: Any) -> Any:
            if self.position == 2:
                try:
                    os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return super().step(action)
                time.sleep(60) if how == "hang" else os.kill(os.getpid(), signal.SIGKILL)
            return super().step(action)

    env = make_vec_env(lambda: Once(5), 2, vectorization="async", workers=2, restart=True, timeout=1.0)
    assert isinstance(env, ProcessVectorEnv)
    env.reset(seed=0)
    began = time.monotonic()
    steps = [env.step(torch.zeros(2, 1)) for _ in range(8)]
    assert time.monotonic() - began < 40.0  # the same limit as above
    assert env.restarts == 1
    (broken,) = [step for step in steps if not bool(step.valid.all())]
    row = int((~broken.valid).nonzero()[0, 0])
    assert bool(broken.observation.is_first[row])
    assert not bool(broken.terminated[row] | broken.truncated[row])
    assert float(broken.observation.features[row, 1]) == 0.0  # a new episode
    env.close()


def test_requests_between_steps_survive_the_death_of_a_process() -> None:
    """The new process answers the requests. At the next step its episodes begin, and the row of that step is not valid."""
    env = make_vec_env(lambda: ChainEnv(5), 2, vectorization="async", workers=2, restart=True, seed=3)
    assert isinstance(env, ProcessVectorEnv)

    def kill() -> None:
        os.kill(env.processes[1].pid, signal.SIGKILL)  # type: ignore[arg-type]
        env.processes[1].join()

    env.reset()
    env.step(torch.zeros(2, 1))
    kill()
    assert env.get_attr("length") == [5, 5]
    step = env.step(torch.zeros(2, 1))
    assert step.valid.tolist() == [True, False]
    assert step.observation.is_first.tolist() == [False, True]
    assert env.step(torch.zeros(2, 1)).valid.all()
    kill()
    env.set_attr("length", 4)
    assert (env.get_attr("length"), env.restarts) == ([4, 4], 2)
    kill()
    env.reset(seed=0)
    assert env.step(torch.zeros(2, 1)).valid.all()
    env.close()


def test_a_process_that_died_or_hangs_after_ctrl_c_is_replaced_at_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After Ctrl-C the answers to a step are received before the next request, and none of them is taken for its answer."""
    env: Any = make_vec_env(
        lambda: ChainEnv(50), 2, vectorization="async", workers=2, restart=True, timeout=1.0, seed=3
    )
    env.reset()
    for number in (signal.SIGKILL, signal.SIGSTOP):
        first = env.workers.workers[0]

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as context:
            context.setattr(first, "receive", interrupted)
            os.kill(env.processes[1].pid, number)
            with pytest.raises(KeyboardInterrupt):
                env.step(torch.zeros(2, 1))
        step = env.step(torch.zeros(2, 1))
        assert step.valid.tolist() == [True, False]
        assert step.observation.is_first.tolist() == [False, True]
        assert env.step(torch.zeros(2, 1)).valid.all()
    assert env.restarts == 2
    env.close()


def test_seeds_of_new_processes_come_from_the_seed_of_the_environments() -> None:
    """The seed is given to `make_vec_env` and not to `reset`."""
    bases = []
    for _ in range(2):
        env = make_vec_env("Pendulum-v1", 2, vectorization="async", workers=2, restart=True, seed=3)
        assert isinstance(env, ProcessVectorEnv)
        env.reset()
        os.kill(env.processes[1].pid, signal.SIGKILL)  # type: ignore[arg-type]
        bases.append(env.step(torch.zeros(2, 1)).observation.features)
        env.close()
    assert torch.equal(*bases)


def test_restarts_are_counted_in_the_metrics_and_skipped_by_memories(tmp_path: Path) -> None:
    env = make_vec_env(lambda: ChainEnv(4), 2, vectorization="async", workers=2, restart=True)
    assert isinstance(env, ProcessVectorEnv)
    agent = TQC("MlpPolicy", env, buffer_size=400, learning_starts=10, batch_size=8, seed=1)
    rows: list[dict[str, float]] = []

    def kill_once(scope: Any, _: Any) -> None:
        if scope["run"].num_timesteps == 40:
            os.kill(env.processes[0].pid, signal.SIGKILL)

    class Sink:
        def write(self, step: int, values: Any) -> None:
            rows.append(dict(values))

        def close(self) -> None: ...

    agent.set_logger(Sink())
    agent.learn(120, callback=kill_once)
    assert rows[-1]["rollout/worker_restarts"] == 1.0
    assert "rollout/worker_restarts" not in rows[0]
    problem = untrue(agent.parts.buffer.sample(300, torch.Generator().manual_seed(0)), agent.config.gamma)  # type: ignore[union-attr]
    assert problem is None
    env.close()


def test_a_process_that_keeps_dying_is_given_up() -> None:
    env = make_vec_env(lambda: Breaking("kill"), 1, vectorization="async", restart=True)
    env.reset(seed=0)

    def play() -> None:
        for _ in range(50):
            env.step(torch.zeros(1, 1))

    with pytest.raises(EnvironmentFault, match="number 0 died"):
        play()
    assert env.restarts == 3  # type: ignore[union-attr]


def test_what_arrived_by_value_can_be_sent_on() -> None:
    there = pickle.loads(pickle.dumps(ByValue(lambda: 3)))
    assert pickle.loads(pickle.dumps(there))()() == 3


@given(count=st.integers(0, 40), size=st.integers(1, 9), workers=st.integers(1, 4))
def test_work_given_out_ends_with_small_pieces(count: int, size: int, workers: int) -> None:
    """Groups become smaller towards the end, so that all workers stay busy; a single worker gets full groups."""
    pieces = groups(range(count), size, workers)
    lengths = [len(piece) for piece in pieces]
    assert [item for piece in pieces for item in piece] == list(range(count))
    assert lengths == sorted(lengths, reverse=True)
    assert all(0 < length <= size for length in lengths)
    if workers == 1:
        assert lengths == [size] * (count // size) + [count % size] * (count % size > 0)
    for i, length in enumerate(lengths[:-1]):
        left = sum(lengths[i:])
        assert length >= -(-size // 2)
        assert length in (size, -(-size // 2), -(-left // workers))
