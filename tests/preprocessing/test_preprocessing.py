"""Normalization and frame stacking as parts of an agent: in training, `predict`, evaluation and agent files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

import rlsdk
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.preprocessing.preprocessing import FrameStacker
from rlsdk.registry import unregister
from rlsdk.tree import flatten, leaves
from rlsdk_envs.toy import AnySpaceEnv, ChainEnv, IdentityEnv, SimpleMultiObsEnv
from rlsdk_tqc import TQC
from tests.small_algorithms import register_reinforce

SMALL: dict[str, Any] = {"buffer_size": 500, "learning_starts": 20, "batch_size": 16, "seed": 3}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_reinforce()
    yield
    unregister("reinforce")


def tqc(env: Any = "Pendulum-v1", policy: str = "MlpPolicy", **settings: Any) -> TQC:
    return TQC(policy, env, policy_kwargs={"net_arch": [8]}, **{**SMALL, **settings})


def statistics(agent: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in flatten(agent.normalizer.state_dict()).items()}


class Scaled(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole with scaled and shifted observations and with rewards of 100."""

    def observation(self, observation: Any) -> Any:
        return observation * np.array([100.0, 10.0, 0.1, 5.0], np.float32) + 7.0

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return (observation, 100.0, *rest)


def cartpole() -> Any:
    return Scaled(gymnasium.make("CartPole-v1"))


@pytest.mark.full
@pytest.mark.parametrize("envs", [1, 3])
def test_on_policy_training_sees_what_the_peers_wrapper_gives(envs: int) -> None:
    """Rollouts are compared with VecNormalize of stable-baselines3, for the same actions in the same environments.

    VecNormalize updates its observation statistics in every step; rlsdk uses those of the previous rollouts.
    """
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = make_vec_env(cartpole, envs, vectorization="sync")
    agent = rlsdk.make("reinforce", env=env, normalize=True, n_steps=200, seed=1)
    agent.learn(400 * envs)
    rollouts = agent.parts.algorithm.rollouts  # type: ignore[attr-defined]
    theirs = VecNormalize(DummyVecEnv([cartpole] * envs), gamma=0.99)
    from rlsdk.environments.vector.connected import seed_of
    from rlsdk.runtime.process import derive

    base = derive(agent.seed, "environments", 0)
    theirs.venv._seeds = [seed_of(base, i) for i in range(envs)]  # type: ignore[attr-defined]
    theirs.reset()
    last: Any = np.zeros(4), np.ones(4)  # the statistics before the first rollout
    for rollout in rollouts:
        for t in range(200):
            expected = (theirs.get_original_obs() - last[0]) / np.sqrt(last[1] + 1e-8)
            assert np.allclose(rollout.steps.observation.features[t].numpy(), np.clip(expected, -10, 10), atol=2e-5)
            known = theirs.obs_rms.mean.copy(), theirs.obs_rms.var.copy()  # type: ignore[union-attr]
            _, reward, done, _ = theirs.step(rollout.steps.action[t].numpy())
            assert np.allclose(rollout.steps.reward[t].numpy(), reward, atol=1e-5)
            assert ((rollout.steps.terminated[t] | rollout.steps.truncated[t]).numpy() == done).all()
        last = known  # the statistics without the observation after the last step
    own = agent.normalizer
    assert own is not None
    assert np.allclose(own.moments["observation"].mean, last[0])
    assert np.allclose(own.moments["observation"].variance, last[1])
    assert np.allclose(own.rewards.moments.variance, theirs.ret_rms.var)


def test_final_observations_are_normalized_but_not_counted() -> None:
    agent = rlsdk.make("reinforce", env=make_vec_env(cartpole, 2), normalize=True, n_steps=100, seed=1).learn(200)
    rollout = agent.parts.algorithm.rollouts[0]  # type: ignore[attr-defined]
    assert rollout.final_observations is not None
    assert float(rollout.final_observations.observation.features.abs().max()) <= 10.0
    assert agent.normalizer is not None
    assert float(agent.normalizer.rewards.moments.count) == pytest.approx(200, abs=1e-3)
    assert float(agent.normalizer.moments["observation"].count) == pytest.approx(200, abs=1e-3)


