"""Executors, and what uses them in the core: candidates of population methods."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError, UsageError, WorkError
from rlsdk.executors import make_executor
from rlsdk_ars import ARS
from rlsdk_testing.subject import differing, flat_state
from rlsdk_tqc import TQC


def double(item: int) -> int:
    return 2 * item


def count_then_die(item: Path) -> int:
    """End the process on the first call, and on every call for the name `always`. Otherwise return the number of calls."""
    seen = item.read_text() if item.exists() else ""
    item.write_text(seen + "x")
    if not seen or item.name == "always":
        os._exit(9)
    return len(seen) + 1


def refuse(item: int) -> int:
    raise SettingsError("no") if item else ValueError("bad")


@pytest.mark.parametrize("name", ["in-process", "processes"])
def test_executors_answer_in_order(name: str) -> None:
    executor = make_executor(name, 2)
    try:
        assert executor.map(double, [3, 1, 2]) == [6, 2, 4]
        assert executor.map(double, []) == []
        with pytest.raises(SettingsError, match="no"):
            executor.map(refuse, [1])
    finally:
        executor.close()


@pytest.mark.full
def test_what_ends_its_process_is_tried_once_more(tmp_path: Path) -> None:
    executor = make_executor("processes", 2)
    try:
        assert executor.map(count_then_die, [tmp_path / "a", tmp_path / "b"]) == [2, 2]
        with pytest.raises(WorkError, match=r"twice.*exit code 9"):
            executor.map(count_then_die, [tmp_path / "always"])
        with pytest.raises(ValueError, match="bad") as caught:
            executor.map(refuse, [0])
        assert "in refuse" in caught.value.__notes__[0]
        assert executor.map(double, [1]) == [2]
    finally:
        executor.close()


def test_unknown_executors_are_refused() -> None:
    with pytest.raises(SettingsError, match="did you mean 'processes'"):
        make_executor("process", 1)
    with pytest.raises(SettingsError, match="1 or more"):
        make_executor("processes", 0)
    with pytest.raises(SettingsError, match="did you mean 'processes'"):
        make_vec_env("CartPole-v1", vectorization="proceses")


def test_candidates_are_the_same_wherever_they_are_played() -> None:
    found = []
    for kind in ("sync", "in-process", "processes"):
        env = make_vec_env("CartPole-v1", vectorization=kind, workers=2)
        settings: dict[str, Any] = {"n_delta": 3, "seed": 1, "normalize": {"norm_reward": False}}
        found.append(flat_state(ARS("LinearPolicy", env, **settings).learn(600)))
        env.close()
    assert not differing(found[0], found[1])
    assert not differing(found[0], found[2])


def test_an_executor_steps_nothing() -> None:
    env = make_vec_env("CartPole-v1", vectorization="in-process")
    env.reset(0)
    with pytest.raises(UsageError, match="whole episodes"):
        env.step(torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("count", [1, 2])
def test_agents_that_step_refuse_an_executor(count: int) -> None:
    env = make_vec_env("Pendulum-v1", count, vectorization="in-process")
    with pytest.raises(UsageError, match="whole episodes"):
        TQC("MlpPolicy", env, seed=0).learn(10)


def test_a_fault_in_an_executor_names_the_environment() -> None:
    def broken() -> Any:
        import gymnasium

        env = gymnasium.make("CartPole-v1")
        env.unwrapped.step = lambda action: 1 / 0  # type: ignore[method-assign]
        return env

    env = make_vec_env(broken, vectorization="processes", workers=1)
    with pytest.raises(EnvironmentFault, match=r"CartPole-v1.*ZeroDivisionError"):
        ARS("LinearPolicy", env, n_delta=1, seed=0).learn(10)


@pytest.mark.usefixtures("from_an_index")
def test_an_executor_in_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlsdk.executors.is_offered", lambda kind, name: False)
    with pytest.raises(
        SettingsError, match="executor 'ray' is in a package that is not installed: pip install rlsdk-ray"
    ):
        make_executor("ray", 1)
