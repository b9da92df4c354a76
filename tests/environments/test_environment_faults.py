"""Faults of environments: the error names the environment, the step and the field, however the environment is stepped."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import connect, make_vec_env, to_space
from rlsdk.errors import (
    EnvironmentFault,
    MaskError,
    RlsdkError,
    SettingsError,
    UnsupportedSpaceError,
    UsageError,
    raise_fault,
)
from rlsdk_envs import ActionMasker, MaskVelocity, Monitor, TimeFeature, check_env, registration, toy
from rlsdk_envs.toy import BitFlippingEnv, ChainEnv, IdentityEnv

FIELDS = ("observation", "reward", "terminated", "truncated", "info")


class Scripted(ChainEnv):
    """Returns `value` for `field` in its second step. Its `str` and `repr` raise, because no code may need them."""

    def __init__(self, field: str, value: Any) -> None:
        super().__init__(4)
        self.field, self.value = field, value

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__

    def step(self, action: Any) -> Any:
        given = dict(zip(FIELDS, super().step(action), strict=True))
        if self.position == 2:
            given[self.field] = self.value
            if self.field == "info":
                given["terminated"] = True
        return tuple(given.values())


WRONG = [
    ("reward", "1.5", r"gave the reward '1\.5' \(str\); it must be a finite float32 \(step 2 "),
    ("reward", None, r"gave the reward None \(NoneType\)"),
    ("reward", 10**400, r"gave the reward 10+\.\.\. \(int\)"),
    ("reward", np.array([1.0, 2.0]), r"gave the reward array\(\[1\., 2\.\]\)"),
    ("terminated", "False", r"gave terminated = 'False' \(str\); it must be True or False \(step 2 "),
    ("terminated", None, "gave terminated = None"),
    ("terminated", np.array([False, True]), "gave terminated = array"),
    ("truncated", 0.5, r"gave truncated = 0\.5 \(float\)"),
    ("truncated", 2, "gave truncated = 2"),
    ("info", None, r"gave info = None \(NoneType\); it must be a dict \(step 2 "),
    ("info", {"is_success": np.array([True, False])}, r"gave info\['is_success'\] = array.*\(step 2 "),
    ("info", {"is_success": "False"}, r"gave info\['is_success'\] = 'False'"),
]


@pytest.mark.parametrize(("field", "value", "words"), WRONG)
def test_a_wrong_field_is_named_in_this_process(field: str, value: Any, words: str) -> None:
    with closing(make_vec_env(lambda: Scripted(field, value), 2, vectorization="sync")) as env:
        env.reset(0)
        env.step(torch.zeros(2, 1))
        with pytest.raises(EnvironmentFault, match=rf"environment 'Scripted' \(number 0\) {words}"):
            env.step(torch.zeros(2, 1))


def test_a_wrong_field_is_named_in_processes() -> None:
    for field, value, words in (WRONG[0], WRONG[3], WRONG[4], WRONG[9], WRONG[10]):
        with closing(make_vec_env(lambda f=field, v=value: Scripted(f, v), 2, vectorization="async")) as env:
            env.reset(0)
            env.step(torch.zeros(2, 1))
            with pytest.raises(EnvironmentFault, match=rf"environment 'Scripted' \(number 0\) {words}"):
                env.step(torch.zeros(2, 1))


@pytest.mark.parametrize(("field", "value", "words"), WRONG)
def test_a_wrong_field_is_named_where_whole_episodes_are_played(field: str, value: Any, words: str) -> None:
    model = rlsdk.make("ars", env=lambda: Scripted(field, value), policy="LinearPolicy", n_delta=1)
    with pytest.raises(EnvironmentFault, match=f"environment 'Scripted' {words}"):
        model.learn(20)


def test_a_spec_of_another_type_is_ignored(tmp_path: Path) -> None:
    environment: Any = Scripted("truncated", True)
    environment.spec = "text"
    with closing(make_vec_env(lambda: Monitor(environment, str(tmp_path / "log")), 1, vectorization="sync")) as env:
        assert env.name == "Scripted"


class Vectors(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A gymnasium vector environment with two environments and some wrong fields; its `close` raises."""

    def __init__(self, **wrong: Any) -> None:
        self.num_envs, self.wrong, self.metadata = (
            2,
            wrong,
            {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP},
        )
        self.single_observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.single_action_space = spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        no = np.zeros(2, bool)
        usual = dict(zip(FIELDS, (np.zeros((2, 1), np.float32), np.zeros(2), no, no, {}), strict=True))
        return tuple({**usual, **self.wrong}.values())

    def close(self, **_: Any) -> None:
        raise OSError("still busy")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"reward": np.array(["1.5", "2"])}, "gave the rewards array"),
        ({"reward": np.zeros(3)}, "gave the rewards array"),
        ({"terminated": np.array(["False", "False"])}, "gave the terminations"),
        ({"truncated": None}, "gave the truncations None"),
        ({"info": None}, "gave the infos None"),
        ({"terminated": np.ones(2, bool), "info": {"is_success": "True"}}, r"gave info\['is_success'\] = 'True'"),
        ({"terminated": np.ones(2, bool), "info": {"is_success": ["no", "no"]}}, r"gave info\['is_success'\] = 'no'"),
    ],
)
def test_a_wrong_field_of_a_vector_environment_is_named(wrong: dict[str, Any], words: str) -> None:
    env = connect(Vectors(**wrong))
    env.reset(0)
    with pytest.raises(EnvironmentFault, match=f"environment 'Vectors'.*{words}"):
        env.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(EnvironmentFault, match="environment 'Vectors' raised OSError: still busy"):
        env.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reward", np.float16(1)),
        ("reward", True),
        ("reward", np.array([1.0])),
        ("reward", torch.tensor(1.0)),
        ("terminated", np.bool_(True)),
        ("truncated", 1),
        ("truncated", np.array(True)),
        ("info", {"is_success": np.float32(1.0)}),
    ],
)
def test_what_can_only_mean_one_thing_is_accepted(field: str, value: Any) -> None:
    env = make_vec_env(lambda: Scripted(field, value), vectorization="sync")
    env.reset(0)
    env.step(torch.zeros(1, 1))
    step = env.step(torch.zeros(1, 1))
    assert float(step.reward) == 1.0
    assert bool(step.terminated | step.truncated) == (field != "reward")
    assert step.terminated.dtype == torch.bool
    if field == "info":
        assert step.episodes[0].success is True


