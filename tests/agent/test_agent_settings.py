"""Settings of an existing agent: each reads as documented, and an assigned value takes effect or is refused.

A value takes effect if the trained state differs from that without the assignment. The state must also equal, bit for
bit, that of an agent which was saved before the assignment and loaded with the new value.
"""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

import rlsdk
from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError, UnknownAttributeError, UsageError
from rlsdk.exploration import NormalActionNoise
from rlsdk.registry import load as load_spec
from rlsdk.tree import flatten
from rlsdk_envs.toy import InvalidActionEnvDiscrete
from tests.tables import in_one_test

ENVIRONMENTS: dict[str, Any] = {
    "ars": "CartPole-v1",
    "maskable-ppo": lambda: InvalidActionEnvDiscrete(8, 4),
    "qrdqn": "CartPole-v1",
    "recurrent-ppo": "CartPole-v1",
    "tqc": "Pendulum-v1",
    "trpo": "Pendulum-v1",
}
ON_POLICY: dict[str, Any] = {"n_steps": 16, "policy_kwargs": {"net_arch": [8]}}
OFF_POLICY: dict[str, Any] = {"learning_starts": 8, "buffer_size": 400, "batch_size": 8}
SETTINGS: dict[str, dict[str, Any]] = {
    "ars": {"n_delta": 3, "n_top": 2},
    "maskable-ppo": {**ON_POLICY, "batch_size": 8, "n_epochs": 2},
    "qrdqn": {
        **OFF_POLICY,
        "policy_kwargs": {"net_arch": [8], "n_quantiles": 5},
        "target_update_interval": 8,
        "learning_rate": 1e-2,
        "exploration_fraction": 1.0,
        "tau": 0.5,
    },
    "recurrent-ppo": {
        "n_steps": 16,
        "batch_size": 8,
        "n_epochs": 2,
        "use_sde": False,
        "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 4},
    },
    "tqc": {
        **OFF_POLICY,
        "policy_kwargs": {"net_arch": [8], "n_quantiles": 5},
        "action_noise": NormalActionNoise(0.0, 0.1),
    },
    "trpo": {**ON_POLICY, "batch_size": 8, "n_critic_updates": 2},
}
CHANGES: dict[str, Any] = {
    "env_groups": 2,
    "learning_rate": 2e-3,
    "gamma": 0.5,
    "tau": 0.05,
    "batch_size": 4,
    "gradient_steps": 2,
    "train_freq": 2,
    "learning_starts": 60,
    "n_steps": 8,
    "n_epochs": 3,
    "gae_lambda": 0.5,
    "clip_range": 0.01,
    "clip_range_vf": 0.01,
    "normalize_advantage": False,
    "ent_coef": 0.1,
    "vf_coef": 0.1,
    "max_grad_norm": 0.01,
    "target_kl": 1e-6,
    "target_update_interval": 3,
    "policy_delay": 2,
    "target_entropy": -3.0,
    "top_quantiles_to_drop_per_net": 0,
    "double_q": True,
    "exploration_fraction": 0.1,
    "exploration_final_eps": 0.6,
    "exploration_initial_eps": 0.2,
    "n_delta": 4,
    "n_top": 1,
    "delta_std": 0.2,
    "alive_bonus_offset": -1.0,
    "n_eval_episodes": 2,
    "cg_max_steps": 1,
    "cg_damping": 0.9,
    "line_search_shrinking_factor": 0.3,
    "line_search_max_iter": 1,
    "n_critic_updates": 3,
    "sub_sampling_factor": 2,
    "sequence_length": 3,
    "burn_in": 2,
    "sde_sample_freq": 3,
    "action_noise": NormalActionNoise(0.0, 0.5),
    "action_bounds": (-0.5, 0.5),
    "verbose": 1,
    "stats_window_size": 3,
    "tensorboard_log": "elsewhere",
    "buffer_size": 500,
    "device": "meta",
    "policy": "CnnPolicy",
    "seed": 3,
    "normalize": True,
    "frame_stack": 2,
    "policy_kwargs": {"net_arch": [4]},
    "use_sde": True,
    "use_sde_at_warmup": True,
    "optimize_memory_usage": True,
    "kl_per_dimension": False,
    "replay_buffer_class": "prioritized",
    "replay_buffer_kwargs": {"n_steps": 2},
    "zero_policy": False,
    "use_masking": False,
    "env": None,
}
SPECIAL: dict[tuple[str, str], dict[str, Any]] = {
    ("recurrent-ppo", "sde_sample_freq"): {"use_sde": True, "env": "Pendulum-v1"},
    ("trpo", "sde_sample_freq"): {"use_sde": True},
    ("tqc", "sde_sample_freq"): {"use_sde": True, "train_freq": 8},
    ("trpo", "line_search_max_iter"): {"target_kl": 1.0},
    ("trpo", "line_search_shrinking_factor"): {"target_kl": 1.0},
    ("maskable-ppo", "clip_range"): {"learning_rate": 0.05},
    ("maskable-ppo", "clip_range_vf"): {"learning_rate": 0.05},
    ("maskable-ppo", "target_kl"): {"learning_rate": 0.05},
    ("recurrent-ppo", "clip_range"): {"learning_rate": 0.05},
    ("recurrent-ppo", "clip_range_vf"): {"learning_rate": 0.05},
    ("qrdqn", "double_q"): {"learning_rate": 0.1, "tau": 0.01},
}
"""(algorithm, setting) -> further settings without which the setting has no effect."""
MEMBERS = {"env", "policy", "seed", "device"}
"""Settings that share their names with members of the class `Agent`."""
OF_THE_AGENT = {"stats_window_size", "tensorboard_log", "verbose"}
AFRESH = {"ent_coef", "exploration_initial_eps"}
"""Settings of initial values. A file also holds the present values, so loading with another initial value has no effect."""


