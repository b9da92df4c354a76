"""Callbacks get the `info` of environments on request, with every vectorization. Without a request it costs nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlsdk.environments import connect, make_vec_env
from rlsdk.errors import EnvironmentFault
from rlsdk_envs.toy import ChainEnv
from tests.training.test_call_counts import counted


class Talking(ChainEnv):
    """A chain of three steps. Its info has the position and, at the end, `over`; every step returns the same dict."""

    def __init__(self) -> None:
        super().__init__(3)
        self.info: dict[str, Any] = {}

    def reset(self, **options: Any) -> Any:
        observation, _ = super().reset(**options)
        self.at = 0
        self.info.clear()
        return observation, self.info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        self.at += 1
        self.info.update(at=self.at, speed=0.5 * self.at, deep={"at": self.at})
        if terminated or truncated:
            self.info["over"] = "yes"
        return observation, reward, terminated, truncated, self.info


def native(mode: AutoresetMode) -> Any:
    return connect(SyncVectorEnv([Talking, Talking], autoreset_mode=mode))


KINDS: dict[str, Callable[[], Any]] = {
    "sync": lambda: make_vec_env(Talking, 2, vectorization="sync"),
    "async": lambda: make_vec_env(Talking, 2, vectorization="async"),
    "same-step vector": lambda: native(AutoresetMode.SAME_STEP),
    "next-step vector": lambda: native(AutoresetMode.NEXT_STEP),
}


def play(env: Any, steps: int) -> list[Any]:
    env.reset(0)
    return [env.step(torch.zeros(2, *torch.as_tensor(env.action_space.low).shape)) for _ in range(steps)]


@pytest.mark.parametrize("kind", list(KINDS))
def test_infos_come_per_environment_as_they_were_given(kind: str) -> None:
    env = KINDS[kind]()
    try:
        assert all(step.infos is None for step in play(env, 3))
        env.keep_infos(True)
        steps = play(env, 3)
        for at, step in enumerate(steps, 1):
            for info in step.infos:
                assert (info["at"], info["speed"], info["deep"]["at"]) == (at, 0.5 * at, at)
                assert ("over" in info) == (at == 3)
        assert bool(steps[-1].terminated.all() or steps[-1].truncated.all())
        assert steps[-1].infos[1]["over"] == "yes"
        env.keep_infos(False)
        assert env.step(torch.zeros(2, 1)).infos is None
    finally:
        env.close()


def test_an_info_that_cannot_be_sent_is_named() -> None:
    def locked() -> gymnasium.Env[Any, Any]:
        env = Talking()
        env.info = {}
        step = env.step

        def with_lock(action: Any) -> Any:
            *rest, info = step(action)
            return *rest, {**info, "lock": threading.Lock()}

        env.step = with_lock  # type: ignore[method-assign]
        return env

    env = make_vec_env(locked, 2, vectorization="async")
    try:
        play(env, 2)  # no callback requests infos, so none are sent
        env.keep_infos(True)
        with pytest.raises(EnvironmentFault, match=r"info\['lock'\].*cannot be sent from its process"):
            play(env, 1)
    finally:
        env.close()


def test_infos_of_vectors_without_presence_masks() -> None:
    from rlsdk.environments.vector.native_vector import infos_of

    rows = infos_of({"lives": np.array([3, 2]), "version": "1.0", "players": {"id": np.array([7, 8])}}, 2)
    assert rows == [
        {"lives": 3, "version": "1.0", "players": {"id": 7}},
        {"lives": 2, "version": "1.0", "players": {"id": 8}},
    ]


def test_infos_cost_nothing_before_and_after_they_are_asked_for() -> None:
    env = make_vec_env(Talking, 2, vectorization="sync")
    env.reset(0)
    actions = torch.zeros(2, 1)

    def calls() -> int:
        with counted("calls") as counts:
            for _ in range(12):
                env.step(actions)
        return counts.calls

    calls()
    before = calls()
    env.keep_infos(True)
    assert calls() > before
    env.keep_infos(False)
    assert calls() == before


@pytest.mark.parametrize("kind", list(KINDS))
def test_declared_entries_are_tensors_of_the_last_step(kind: str) -> None:
    env = KINDS[kind]()
    try:
        assert all(step.info == {} for step in play(env, 3))
        env.select_info(("speed", "at"))
        steps = play(env, 3)
        for at, step in enumerate(steps, 1):
            assert step.infos is None
            assert list(step.info) == ["speed", "at"]
            assert step.info["at"].dtype == torch.float32
            assert step.info["at"].tolist() == [at, at]
            assert step.info["speed"].tolist() == [0.5 * at, 0.5 * at]
        assert bool((steps[-1].terminated | steps[-1].truncated).all())
        step = env.step(torch.zeros(2, 1))
        assert step.info["at"].tolist() == torch.where(step.valid, 1.0, 0.0).tolist()
        env.keep_infos(True)
        step = play(env, 1)[0]
        assert (step.infos[0]["at"], step.info["at"][0]) == (1, 1.0)
        env.select_info(())
        env.keep_infos(False)
        assert env.step(torch.zeros(2, 1)).info == {}
    finally:
        env.close()


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(("name", "words"), [("cost", "gave no info"), ("deep", "it must be a finite float32")])
def test_a_declared_entry_that_is_missing_or_no_number_is_named(kind: str, name: str, words: str) -> None:
    env = KINDS[kind]()
    try:
        env.select_info((name,))
        with pytest.raises(EnvironmentFault, match=rf"\(number 0\) .*info\['{name}'\]") as caught:
            play(env, 1)
        assert words in str(caught.value)
    finally:
        env.close()


def test_declared_entries_cost_nothing_before_and_after() -> None:
    env = make_vec_env(Talking, 2, vectorization="sync")
    env.reset(0)

    def calls() -> int:
        with counted("calls") as counts:
            for _ in range(12):
                env.step(torch.zeros(2, 1))
        return counts.calls

    gc.collect()  # otherwise a collection during `calls` would be counted
    calls()
    before = calls()
    env.select_info(("at",))
    assert calls() > before
    env.select_info(())
    assert calls() == before