def test_action_masks_that_raise_or_are_no_masks() -> None:
    def broken(_: Any) -> Any:
        raise KeyError("legal moves")

    with pytest.raises(EnvironmentFault, match=r"'IdentityEnv' raised KeyError in action_masks\(\): 'legal moves'"):
        connect(ActionMasker(IdentityEnv(2), broken)).reset(0)

    class Odd(IdentityEnv):
        given: Any = None

        def action_masks(self) -> Any:
            return self.given

    for given in ([[True], [True, False]], "yes", ["a", "b"], None, [None, True]):
        env = Odd(2)
        env.given = given
        with pytest.raises(MaskError, match="environment 'Odd': an action mask"):
            connect(env).reset(0)


class Unhelpful(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_errors_without_text_are_named(kind: str) -> None:
    class Raising(ChainEnv):
        def step(self, action: Any) -> Any:
            raise Unhelpful

    with closing(make_vec_env(lambda: Raising(3), 2, vectorization=kind)) as env:
        env.reset(0)
        with pytest.raises(EnvironmentFault, match=r"raised Unhelpful in step.*its message cannot be shown"):
            env.step(torch.zeros(2, 1))


def test_environments_without_text_are_named() -> None:
    env = Scripted("reward", "1.5")
    for call, words in (
        (lambda: connect(env).get_attr("lenght"), "environment Scripted has no attribute 'lenght'"),
        (lambda: connect(env).env_method("length"), "'length' of environment Scripted is not a method"),
        (lambda: MaskVelocity(env), "the velocities of Scripted are not known"),
        (lambda: ActionMasker(env, "legal"), "Scripted has no method 'legal'"),
        (lambda: make_vec_env(lambda: Scripted), "no type, not a|made a type"),
        (lambda: connect([env]), "not an environment"),
    ):
        with pytest.raises(RlsdkError, match=words):
            call()


def test_every_environment_is_closed_and_the_first_failure_told() -> None:
    closed = []

    class Stuck(ChainEnv):
        def close(self) -> None:
            closed.append(self)
            raise OSError("still busy")

    env = make_vec_env(lambda: Stuck(3), 3, vectorization="sync")
    with pytest.raises(EnvironmentFault, match=r"'Stuck' raised OSError in close\(\): still busy"):
        env.close()
    assert len(closed) == 3
    processes: Any = make_vec_env(lambda: ChainEnv(3), 2, vectorization="async", workers=1)
    processes.set_attr("close", None)  # `close` cannot be called, but the process ends
    processes.close()
    assert not any(process.is_alive() for process in processes.processes)


def test_a_reset_without_an_info() -> None:
    class Bare(ChainEnv):
        given: Any = None

        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0], self.given

    for given in (None, [], "x"):
        env = Bare(3)
        env.given = given
        with pytest.raises(EnvironmentFault, match=r"'Bare' reset must return \(observation, info\), info a dict"):
            connect(env).reset(0)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-1, 1, (0,), np.float32), r"space is a Box of shape \(0,\), which holds no number"),
        (spaces.Dict({"a": spaces.Box(-1, 1, (2, 0), np.float32)}), r"space\['a'\] is a Box of shape \(2, 0\)"),
        (spaces.Dict({}), "space is a Dict without parts"),
        (spaces.Discrete(10**9), "space has 1000000000 discrete values.*use a Box"),
        (spaces.MultiDiscrete([10, 2**40]), "space has 1099511627786 discrete values"),
    ],
)
def test_spaces_nothing_can_be_learned_in(space: Any, words: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=words):
        to_space(space)