def made(name: str, **changes: Any) -> Agent:
    changes = {**SETTINGS[name], **changes}
    env = make_vec_env(changes.pop("env", ENVIRONMENTS[name]), 1, vectorization="sync")
    return rlsdk.make(name, env=env, seed=0, **changes)


def begun(name: str, **changes: Any) -> Agent:
    return made(name, **changes).learn(32)


def state(agent: Agent) -> dict[str, Any]:
    """The state of an agent after training, as flat tensors and numbers: policy, algorithm, and counts of steps and updates."""
    parts = {"policy": agent.get_parameters()["policy"], "algorithm": agent.parts.algorithm.state_dict()}
    counts = {"steps": agent.num_timesteps, "updates": agent._n_updates}
    return {**flatten(parts), **counts}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    def same(a: Any, b: Any) -> bool:
        return torch.equal(a, b) if torch.is_tensor(a) and torch.is_tensor(b) else bool(a == b)

    return set(one) == set(other) and all(same(value, other[name]) for name, value in one.items())


@cache
def unchanged(name: str, special: bool, setting: str) -> dict[str, Any]:
    changes = SPECIAL[name, setting] if special else {}
    return state(begun(name, **changes).learn(48, reset_num_timesteps=False))


def every_setting() -> list[tuple[str, str]]:
    return [(n, field.name) for n in sorted(SETTINGS) for field in attrs.fields(load_spec(n).config_type)]


LIVE = [(n, setting) for n, setting in every_setting() if setting in load_spec(n).live]
FIXED = [(n, s) for n, s in every_setting() if (n, s) not in LIVE and s not in OF_THE_AGENT | MEMBERS]


@pytest.mark.parametrize(("name", "setting"), LIVE)
def test_an_assigned_setting_takes_effect_and_is_in_the_file(name: str, setting: str, tmp_path: Path) -> None:
    special, value = (name, setting) in SPECIAL, CHANGES[setting]
    extra = SPECIAL.get((name, setting), {})
    agent = begun(name, **extra)
    path = agent.save(tmp_path / "before", include=["replay"] if agent.replay_buffer is not None else None)
    setattr(agent, setting, value)
    assert getattr(agent, setting) == value
    after = state(agent.learn(48, reset_num_timesteps=False))
    assert not equal(after, unchanged(name, special, setting if special else ""))
    assert getattr(rlsdk.load(agent.save(tmp_path / "after")), setting) == value
    if setting not in AFRESH:
        env = make_vec_env(extra.get("env", ENVIRONMENTS[name]), 1, vectorization="sync")
        loaded = rlsdk.load(path, env=env, force_reset=False, custom_objects={setting: value})
        assert equal(after, state(loaded.learn(48, reset_num_timesteps=False)))


@in_one_test
@pytest.mark.parametrize(("name", "setting"), FIXED)
def test_a_setting_that_cannot_change_says_how_it_can(name: str, setting: str) -> None:
    agent = one(name)
    before = getattr(agent, setting)
    with pytest.raises(
        UsageError, match=rf"{setting} cannot change while the agent lives; .*load\(path, {setting}=value\)"
    ):
        setattr(agent, setting, CHANGES[setting])
    assert getattr(agent, setting) == before


@cache
def one(name: str) -> Agent:
    return made(name)


