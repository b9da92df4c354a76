"""Environments as users bring them, with the usual mistakes: what is wrong is one line that names it and the fix."""

from __future__ import annotations

import functools
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import ReshapeObservation, TimeLimit

import rlsdk
from rlsdk.environments import connect, make_vec_env
from rlsdk.errors import (
    ArtifactError,
    EnvironmentFault,
    MaskError,
    ResourceError,
    RlsdkError,
    SettingsError,
    UnsupportedSpaceError,
    UsageError,
)
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk_envs import Monitor, check_env
from rlsdk_envs.toy import BitFlippingEnv, ChainEnv, IdentityEnv
from rlsdk_tqc import TQC
from tests.tables import in_one_test

TINY: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "seed": 0}


def step_of(change: Callable[..., Any]) -> type[ChainEnv]:
    """An environment whose steps are changed."""

    class Changed(ChainEnv):
        def step(self, action: Any) -> Any:
            return change(*super().step(action))

    return Changed


# --- make_vec_env ----------------------------------------------------------------------------------------------------


@in_one_test
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"env_kwargs": ["g"]}, r"env_kwargs = \['g'\] must be a table"),
        ({"wrappers": "TimeFeature"}, r"wrappers = 'TimeFeature' must be a list"),
        ({"wrappers": TimeLimit}, "wrappers = <class .*TimeLimit'> must be a list"),
        ({"workers": 0}, "workers = 0 must be a positive whole number"),
        ({"workers": -2}, "workers = -2 must be"),
        ({"workers": 1.5}, "workers = 1.5 must be"),
        ({"timeout": None}, "timeout = None must be a positive number of seconds"),
        ({"timeout": -1}, "timeout = -1 must be"),
        ({"timeout": "3"}, "timeout = '3' must be"),
        ({"start_method": "thread"}, "start_method = 'thread' is unknown; accepted: None, "),
    ],
)
def test_arguments_that_cannot_be_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        make_vec_env("CartPole-v1", 2, vectorization="async", **arguments)


def test_an_environment_that_exists_is_not_copied() -> None:
    for env in (ChainEnv(3), make_vec_env("CartPole-v1", 2), gymnasium.make_vec("CartPole-v1", 2)):
        with pytest.raises(
            SettingsError, match="is neither an id nor a function; algorithms take an environment that exists"
        ):
            make_vec_env(env, 2)


def test_wrappers_that_fail_are_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"wrapper TimeLimit raised TypeError: .*functools.partial\(TimeLimit, "):
        make_vec_env("CartPole-v1", 2, wrappers=["TimeLimit"])
    with pytest.raises(EnvironmentFault, match=r"wrapper forgetful gave None, not a gymnasium\.Env"):
        make_vec_env("CartPole-v1", wrappers=[forgetful])
    make_vec_env("CartPole-v1", wrappers=[functools.partial(TimeLimit, max_episode_steps=3)])


def forgetful(env: Any) -> None:
    """A wrapper without a `return`."""


