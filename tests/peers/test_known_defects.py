"""Defects that releases of stable-baselines3 had: the packages of contrib_algos do not have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env
from rlsdk.math.surrogate import explained_variance
from rlsdk_a2c import A2C
from rlsdk_ddpg import DDPG
from rlsdk_dqn import DQN
from rlsdk_envs.toy import BitFlippingEnv, FakeImageEnv
from rlsdk_ppo import PPO
from rlsdk_sac import SAC
from rlsdk_sac.algorithm import MinimumOfCritics
from rlsdk_td3 import TD3
from rlsdk_testing.rollouts import rollout_of

OFF_POLICY = {"dqn": DQN, "sac": SAC, "td3": TD3, "ddpg": DDPG}
SMALL: dict[str, Any] = {"seed": 0, "learning_starts": 10, "buffer_size": 200, "batch_size": 8, "train_freq": 1}
NARROW = {"net_arch": [8]}
LOUD = {"kind": "normal", "mean": 0.0, "sigma": 0.5}


class Counted(gymnasium.Env[Any, Any]):
    """Observations are (episode, step), goals (0, 9). Episodes have three steps; every other one ends by a time limit."""

    def __init__(self, discrete: bool, goals: bool = False) -> None:
        pair = spaces.Box(-1.0, 1e6, (2,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, pair)) if goals else pair
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.goals, self.episode, self.now = goals, -1, 0

    def seen(self) -> Any:
        here = np.array([self.episode, self.now], np.float32)
        goal = np.array([0.0, 9.0], np.float32)
        return {"observation": here, "achieved_goal": here.copy(), "desired_goal": goal} if self.goals else here

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.now = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        over, odd = self.now == 3, bool(self.episode % 2)
        return self.seen(), -1.0, over and not odd, over and odd, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        """The reward 100 * achieved step + desired step, which shows from which goals it was computed."""
        return (100.0 * np.asarray(achieved)[..., 1] + np.asarray(desired)[..., 1]).astype(np.float32)


class Normed(torch.nn.Module):
    """A features extractor with batch normalization."""

    def __init__(self, space: Any, width: int = 6) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(space.shape[0], width), torch.nn.BatchNorm1d(width))
        self.features_dim = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.net(x)
        return found


def small(name: str, env: Any = None, policy: str = "MlpPolicy", **settings: Any) -> Any:
    """An off-policy agent that learns from its eleventh step on."""
    env = env or ("CartPole-v1" if name == "dqn" else "Pendulum-v1")
    return OFF_POLICY[name](policy, env, **{**SMALL, "policy_kwargs": NARROW, **settings})


def targets_of(model: Any) -> list[Any]:
    algorithm = model.parts.algorithm
    holders = (algorithm, getattr(algorithm, "trained", None))
    return [found for each in holders for name in ("target", "actor_target") if (found := getattr(each, name, None))]


@pytest.mark.parametrize("envs", [1, 2])
@pytest.mark.parametrize("name", OFF_POLICY)
def test_the_memory_holds_the_last_observation_of_an_episode(name: str, envs: int) -> None:
    """The last transition has the final observation of its episode, and not the first of the next. After a time
    limit its value is used."""
    env = make_vec_env(lambda: Counted(name == "dqn"), envs, vectorization="sync")
    model = small(name, env, learning_starts=60).learn(40)
    batch = model.replay_buffer.sample(500, torch.Generator().manual_seed(0))
    before, after = batch.observation.features, batch.next_observation.features
    torch.testing.assert_close(after - before, torch.tensor([0.0, 1.0]).expand_as(before))
    last = after[:, 1] == 3
    ended = last & (before[:, 0] % 2 == 0)
    assert bool((last & ~ended).any())
    assert torch.equal(batch.discount == 0.0, ended)


def test_the_entropy_of_sac_counts_where_an_episode_goes_on_only() -> None:
    model = small("sac")
    batch = model.learn(20).replay_buffer.sample(3, torch.Generator().manual_seed(0))
    batch = replace(batch, reward=torch.ones(3), discount=torch.tensor([0.0, 0.0, 0.5]))
    values, log_prob = torch.full((2, 3, 1), 8.0), torch.full((3,), 4.0)
    target = MinimumOfCritics().target(values, log_prob, torch.tensor(0.5), batch)
    assert target.flatten().tolist() == [1.0, 1.0, 1.0 + 0.5 * (8.0 - 0.5 * 4.0)]


@pytest.mark.parametrize("stopped", [False, True])
def test_td3_delays_its_actor_over_the_whole_training(stopped: bool, tmp_path: Path) -> None:
    """The actor is updated in updates 3, 6, ..., also if `learn` is called for each step, and after loading."""
    model, moved = small("td3", learning_starts=4, policy_delay=3).learn(4), list[int]()
    for update in range(1, 10):
        before = [value.clone() for value in model.policy.parameters()]
        targets = [value.clone() for each in targets_of(model) for value in each.network.parameters()]
        model.learn(1, reset_num_timesteps=False)
        changed = any(not torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))
        after = (value for each in targets_of(model) for value in each.network.parameters())
        assert changed == any(not torch.equal(a, b) for a, b in zip(targets, after, strict=True))
        moved += [update] * changed
        if stopped:
            model = TD3.load(model.save(tmp_path / "agent"), env="Pendulum-v1")
    assert moved == [3, 6, 9]


@pytest.mark.parametrize("policy", ["MlpPolicy", "CnnPolicy"])
@pytest.mark.parametrize("name", OFF_POLICY)
def test_target_networks_share_nothing_with_the_networks_that_learn(name: str, policy: str) -> None:
    images = FakeImageEnv(36, action_space=spaces.Discrete(2) if name == "dqn" else None)
    env, few = (images, {"buffer_size": 20}) if policy == "CnnPolicy" else (None, {})
    model = small(name, env, policy, policy_kwargs={"net_arch": [4]}, **few)
    algorithm = model.parts.algorithm
    online = [algorithm.policy] if name == "dqn" else [algorithm.actor, algorithm.critics]
    learned = {value.data_ptr() for network in online for value in network.parameters()}
    assert learned
    assert not learned & {value.data_ptr() for each in targets_of(model) for value in each.network.parameters()}


@pytest.mark.parametrize("name", OFF_POLICY)
def test_targets_stay_in_eval_mode_and_have_the_statistics_of_batches(name: str) -> None:
    """Target networks stay in eval mode and have the batch statistics of the trained networks (stable-baselines3,
    issue 996)."""
    networks = {**NARROW, "features_extractor_class": Normed}
    settings = {"target_update_interval": 1} if name == "dqn" else {}
    model = small(name, policy_kwargs=networks, **settings).learn(30)
    if name == "dqn":  # DQN updates its target network by the number of environment steps
        model.parts.algorithm.collected(31, 1.0)
    for each in targets_of(model):
        assert not any(module.training for module in each.network.modules())
        found, wanted = each.network.encoder.extractor.net[1], each.online.encoder.extractor.net[1]
        assert int(wanted.num_batches_tracked) > 0
        assert torch.equal(found.running_var, wanted.running_var)
        assert torch.equal(found.running_mean, wanted.running_mean)


def test_the_entropy_coefficient_is_learned_after_loading(tmp_path: Path) -> None:
    model = small("sac", ent_coef="auto_0.3").learn(30)
    loaded: Any = SAC.load(model.save(tmp_path / "agent"), env="Pendulum-v1")
    kept, at = loaded.parts.algorithm.entropy, model.parts.algorithm.entropy.log_alpha.item()
    assert kept.log_alpha.item() == at != pytest.approx(np.log(0.3), abs=1e-6)
    loaded.learn(30, reset_num_timesteps=False)
    assert kept.log_alpha.item() != at


@pytest.mark.parametrize("envs", [1, 4])
def test_the_interval_of_targets_survives_loading(envs: int, tmp_path: Path) -> None:
    """Loading does not change `target_update_interval`. A defect divided it by the number of environments at each load."""
    settings = {"target_update_interval": 16, "learning_starts": 1000, "train_freq": 4}
    env = make_vec_env("CartPole-v1", envs, vectorization="sync")
    model = small("dqn", env, **settings).learn(16)
    for _ in range(3):
        before = model.parts.algorithm.target_updates
        model = DQN.load(model.save(tmp_path / "agent"), env=env)
        assert model.config.target_update_interval == 16
        model.learn(32, reset_num_timesteps=False)
        assert model.parts.algorithm.target_updates == before + 2


def test_ppo_counts_the_epochs_it_began() -> None:
    settings = {"n_steps": 32, "batch_size": 32, "seed": 0, "learning_rate": 0.05, "policy_kwargs": NARROW}
    counts = []
    for target_kl in (None, 1e-9):
        model = PPO("MlpPolicy", "CartPole-v1", n_epochs=7, target_kl=target_kl, **settings).learn(32)
        counts.append(model.parts.algorithm.updates)  # type: ignore[attr-defined]
    assert counts == [7, 2]  # the first epoch changes the policy, and the second one measures by how much


@pytest.mark.parametrize("batch_size", [1, 31])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.filterwarnings("ignore:batch_size")
def test_a_minibatch_of_one_is_not_divided_by_its_deviation(batch_size: int, env: str) -> None:
    settings = {"n_steps": 32, "n_epochs": 2, "seed": 0, "policy_kwargs": NARROW}
    model = PPO("MlpPolicy", env, batch_size=batch_size, **settings).learn(32)
    assert all(bool(value.isfinite().all()) for value in model.policy.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="two devices are needed")
def test_a_memory_lies_on_the_device_it_is_loaded_to(tmp_path: Path) -> None:
    model = small("sac", device="cuda").learn(30)
    model.save_replay_buffer(tmp_path / "memory")
    for device in ("cpu", "cuda"):
        loaded = small("sac", device=device)
        loaded.load_replay_buffer(tmp_path / "memory")
        batch = loaded.replay_buffer.sample(4, loaded.streams["update"])
        assert {batch.reward.device.type, batch.observation.features.device.type} == {device}


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_features_extractor_has_one_loss(name: str, shared: bool) -> None:
    """By default actor and critics have separate features extractors. A shared one is trained by the loss of the
    actor alone."""
    networks = {"net_arch": [8], "features_extractor_class": Normed, "share_features_extractor": shared}
    algorithm: Any = small(name, policy_kwargs=networks).parts.algorithm
    assert (algorithm.critics.encoder is algorithm.actor.encoder) is shared
    actor, critics = algorithm.trained.actor_optimizer.flat, algorithm.trained.optimizer.flat

    def size(module: Any) -> int:
        return sum(value.numel() for value in module.parameters())

    assert actor.numel() == size(algorithm.actor)
    assert critics.numel() == size(algorithm.critics.ensemble) + (0 if shared else size(algorithm.critics.encoder))


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_explained_variance_is_of_the_returns(kind: Any) -> None:
    """It is 1 - Var(R - V) / Var(R), with returns R and values V; exchanging both would divide by Var(V)."""
    value, target = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 4.0, 1.0, 3.0])
    assert float(explained_variance(value, target)) == pytest.approx(1.0 - 1.25 / 2.5)
    model = kind("MlpPolicy", "CartPole-v1", n_steps=64, gamma=0.9, gae_lambda=1.0, seed=0, policy_kwargs=NARROW)
    model.policy.stores_estimates = True
    rollout = rollout_of(model, 64)
    zero = replace(rollout.steps.extras, value=torch.zeros_like(rollout.steps.extras.value))
    blind = replace(rollout, steps=replace(rollout.steps, extras=zero))
    assert float(model.parts.algorithm.update(blind, progress=0.0)["train/explained_variance"]) == pytest.approx(0.0)


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_action_noise_is_used_with_hindsight(name: str) -> None:
    taken = []
    for noise in (None, LOUD):
        env = BitFlippingEnv(3, continuous=True)
        settings = {
            "learning_starts": 0,
            "gradient_steps": 0,
            "replay_buffer_class": "hindsight",
            "action_noise": noise,
        }
        model = small(name, env, "MultiInputPolicy", **settings).learn(20)
        stored = model.replay_buffer.inner.at(torch.arange(20))
        taken.append(stored.action)
        if name != "sac":
            free = model.policy.unit_action(model.policy.encoder(stored.observation.features))
            assert torch.allclose(stored.action, free, atol=1e-6) is (noise is None)
    assert not torch.equal(taken[0], taken[1])


@pytest.mark.parametrize("name", OFF_POLICY)
def test_rewards_of_new_goals_ask_for_what_was_achieved_next_and_then_the_goal(name: str) -> None:
    env = Counted(name == "dqn", goals=True)
    settings: dict[str, Any] = {"replay_buffer_class": "hindsight", "replay_buffer_kwargs": {"n_sampled_goal": 10_000}}
    model = small(name, env, "MultiInputPolicy", learning_starts=100, **settings).learn(30)
    batch = model.replay_buffer.sample(200, torch.Generator().manual_seed(0))
    after = batch.next_observation.features
    new = after["desired_goal"][:, 1] != 9.0
    wanted = 100.0 * after["achieved_goal"][:, 1] + after["desired_goal"][:, 1]
    assert float(new.float().mean()) > 0.9
    assert torch.equal(batch.reward[new], wanted[new])