@in_one_test
@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_settings_read_as_documented(name: str) -> None:
    agent = one(name)
    for field in attrs.fields(type(agent.config)):
        assert hasattr(agent, field.name), field.name
        assert field.name in dir(agent)
    assert isinstance(agent.learning_rate, float)
    assert agent.lr_schedule(1.0) == agent.learning_rate == agent.learning_rate(0.5)
    given = SETTINGS[name].get("policy_kwargs", {})
    assert agent.policy_kwargs == given
    assert (agent.n_envs, agent.verbose, agent.tensorboard_log) == (1, 0, None)
    assert agent.seed == 0
    assert isinstance(agent.policy, agent.policy_class)
    assert {"MlpPolicy", "LinearPolicy", "MlpLstmPolicy"} & set(type(agent).policy_aliases)
    if name in ("tqc", "qrdqn"):
        assert made(name, train_freq=(2, "episode")).train_freq == (2, "episode")
    line = repr(agent)
    assert "\n" not in line
    assert type(agent).__name__ in line
    assert "0 steps" in line
    assert "cpu" in line


def test_a_schedule_reads_as_it_was_given() -> None:
    agent = made("maskable-ppo", learning_rate=lambda remaining: 1e-3 * remaining, clip_range=0.3)
    assert agent.learning_rate(0.5) == 5e-4
    assert agent.clip_range == agent.clip_range(1.0) == 0.3
    assert agent.clip_range_vf is None


def test_statistics_of_training_can_be_read() -> None:
    agent = made("tqc")
    assert (agent._n_updates, list(agent.ep_info_buffer), list(agent.ep_success_buffer)) == (0, [], [])
    assert (agent._last_obs, agent.start_time, agent._current_progress_remaining) == (None, 0, 1.0)
    agent.learn(400)
    assert agent._n_updates == 392
    assert [info["l"] for info in agent.ep_info_buffer] == [200, 200]
    assert agent.ep_info_buffer.maxlen == agent.stats_window_size == 100
    assert agent._last_obs.shape == (1, 3)
    assert agent.start_time > 0
    loaded = rlsdk.load(agent.save(BytesIO()) or _in_memory(agent))
    assert list(loaded.ep_info_buffer) == list(agent.ep_info_buffer)
    assert loaded._n_updates == 392


def _in_memory(agent: Agent) -> BytesIO:
    file = BytesIO()
    agent.save(file)
    file.seek(0)
    return file


def test_the_device_equals_its_documented_forms() -> None:
    agent = one("trpo")
    assert agent.device == "cpu"
    assert agent.device == torch.device("cpu")
    assert torch.device("cpu") == agent.device
    assert agent.device != "cuda"
    assert agent.device != torch.device("cuda:0")
    assert agent.device != 3
    assert (agent.device.type, agent.device.index, str(agent.device)) == ("cpu", None, "cpu")
    assert torch.zeros(1, device=agent.device).device == agent.device
    assert {"cpu": 1}[agent.device] == 1
    from rlsdk.agent.attributes import DeviceName

    assert DeviceName("cuda:0") == "cuda:0"
    assert DeviceName("cuda:0") == torch.device("cuda", 0)
    assert DeviceName("cuda:0") == "cuda"
    assert DeviceName("cuda:1") != "cuda"


def test_names_that_do_not_exist_are_refused_with_the_closest_one() -> None:
    agent = one("tqc")
    with pytest.raises(UnknownAttributeError, match="no attribute or setting 'gama'; did you mean 'gamma'"):
        _ = agent.gama
    with pytest.raises(UnknownAttributeError, match="did you mean 'gamma'"):
        agent.gama = 0.9
    with pytest.raises(UnknownAttributeError, match="its settings are action_bounds, action_noise, batch_size"):
        agent.qqqqqq = 1
    with pytest.raises(UnknownAttributeError, match="rollouts are records"):
        _ = agent.rollout_buffer
    assert not hasattr(agent, "gama")
    assert getattr(agent, "gama", 3) == 3
    assert not hasattr(agent, "_repr_html_")


def test_members_say_how_they_change() -> None:
    agent = made("tqc")
    for name, hint in {
        "seed": "set_random_seed",
        "device": "load",
        "policy": "set_parameters",
        "n_envs": "set_env",
        "replay_buffer": "load_replay_buffer",
        "ep_info_buffer": "computes it",
        "lr_schedule": "learning_rate",
    }.items():
        with pytest.raises(UsageError, match=f"TQC.{name} cannot be assigned; .*{hint}"):
            setattr(agent, name, None)
    env = make_vec_env("Pendulum-v1", 1)
    agent.env = env
    assert agent.env is env
    agent.learn(20)
    agent.num_timesteps = 5
    assert agent.num_timesteps == 5
    assert rlsdk.load(_in_memory(agent)).num_timesteps == 5
    agent.num_timesteps = 500  # more than were made
    assert rlsdk.load(_in_memory(agent)).num_timesteps == 500
    with pytest.raises(SettingsError, match="num_timesteps = -1"):
        agent.num_timesteps = -1


