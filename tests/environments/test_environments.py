"""The adapter for gymnasium environments: single ones, several at once, and misbehaving ones."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlsdk.environments import connect, make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.exploration.behavior import UniformWarmUp
from rlsdk.training import begin_acting
from rlsdk.training.collector import collect
from rlsdk_envs.toy import ChainEnv
from rlsdk_tqc import TQC

CHAIN = lambda: ChainEnv(length=3, terminate_every=2)  # noqa: E731


class Still:
    """A policy whose action is always 0."""

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    def act(self, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        from rlsdk.records import Act

        return Act(torch.zeros(len(observation.is_first), 1), carry, ())

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any, /) -> None: ...


def rollout(env: Any, steps: int) -> Any:
    return collect(env, Still(), begin_acting(env, Still(), seed=0), steps, generator=torch.Generator())


def test_a_rollout_tells_the_truth() -> None:
    data = rollout(make_vec_env(CHAIN, 2), 7)
    position = data.steps.observation.features[..., 1]
    assert position[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert data.steps.reward[:, 1].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert data.steps.terminated[:, 0].tolist() == [False, False, True, False, False, False, False]
    assert data.steps.truncated[:, 0].tolist() == [False, False, False, False, False, True, False]
    assert data.steps.observation.is_first[:, 0].tolist() == [True, False, False, True, False, False, True]
    finals = data.final_observations
    assert sorted(zip(finals.time.tolist(), finals.env.tolist(), strict=True)) == [(2, 0), (2, 1), (5, 0), (5, 1)]
    assert finals.observation.features[:, 1].tolist() == [3.0] * 4
    assert data.last_observation.features[:, 1].tolist() == [1.0, 1.0]
    assert [(e.env, e.length, e.episode_return) for e in data.episodes] == [(0, 3, 3.0), (1, 3, 3.0)] * 2


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_gymnasium_vector_environments_give_the_same_transitions(mode: AutoresetMode) -> None:
    native = connect(SyncVectorEnv([CHAIN, CHAIN], autoreset_mode=mode))
    data = rollout(native, 8)
    steps, finals = data.steps, data.final_observations
    assert bool(steps.valid.all()) == (mode == AutoresetMode.SAME_STEP)
    ended = {(t, e): i for i, (t, e) in enumerate(zip(finals.time.tolist(), finals.env.tolist(), strict=True))}
    following = torch.cat([steps.observation.features[1:], data.last_observation.features[None]])
    seen = []
    for t in range(8):
        if not steps.valid[t, 0]:
            continue
        now = steps.observation.features[t, 0].tolist()
        after = finals.observation.features[ended[t, 0]] if (t, 0) in ended else following[t, 0]
        seen.append((now, after.tolist(), bool(steps.terminated[t, 0]), bool(steps.truncated[t, 0])))
    episodes = [((0, p), (0, p + 1), p == 2, False) for p in range(3)] + [
        ((1, p), (1, p + 1), False, p == 2) for p in range(3)
    ]
    expected = [([float(x) for x in a], [float(x) for x in b], term, trunc) for a, b, term, trunc in episodes]
    assert seen[:6] == expected
    assert [(e.length, e.episode_return) for e in data.episodes][:2] == [(3, 3.0), (3, 3.0)]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_tqc_trains_on_gymnasium_vector_environments(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1")] * 3, autoreset_mode=mode)
    model = TQC(
        "MlpPolicy", env, buffer_size=2000, learning_starts=30, batch_size=16, policy_kwargs={"net_arch": [8]}, seed=0
    )
    model.learn(660)
    assert model.num_timesteps == 660
    assert len(model.replay_buffer) == 660
    assert run_episodes(model, "Pendulum-v1", 2).lengths == [200, 200]


def test_seeding_is_per_environment_and_independent_of_the_number() -> None:
    one, three = make_vec_env("Pendulum-v1", 1).reset(5), make_vec_env("Pendulum-v1", 3).reset(5)
    assert torch.equal(one.features[0], three.features[0])
    assert not torch.equal(three.features[0], three.features[1])


def test_evaluation_shares_episodes_evenly() -> None:
    lengths = iter([2, 50])
    env = make_vec_env(lambda: ChainEnv(length=next(lengths)), 2)
    model = TQC("MlpPolicy", ChainEnv(), buffer_size=10)
    assert sorted(run_episodes(model, env, 6).lengths) == [2, 2, 2, 50, 50, 50]


class Bad(ChainEnv):
    """A chain that misbehaves as `what` states from its third step on."""

    def __init__(self, what: str) -> None:
        super().__init__(length=100)
        self.what = what

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        if self.position < 3:
            return observation, reward, *rest
        if self.what == "raise":
            raise ZeroDivisionError("wheel came off")
        answers = {
            "nan observation": (observation * np.nan, reward, *rest),
            "nan reward": (observation, float("nan"), *rest),
            "text reward": (observation, "much", *rest),
            "wrong shape": (np.zeros(5, np.float32), reward, *rest),
            "wrong dtype": (np.array(["a", "b"]), reward, *rest),
            "four values": (observation, reward, False, {}),
        }
        return answers[self.what]

    def reset(self, **kwargs: Any) -> Any:
        if self.what == "raise in reset":
            raise OSError("no robot")
        return super().reset(**kwargs) if self.what != "bare reset" else np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("raise", "'Bad' raised ZeroDivisionError in step.*wheel came off"),
        ("nan observation", "'Bad', step: observation of environment 0 holds NaN"),
        ("nan reward", "gave the reward nan"),
        ("text reward", "gave the reward 'much'"),
        ("wrong shape", r"shape \(5,\), but its space has \(2,\)"),
        ("wrong dtype", "not numbers"),
        ("four values", "must return"),
        ("raise in reset", "raised OSError in reset: no robot"),
        ("bare reset", "reset must return"),
    ],
)
def test_a_misbehaving_environment_is_named(what: str, words: str) -> None:
    model = TQC(
        "MlpPolicy", Bad(what), buffer_size=100, learning_starts=0, batch_size=4, policy_kwargs={"net_arch": [4]}
    )
    with pytest.raises(EnvironmentFault, match=words) as caught:
        model.learn(10)
    if what.startswith("raise"):
        assert isinstance(caught.value.__cause__, ZeroDivisionError | OSError)
    if "reset" not in what:
        assert len(model.replay_buffer) == 2  # the rows collected before are still there


def test_what_is_no_environment() -> None:
    for bad, words in (
        ("Pendulum-v99", "Pendulum"),
        ("Pendulumm-v1", "did you mean 'Pendulum-v1'"),
        (3, "is not an environment"),
        (lambda: 5, "not a gymnasium.Env"),
    ):
        with pytest.raises(EnvironmentFault, match=words):
            connect(bad)
    for n in (0, -1, 2.5, True):
        with pytest.raises(SettingsError, match="n_envs"):
            make_vec_env("Pendulum-v1", n)  # type: ignore[arg-type]


def test_several_bad_environments_are_numbered() -> None:
    kinds = iter([ChainEnv(length=100), Bad("raise")])
    env = make_vec_env(lambda: next(kinds), 2)
    env.reset(0)
    env.step(torch.zeros(2, 1))
    env.step(torch.zeros(2, 1))
    with pytest.raises(EnvironmentFault, match=r"\(number 1\)"):
        env.step(torch.zeros(2, 1))


def test_warm_up_counts_over_environments() -> None:
    policy = UniformWarmUp(Still(), connect(ChainEnv()).action_space, steps=10)
    env = make_vec_env(CHAIN, 4)
    carry = policy.initial_carry(4)
    actions = []
    observation = env.reset(0)
    for _ in range(4):
        act = policy.act(observation, carry, deterministic=False, generator=torch.Generator().manual_seed(1))
        actions.append(bool((act.action != 0).all()))
        carry = act.carry
    # random until at least 10 actions were taken (here 12), then from the policy
    assert actions == [True, True, True, False]


def test_an_observation_outside_its_space_is_told_once() -> None:
    class Outside(ChainEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gymnasium.spaces.Dict({"x": gymnasium.spaces.Box(5.0, 6.0, (2,), np.float32)})

        def _observation(self) -> Any:
            return {"x": super()._observation()}

    env = make_vec_env(Outside, 2, vectorization="sync")
    with pytest.warns(
        UserWarning, match=r"'Outside' \(number 0\): observation\['x'\] lies outside the observation space"
    ):
        env.reset(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset(1)
