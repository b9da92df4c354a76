"""Bad input to the packages in contrib_algos: the error is one line that names the mistake and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, RlsdkError, SettingsError, UnsupportedSpaceError
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_interchange.sb3 import import_sb3
from tests.tables import in_one_test

ENVS = dict.fromkeys(("ppo", "a2c", "dqn"), "CartPole-v1") | dict.fromkeys(("sac", "td3", "ddpg"), "Pendulum-v1")
NARROW = {"net_arch": [8]}
SEEN = spaces.Box(-1.0, 1.0, (2,), np.float32)
UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def refused(name: str, kind: type[RlsdkError], env: Any = None, **settings: Any) -> str:
    """The error message, of one line, that making and training an agent with these settings raises."""
    with pytest.raises(kind) as caught:
        rlsdk.make(name, env=env or ENVS[name], policy_kwargs=NARROW, **settings).learn(64)
    message = str(caught.value)
    assert "\n" not in message
    return message


SETTINGS: list[tuple[str, Mapping[str, Any], str]] = [
    ("ppo", {"clip_range": -0.1}, "clip_range must stay finite and not negative, but reaches -0.1"),
    ("ppo", {"clip_range": 0.0}, "clip_range = 0.0 must be positive"),
    ("ppo", {"clip_range_vf": -1.0}, "clip_range_vf must stay finite and not negative"),
    ("ppo", {"clip_range": lambda remaining: -remaining}, "clip_range must stay finite and not negative"),
    ("ppo", {"n_steps": 1}, "advantage cannot be normalized"),
    ("ppo", {"batch_size": 0}, "batch_size = 0"),
    ("ppo", {"n_epochs": 0}, "n_epochs = 0"),
    ("ppo", {"use_sde": True}, "use_sde needs a Box action space, not Discrete"),
    ("a2c", {"rms_prop_eps": 0.0}, "rms_prop_eps = 0.0"),
    ("a2c", {"learning_rate": -1.0}, "learning_rate must stay finite and not negative"),
    ("a2c", {"n_epochs": 2}, "unknown setting 'n_epochs'"),
    ("dqn", {"target_update_interval": 0}, "target_update_interval = 0"),
    ("dqn", {"exploration_final_eps": 1.5}, "exploration_final_eps = 1.5"),
    ("dqn", {"train_freq": 0}, "train_freq"),
    ("sac", {"tau": 2.0}, "tau = 2.0"),
    ("sac", {"ent_coef": "automatic"}, "ent_coef 'automatic' must be"),
    ("td3", {"policy_delay": 0}, "policy_delay = 0 is outside"),
    ("td3", {"policy_delay": 1.5}, "policy_delay: 1.5 is not a whole number"),
    ("td3", {"target_policy_noise": -0.1}, "target_policy_noise = -0.1"),
    ("td3", {"target_noise_clip": -0.1}, "target_noise_clip = -0.1"),
    ("ddpg", {"policy_delay": 2}, "unknown setting 'policy_delay'"),
    ("ddpg", {"buffer_size": 0}, "buffer_size"),
    ("td3", {"action_noise": "normal"}, "action_noise 'normal' needs its numbers"),
]


@in_one_test
@pytest.mark.parametrize(
    ("name", "settings", "message"), SETTINGS, ids=[f"{row[0]} {next(iter(row[1]))}" for row in SETTINGS]
)
def test_settings_out_of_range(name: str, settings: Mapping[str, Any], message: str) -> None:
    assert message in refused(name, SettingsError, **settings)


@in_one_test
@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize(
    ("networks", "message"),
    [
        ({"activation_fn": torch.nn.Linear}, "cannot be made: Linear.__init__() missing 2 required"),
        ({"activation_fn": torch.tanh}, "cannot be made: "),
        ({"activation_fn": lambda: 5}, "makes 5, not a module"),
        ({"optimizer_class": torch.optim.LBFGS}, "optimizer_class LBFGS evaluates the loss several times per step"),
    ],
    ids=["layer", "function", "number", "lbfgs"],
)
def test_classes_that_are_no_activation_or_optimizer(name: str, networks: Mapping[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        rlsdk.make(name, env=ENVS[name], policy_kwargs={**NARROW, **networks})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "actions", "message"),
    [
        ("dqn", SEEN, "DQN cannot act in a Box action space; supported action spaces: Discrete, MultiDiscrete"),
        ("dqn", spaces.MultiBinary(2), "DQN cannot act in a MultiBinary action space"),
        *(
            (name, spaces.Discrete(2), "in a Discrete action space; supported action spaces: Box")
            for name in ENVS
            if ENVS[name] != "CartPole-v1"
        ),
        *((name, UNBOUNDED, "needs finite bounds") for name in ENVS if ENVS[name] != "CartPole-v1"),
        ("sac", spaces.Dict({"a": SEEN}), "SAC cannot act in a Dict action space"),
    ],
)
def test_actions_an_algorithm_cannot_take(name: str, actions: Any, message: str) -> None:
    assert message in refused(name, UnsupportedSpaceError, AnySpaceEnv(SEEN, actions))


@pytest.mark.parametrize("name", ENVS)
def test_observations_that_nothing_reads(name: str) -> None:
    actions = SEEN if ENVS[name] == "Pendulum-v1" else spaces.Discrete(2)
    assert "observation is a Text" in refused(name, UnsupportedSpaceError, AnySpaceEnv(spaces.Text(3), actions))


@pytest.mark.parametrize("envs", [1, 2])
def test_a_minibatch_larger_than_the_rollout_is_cut_with_a_warning(envs: int) -> None:
    env = make_vec_env("CartPole-v1", envs, vectorization="sync")
    with pytest.warns(UserWarning, match=f"is more than a rollout .* minibatches of {32 * envs} are used"):
        model: Any = rlsdk.make("ppo", env=env, n_steps=32, batch_size=100, n_epochs=1, seed=0)
    whole: Any = rlsdk.make("ppo", env=env, n_steps=32, batch_size=None, n_epochs=1, seed=0)
    for agent in (model, whole):
        agent.learn(32 * envs)
    for one, other in zip(model.policy.parameters(), whole.policy.parameters(), strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file of stable-baselines3 or sb3-contrib for each algorithm."""
    peer = pytest.importorskip("stable_baselines3")
    place = tmp_path_factory.mktemp("peer")
    for name, env in ENVS.items():
        small = {"n_steps": 16, "batch_size": 16} if name == "ppo" else {}
        getattr(peer, name.upper())("MlpPolicy", env, policy_kwargs=dict(NARROW), seed=0, **small).save(place / name)
    contrib = pytest.importorskip("sb3_contrib")
    contrib.TQC("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(NARROW)).save(place / "tqc")
    contrib.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=16, batch_size=16).save(place / "recurrent-ppo")
    return place


ALIKE = ({"ppo", "a2c"}, {"td3", "ddpg"})
"""Algorithms with the same networks: each of a pair imports files of the other, and predicts the same."""
EVERY = {**ENVS, "tqc": "Pendulum-v1", "recurrent-ppo": "CartPole-v1"}


@pytest.mark.parametrize("name", ENVS)
def test_files_of_other_algorithms(name: str, files: Path) -> None:
    for other, env in EVERY.items():
        if other == name or {name, other} in ALIKE:
            import_sb3(files / f"{other}.zip", name, env).learn(1)
            continue
        with pytest.raises(ArtifactError) as caught:
            import_sb3(files / f"{other}.zip", name, env)
        message = str(caught.value)
        assert "\n" not in message
        assert f"holds no {name} agent" in message or "import it as tqc" in message, message