class NoSeed(ChainEnv):
    """As environments of the older gym are written."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


@pytest.mark.parametrize("kind", ["auto", "sync", "async"])
def test_a_reset_without_a_seed_is_explained(kind: str) -> None:
    words = r"'seed'; write reset\(self, \*, seed=None, options=None\)"
    envs = make_vec_env(lambda: NoSeed(3), 2, vectorization=kind)
    with closing(envs) as env, pytest.raises(EnvironmentFault, match=words):
        env.reset(0)


@pytest.mark.filterwarnings("ignore:environment 'Stuck' raised OSError in close")
def test_environments_that_cannot_be_closed_are_stepped_in_processes() -> None:
    class Stuck(ChainEnv):
        def close(self) -> None:
            raise OSError("still busy")

    with closing(make_vec_env(lambda: Stuck(3), 2, vectorization="async")) as env:
        env.reset(0)
        env.step(torch.zeros(2, 1))


# --- other objects than environments, and ids ------------------------------------------------------------------------


def test_an_object_that_is_no_environment_of_gymnasium_is_told_what_to_derive() -> None:
    members: dict[str, Any] = {"reset": None, "step": None, "close": None, "observation_space": 1, "action_space": 2}
    older = ModuleType("gym.core")
    base = type("Env", (), {"__module__": older.__name__})
    for kind, words in (
        (type("Plain", (), members), "is not a gymnasium.Env; derive its class from gymnasium.Env"),
        (type("Older", (base,), members), r"of the older package gym; with shimmy .*GymV26Environment-v0"),
    ):
        for env in (kind(), lambda kind=kind: kind()):
            with pytest.raises(EnvironmentFault, match=words):
                connect(env)


def test_an_id_stands_only_for_environments_that_it_makes() -> None:
    def id_of(env: Any) -> str | None:
        return connect(env).env_id

    assert id_of(gymnasium.make("CartPole-v1")) == "CartPole-v1"
    assert id_of(gymnasium.make("CartPole-v1", render_mode="rgb_array")) == "CartPole-v1"
    assert id_of(gymnasium.make("CartPole-v1", max_episode_steps=5)) is None
    assert id_of(TimeLimit(gymnasium.make("CartPole-v1"), 5)) is None
    assert id_of(gymnasium.make("CartPole-v1", sutton_barto_reward=True)) is None


def test_spaces_that_differ_in_their_bounds_are_told_apart() -> None:
    def made(high: float) -> ChainEnv:
        env = ChainEnv(3)
        env.action_space = spaces.Box(-1.0, high, (1,), np.float32)
        return env

    with pytest.raises(EnvironmentFault, match=r"\[-1.0\] to \[2.0\], number 0 has .* from \[-1.0\] to \[1.0\]"):
        make_vec_env([lambda: made(1.0), lambda: made(2.0)], vectorization="sync")
    agent = rlsdk.make("ppo", env=made(1.0), **TINY)
    with pytest.raises(UnsupportedSpaceError, match=r"from -1.0 to 2.0, the agent was made for .* from -1.0 to 1.0"):
        agent.set_env(made(2.0))


# --- processes -------------------------------------------------------------------------------------------------------


class Spoilt(IdentityEnv):
    """Does one thing wrong."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__(2)
        self.wrong, self.lock = wrong, threading.Lock()

    def action_masks(self) -> Any:
        return [False, False] if self.wrong == "mask" else [True, True]

    def hook(self) -> Any:
        return lambda: None

    def add(self, number: int) -> int:
        return number + 1


class Spotted(ChainEnv):
    """With NaN in its first observation, or with a wrong shape."""

    def __init__(self, size: int) -> None:
        super().__init__(3)
        self.size = size

    def reset(self, **kwargs: Any) -> Any:
        return np.full(self.size, np.nan if self.size == 2 else 0.0, np.float32), super().reset(**kwargs)[1]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_messages_name_the_number_among_all_environments(kind: str) -> None:
    def makers(bad: Callable[[], Any], good: Callable[[], Any]) -> list[Any]:
        return [good, good, good, bad]

    for bad, good, words in (
        (lambda: Spotted(2), lambda: ChainEnv(3), "observation of environment 3 holds NaN"),
        (lambda: Spotted(4), lambda: ChainEnv(3), r"\(number 3\) reset: observation of environment 3 has shape"),
        (lambda: Spoilt("mask"), Spoilt, "the action mask of environment 3 allows no action"),
    ):
        envs = make_vec_env(makers(bad, good), vectorization=kind, workers=2)
        with closing(envs) as env, pytest.raises((EnvironmentFault, MaskError), match=words):
            env.reset(0)


def test_an_attribute_that_cannot_be_had_ends_no_processes() -> None:
    with closing(make_vec_env(Spoilt, 3, vectorization="async", workers=2)) as env:
        env.reset(0)
        for call, words in (
            (lambda: env.get_attr("nothing"), "has no attribute 'nothing'"),
            (lambda: env.env_method("wrong"), "'wrong' of environment .* is not a method"),
            (lambda: env.env_method("add"), "raised TypeError in add"),
            (lambda: env.get_attr("lock"), "'Spoilt' gave a value that cannot be sent .*TypeError in pickling"),
            (lambda: env.env_method("hook"), "'Spoilt' gave a value that cannot be sent"),
            (lambda: env.set_attr("lock", lambda: None), "the values given for 'lock' cannot be sent to its processes"),
            (lambda: env.env_method("add", lambda: None), "the values given for 'add' cannot be sent"),
        ):
            with pytest.raises(EnvironmentFault, match=words):
                call()
            assert env.env_method("add", 1, indices=[2, 0]) == [2, 2]
        env.step(torch.zeros(3, dtype=torch.int64))


class Counting(ChainEnv):
    """Its steps take time."""

    def step(self, action: Any) -> Any:
        time.sleep(0.05)
        return super().step(action)