# --- one instance, several environments ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async", "auto", "processes", "in-process"])
def test_one_instance_is_not_two_environments(kind: str) -> None:
    one = gymnasium.make("CartPole-v1")
    for make in (lambda: one, lambda: gymnasium.wrappers.TimeLimit(one.unwrapped, 9)):
        with pytest.raises(EnvironmentFault, match="numbers 0 and 1 are one and the same instance"):
            make_vec_env(make, 2, vectorization=kind)
    make_vec_env(lambda: one, 1, vectorization="sync").reset(0)  # a single environment may be one instance


def test_a_list_of_functions_makes_an_environment_each() -> None:
    lengths = [3, 4, 5]
    for kind in ("sync", "async"):
        with closing(make_vec_env([lambda n=n: ChainEnv(n) for n in lengths], vectorization=kind)) as env:
            assert env.get_attr("length") == lengths
            env.reset(0)
    with pytest.raises(SettingsError, match="the list has 3 functions; leave n_envs out"):
        make_vec_env([ChainEnv] * 3, 2)
    with pytest.raises(SettingsError, match="must hold functions that each make one"):
        make_vec_env([ChainEnv()])
    with pytest.raises(EnvironmentFault, match="one and the same instance"):
        make_vec_env([lambda env=env: env for env in [ChainEnv()] * 2], vectorization="sync")
    with pytest.raises(EnvironmentFault, match=r"number 1 has the action space Discrete.*number 0 has Box"):
        make_vec_env([ChainEnv, lambda: ChainEnv(action_space=spaces.Discrete(2))], vectorization="sync")
    with pytest.raises(SettingsError, match="plays copies of one environment"):
        make_vec_env([ChainEnv, lambda: ChainEnv(4)], vectorization="in-process")


def test_arguments_of_the_documented_function_are_explained() -> None:
    for arguments, words in (
        ({"env_id": "CartPole-v1"}, "takes no 'env_id'; use env, the first argument"),
        ({"vec_env_cls": object}, "vectorization='sync' for DummyVecEnv"),
        ({"wrapper_class": object}, r"use wrappers=\[\.\.\.\]"),
        ({"n_env": 2}, "did you mean 'n_envs'"),
        ({}, "needs an environment"),
    ):
        with pytest.raises(SettingsError, match=words):
            make_vec_env(**arguments)  # type: ignore[arg-type]
    assert make_vec_env("CartPole-v1", 2, 7).num_envs == 2