def test_own_values_have_a_place() -> None:
    from rlsdk_trpo import TRPO

    class Mine(TRPO):
        notes: list[str]
        level = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.notes, self.level, self._own = ["a"], 3, 4

    agent = Mine("MlpPolicy", "Pendulum-v1", n_steps=16)
    assert (agent.notes, agent.level, agent._own) == (["a"], 3, 4)
    agent.predict = lambda *_, **__: ("mine", None)  # type: ignore[method-assign]
    assert agent.predict(None)[0] == "mine"


def test_a_refused_value_changes_nothing() -> None:
    agent = made("tqc")
    for name, value in {
        "gamma": 1.5,
        "batch_size": 0,
        "learning_rate": "fast",
        "train_freq": 0,
        "ent_coef": "much",
    }.items():
        before = getattr(agent, name)
        with pytest.raises(SettingsError, match=name):
            setattr(agent, name, value)
        assert getattr(agent, name) == before
    with pytest.raises(UsageError, match=r"action_noise cannot begin or end"):
        agent.action_noise = None
    assert agent.parts.behavior.noise.sigma == (0.1,)  # type: ignore[union-attr]
    with pytest.raises(SettingsError, match="burn_in"):
        one("recurrent-ppo").burn_in = 40


def test_a_callback_changes_settings_of_a_running_training() -> None:
    agent = made("trpo")
    rounds: list[int] = []

    def longer(scope: Any, _: Any) -> bool:
        rounds.append(scope["self"].num_timesteps)
        scope["self"].n_steps = 32
        return True

    agent.learn(80, callback=longer)
    assert agent.num_timesteps == 80
    assert rounds[-1] - rounds[-2] in (1, 32)


def test_normalized_returns_follow_gamma() -> None:
    agent = made("trpo", normalize=True)
    agent.gamma = 0.5
    assert agent.normalizer is not None
    assert agent.normalizer.rewards.gamma == 0.5
    fixed = made("trpo", normalize={"gamma": 0.9})
    fixed.gamma = 0.5
    assert fixed.normalizer is not None
    assert fixed.normalizer.rewards.gamma == 0.9


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_a_memory_takes_gamma_and_steps_for_stored_rows_too(kind: str) -> None:
    agent = made("qrdqn", replay_buffer_class=kind).learn(100)
    agent.gamma, agent.n_steps = 0.5, 3
    inner = getattr(agent.replay_buffer, "inner", agent.replay_buffer)
    assert set(inner.storage["discount"][: inner.filled].unique().tolist()) <= {0.0, 0.5}
    assert (inner.gamma, inner.n_steps) == (0.5, 3)


def test_only_a_gamma_of_0_cannot_change() -> None:
    """Discounts of 0 do not show which steps ended an episode."""
    ones = made("qrdqn", gamma=1.0).learn(100)
    ones.gamma = 0.5
    assert ones.gamma == 0.5
    zeros = made("qrdqn", gamma=0.0)
    zeros.gamma, zeros.gamma = 0.5, 0.0
    zeros.learn(100)
    with pytest.raises(UsageError, match="gamma cannot change from 0"):
        zeros.gamma = 0.5
    assert zeros.gamma == 0.0


def test_a_memory_of_ones_own_that_cannot_change_refuses() -> None:
    from rlsdk.buffers import ReplayBuffer

    class Plain:
        def __init__(self, context: Any, capacity: int, gamma: float, *, shared_observations: bool) -> None:
            self.inner = ReplayBuffer(context, capacity, gamma, shared_observations=shared_observations)
            self.extend, self.sample, self.state_dict = self.inner.extend, self.inner.sample, self.inner.state_dict
            self.load_state_dict, self.bytes_required = self.inner.load_state_dict, self.inner.bytes_required

        def __len__(self) -> int:
            return len(self.inner)

    agent = made("tqc", replay_buffer_class=Plain)
    with pytest.raises(UsageError, match="gamma cannot change"):
        agent.gamma = 0.5
    agent.tau = 0.5
    assert agent.tau == 0.5


def test_the_exploration_rate_of_qrdqn_can_be_read_and_set() -> None:
    agent = made("qrdqn")
    assert agent.exploration_rate == 1.0
    agent.exploration_rate = 0.25
    assert agent.exploration_rate == float(agent.policy.epsilon) == 0.25
    with pytest.raises(SettingsError, match="exploration_rate = 2"):
        agent.exploration_rate = 2


def test_parts_have_their_documented_names() -> None:
    tqc, qrdqn = made("tqc", normalize=True), made("qrdqn")
    assert tqc.actor is tqc.parts.policy
    assert tqc.critic is tqc.parts.algorithm.critics  # type: ignore[attr-defined]
    assert tqc.critic_target is tqc.parts.algorithm.trained.target.network  # type: ignore[attr-defined]
    assert qrdqn.quantile_net is qrdqn.policy
    assert qrdqn.quantile_net_target is qrdqn.parts.algorithm.target.network  # type: ignore[attr-defined]