def play(env: Any, steps: int) -> None:
    env.reset(0)
    for _ in range(steps):
        env.step(torch.zeros(env.num_envs, 1))


def test_after_an_interrupt_answers_are_those_of_their_requests() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with closing(make_vec_env(lambda: Counting(50), 2, vectorization="async", workers=2)) as env:
            env.reset(0)
            signal.setitimer(signal.ITIMER_REAL, 0.12)
            with pytest.raises(KeyboardInterrupt):
                play(env, 50)
            reached = env.get_attr("position")
            assert reached[0] == reached[1] > 0
            assert env.step(torch.zeros(2, 1)).reward.shape == (2,)
            assert env.get_attr("position") == [position + 1 for position in reached]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class Writing(ChainEnv):
    """Needs time to write its file when it is closed."""

    path: Path

    def close(self) -> None:
        time.sleep(2.6)
        self.path.write_text("complete")


@pytest.mark.full
def test_environments_have_time_to_close(tmp_path: Path) -> None:
    def make() -> Writing:
        env = Writing(3)
        env.path = tmp_path / "file"
        return env

    env = make_vec_env(lambda: make(), 1, vectorization="async")
    env.reset(0)
    (tmp_path / "file").unlink(missing_ok=True)  # the one that was only looked at wrote it too
    env.close()
    assert (tmp_path / "file").read_text() == "complete"
    late = make_vec_env(lambda: make(), 1, vectorization="async", timeout=2.0)
    with pytest.warns(RuntimeWarning, match="number 0 was killed, as it did not close within 2 s"):
        late.close()


# --- vector environments of gymnasium --------------------------------------------------------------------------------


