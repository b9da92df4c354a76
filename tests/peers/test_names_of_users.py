"""Attributes and methods that scripts for stable-baselines3 use.

They exist here, or the error names the equivalent in rlsdk.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, EnvironmentFault, SettingsError, UnknownAttributeError, UsageError
from rlsdk_dqn import DQN
from rlsdk_envs.toy import BitFlippingEnv, ChainEnv
from rlsdk_qrdqn import QRDQN
from rlsdk_sac import SAC
from rlsdk_sb3 import BaseCallback, EvalCallback, NumpyVectorEnv
from rlsdk_sb3.names import OF_ENVIRONMENTS
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO

ON: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "seed": 0, "policy_kwargs": {"net_arch": [4]}}
OFF: dict[str, Any] = {"buffer_size": 100, "learning_starts": 8, "batch_size": 4, "seed": 0}
GOALS: dict[str, Any] = {**OFF, "replay_buffer_class": "hindsight"}


def test_episodes_can_be_read_as_soon_as_they_end() -> None:
    seen: list[tuple[int, int, int]] = []

    class Reads(BaseCallback):
        def _on_step(self) -> bool:
            model: Any = self.model
            seen.append((self.num_timesteps, len(model.ep_info_buffer), model._episode_num))
            return True

        def _on_rollout_end(self) -> None:
            model: Any = self.model
            assert [info["l"] for info in model.ep_info_buffer] == [5] * (self.num_timesteps // 5)

    model = TRPO("MlpPolicy", ChainEnv(5), **ON)
    model.learn(48, callback=Reads())
    assert seen == [(step, step // 5, step // 5) for step in range(1, 49)]
    assert (len(model.ep_info_buffer), model._episode_num) == (9, 9)


def test_a_window_of_episodes_stays_as_long_as_it_is() -> None:
    lengths: list[int] = []

    def read(scope: dict[str, Any], _: object) -> bool:
        lengths.append(len(scope["self"].ep_info_buffer))
        return True

    TRPO("MlpPolicy", ChainEnv(5), stats_window_size=2, **ON).learn(32, callback=read)
    assert lengths[4::5] == [1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("memory", ["uniform", "prioritized", "hindsight"])
def test_replay_buffers_say_how_to_ask_them(memory: str) -> None:
    model = QRDQN("MultiInputPolicy", BitFlippingEnv(3), **{**OFF, "replay_buffer_class": memory})
    buffer: Any = model.replay_buffer
    with pytest.raises(UnknownAttributeError, match=r"no attribute 'size'; len\(buffer\) counts"):
        buffer.size()
    with pytest.raises(UnknownAttributeError, match=r"no attribute 'add'; rlsdk_interchange\.remember"):
        buffer.add(None)
    with pytest.raises(UnknownAttributeError, match=r"no attribute 'nothing'$"):
        _ = buffer.nothing


def test_documented_arguments_of_replay_buffers_are_explained() -> None:
    for name in ("copy_info_dict", "handle_timeout_termination", "max_episode_length", "online_sampling"):
        with pytest.raises(SettingsError, match=rf"'hindsight' has no '{name}'; leave it out: \w+"):
            QRDQN("MultiInputPolicy", BitFlippingEnv(3), **GOALS, replay_buffer_kwargs={name: False})
    with pytest.raises(SettingsError, match="'hindsight' has no 'n_goals'; accepted: "):
        QRDQN("MultiInputPolicy", BitFlippingEnv(3), **GOALS, replay_buffer_kwargs={"n_goals": 3})


def test_replay_buffers_of_other_libraries_have_a_name_here() -> None:
    class HerReplayBuffer:
        def __init__(self, buffer_size: int, observation_space: object) -> None: ...

    HerReplayBuffer.__module__ = "stable_baselines3.her.her_replay_buffer"
    wrong: Any = HerReplayBuffer
    with pytest.raises(SettingsError, match=r"HerReplayBuffer is a class of another library; give 'hindsight'"):
        QRDQN("MultiInputPolicy", BitFlippingEnv(3), **{**OFF, "replay_buffer_class": wrong})


def test_goals_of_other_environments_name_what_differs(tmp_path: Path) -> None:
    two = make_vec_env(lambda: BitFlippingEnv(3), n_envs=2)
    QRDQN("MultiInputPolicy", two, **GOALS).learn(20).save_replay_buffer(tmp_path / "buffer")
    with pytest.raises(UsageError, match="the same buffer_size, n_envs and optimize_memory_usage"):
        QRDQN("MultiInputPolicy", BitFlippingEnv(3), **GOALS).load_replay_buffer(tmp_path / "buffer")


def test_a_missing_file_names_those_beside_it(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no file .*nothing\.rlsdk; agent\.save\(path\) writes one"):
        TRPO.load(tmp_path / "nothing")
    model = TRPO("MlpPolicy", ChainEnv(5), **ON)
    model.save(tmp_path / "best")
    with pytest.raises(ArtifactError, match=r"no file .*best_model\.rlsdk; this folder has best\.rlsdk"):
        TRPO.load(tmp_path / "best_model")
    model.save(tmp_path / "other.zip")
    with pytest.raises(ArtifactError, match=r"no file .*best\.zip; this folder has best\.rlsdk$"):
        TRPO.load(tmp_path / "best.zip")
    with pytest.raises(ArtifactError, match=r"no file .*other\.rlsdk; this folder has other\.zip$"):
        TRPO.load(tmp_path / "other.rlsdk")
    assert TRPO.load(tmp_path / "other").num_timesteps == 0


def test_an_own_vector_environment_is_told_what_it_needs() -> None:
    class Own:
        num_envs, observation_space, action_space = 2, spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)

        def step_async(self, actions: object) -> None: ...

    with pytest.raises(EnvironmentFault, match=r"derive a class of your own from gymnasium\.vector\.VectorEnv"):
        TRPO("MlpPolicy", Own(), **ON)


def test_evaluations_can_be_read() -> None:
    callback = EvalCallback(ChainEnv(5), n_eval_episodes=2, eval_freq=16, verbose=0)
    assert callback.evaluations_timesteps == []
    TRPO("MlpPolicy", ChainEnv(5), **ON).learn(32, callback=callback)
    assert callback.evaluations_timesteps == [16, 32]
    assert np.shape(callback.evaluations_results) == (2, 2)
    assert callback.evaluations_length == [[5, 5], [5, 5]]


def test_evaluations_due_in_one_round_are_one() -> None:
    callback = EvalCallback(ChainEnv(5), n_eval_episodes=1, eval_freq=5, verbose=0)
    TRPO("MlpPolicy", ChainEnv(5), **ON).learn(32, callback=callback)
    assert callback.evaluations_timesteps == [16, 32]


def test_no_steps_at_all() -> None:
    model = TRPO("MlpPolicy", ChainEnv(5), **ON)
    assert model.learn(0) is model
    model.learn(16)
    assert model.learn(16 - model.num_timesteps, reset_num_timesteps=False).num_timesteps == 16
    assert model.learn(0).num_timesteps == 0


@pytest.mark.parametrize("use_sde", [False, True])
def test_updates_from_the_replay_buffer_alone_are_counted(use_sde: bool, tmp_path: Path) -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", use_sde=use_sde, **OFF).learn(20)
    assert model._n_updates == 12
    model.train(3)
    assert model._n_updates == 15
    model.save(tmp_path / "agent")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = SAC.load(tmp_path / "agent", env="Pendulum-v1")
    loaded.load_replay_buffer(tmp_path / "buffer")
    loaded.train(2)
    assert (loaded._n_updates, loaded.num_timesteps) == (17, 20)
    assert loaded.learn(4, reset_num_timesteps=False)._n_updates == 21
    other = SAC("MlpPolicy", "Pendulum-v1", use_sde=use_sde, **OFF)
    other.load_replay_buffer(tmp_path / "buffer")
    other.train(5)
    assert (other._n_updates, other.num_timesteps) == (5, 0)
    assert other.learn(12)._n_updates == 5 + 4


def test_what_networks_and_policies_answer() -> None:
    states, actions = torch.zeros(3, 4), torch.zeros(3, 1)
    small = {**OFF, "policy_kwargs": {"net_arch": [4], "n_quantiles": 5}}
    assert QRDQN("MlpPolicy", "CartPole-v1", **small).quantile_net(states).shape == (3, 5, 2)
    assert DQN("MlpPolicy", "CartPole-v1", **OFF).q_net(states).shape == (3, 2)
    tqc = TQC("MlpPolicy", "Pendulum-v1", **small)
    assert tqc.critic(states[:, :3], actions).shape == (2, 3, 5)
    sac = SAC("MlpPolicy", "Pendulum-v1", **OFF)
    assert sac.critic(states[:, :3], actions).shape == (2, 3, 1)
    with pytest.raises(UsageError, match=r"model\.predict\(observation\) acts"):
        sac.actor(states[:, :3])
    policy: Any = TRPO("MlpPolicy", "CartPole-v1", **ON).policy
    values, log_probs, _ = policy.evaluate_actions(states, actions[:, 0])
    assert values.shape == log_probs.shape == policy.predict_values(states).shape == (3,)


def test_names_of_parameters() -> None:
    stored = TRPO("MlpPolicy", "CartPole-v1", **ON).get_parameters()
    assert {"policy", "optimizer"} <= stored.keys()
    assert {name.partition(".")[0] for name in stored["policy"]} == {"body", "head", "critic_body", "value"}


def test_statistics_of_normalization_are_found() -> None:
    normalizer: Any = TRPO("MlpPolicy", "Pendulum-v1", normalize=True, **ON).learn(16).get_vec_normalize_env()
    with pytest.raises(UnknownAttributeError, match=r"no attribute 'obs_rms'; moments\['observation'\] has mean"):
        _ = normalizer.obs_rms
    assert normalizer.rewards.moments.count > 0
    found = normalizer.moments["observation"]
    assert found.mean.shape == found.variance.shape == (3,)
    assert found.count == pytest.approx(16, abs=1)
    with pytest.raises(UnknownAttributeError, match=r"no attribute 'nothing'$"):
        _ = normalizer.nothing


def test_environments_for_algorithms_name_the_ones_for_loops() -> None:
    env: Any = make_vec_env(lambda: ChainEnv(5), n_envs=2)
    for name in OF_ENVIRONMENTS:
        with pytest.raises(UnknownAttributeError, match=rf"no attribute '{name}'; rlsdk_sb3\.NumpyVectorEnv"):
            getattr(env, name)
        assert hasattr(NumpyVectorEnv(env), name)
    with pytest.raises(UnknownAttributeError, match=r"no attribute 'nothing'$"):
        _ = env.nothing
    assert copy.deepcopy(env).num_envs == 2


def test_distributions_have_their_numbers_themselves() -> None:
    policy: Any = TRPO("MlpPolicy", "CartPole-v1", **ON).policy
    chances = policy.get_distribution(np.zeros(4, np.float32)).probs
    assert chances.sum().item() == pytest.approx(1.0)
    policy = TRPO("MlpPolicy", "Pendulum-v1", **ON).policy
    found = policy.get_distribution(torch.zeros(2, 3))
    assert found.mean.shape == found.sample(torch.Generator()).shape == (2, 1)
    assert torch.isfinite(found.log_std).all()
