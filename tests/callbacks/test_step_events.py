"""Callbacks with `on_step`: events in every algorithm family and vectorization, the data of steps, and early stops."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.callbacks import Callback, LambdaCallback
from rlsdk.callbacks.callback import EVENTS
from rlsdk.environments import connect, make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.tree import flatten
from rlsdk_envs.toy import ChainEnv
from rlsdk_sb3 import BaseCallback, EveryNTimesteps, StopTrainingOnMaxEpisodes

LENGTH = 5
FAMILIES = {
    "trpo": {"n_steps": 8, "batch_size": 8},
    "tqc": {"buffer_size": 300, "learning_starts": 8, "batch_size": 4, "train_freq": 4},
    "ars": {"n_delta": 3},
}
VECTORIZATIONS = ("sync", "async", "vector", "processes", "in-process")
COUNT = 2


class ReportingEnv(ChainEnv):
    """A `ChainEnv` with position and action in its info; `made` counts the steps of all instances."""

    made: ClassVar[list[int]] = [0]

    def step(self, action: Any) -> Any:
        self.made[0] += 1
        *rest, _ = super().step(action)
        return *rest, {"position": self.position, "action": float(np.asarray(action).reshape(-1)[0])}


def environment(kind: str, count: int = COUNT) -> Any:
    if kind == "vector":
        return connect(gymnasium.vector.SyncVectorEnv([lambda: ReportingEnv(LENGTH)] * count))
    return make_vec_env(lambda: ReportingEnv(LENGTH), count, vectorization=kind, workers=2)


def agent(name: str, env: Any, **settings: Any) -> Any:
    small = {} if name == "ars" else {"policy_kwargs": {"net_arch": [8]}}
    policy = "LinearPolicy" if name == "ars" else "MlpPolicy"
    return rlsdk.make(name, env=env, policy=policy, seed=0, **{**FAMILIES[name], **small, **settings})


class Everything(Callback):
    """Records every event with the number of steps so far, and the data of every step."""

    needs_infos = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.steps: list[Any] = []

    def note(self, name: str, run: Any) -> None:
        self.seen.append((name, run.num_timesteps))

    def on_step(self, run: Any, step: Any) -> None:
        self.note("on_step", run)
        self.steps.append(step)


for _name in EVENTS:
    if _name != "on_step":
        setattr(Everything, _name, lambda self, run, *details, _name=_name: self.note(_name, run))


class Old(BaseCallback):
    """A callback in the style of stable-baselines3, derived from `BaseCallback`, that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.counts: list[int] = []
        self.rewards = 0.0

    def _init_callback(self) -> None:
        self.calls["init"] += 1

    def _on_training_start(self) -> None:
        self.calls["training start"] += 1
        assert self.locals["self"] is self.model
        assert self.locals["total_timesteps"] == 64

    def _on_rollout_start(self) -> None:
        self.calls["rollout start"] += 1

    def _on_step(self) -> bool:
        self.counts.append(self.num_timesteps)
        self.rewards += float(self.locals["rewards"].sum())
        assert len(self.locals["infos"]) == len(self.locals["dones"]) == len(self.locals["actions"])
        assert self.training_env is self.model.get_env()
        self.logger.record("my/value", self.n_calls)
        return True

    def _on_rollout_end(self) -> None:
        self.calls["rollout end"] += 1

    def _on_training_end(self) -> None:
        self.calls["training end"] += 1


def usable(name: str, kind: str) -> bool:
    return (kind in ("sync", "async")) or (kind == "vector") == (name != "ars")


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n in FAMILIES for k in VECTORIZATIONS if usable(n, k)])
def test_every_event_reaches_callbacks_in_every_family_and_vectorization(name: str, kind: str) -> None:
    env = environment(kind)
    every, old, functions = Everything(), Old(), list[Any]()
    try:
        model = agent(name, env)
        model.learn(64, callback=[every, old, lambda scope, _: functions.append(scope["self"].num_timesteps)])
    finally:
        env.close()
    counts = [steps for event, steps in every.seen if event == "on_step"]
    unit = 1 if name == "ars" else COUNT
    assert counts == list(range(unit, model.num_timesteps + 1, unit))
    assert old.counts == functions == counts
    assert old.n_calls == len(counts)
    happened = Counter(event for event, _ in every.seen)
    assert happened["on_training_start"] == happened["on_training_end"] == 1
    rounds = happened["on_report"]
    assert happened["on_rollout_end"] == rounds
    assert happened["on_update"] == (rounds if name != "tqc" else rounds - 1)
    assert old.calls == Counter(
        {
            "init": 1,
            "training start": 1,
            "training end": 1,
            "rollout start": happened["on_rollout_start"],
            "rollout end": rounds,
        }
    )
    check_steps(every.steps)