def test_returns_stay_true_in_logs_and_evaluation() -> None:
    agent = rlsdk.make("reinforce", env=make_vec_env(cartpole, 2), normalize=True, n_steps=100, seed=1)
    seen: list[float] = []
    agent.learn(1000, callback=LambdaCallback(on_episode=lambda run, episode: seen.append(episode.episode_return)))
    assert all(value % 100 == 0 and value >= 800 for value in seen)
    assert all(value % 100 == 0 for value in run_episodes(agent, cartpole(), 3).returns)


def test_replay_keeps_what_was_seen_and_gives_it_normalized() -> None:
    agent = tqc(normalize=True).learn(60)
    assert agent.normalizer is not None
    raw = agent.parts.buffer.sample(64, torch.Generator().manual_seed(1))  # type: ignore[union-attr]
    given = agent.parts.sample(64, torch.Generator().manual_seed(1))
    assert torch.equal(raw.action, given.action)
    assert float(raw.reward.min()) < -1.0
    moments = agent.normalizer.moments["observation"]
    shift, scale = torch.tensor(moments.mean), torch.tensor(moments.variance).sqrt()
    for name in ("observation", "next_observation"):
        expected = ((getattr(raw, name).features - shift) / scale).clamp(-10, 10)
        assert torch.allclose(getattr(given, name).features.double(), expected, atol=1e-4)
    spread = float(agent.normalizer.rewards.moments.variance) ** 0.5
    assert torch.allclose(given.reward.double(), raw.reward.double() / spread, atol=1e-4)


def test_a_file_holds_the_statistics_and_predict_applies_them(tmp_path: Path) -> None:
    agent = tqc(normalize={"norm_reward": False}).learn(60)
    agent.save(tmp_path / "agent")
    loaded = rlsdk.load(tmp_path / "agent")
    seen = np.array([0.3, -0.9, 4.0], np.float32)
    one, two = agent.predict(seen, deterministic=True)[0], loaded.predict(seen, deterministic=True)[0]
    assert np.array_equal(one, two)
    assert all(torch.equal(statistics(loaded)[name], value) for name, value in statistics(agent).items())
    loaded.normalizer.load_state_dict(tqc(normalize=True).normalizer.state_dict())  # type: ignore[union-attr]
    assert not np.array_equal(one, loaded.predict(seen, deterministic=True)[0])


def test_going_on_with_more_environments_keeps_the_statistics(tmp_path: Path) -> None:
    agent = rlsdk.make("reinforce", env=make_vec_env(cartpole, 2), normalize=True, seed=1).learn(200)
    before = statistics(agent)
    agent.set_env(make_vec_env(cartpole, 5))
    same = {name for name, value in statistics(agent).items() if value.shape == before[name].shape}
    assert {name for name in before if name != "reward/returns"} <= same
    assert all(torch.equal(statistics(agent)[name], before[name]) for name in same)
    agent.learn(200, reset_num_timesteps=False)


def test_evaluation_predict_and_freezing_change_no_statistics() -> None:
    agent = tqc(normalize=True).learn(40)
    before = statistics(agent)
    run_episodes(agent, "Pendulum-v1", 2)
    agent.predict(np.ones(3, np.float32))
    assert all(torch.equal(value, before[name]) for name, value in statistics(agent).items())
    assert agent.normalizer is not None
    agent.normalizer.training = False
    agent.learn(20, reset_num_timesteps=False)
    after = statistics(agent)
    assert all(torch.equal(after[n], v) for n, v in before.items() if not n.endswith("returns"))


def test_the_same_seed_gives_the_same_to_the_bit() -> None:
    runs = [tqc(make_vec_env("Pendulum-v1", 2), normalize=True, frame_stack=2).learn(80) for _ in range(2)]
    pairs = [leaves(flatten(agent.get_parameters()["policy"])) for agent in runs]
    assert all(torch.equal(a, b) for a, b in zip(*pairs, strict=True))


