"""Seeds of spaces that environments draw from, and options of resets, in every kind of vector environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from rlsdk.environments import ConnectedEnv, connect, make_vec_env
from rlsdk.environments.states import capture, restore
from rlsdk.environments.vector.connected import seed_of
from rlsdk.errors import SettingsError, UsageError
from rlsdk_ars import ARS
from rlsdk_ppo import PPO
from rlsdk_sb3 import NumpyVectorEnv


class Drawing(gymnasium.Env[Any, Any]):
    """Its first observations come from its action space, all others from its observation space."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (2,)), Discrete(100)
        self.met: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.met.append(options)
        return np.full(2, self.action_space.sample() / 100, np.float32), {"options": options}

    def step(self, action: Any) -> Any:
        seen = self.observation_space.sample()
        return seen, float(seen[0]), bool(seen[1] > 0.7), False, {}


class Saving(Drawing):
    """Defines its state itself, and knows nothing of the generators in its spaces."""

    def get_state(self) -> Any:
        both = [1]
        return {"a": both, "b": both}

    def set_state(self, state: Any) -> None:
        assert state["a"] is state["b"]


class Wider(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A wrapper with a nested space of its own, from which it draws."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = Dict({"x": Box(-1, 1, (2,)), "y": Discrete(50)})

    def observation(self, observation: Any) -> Any:
        return {"x": observation, "y": self.observation_space["y"].sample()}


KINDS: dict[str, Callable[[Any], ConnectedEnv]] = {
    "sync": lambda env: make_vec_env(env, 2, vectorization="sync"),
    "async": lambda env: make_vec_env(env, 2, vectorization="async"),
    "collectors": lambda env: make_vec_env(env, 2, collectors=2),
    "gymnasium": lambda env: connect(gymnasium.vector.SyncVectorEnv([env, env])),
}


def played(make: Callable[[Any], ConnectedEnv], env: Any, seed: int) -> list[Any]:
    """Features of a seeded reset and of steps."""
    envs = make(env)
    seen = [envs.reset(seed)] + [envs.step(torch.zeros(2, dtype=torch.int64)).observation for _ in range(20)]
    envs.close()
    features = [each.features for each in seen]
    return [(one["x"].tolist(), one["y"].tolist()) if isinstance(one, dict) else one.tolist() for one in features]


def wider() -> Wider:
    return Wider(Drawing())


@pytest.mark.parametrize("env", [Drawing, wider])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.full
def test_what_environments_draw_from_their_spaces_follows_from_the_seed(kind: str, env: Any) -> None:
    first, again, other = (played(KINDS[kind], env, seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    if kind != "gymnasium":  # its environments begin the next episode a step later
        assert first == played(KINDS["sync"], env, 3), "and not from the process"


def test_seeding_spaces_changes_nothing_else() -> None:
    bare = gymnasium.make("CartPole-v1")
    expected, _ = bare.reset(seed=seed_of(5, 0))
    assert make_vec_env("CartPole-v1", 1).reset(5).features[0].tolist() == expected.tolist()


@pytest.mark.parametrize("make", [lambda: PPO("MlpPolicy", Drawing(), n_steps=16, batch_size=8, seed=2),
                                  lambda: ARS("LinearPolicy", Drawing(), n_delta=2, seed=2)])  # fmt: skip
def test_trainings_with_a_seed_repeat(make: Any) -> None:
    first, again = (torch.cat([p.flatten() for p in make().learn(64).policy.parameters()]) for _ in range(2))
    assert first.equal(again)


def test_a_training_resumes_where_its_spaces_stood(tmp_path: Path) -> None:
    kind: Any
    for kind in (Drawing, Saving):
        whole = PPO("MlpPolicy", kind(), n_steps=16, batch_size=8, seed=2).learn(32)
        whole.save(tmp_path / "half")
        whole.learn(32, reset_num_timesteps=False)
        rest = PPO.load(tmp_path / "half", env=kind(), force_reset=False).learn(32, reset_num_timesteps=False)
        for mine, theirs in zip(whole.policy.parameters(), rest.policy.parameters(), strict=True):
            assert mine.equal(theirs), kind


def test_states_of_spaces_are_stored_beside_the_state_from_get_state() -> None:
    env, other = Saving(), Saving()
    env.action_space.seed(7)
    restore(other, capture(env))
    assert [env.action_space.sample() for _ in range(5)] == [other.action_space.sample() for _ in range(5)]


def test_the_spaces_of_get_env_are_seeded_as_those_of_the_documented_library() -> None:
    drawn = []
    for _ in range(2):
        env = PPO("MlpPolicy", "CartPole-v1", seed=1).get_env()
        assert env is not None
        drawn.append([env.action_space.sample() for _ in range(20)])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("kind", KINDS)
def test_options_reach_the_next_reset_once(kind: str) -> None:
    envs = NumpyVectorEnv(KINDS[kind](Drawing))
    envs.set_options({"level": 2})
    envs.reset()
    assert [info["options"] for info in envs.reset_infos] == [{"level": 2}] * 2
    envs.reset()
    assert [info["options"] for info in envs.reset_infos] == [None, None]
    envs.reset(options={"level": 3})
    assert [info["options"] for info in envs.reset_infos] == [{"level": 3}] * 2
    if kind == "gymnasium":
        with pytest.raises(UsageError, match="one dict of options for all environments"):
            envs.set_options([{"level": 1}, None])
    else:
        envs.set_options([{"level": 1}, None])
        envs.reset(seed=4)
        assert [info["options"] for info in envs.reset_infos] == [{"level": 1}, None]
    with pytest.raises(SettingsError, match="give a dict, a list of 2 dicts, or None"):
        envs.env.reset_options.set("hard", 2)  # type: ignore[attr-defined]  # of the kinds in this package
    with pytest.raises((SettingsError, UsageError), match=r"3 options for 2 environments|one dict"):
        envs.set_options([{}, {}, {}])
    envs.close()


def test_options_of_get_env_reach_the_first_reset_of_a_training() -> None:
    model = PPO("MlpPolicy", Drawing(), n_steps=8, batch_size=8)
    env = model.get_env()
    assert env is not None
    given = {"level": [1]}
    env.set_options(given)
    given["level"].append(2)
    model.learn(8)
    assert env.envs[0].met[0] == {"level": [1]}, "a copy"
    assert not any(env.envs[0].met[1:]), "later episodes get none"
    env.set_options({"level": 1})
    env.set_options()
    env.reset()
    assert env.reset_infos[0]["options"] is None


class Plain:
    """A vector environment of a user, which takes no options."""

    num_envs, observation_space, action_space = 1, Box(-1, 1, (2,)), Discrete(2)

    def reset(self, seed: int | None = None) -> Any: ...

    def step(self, action: Any) -> Any: ...

    def close(self) -> None: ...


def test_environments_that_take_no_options_say_so() -> None:
    envs = connect(Plain())
    envs.set_options(None)
    with pytest.raises(UsageError, match="no 'set_options'"):
        envs.set_options({"level": 1})
    played_elsewhere = make_vec_env(Drawing, 1, vectorization="in-process")
    with pytest.raises(UsageError, match="no 'set_options'"):
        played_elsewhere.set_options({"level": 1})