def check_steps(steps: list[Any]) -> None:
    """Require that the fields of each step agree with the infos of the environments."""
    for step in steps:
        count = len(step.reward)
        assert len(step.action) == len(step.infos) == count
        for i in range(count):
            if not step.valid[i]:
                continue
            info, ended = step.infos[i], bool(step.terminated[i] or step.truncated[i])
            assert info["position"] == step.reward[i] + 1
            assert ended == (info["position"] == LENGTH)
            assert info["action"] == pytest.approx(float(step.action[i].clamp(-1, 1)), abs=1e-6)
        assert len(step.episodes) == int((step.terminated | step.truncated).sum())


@pytest.mark.parametrize("name", list(FAMILIES))
def test_watching_steps_leaves_training_the_same(name: str) -> None:
    states = []
    for callback in (None, Everything(), Old(), lambda *_: True):
        model = agent(name, environment("sync")).learn(64, callback=callback)
        states.append({n: v for n, v in flatten(model.get_parameters()).items() if torch.is_tensor(v)})
    for state in states[1:]:
        assert all(torch.equal(state[n], value) for n, value in states[0].items())


@pytest.mark.parametrize("kind", ["sync", "async", "vector"])
def test_locals_have_what_is_documented(kind: str) -> None:
    if kind == "vector":
        env = connect(
            gymnasium.vector.SyncVectorEnv(
                [lambda: ReportingEnv(LENGTH)] * 2, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP
            )
        )
    else:
        env = environment(kind)
    found: list[dict[str, Any]] = []
    try:
        agent("trpo", env).learn(16, callback=lambda scope, _: found.append(dict(scope)))
    finally:
        env.close()
    assert len(found) == 8
    first, last = found[0], found[LENGTH - 1]
    assert (first["rewards"].dtype, first["rewards"].shape) == (np.float32, (2,))
    assert first["dones"].tolist() == [False, False]
    assert first["new_obs"].tolist() == [[0, 1], [0, 1]]
    assert first["actions"].shape == first["clipped_actions"].shape == (2, 1)
    assert np.abs(first["clipped_actions"]).max() <= 1
    assert [info["position"] for info in first["infos"]] == [1, 1]
    assert last["dones"].tolist() == [True, True]
    for info in last["infos"]:
        assert info["position"] == LENGTH
        assert info["terminal_observation"].tolist() == [0, LENGTH]
        assert info["TimeLimit.truncated"] is False
        assert (info["episode"]["r"], info["episode"]["l"]) == (10.0, LENGTH)
        assert 0.0 < info["episode"]["t"] < 60.0
    assert [values["n_steps"] for values in found] == [*range(8)], "steps before this one"
    assert last["new_obs"].tolist() == [[1, 0], [1, 0]]
    assert {"self", "env", "writer", "tb_log_name", "log_interval", "total_timesteps"} <= set(first)


@pytest.mark.parametrize("callback", ["on_step", "documented", "function", "numpy", "torch"])
@pytest.mark.parametrize("name", ["trpo", "tqc", "recurrent-ppo"])
def test_false_ends_training_before_the_next_step(name: str, callback: str, tmp_path: Path) -> None:
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls < 11

    stops: dict[str, Any] = {
        "on_step": LambdaCallback(on_step=lambda run, step: run.num_timesteps < 22),
        "documented": Stop(),
        "function": lambda scope, _: scope["self"].num_timesteps < 22,
        "numpy": lambda scope, _: np.bool_(scope["self"].num_timesteps < 22),
        "torch": lambda scope, _: torch.tensor(scope["self"].num_timesteps < 22),
    }
    FAMILIES.setdefault("recurrent-ppo", {"n_steps": 8, "batch_size": 8})
    make: dict[str, Any] = {"policy": "MlpLstmPolicy"} if name == "recurrent-ppo" else {"policy": "MlpPolicy"}
    model = rlsdk.make(name, env=environment("sync"), seed=0, **make, **FAMILIES[name])
    before = ReportingEnv.made[0]
    model.learn(64, callback=stops[callback])
    assert model.num_timesteps == ReportingEnv.made[0] - before == 22  # in the middle of the second rollout
    if name == "tqc":
        assert len(model.replay_buffer) == 22
        assert model.cursor.updates == 1
    model.predict(np.zeros(2, np.float32))
    model.save(tmp_path / "stopped", include={"replay"} if name == "tqc" else None)
    resumed = type(model).load(tmp_path / "stopped", env=environment("sync"), force_reset=False)
    assert resumed.num_timesteps == 22
    positions: list[Any] = []
    for each in (model, resumed):
        watch = LambdaCallback(on_step=lambda run, step: positions.append(step.observation.features.tolist()))
        each.learn(32, callback=watch, reset_num_timesteps=False)
        assert each.num_timesteps >= 54
    half = len(positions) // 2
    assert positions[:half] == positions[half:]
    # 11 steps are two episodes and one step: the running episode continues
    assert positions[0] == [[2.0, 2.0], [2.0, 2.0]]
    states = [flatten(each.get_parameters()) for each in (model, resumed)]
    assert all(torch.equal(v, states[1][n]) for n, v in states[0].items() if torch.is_tensor(v))