# --- check_env --------------------------------------------------------------------------------------------------------


class WithoutSpaces(gymnasium.Env[Any, Any]):
    """An environment whose author forgot to set one of the spaces, or misspelled its name."""

    def __init__(self, missing: str) -> None:
        given = {"observation_space": spaces.Box(0.0, 1.0, (2,)), "action_space": spaces.Discrete(2)}
        vars(self).update({name: space for name, space in given.items() if name != missing})


@pytest.mark.parametrize("missing", ["observation_space", "action_space"])
def test_missing_spaces_are_named(missing: str) -> None:
    match = f"environment .*WithoutSpaces.* has no {missing}; set self.{missing} to a space of gymnasium"
    with pytest.raises(EnvironmentFault, match=match):
        connect(WithoutSpaces(missing))
    with pytest.raises(EnvironmentFault, match=match):
        connect(gymnasium.Wrapper(WithoutSpaces(missing)))
    for vectorization in ("sync", "async", "auto"):
        with pytest.raises(EnvironmentFault, match=match):
            make_vec_env(lambda: WithoutSpaces(missing), 2, vectorization=vectorization)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("terminated", 0, r"terminated is 0 \(int\); it must be a bool"),
        ("truncated", 0, "truncat"),
        ("reward", "1.5", "gave the reward '1.5'"),
        ("info", None, "info"),
    ],
)
def test_check_env_finds_wrong_fields(field: str, value: Any, words: str) -> None:
    class Always(ChainEnv):
        def step(self, action: Any) -> Any:
            return tuple({**dict(zip(FIELDS, super().step(action), strict=True)), field: value}.values())

    with pytest.raises(EnvironmentFault, match=words):
        check_env(Always(), warn=False)