def test_only_float_parts_are_normalized() -> None:
    agent = tqc(SimpleMultiObsEnv(), policy="MultiInputPolicy", normalize=True)
    assert agent.normalizer is not None
    assert list(agent.normalizer.moments) == ["observation['vec']"]
    agent.learn(30)
    seen = agent.observation_space.sample()
    given = agent.normalizer.normalize_obs(seen)
    assert np.array_equal(given["camera"], seen["camera"])
    assert not np.array_equal(given["vec"], seen["vec"])
    back = agent.normalizer.unnormalize_obs(given)
    assert np.allclose(back["vec"], seen["vec"], atol=1e-4)
    assert agent.normalizer.unnormalize_reward(agent.normalizer.normalize_reward(0.25)) == pytest.approx(0.25)


# --- frame stacking --------------------------------------------------------------------------------------------------


def test_frames_are_those_of_gymnasiums_wrapper() -> None:
    env = FrameStackObservation(gymnasium.make("CartPole-v1"), 3)  # it repeats the first observation too
    agent = rlsdk.make("reinforce", env=make_vec_env("CartPole-v1", 1), frame_stack=3, n_steps=60, seed=1).learn(60)
    rollout = agent.parts.algorithm.rollouts[0]  # type: ignore[attr-defined]
    from rlsdk.environments.vector.connected import seed_of
    from rlsdk.runtime.process import derive

    seen, _ = env.reset(seed=seed_of(derive(agent.seed, "environments", 0), 0))
    for t in range(60):
        assert np.array_equal(rollout.steps.observation.features[t, 0].numpy(), seen.reshape(-1))
        seen, _, terminated, truncated, _ = env.step(int(rollout.steps.action[t, 0]))
        if terminated or truncated:
            finals = rollout.final_observations
            row = int((finals.time == t).nonzero()[0, 0])
            assert np.array_equal(finals.observation.features[row].numpy(), seen.reshape(-1))
            seen, _ = env.reset()


@pytest.mark.parametrize("kind", ["reinforce", "qrdqn"])
def test_training_goes_on_with_the_frames_it_has(kind: str) -> None:
    once, twice = (rlsdk.make(kind, env=make_vec_env("CartPole-v1", 1), frame_stack=3, seed=1) for _ in range(2))
    quick = {"reinforce": (64, 64), "qrdqn": (32, 36)}[kind]
    once.learn(sum(quick))
    twice.learn(quick[0]).learn(quick[1], reset_num_timesteps=False)
    assert torch.equal(once.acting[0].observation.features, twice.acting[0].observation.features)  # type: ignore[union-attr]


def test_predict_remembers_the_frames_in_its_state(tmp_path: Path) -> None:
    agent = tqc(frame_stack=3)
    agent.save(tmp_path / "a")
    loaded = rlsdk.load(tmp_path / "a")
    env = gymnasium.make("Pendulum-v1")
    session = loaded.session(1)
    seen, _ = env.reset(seed=1)
    state = None
    answers = []
    for _ in range(4):
        action, state = agent.predict(seen, state, deterministic=True)
        assert np.array_equal(action, session.act(seen))
        answers.append(action)
        seen, *_ = env.step(action)
    alone, _ = agent.predict(seen, None, deterministic=True)
    with_memory, _ = agent.predict(seen, state, deterministic=True)
    assert not np.array_equal(alone, with_memory)
    forgotten, _ = agent.predict(seen, state, episode_start=True, deterministic=True)
    assert np.array_equal(alone, forgotten)