def test_a_complete_round_is_learned_from_when_its_last_step_stops() -> None:
    model = agent("trpo", environment("sync"))
    model.learn(64, callback=lambda scope, _: scope["self"].num_timesteps < 16)
    assert (model.num_timesteps, model.cursor.updates) == (16, 1)
    whole = agent("trpo", environment("sync")).learn(16)
    one, other = (flatten(each.get_parameters()) for each in (model, whole))
    assert all(torch.equal(v, other[n]) for n, v in one.items() if torch.is_tensor(v))


def test_rewards_of_a_rollout_that_is_cut_short_enter_the_statistics() -> None:
    model = agent("trpo", environment("sync", 1), normalize=True, gamma=0.5)
    model.learn(64, callback=lambda scope, _: scope["self"].num_timesteps < 11)
    rewards = model.normalizer.rewards
    assert rewards.moments.count == pytest.approx(11, abs=0.01)
    assert rewards.returns == pytest.approx([0.0])  # the third episode has just begun: step 11 has reward 0
    expected, total = [], 0.0
    for step in range(11):
        total = 0.5 * total + step % LENGTH
        expected.append(total)
        total = 0.0 if step % LENGTH == LENGTH - 1 else total
    assert float(rewards.moments.variance) == pytest.approx(np.var(expected), rel=1e-2)


def test_a_round_of_episodes_that_is_cut_short_is_remembered() -> None:
    model = agent("tqc", environment("sync", 1), train_freq=(2, "episode"), learning_starts=0)
    model.learn(64, callback=lambda scope, _: scope["self"].num_timesteps < 13)
    assert (model.num_timesteps, len(model.replay_buffer), model.cursor.updates) == (13, 13, 1)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_population_methods_end_after_what_is_being_played(kind: str) -> None:
    env = environment(kind)
    try:
        model = agent("ars", env)  # 6 candidates, 2 side by side, episodes of 5 steps
        before = {n: v.clone() for n, v in model.get_parameters()["policy"].items()}
        seen: list[int] = []

        def stop(run: Any, step: Any) -> bool:
            seen.append(run.num_timesteps)
            return run.num_timesteps < 13

        model.learn(64, callback=LambdaCallback(on_step=stop))
        assert seen == list(range(1, 14))
        assert (model.num_timesteps, model.cursor.updates) == (20, 0)
        assert all(torch.equal(v, before[n]) for n, v in model.get_parameters()["policy"].items())
        model.learn(30, reset_num_timesteps=False)
        assert (model.num_timesteps, model.cursor.updates) == (50, 1)
    finally:
        env.close()


def test_a_number_of_episodes_can_end_training() -> None:
    assert agent("trpo", environment("sync")).learn(64, callback=StopTrainingOnMaxEpisodes(2)).num_timesteps == 20
    assert agent("tqc", environment("sync", 1)).learn(64, callback=StopTrainingOnMaxEpisodes(3)).num_timesteps == 15
    assert agent("ars", environment("sync", 1)).learn(64, callback=StopTrainingOnMaxEpisodes(3)).num_timesteps == 15


def test_every_n_steps_calls_documented_callbacks_inside_rounds() -> None:
    at: list[int] = []

    class Child(BaseCallback):
        def _on_step(self) -> bool:
            at.append(self.num_timesteps)
            assert len(self.locals["rewards"]) == COUNT
            assert isinstance(self.parent, EveryNTimesteps)
            return self.num_timesteps < 24

    model = agent("trpo", environment("sync")).learn(64, callback=EveryNTimesteps(6, Child()))
    assert at == [6, 12, 18, 24]
    assert model.num_timesteps == 24
    with pytest.raises(SettingsError, match="1 lacks methods of a callback"):
        EveryNTimesteps(6, [1])


def test_nothing_is_gathered_for_callbacks_that_do_not_ask() -> None:
    env = environment("sync")
    asked: list[bool] = []
    env.keep_infos = asked.append
    agent("trpo", env).learn(16, callback=[LambdaCallback(on_step=lambda run, step: step.infos is None)])
    assert asked == []
    agent("trpo", env).learn(16, callback=[LambdaCallback(on_step=lambda run, step: None, needs_infos=True)])
    assert asked == [True, False]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_steps_are_followed_on_a_device_of_its_own(name: str) -> None:
    model = agent(name, environment("sync"))
    # it differs from "cpu", so records and actions are moved
    model._assembled.context = replace(model.context, device="cpu:0")
    every = Everything()
    model.learn(32, callback=[every, lambda *_: True])
    check_steps(every.steps)
    assert len(every.steps) * (1 if name == "ars" else COUNT) == model.num_timesteps
