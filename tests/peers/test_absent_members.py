"""Members of stable-baselines3 and sb3-contrib that rlsdk does not have: each error names what to use instead."""

from __future__ import annotations

import copy
import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.callbacks import CheckpointCallback, LambdaCallback
from rlsdk.errors import UnknownAttributeError, UnknownNameError, UsageError
from rlsdk_acer import ACER
from rlsdk_ars import ARS
from rlsdk_envs.toy import BitFlippingEnv, IdentityEnv, InvalidActionEnvDiscrete, SimpleMultiObsEnv
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_qrdqn import QRDQN
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_sb3 import CallbackList, StopTrainingOnRewardThreshold
from rlsdk_sb3.names import OF_PACKAGES as ELSEWHERE
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO
from tests.tables import in_one_test

ON: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "seed": 0}
OFF: dict[str, Any] = {"buffer_size": 100, "learning_starts": 8, "batch_size": 4, "seed": 0}
MAKERS: dict[str, Any] = {
    "acer": lambda: ACER("MlpPolicy", "CartPole-v1", n_steps=8, seed=0),
    "ars": lambda: ARS("LinearPolicy", "CartPole-v1"),
    "maskable-ppo": lambda: MaskablePPO("MlpPolicy", InvalidActionEnvDiscrete(4, 2), **ON),
    "qrdqn": lambda: QRDQN("MlpPolicy", "CartPole-v1", **OFF),
    "recurrent-ppo": lambda: RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **ON),
    "tqc": lambda: TQC("MlpPolicy", "Pendulum-v1", **OFF),
    "trpo": lambda: TRPO("MlpPolicy", "Pendulum-v1", **ON),
}


INSTEAD_OF_POLICIES = {
    "mlp_extractor": "critic_body",
    "optimizer": r"get_parameters\(\)",
    "net_arch": r"model\.config\.policy_kwargs\.net_arch",
    "critic": r"model\.critic",
    "action_dist": "get_distribution",
    "q_net": "DQN",
    "features_dim": "rlsdk.networks.features_dim",
}


def require_advice(owner: object, name: str, instead: str) -> None:
    assert not hasattr(owner, name)
    with pytest.raises(UnknownAttributeError, match=rf"^{type(owner).__name__} .*'{name}'; .*{instead}"):
        getattr(owner, name)


@pytest.mark.parametrize("name", MAKERS)
def test_of_every_policy_and_model(name: str) -> None:
    model = MAKERS[name]()
    for method in ("parameters_to_vector", "load_from_vector", "scale_action", "unscale_action"):
        with pytest.raises(UsageError, match=rf"has no method '{method}'; (torch\.nn\.utils|model\.predict)"):
            getattr(model.policy, method)(np.zeros(1))
    require_advice(model, "activation_fn", r"a setting of the networks: model\.config\.policy_kwargs\.activation_fn")


def test_layers_have_other_names() -> None:
    recurrent, tqc = MAKERS["recurrent-ppo"](), MAKERS["tqc"]()
    here = {name for name, _ in recurrent.policy.named_children()}
    assert {"encoder", "memory", "body", "head", "critic_memory", "critic_body", "value"} <= here
    assert {"encoder", "body", "mean"} <= {name for name, _ in tqc.actor.named_children()}
    for name in ("mlp_extractor", "optimizer", "net_arch", "critic", "action_dist", "q_net", "features_dim"):
        require_advice(recurrent.policy, name, INSTEAD_OF_POLICIES[name])
    assert "optimizer" in recurrent.get_parameters()
    require_advice(
        recurrent.policy, "no_such_part", "its parts are encoder, memory, body, head, critic_memory, critic_body, value"
    )
    require_advice(tqc.critic, "qf0", "its parts are encoder, ensemble")