def test_check_env_advises_where_training_is_possible() -> None:
    class Unseeded(IdentityEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset()

    class Shared(ChainEnv):
        def _observation(self) -> Any:
            self.array = getattr(self, "array", np.zeros(2, np.float32))
            self.array[:] = super()._observation()
            return self.array

    for env, about in ((Unseeded(5), "seed: the environment ignores its seed"), (Shared(), "observation: it is over")):
        assert any(str(advice).startswith(about) for advice in check_env(env, warn=False))


# --- ids and wrappers -------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_gymnasium_knows_the_ids_once_the_package_is_imported() -> None:
    code = (
        "import sys, gymnasium, rlsdk_envs; assert 'torch' not in sys.modules;"
        "env = gymnasium.make('rlsdk/CartPoleNoVel-v1'); assert env.reset(seed=0)[0][1] == 0.0;"
        "gymnasium.make('rlsdk/IdentityEnvBox-v0')"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    code = "import gymnasium; gymnasium.make('rlsdk_envs:rlsdk/TMazeEnv-v0')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_every_toy_environment_has_an_id() -> None:
    kinds = {name: getattr(toy, name) for name in toy.__all__}
    made = {name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, gymnasium.Env)}
    assert set(registration.TOYS) == made - {"AnySpaceEnv", "ExtraInfo"}
    assert {f"rlsdk/{name}-v0" for name in registration.TOYS} <= set(gymnasium.registry)
    for task in registration.WITHOUT_VELOCITY:
        name, _, version = task.partition("-")
        assert f"rlsdk/{name}NoVel-{version}" in gymnasium.registry


def test_time_feature_extends_the_observation_of_goals() -> None:
    class Goals(ChainEnv):
        def __init__(self) -> None:
            super().__init__(4)
            inner = self.observation_space
            self.observation_space = spaces.Dict({"observation": inner, "achieved_goal": inner, "desired_goal": inner})

        def _observation(self) -> Any:
            return dict.fromkeys(self.observation_space, super()._observation())

    env = TimeFeature(Goals(), max_steps=4)
    assert set(env.observation_space) == {"observation", "achieved_goal", "desired_goal"}
    assert env.observation_space["observation"].shape == (3,)
    assert env.observation_space["desired_goal"].shape == (2,)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert observation["observation"].tolist() == [0.0, 0.0, 1.0]
    assert env.step(np.zeros(1))[0]["observation"][-1] == 0.75
    assert "time_feature" in TimeFeature(BitFlippingEnv(4)).observation_space.spaces


def test_the_default_device_of_ars_is_the_documented_one() -> None:
    assert rlsdk.make("ars", env="CartPole-v1").config.device == "cpu"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CartPoleNoVel-v1", "did you mean 'rlsdk/CartPoleNoVel-v1'"),
        ("PendulumNoVel-v1", "did you mean 'rlsdk/PendulumNoVel-v1'"),
        ("MountainCarContinuousNoVel-v0", "did you mean 'rlsdk/MountainCarContinuousNoVel-v0'"),
        ("LunarLanderNoVel-v2", "did you mean 'rlsdk/LunarLanderNoVel-v3'"),
        ("InvalidActionEnvDiscrete-v0", "did you mean 'rlsdk/InvalidActionEnvDiscrete-v0'"),
        ("BitFlippingEnv", "did you mean 'rlsdk/BitFlippingEnv-v0'"),
    ],
)
def test_documented_names_of_environments_lead_to_ours(name: str, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        make_vec_env(name)


class Failing(ChainEnv):
    """An environment whose step calls a method that raises."""

    def step(self, action: Any) -> Any:
        self.read_sensor()

    def read_sensor(self) -> None:
        raise OSError("sensor lost")


@pytest.mark.parametrize(
    "how", [{}, {"vectorization": "async"}, {"collectors": 2}, {"collectors": 2, "executor": "in-process"}], ids=str
)
def test_an_error_of_an_environment_is_one_line_that_names_the_users(how: dict[str, Any]) -> None:
    line = Failing.read_sensor.__code__.co_firstlineno + 1
    envs = make_vec_env(lambda: Failing(4), 2, **how)
    with pytest.raises(EnvironmentFault) as caught:
        rlsdk.make("ppo", env=envs, n_steps=8, batch_size=8).learn(16)
    text = str(caught.value)
    assert re.search(rf"raised OSError in step\(.*\): sensor lost \(.*test_environment_faults.py, line {line}\)$", text)
    assert "\n" not in text
    elsewhere = how and how.get("executor") != "in-process"
    assert any("in read_sensor" in note for note in getattr(caught.value, "__notes__", [])) == bool(elsewhere)


class Careless(IdentityEnv):
    """Raises another error than AttributeError for names that it does not have."""

    def __getattr__(self, name: str) -> object:
        raise ValueError(f"no {name}")


class Endless(IdentityEnv):
    def __getattr__(self, name: str) -> object:
        return getattr(self, f"{name}x")


def property_that_raises(name: str) -> type[ChainEnv]:
    def get(self: object) -> object:
        raise KeyError(name)

    return type("Guarded", (ChainEnv,), {name: property(get, lambda self, value: None)})


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Careless, "action_masks"),
        (Endless, "action_masks"),
        *((property_that_raises(name), name) for name in ("observation_space", "action_space", "spec", "unwrapped")),
    ],
)
def test_attributes_that_raise_are_named(kind: type[ChainEnv], name: str) -> None:
    makers: dict[str, Any] = {
        "alone": lambda: connect(kind()),
        "wrapped": lambda: connect(Monitor(kind())),
        "several": lambda: make_vec_env(kind, 2),
        "processes": lambda: make_vec_env(kind, 2, vectorization="async"),
    }
    for how, make in makers.items():
        with pytest.raises(EnvironmentFault) as refused:
            make().close()
        assert f"the attribute {name!r}" in str(refused.value), how
        assert "reading an attribute may raise nothing but AttributeError" in str(refused.value)


class Yielding(ChainEnv):
    """Its step is a generator by mistake."""

    def step(self, action: Any) -> Any:
        yield super().step(action)