class Native(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Three environments in one; `change` spoils what a call returns."""

    def __init__(self, call: str = "", change: Callable[[Any], Any] = lambda given: given) -> None:
        self.num_envs, self.call, self.change = 3, call, change
        self.single_observation_space, self.single_action_space = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2)

    def _given(self, call: str, given: Any) -> Any:
        return self.change(given) if call == self.call else given

    def reset(self, **_: Any) -> Any:
        return self._given("reset", (np.zeros((3, 2), np.float32), {}))

    def step(self, actions: Any) -> Any:
        no = np.zeros(3, bool)
        return self._given("step", (np.zeros((3, 2), np.float32), np.zeros(3), no, no, {}))


@pytest.mark.parametrize(
    ("call", "change", "words"),
    [
        ("reset", lambda given: given[0], r"'Native' reset must return \(observations, infos\)"),
        ("reset", lambda given: (given[0], None), r"'Native' reset must return \(observations, infos\)"),
        ("reset", lambda given: (given[0][:2], {}), "observation is 2 observations, not 3"),
        ("reset", lambda given: (given[0][0], {}), "observation is a single observation, not 3"),
        (
            "step",
            lambda given: given[:4],
            r"'Native' step must return \(observation, reward, terminated, truncated, info",
        ),
        ("step", lambda given: (given[0][:2], *given[1:]), "observation is 2 observations, not 3"),
    ],
)
def test_what_a_vector_environment_returns_is_counted(call: str, change: Any, words: str) -> None:
    env = connect(Native(call, change))
    with pytest.raises(EnvironmentFault, match=words):
        play(env, 1)


@pytest.mark.parametrize("name", ["num_envs", "single_observation_space", "single_action_space"])
def test_what_a_vector_environment_lacks_is_named(name: str) -> None:
    env = Native()
    delattr(env, name)
    with pytest.raises(EnvironmentFault, match=f"vector environment Native has no {name}; set self.{name} in __init__"):
        connect(env)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_masks_that_a_vector_environment_does_not_pass_on_are_told(kind: Any) -> None:
    with closing(kind([Spoilt] * 2)) as vector, pytest.warns(UserWarning, match="their masks are not used; put"):
        connect(vector).reset(0)


def test_methods_are_called_of_the_chosen_environments_alone() -> None:
    class Poked(ChainEnv):
        count = 0

        def poke(self) -> int:
            self.count += 1
            return self.count

    env = connect(SyncVectorEnv([lambda: Poked(3)] * 3))
    env.reset(0)
    assert env.env_method("poke", indices=[1]) == [1]
    assert env.get_attr("count") == [0, 1, 0]


# --- check_env, Monitor, goals, whole episodes -----------------------------------------------------------------------


def test_check_env_knows_numpys_bools_and_short_episodes() -> None:
    assert check_env(step_of(lambda o, r, t, u, i: (o, r, np.bool_(t), np.bool_(u), i))(4), warn=False) == []
    check_env(step_of(lambda o, r, t, u, i: (o * 0, r, False, True, i))(4), warn=False)
    with pytest.raises(EnvironmentFault, match=r"step 0: truncated is 0 \(int\); it must be a bool"):
        check_env(step_of(lambda o, r, t, u, i: (o, r, t, int(u), i))(4))


def test_check_env_names_where_an_environment_raises() -> None:
    class Late(ChainEnv):
        def step(self, action: Any) -> Any:
            if self.position == 2:
                raise OSError("sensor lost")
            return super().step(action)

    class Never(ChainEnv):
        def reset(self, **kwargs: Any) -> Any:
            raise OSError("no port")

    with pytest.raises(
        EnvironmentFault, match=r"Late, step 2: .* raised OSError in step\(.*: sensor lost \(.*, line \d+\)"
    ):
        check_env(Late(4))
    with pytest.raises(EnvironmentFault, match=r"Never, reset: .* raised OSError in reset.*: no port \(.*, line \d+\)"):
        check_env(Never(4))
    with pytest.raises(
        EnvironmentFault, match=r"step 0: step returned 4 values; it must return \(observation, reward, "
    ):
        check_env(step_of(lambda o, r, t, u, i: (o, r, t, i))(4))


def test_a_registered_environment_with_steps_of_four_is_explained() -> None:
    gymnasium.register("Four-v0", lambda: step_of(lambda o, r, t, u, i: (o, r, t, i))(4), max_episode_steps=9)
    try:
        env = connect("Four-v0")
        env.reset(0)
        with pytest.raises(EnvironmentFault, match=r"; step must return \(observation, reward, terminated, "):
            env.step(torch.zeros(1, 1))
    finally:
        del gymnasium.registry["Four-v0"]


def test_a_monitor_takes_the_rewards_that_training_takes() -> None:
    env = Monitor(step_of(lambda o, r, t, u, i: (o, np.array([r]), t, u, i))(2))
    env.reset(seed=0)
    steps = [env.step(np.zeros(1, np.float32)) for _ in range(2)]
    assert steps[-1][-1]["episode"]["r"] == sum(reward.item() for _, reward, *_ in steps)  # type: ignore[index,attr-defined]
    for change, words in (
        (lambda o, r, t, u, i: (o, None, t, u, i), "environment Changed gave the reward None"),
        (lambda o, r, t, u, i: (o, r, True, u, None), "environment Changed gave info = None"),
    ):
        wrong = Monitor(step_of(change)(2))
        wrong.reset(seed=0)
        with pytest.raises(EnvironmentFault, match=words):
            wrong.step(np.zeros(1, np.float32))


def test_files_that_a_monitor_cannot_use_are_named(tmp_path: Path) -> None:
    for number, text in enumerate(("hello\nr,l,t\n", '#{"env": 1}\nr,l,t\n', "#[1]\nr,l,t\n")):
        path = tmp_path / f"{number}.monitor.csv"
        path.write_text(text)
        with pytest.raises(SettingsError, match="was not written by a monitor"):
            Monitor(ChainEnv(3), path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot write .*choose a writable place"):
        make_vec_env("CartPole-v1", monitor_dir=tmp_path / "file")


@pytest.mark.parametrize("value", [None, "no"])
def test_rewards_of_goals_that_are_no_numbers_are_named(value: Any) -> None:
    class Vague(BitFlippingEnv):
        def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            return [value] * len(achieved_goal) if np.ndim(achieved_goal) > 1 else -1.0

        def step(self, action: Any) -> Any:
            observation, _, *more = super().step(action)
            return observation, -1.0, *more

    settings: dict[str, Any] = {"replay_buffer_class": "hindsight", "buffer_size": 100, "learning_starts": 20}
    agent = rlsdk.make("dqn", env=Vague(3), policy="MultiInputPolicy", **settings)
    with pytest.raises(EnvironmentFault, match=r"compute_reward must give one finite number per row .*it gave array"):
        agent.learn(40)


def test_population_methods_refuse_observations_that_are_not_finite() -> None:
    wrong = step_of(lambda o, r, t, u, i: (o * np.nan, r, t, u, i))
    agent = rlsdk.make("ars", env=wrong(4), policy="LinearPolicy", n_delta=1, seed=0)
    with pytest.raises(EnvironmentFault, match="environment Changed: an observation holds NaN or infinity"):
        agent.learn(20)


class Endless(ChainEnv):
    """Its episodes are long."""

    def __init__(self) -> None:
        super().__init__(60)


def test_who_waits_for_the_end_of_an_episode_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlsdk.environments.vector.faults.LONG", 50)
    agent = rlsdk.make("ppo", env=ChainEnv(3), **TINY)
    with pytest.warns(UserWarning, match="'Endless': no episode ended in 50 steps.*give it a time limit"):
        run_episodes(agent, Endless(), 1)
    with pytest.warns(UserWarning, match="Endless: no episode ended in 50 steps"):
        rlsdk.make("ars", env=Endless(), policy="LinearPolicy", n_delta=1, seed=0).learn(60)


def test_a_rollout_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = rlsdk.make("ppo", env=ChainEnv(3), n_steps=64, batch_size=8, seed=0)
    monkeypatch.setattr("rlsdk.runtime.memory.available_bytes", lambda: 100)
    with pytest.raises(ResourceError, match=r"a rollout of 64 steps needs .*lower n_steps"):
        agent.learn(64)


def test_the_line_of_an_error_is_the_users() -> None:
    def copy(*given: Any) -> Any:
        raise_inside_python()
        return given

    with pytest.raises(RlsdkError, match=r"\(.*test_environments_of_users.py, line \d+\)$"):
        play(connect(step_of(copy)(3)), 1)


def raise_inside_python() -> None:
    """Python's own code raises TypeError here."""
    functools.singledispatch(lambda given: given)()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no\n\tsignal\n"), r"ValueError in step\(.*\): no signal \("),
        (StopIteration(), r"StopIteration in step\(.*\) \("),
    ],
)
def test_what_an_environment_raises_is_told_on_one_line(error: Exception, words: str) -> None:
    def fail(*_: Any) -> Any:
        raise error

    with pytest.raises(EnvironmentFault, match=words) as caught:
        play(connect(step_of(fail)(3)), 1)
    assert "\n" not in str(caught.value)