def test_parts_of_policies_are_given_under_their_documented_names() -> None:
    recurrent, tqc, qrdqn, trpo = (MAKERS[name]() for name in ("recurrent-ppo", "tqc", "qrdqn", "trpo"))
    policy = recurrent.policy
    assert policy.features_extractor is policy.vf_features_extractor is policy.encoder
    assert (policy.action_net, policy.value_net) == (policy.head, policy.value)
    assert policy.lstm_actor is policy.memory.cells
    assert not hasattr(trpo.policy, "lstm_actor")
    assert trpo.policy.log_std is trpo.policy.head.log_std
    assert tqc.policy.actor is tqc.policy.actor.actor is tqc.actor
    assert tqc.actor.mu is tqc.actor.mean
    assert tqc.critic.features_extractor is tqc.critic.encoder
    assert qrdqn.policy.quantile_net is qrdqn.quantile_net
    assert not hasattr(qrdqn.policy, "q_net")
    for model in (recurrent, tqc, qrdqn, trpo, MAKERS["ars"](), MAKERS["acer"]()):
        assert model.policy.device == torch.device("cpu")
        assert copy.deepcopy(model.policy).features_extractor is not model.policy.features_extractor
    separate = TRPO("MlpPolicy", "CartPole-v1", policy_kwargs={"share_features_extractor": False}, **ON).policy
    assert separate.vf_features_extractor is separate.critic_encoder
    assert "features_extractor" not in dict(policy.named_modules())
    assert not [key for key in policy.state_dict() if key.startswith("features_extractor")]


def test_a_part_that_a_user_sets_is_his() -> None:
    """As before: torch registers it, the policy does not use it, and `save` refuses it."""
    model = MAKERS["trpo"]()
    model.policy.features_extractor = mine = torch.nn.Linear(3, 3)
    assert model.policy.features_extractor is mine


def test_of_single_algorithms() -> None:
    tqc = MAKERS["tqc"]()
    require_advice(tqc, "log_ent_coef", r"get_parameters\(\)\['entropy'\]\['log_alpha'\]")
    assert tqc.get_parameters()["entropy"]["log_alpha"].shape == (1,)
    require_advice(tqc, "ent_coef_optimizer", "optimizer")
    require_advice(tqc, "n_critics", r"policy_kwargs\.n_critics")
    assert tqc.config.policy_kwargs.n_critics == 2
    require_advice(MAKERS["qrdqn"](), "n_quantiles", r"policy_kwargs\.n_quantiles")
    require_advice(MAKERS["qrdqn"](), "exploration_schedule", "exploration_rate")
    require_advice(MAKERS["ars"](), "weights", r"parameters_to_vector\(model\.policy\.parameters\(\)\)")


def test_of_distributions() -> None:
    for name, instead in {"distribution": "itself", "get_actions": r"mode\(\)", "stddev": "log_std"}.items():
        require_advice(MAKERS["trpo"]().policy.get_distribution(np.zeros(3, np.float32)), name, instead)
    categorical = MAKERS["recurrent-ppo"]().policy.get_distribution(np.zeros(4, np.float32))
    require_advice(categorical, "logits", "log_probs")


PACKAGES = (
    "rlsdk",
    "rlsdk.sinks",
    "rlsdk.callbacks",
    "rlsdk.environments",
    "rlsdk.networks",
    "rlsdk.updates",
    "rlsdk.settings",
)


@in_one_test
@pytest.mark.parametrize("name", ELSEWHERE)
def test_of_packages(name: str) -> None:
    """Importing a documented name that no package has names the replacement; what the message names exists."""
    for package in PACKAGES:
        with pytest.raises(UnknownNameError, match=rf"^{re.escape(package)} has no '{name}'; ") as caught:
            exec(f"from {package} import {name}", {})
        assert len(str(caught.value).splitlines()) == 1
    for path in re.findall(r"\brlsdk(?:\.\w+)+", ELSEWHERE[name]):
        found, *parts = path.split(".")
        value = importlib.import_module(found)
        for part in parts:
            found = f"{found}.{part}"
            value = getattr(value, part) if hasattr(value, part) else importlib.import_module(found)
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from rlsdk.sinks import nonsense", {})


