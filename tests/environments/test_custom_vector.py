"""Custom vector environments: any object with the members of `rlsdk.interfaces.VectorEnv` works, and its output is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.agent.persistence import chosen_device
from rlsdk.environments import connect, to_space
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError, UsageError
from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.training import LocalCollector, group_generators
from rlsdk_envs import check_env
from rlsdk_sb3 import NumpyVectorEnv
from rlsdk_testing.subject import differing, flat_state
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO

LENGTH = 7


class Points:
    """A vector environment without a base class: three points to be moved to 0, stepped together in torch."""

    num_envs = 3
    observation_space: Any = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space: Any = to_space(spaces.Box(-1.0, 1.0, (1,), np.float32))

    def __init__(self) -> None:
        self.resets, self.closed, self.clock = list[Any](), False, 0
        self.at = torch.zeros(3, 1)

    def reset(self, seed: int | None = None) -> Observation:
        self.resets.append(seed)
        self.at = torch.rand(3, 1, generator=torch.Generator().manual_seed(seed or 0))
        self.clock = 0
        return Observation(self.at.clone(), torch.ones(3, dtype=torch.bool))

    def step(self, action: Any) -> EnvStep:
        self.at = self.at + 0.1 * action
        self.clock += 1
        over = torch.full((3,), self.clock == LENGTH)
        reward, valid = -self.at.abs().squeeze(-1), torch.ones(3, dtype=torch.bool)
        final = Observation(self.at.clone(), ~valid) if over.any() else None
        episodes = tuple(Episode(i, -1.0, LENGTH) for i in range(3)) if over.any() else ()
        if over.any():
            self.at, self.clock = torch.rand(3, 1), 0
        return EnvStep(Observation(self.at.clone(), over), reward, ~valid, over, valid, final, episodes)

    def close(self) -> None:
        self.closed = True


def test_an_object_with_the_members_is_trained_in(tmp_path: Any) -> None:
    env = Points()
    model = TRPO("MlpPolicy", env, n_steps=8, policy_kwargs={"net_arch": [4]}, seed=0, normalize=True).learn(48)
    assert model.num_timesteps == 48
    assert evaluate_policy(model, Points(), 4)[0] == -1.0
    model.save(tmp_path / "points")
    TRPO.load(tmp_path / "points", env=env).learn(24)
    TQC("MlpPolicy", Points(), buffer_size=100, learning_starts=9, batch_size=4, seed=0).learn(21)
    rlsdk.make("recurrent-ppo", env=Points(), n_steps=8, batch_size=24).learn(24)
    vec_env = model.get_env()
    assert vec_env is not None
    obs = vec_env.reset()
    for _ in range(LENGTH):
        obs, _, dones, infos = vec_env.step(model.predict(obs)[0])
    assert dones.all()
    assert infos[0]["episode"]["l"] == LENGTH
    with pytest.raises(UsageError, match="'Points' has no 'get_attr'"):
        vec_env.get_attr("clock")
    with pytest.raises(UsageError, match="this algorithm needs single environments"):
        rlsdk.make("ars", env=Points()).learn(50)
    model.env.close()
    assert env.closed


def test_the_object_is_known_again() -> None:
    env = Points()
    model = TRPO("MlpPolicy", env, n_steps=8, policy_kwargs={"net_arch": [4]}, seed=0).learn(24)
    evaluate_policy(model, env, 3)
    count = len(env.resets)
    model.learn(24)
    assert len(env.resets) == count + 1, "its episodes were played by the evaluation: training begins new ones"
    TRPO("MlpPolicy", env, n_steps=8, policy_kwargs={"net_arch": [4]}, seed=0).learn(24)
    model.learn(24)
    assert len(env.resets) == count + 3


def test_own_members_are_used() -> None:
    class More(Points):
        name, has_masks, length = "more", False, 4

        def get_attr(self, name: str, indices: Any = None) -> Any:
            return [getattr(self, name)] * 3

        def get_state(self) -> Any:
            return {"at": self.at.clone(), "clock": self.clock}

    env: Any = connect(More())
    assert env.name == "more"
    assert env.get_attr("length") == [4, 4, 4]
    assert set(env.get_state()) == {"at", "clock"}
    assert connect(env) is env


NONE = torch.zeros(3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"reward": torch.zeros(3, dtype=torch.float64)},
            r"step, reward: got torch.float64 \(3,\), not a tensor torch",
        ),
        ({"reward": torch.zeros(3, 1)}, r"step, reward: got torch.float32 \(3, 1\)"),
        ({"terminated": [False] * 3}, r"step, terminated: got \[False, False, False\]"),
        ({"truncated": torch.zeros(3)}, "step, truncated: got torch.float32"),
        ({"observation": Observation(torch.zeros(3, 2), NONE)}, r"step, observation: got torch.float32 \(3, 2\)"),
        ({"observation": Observation(torch.zeros(3, 1), torch.zeros(3))}, "step, is_first"),
        ({"truncated": torch.ones(3, dtype=torch.bool)}, "3 episodes ended, final_observation is missing"),
        (
            {"final_observation": Observation(torch.zeros(1, 1), NONE[:1])},
            "0 episodes ended, final_observation is given",
        ),
    ],
)
def test_what_it_gives_is_checked(changes: dict[str, Any], words: str) -> None:
    class Wrong(Points):
        def step(self, action: Any) -> EnvStep:
            return replace(super().step(action), **changes)

    env = connect(Wrong())
    env.reset(0)
    with pytest.raises(EnvironmentFault, match=f"'Wrong'.*{words}"):
        env.step(torch.zeros(3, 1))


def test_declared_entries_of_info_are_checked() -> None:
    class Costly(Points):
        selected: Any = None

        def select_info(self, names: Any) -> None:
            self.selected = names

        def step(self, action: Any) -> EnvStep:
            return replace(super().step(action), info={"cost": torch.ones(3), "double": torch.ones(3).double()})

    inner = Costly()
    env = connect(inner)
    env.select_info(("cost",))
    assert inner.selected == ("cost",)
    env.reset(0)
    assert env.step(torch.zeros(3, 1)).info["cost"].tolist() == [1.0, 1.0, 1.0]
    env.select_info(("cost", "risk"))
    with pytest.raises(EnvironmentFault, match="'Costly', step: info has no 'risk'"):
        env.step(torch.zeros(3, 1))
    env.select_info(("double",))
    with pytest.raises(EnvironmentFault, match=r"step, info\['double'\]: got torch.float64"):
        env.step(torch.zeros(3, 1))


def test_it_is_checked_as_other_environments_are() -> None:
    assert check_env(Points(), steps=20) == []
    assert isinstance(NumpyVectorEnv(Points()).reset(), np.ndarray)

    class Infinite(Points):
        def step(self, action: Any) -> EnvStep:
            return replace(super().step(action), reward=torch.full((3,), float("inf")))

    with pytest.raises(EnvironmentFault, match=r"Infinite, step 0: .*, step: an observation or a reward is NaN"):
        check_env(Infinite())

    class Lost(Points):
        def step(self, action: Any) -> EnvStep:
            ends = torch.ones(3, dtype=torch.bool)
            last = Observation(torch.full((3, 1), float("nan")), NONE)
            return replace(super().step(action), truncated=ends, final_observation=last)

    with pytest.raises(
        EnvironmentFault, match=r"Lost, step 0: .*, final_observation: an observation or a reward is NaN"
    ):
        check_env(Lost())

    class Blind(Points):
        def reset(self, seed: int | None = None) -> Observation:
            return replace(super().reset(seed), features=torch.full((3, 1), float("nan")))

    # a training stops, too, and does not blame its learning rate
    with pytest.raises(EnvironmentFault, match="'Infinite', step: an observation or a reward is NaN"):
        TRPO("MlpPolicy", Infinite(), n_steps=8, policy_kwargs={"net_arch": [4]}, seed=0).learn(24)
    with pytest.raises(EnvironmentFault, match="'Blind', reset: an observation or a reward is NaN"):
        connect(Blind()).reset(0)

    class Closeless:
        num_envs, observation_space, action_space = 3, Points.observation_space, Points.action_space
        reset, step = Points.reset, Points.step

    for accepts in (connect, check_env, NumpyVectorEnv):
        with pytest.raises(EnvironmentFault, match="it lacks close"):
            accepts(Closeless())  # type: ignore[arg-type]


def test_what_is_no_vector_environment_is_told() -> None:
    class Tuples(Points):
        def reset(self, seed: int | None = None) -> Any:
            return np.zeros((3, 1)), {}

        def step(self, action: Any) -> Any:
            raise OSError("gone")

    with pytest.raises(EnvironmentFault, match=r"'Tuples': reset gave .*, not a rlsdk.records.Observation"):
        TRPO("MlpPolicy", Tuples()).learn(10)
    with pytest.raises(EnvironmentFault, match="'Tuples' raised OSError in step: gone"):
        connect(Tuples()).step(torch.zeros(3, 1))

    class Part:
        num_envs, observation_space, action_space = 1, Points.observation_space, Points.action_space

        def reset(self, seed: int | None = None) -> None: ...

    with pytest.raises(EnvironmentFault, match="it lacks step, close"):
        connect(Part())

    class Spaceless(Points):
        observation_space = "a box"

    with pytest.raises(RlsdkError, match="the observation space is 'a box'"):
        connect(Spaceless())
    vectors = pytest.importorskip("stable_baselines3.common.vec_env")
    theirs = vectors.DummyVecEnv([lambda: __import__("gymnasium").make("CartPole-v1")])
    with pytest.raises(EnvironmentFault, match="of another library; make one of the same environments with"):
        TRPO("MlpPolicy", theirs)


class OwnCollector(Points):
    """Refuses new agents with a large rollout, and makes the collector of each training: here the usual one, counted."""

    def __init__(self) -> None:
        super().__init__()
        self.collected, self.left, self.asked = list[int](), 0, list[bool]()

    def check_agent(self, agent: Any, *, new: bool) -> None:
        self.asked.append(new)
        if new and agent.config.n_steps > 100:
            raise SettingsError("n_steps is more than 100; give fewer")

    def collector(self, run: Any) -> Any:
        agent = run.driven
        env = agent.preprocessing.environment(agent.env)
        inner = LocalCollector(
            env, agent.acting, group_generators(agent.streams, 1), agent.preprocessing.rollouts(agent.parts)
        )
        collect = inner.collect

        def counted(policy: Any, length: int, **options: Any) -> Any:
            self.collected.append(length)
            return collect(policy, length, **options)

        def leave() -> bool:
            self.left += 1
            return True

        vars(inner).update(collect=counted, leave=leave)
        return inner


def test_an_agent_is_loaded_to_the_device_of_its_environment() -> None:
    env = Points()
    assert [chosen_device(wanted, env) for wanted in ("auto", "cpu", "cuda")] == ["auto", "cpu", "cuda"]
    env.device = "cuda:1"  # type: ignore[attr-defined]
    assert [chosen_device(wanted, env) for wanted in ("auto", "cpu", "cuda")] == ["cuda:1", "cpu", "cuda"]
    assert chosen_device("auto", None) == "auto"


def test_an_environment_may_make_the_collector() -> None:
    settings: dict[str, Any] = {"n_steps": 8, "policy_kwargs": {"net_arch": [4]}, "seed": 0}
    env = OwnCollector()
    torch.manual_seed(0)
    model = TRPO("MlpPolicy", env, **settings).learn(48)
    assert (env.collected, env.left) == ([8, 8], 1)
    torch.manual_seed(0)
    same = TRPO("MlpPolicy", Points(), **settings).learn(48)
    assert not differing(flat_state(model), flat_state(same))
    with pytest.raises(SettingsError, match="n_steps is more than 100"):
        TRPO("MlpPolicy", OwnCollector(), **{**settings, "n_steps": 200})
    another = OwnCollector()
    model.set_env(another)
    assert (env.asked, another.asked) == ([True], [False])