# --- masks and spaces that change ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_masks_of_some_environments_are_refused(kind: str) -> None:
    with pytest.raises(EnvironmentFault, match=r"number 1 ha(s|ve) a method action_masks, number 0 ha"):
        make_vec_env([lambda: IdentityEnv(2), Spoilt], vectorization=kind, workers=2).reset(0)


def test_masks_of_steps_alone_are_refused() -> None:
    class Late(IdentityEnv):
        def step(self, action: Any) -> Any:
            *given, info = super().step(action)
            return *given, {**info, "action_mask": np.array([True, False])}

    words = "gave no 'action_mask' at its reset, but one at a step"
    agent = rlsdk.make("ppo", env=Late(2), **TINY)
    with pytest.raises(EnvironmentFault, match=words):
        agent.learn(1000)
    vector = rlsdk.make("ppo", env=SyncVectorEnv([lambda: Late(2)]), **TINY)
    with pytest.raises(EnvironmentFault, match=words):
        vector.learn(1000)


def test_actions_that_change_are_told() -> None:
    class Growing(IdentityEnv):
        def reset(self, **kwargs: Any) -> Any:
            self.action_space = spaces.Discrete(3)
            return super().reset(**kwargs)

    with pytest.warns(UserWarning, match=r"'Growing' changed its action space to Discrete\(3\) at a reset"):
        connect(Growing(2)).reset(0)


def test_the_advice_on_actions_without_bounds_works() -> None:
    env = ChainEnv(3)
    env.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    with pytest.raises(
        UnsupportedSpaceError, match=r"needs finite bounds.*TransformAction\(env, lambda action: action, "
    ):
        rlsdk.make("sac", env=env)
    wrapped = gymnasium.wrappers.TransformAction(env, lambda action: action, spaces.Box(-1.0, 1.0, (1,)))
    rlsdk.make("sac", env=wrapped, learning_starts=4, buffer_size=20, batch_size=4).learn(8)


# --- check_env: the end of episodes, and goals ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize(
    ("last", "words"),
    [
        (None, "the last observation of its episode: .*is None"),
        (np.full(2, np.nan, np.float32), "NaN"),
        (np.zeros(3, np.float32), r"shape \(3,\)"),
    ],
)
def test_check_env_looks_at_the_last_observation_of_episodes(length: int, last: Any, words: str) -> None:
    wrong = step_of(lambda o, r, t, u, i: (last if t or u else o, r, t, u, i))
    with pytest.raises(EnvironmentFault, match=words):
        check_env(wrong(length), warn=False)
    check_env(ChainEnv(length), warn=False)