def test_a_step_that_is_a_generator_is_explained() -> None:
    agent = rlsdk.make("trpo", env=Yielding(4), n_steps=64, seed=0)
    with pytest.raises(EnvironmentFault, match=r"'Yielding' step must return \(observation, reward, terminated, "):
        agent.learn(64)


class Leaving(BaseException):
    """An exception of a user that does not derive from `Exception`."""


class Halted(KeyboardInterrupt):
    """A user's own kind of interruption."""


class Ending(ChainEnv):
    """Raises an exception in its third step, its second reset, or when it is closed; in a handler of a signal, if asked."""

    def __init__(self, kind: type[BaseException], place: str, by_signal: bool = False) -> None:
        super().__init__(4)
        self.kind, self.place, self.by_signal, self.calls = kind, place, by_signal, 0

    def _end(self, place: str, call: int) -> None:
        if place == self.place:
            self.calls += 1
            if self.calls == call and self.by_signal:
                signal.raise_signal(signal.SIGTERM)
            elif self.calls == call:
                raise self.kind(0)

    def reset(self, **how: Any) -> Any:
        self._end("reset", 3)  # the agent resets it once before the training
        return super().reset(**how)

    def step(self, action: Any) -> Any:
        self._end("step", 3)
        return super().step(action)

    def close(self) -> None:
        self._end("close", 1)


@pytest.mark.parametrize("vectorization", ["sync", "async"])
@pytest.mark.parametrize("place", ["reset", "step"])
@pytest.mark.parametrize("kind", [SystemExit, Leaving, Halted])
def test_an_environment_that_ends_the_program_is_named(kind: Any, place: str, vectorization: str) -> None:
    agent = rlsdk.make(
        "trpo", env=make_vec_env(partial(Ending, kind, place), 2, vectorization=vectorization), n_steps=64, seed=0
    )
    with pytest.raises(EnvironmentFault, match=rf"raised {kind.__name__} in {place}.*: 0 \(.*faults.py, line"):
        agent.learn(64)


@pytest.mark.parametrize("kind", [SystemExit, Leaving, Halted])
def test_an_environment_that_ends_the_program_when_it_is_closed_is_named(kind: Any) -> None:
    env = make_vec_env(partial(Ending, kind, "close"), 1)
    with pytest.raises(EnvironmentFault, match=rf"raised {kind.__name__} in close\(\): 0 \("):
        env.close()


def test_handlers_of_signals_end_the_program_in_an_environment_too() -> None:
    def leave(number: int, frame: object) -> None:
        sys.exit(7)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(SystemExit, match="7"):
            rlsdk.make("trpo", env=Ending(Leaving, "step", by_signal=True), n_steps=64, seed=0).learn(64)
        with pytest.raises(KeyboardInterrupt):
            rlsdk.make("trpo", env=Ending(KeyboardInterrupt, "step"), n_steps=64, seed=0).learn(64)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no"), StopIteration("no"), GeneratorExit("no")])
def test_errors_of_users_become_faults(error: BaseException) -> None:
    words = rf"^environment 'Mine' raised {type(error).__name__} in step\(1\): no; see no$"
    with pytest.raises(EnvironmentFault, match=words) as caught:
        raise_fault(error, "environment 'Mine'", "step(1)", "; see no")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [UsageError("call reset"), KeyboardInterrupt()])
def test_errors_of_rlsdk_and_the_stop_of_a_process_stay_what_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        raise_fault(error, "environment 'Mine'")
    assert caught.value is error


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_an_error_of_rlsdk_in_a_step_is_not_renamed(vectorization: str) -> None:
    class Refusing(ChainEnv):
        def step(self, action: Any) -> Any:
            raise UsageError("call reset first")

    one = [lambda: Refusing(4)]
    env = connect(gymnasium.vector.SyncVectorEnv(one)) if vectorization == "native" else make_vec_env(one)
    env.reset(0)
    with pytest.raises(UsageError, match=r"^call reset first$"):
        env.step(torch.zeros(1, dtype=torch.long))