def test_the_page_lists_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
    section = page.partition("\n## Names that do not exist here\n")[2].partition("\n## ")[0]
    topics = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert {name for topic in topics for name in re.findall(r"`(\w+)`", topic)} <= set(ELSEWHERE)
    assert len(topics) == 12


def test_every_documented_name_is_one_of_the_peers() -> None:
    folders = [Path(str(pytest.importorskip(name).__file__)).parent for name in ("stable_baselines3", "sb3_contrib")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))))
    assert set(ELSEWHERE) - words == set()


def test_of_callbacks() -> None:
    for callback in (StopTrainingOnRewardThreshold(1.0), CheckpointCallback(10, "x"), CallbackList([])):
        for name, instead in {"locals": "BaseCallback", "n_calls": "run.num_timesteps", "model": "run.agent"}.items():
            require_advice(callback, name, instead)
        require_advice(callback, "parent", "run.notify")
        with pytest.raises(UnknownAttributeError, match=f"^{type(callback).__name__} has no attribute 'nonsense'$"):
            callback.nonsense  # noqa: B018  # type: ignore[attr-defined]


def test_of_replay_buffers() -> None:
    buffer = MAKERS["tqc"]().learn(20).replay_buffer
    for name in ("actions", "dones", "next_observations", "rewards"):
        require_advice(buffer, name, r"sample\(size, generator\)")
    require_advice(buffer, "obs_shape", "model.observation_space")
    goals = TQC("MultiInputPolicy", BitFlippingEnv(4, continuous=True), replay_buffer_class="hindsight", **OFF)
    require_advice(goals.replay_buffer, "her_ratio", "share")
    require_advice(goals.replay_buffer, "goal_selection_strategy", "strategy")
    assert (goals.replay_buffer.share, goals.replay_buffer.strategy) == (0.8, "future")


@pytest.mark.parametrize(
    ("name", "ours", "theirs"),
    [
        ("trpo", {"train/objective", "train/n_updates"}, {"train/policy_objective", "time/iterations"}),
        ("ars", {"train/score_std", "train/n_updates"}, {"rollout/return_std", "train/iterations"}),
    ],
)
def test_metrics_with_other_names(name: str, ours: set[str], theirs: set[str]) -> None:
    names = set[str]()
    MAKERS[name]().learn(300, log_interval=1, callback=LambdaCallback(on_log=lambda run, values: names.update(values)))
    assert ours <= names
    assert not theirs & names


def test_test_environments_have_arguments_of_their_own() -> None:
    assert InvalidActionEnvDiscrete(dim=5, n_invalid_actions=2, episode_length=3).action_space.n == 5
    assert IdentityEnv(dim=3, episode_length=3).action_space.n == 3
    assert isinstance(SimpleMultiObsEnv().action_space, spaces.Box)
    assert isinstance(SimpleMultiObsEnv(action_space=spaces.Discrete(4)).action_space, spaces.Discrete)
    for make, name in ((InvalidActionEnvDiscrete, "ep_length"), (SimpleMultiObsEnv, "discrete_actions")):
        with pytest.raises(TypeError, match=name):
            make(**{name: 1})  # type: ignore[arg-type]


def test_documented_private_names_cannot_be_assigned() -> None:
    """Private attributes of stable-baselines3 cannot be assigned, because that would have no effect on training.
    Other private names can be assigned."""
    model = MAKERS["trpo"]()
    for name, instead in {"_last_obs": r"end_episodes\(\)", "_logger": "set_logger", "_n_updates": "computes"}.items():
        with pytest.raises(UsageError, match=rf"TRPO\.{name} cannot be assigned; .*{instead}"):
            setattr(model, name, None)
    require_advice(model, "_vec_normalize_env", r"get_vec_normalize_env\(\)")
    require_advice(model, "_total_timesteps", "self.locals")
    model._mine = 3
    assert model._mine == 3