def goals_with(reward: Callable[..., Any]) -> BitFlippingEnv:
    class Goals(BitFlippingEnv):
        def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            return reward(np.asarray(achieved_goal), np.asarray(desired_goal))

    return Goals(3)


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (
            lambda a, d: float(np.all(a == d)) - 1.0,
            r"compute_reward must give one finite number per row .*gave shape \(\)",
        ),
        (lambda a, d: float(a[0] == d[0]), "raised TypeError in compute_reward|raised ValueError in compute_reward"),
        (lambda a, d: -np.abs(a - d).sum(0).astype(float) if a.ndim > 1 else -1.0, r"gave shape \(3,\)"),
        (lambda a, d: np.full(a.shape[:-1], -float(np.abs(a - d).sum())), "one by one .*compute each row by itself"),
    ],
)
def test_check_env_calls_compute_reward_with_batches(reward: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        check_env(goals_with(reward), warn=False)


def test_check_env_compares_rewards_of_goals_with_those_of_steps() -> None:
    assert not [advice for advice in check_env(BitFlippingEnv(8), warn=False) if advice.about == "goals"]

    class Costly(BitFlippingEnv):
        def step(self, action: Any) -> Any:
            observation, reward, *more = super().step(action)
            return observation, reward - 0.1, *more

    assert "goals: compute_reward of a step's goals is not its reward" in str(check_env(Costly(3), warn=False)[-1])


# --- messages with a way out ---------------------------------------------------------------------------------------------


class Shown(ChainEnv):
    """An environment with observations of a given space."""

    def __init__(self, space: Any) -> None:
        super().__init__(3)
        self.observation_space = space

    def _observation(self) -> Any:
        return self.observation_space.sample()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(0, 255, (84, 80), np.uint8), r"ReshapeObservation\(env, \(84, 80, 1\)\)"),
        (spaces.Box(0, 1, (84, 84, 1), np.float32), r"policy_kwargs=\{'normalize_images': False\}"),
        (spaces.Box(-1, 1, (4,), np.float32), "use MlpPolicy"),
    ],
)
def test_what_cnn_policies_cannot_take_has_a_way_out(space: Any, words: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=words):
        rlsdk.make("ppo", env=Shown(space), policy="CnnPolicy", **TINY)
    if len(space.shape) == 2:
        rlsdk.make("ppo", env=ReshapeObservation(Shown(space), (84, 80, 1)), policy="CnnPolicy", **TINY)
    elif len(space.shape) == 3:
        settings = {**TINY, "policy_kwargs": {"normalize_images": False}}
        rlsdk.make("ppo", env=Shown(space), policy="CnnPolicy", **settings)


def test_other_spaces_and_other_numbers_of_environments_have_a_way_out(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"buffer_size": 100, "learning_starts": 10, "seed": 0}
    model = TQC("MlpPolicy", make_vec_env(lambda: ChainEnv(3), 2), **settings).learn(20)
    with pytest.raises(
        UsageError, match=r"filled from 2 environments; give as many, not 1, .*TQC\.load\(path, env=env\)"
    ):
        model.set_env(ChainEnv(3))
    file = model.save(tmp_path / "agent")
    TQC.load(file, env=ChainEnv(3)).learn(20)
    other = Shown(spaces.Box(-1, 1, (5,), np.float32))
    for change in (lambda: model.set_env(other), lambda: TQC.load(file, env=other)):
        with pytest.raises(UnsupportedSpaceError, match=r"save it, then TQC\.load_policy\(path, env\)"):
            change()
    with pytest.warns(UserWarning, match="fresh|not copied|shape"):
        TQC.load_policy(file, other, **settings).learn(20)


class Several:
    """The members of an environment of PettingZoo."""

    possible_agents = agents = ("a", "b")

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    observation_space = action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any: ...

    def step(self, actions: Any) -> Any: ...


@pytest.mark.parametrize("env", [Several(), Several])
def test_environments_of_several_agents_are_explained(env: Any) -> None:
    with pytest.raises(
        EnvironmentFault, match=r"several agents \(PettingZoo\).*a gymnasium.Env of one agent, in whose step"
    ):
        rlsdk.make("ppo", env=env, **TINY)