@pytest.mark.parametrize(
    ("space", "stacked"),
    [
        (spaces.Box(-1, 2, (3,), np.float32), spaces.Box(-1, 2, (6,), np.float32)),
        (spaces.Box(0, 255, (36, 40, 3), np.uint8), spaces.Box(0, 255, (36, 40, 6), np.uint8)),
        (spaces.Box(0, 255, (3, 36, 40), np.uint8), spaces.Box(0, 255, (6, 36, 40), np.uint8)),
        (spaces.Discrete(4, start=2), spaces.MultiDiscrete([4, 4], start=[2, 2])),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([2, 3, 2, 3])),
        (spaces.MultiBinary(3), spaces.MultiBinary(6)),
        (spaces.Box(-1, 1, (), np.float32), spaces.Box(-1, 1, (2,), np.float32)),
    ],
    ids=str,
)
def test_every_space_can_be_stacked(space: Any, stacked: Any) -> None:
    frames = FrameStacker(to_space(space), 2)
    assert frames.space == to_space(stacked)
    from rlsdk.environments.adapters.observations import ObservationBatcher

    one, two = (ObservationBatcher(to_space(space))([space.sample(), space.sample()]) for _ in range(2))
    memory = frames.initial(2, "cpu")
    first, memory = frames.push(memory, one, torch.tensor([True, True]))
    both, _ = frames.push(memory, two, torch.tensor([False, True]))
    assert both.shape == (2, *stacked.shape)
    assert both.dtype == two.dtype
    again, _ = frames.push(frames.initial(2, "cpu"), two, torch.tensor([True, True]))
    assert torch.equal(both[1], again[1])
    assert sorted(both[0].flatten().tolist()) == sorted([*one[0].flatten().tolist(), *two[0].flatten().tolist()])
    assert stacked.contains(first[0].numpy().astype(stacked.dtype))


def test_images_and_tables_train_with_stacked_frames() -> None:
    tqc(SimpleMultiObsEnv(), policy="MultiInputPolicy", frame_stack=2, normalize=True, buffer_size=60).learn(30)


# --- settings and files ------------------------------------------------------------------------------------------------


def test_settings_reach_every_environment_of_the_agent() -> None:
    agent = tqc("Pendulum-v1", normalize={"norm_obs": True, "clip_obs": 5.0, "gamma": 0.9}, frame_stack=2)
    assert agent.get_vec_normalize_env() is agent.normalizer
    assert run_episodes(agent, "Pendulum-v1", 1).lengths == [200]
    agent.set_env("Pendulum-v1")
    agent.learn(30)


def test_bad_settings_and_foreign_statistics(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="did you mean 'norm_obs'"):
        tqc(normalize={"norm_ob": True})
    with pytest.raises(SettingsError, match="true, false, or a table"):
        tqc(normalize="yes")
    with pytest.raises(SettingsError, match="no float part"):
        rlsdk.make("reinforce", env=IdentityEnv(4), normalize=True)
    rlsdk.make("reinforce", env=IdentityEnv(4), normalize={"where_possible": True})
    with pytest.raises(SettingsError, match=r"norm_obs_keys names \['velocity'\]"):
        tqc(SimpleMultiObsEnv(), policy="MultiInputPolicy", normalize={"norm_obs_keys": ["velocity"]})
    with pytest.raises(SettingsError, match="frame_stack"):
        tqc(frame_stack=0)
    agent, other = tqc(normalize=True), tqc(ChainEnv(), normalize=True)
    with pytest.raises(ValueError, match=r"shape \(2,\), but this agent's has \(3,\)"):
        agent.normalizer.load_state_dict(other.normalizer.state_dict())  # type: ignore[union-attr]
    before = statistics(agent)
    with pytest.raises(ArtifactError, match="shape"):
        agent.set_parameters({"policy": {"normalizer": other.normalizer.state_dict()}}, exact_match=False)  # type: ignore[union-attr]
    assert all(torch.equal(value, before[name]) for name, value in statistics(agent).items())
    wide = tqc(AnySpaceEnv(spaces.Box(-1, 1, (7,), np.float32), spaces.Box(-2, 2, (1,), np.float32)), normalize=True)
    wide.save(tmp_path / "wide")
    with pytest.raises(ArtifactError):
        agent.set_parameters(tmp_path / "wide")
