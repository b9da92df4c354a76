"""Files of stable-baselines3 with other networks than the usual ones, or learnt numbers: the same answers, or a refusal."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments.toy import AnySpaceEnv, BitFlippingEnv
from rlsdk.errors import ArtifactError
from rlsdk.interchange.sb3 import import_sb3

peer = pytest.importorskip("stable_baselines3")
pytestmark = pytest.mark.filterwarnings("ignore:.*only as a pickle")
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32))
VECTOR, IMAGE = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(0, 255, (36, 36, 1), np.uint8)
PARTS = OrderedDict(
    z=spaces.Box(-1.0, 1.0, (2, 2), np.float32),
    a=spaces.Discrete(3),
    m=spaces.MultiDiscrete([2, 3]),
    b=spaces.MultiBinary(2),
)
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 16, "batch_size": 16},
    "a2c": {},
    **{name: {"buffer_size": 100, "learning_starts": 8} for name in ("dqn", "sac", "td3", "ddpg")},
}


def pair(name: str, place: Path, seen: Any, policy: str = "MlpPolicy", steps: int = 32, **settings: Any) -> Any:
    """(their agent, ours from its file)"""
    env = AnySpaceEnv(seen, spaces.Discrete(3) if name == "dqn" else BOX)
    theirs = getattr(peer, name.upper())(policy, env, seed=0, device="cpu", **SMALL[name], **settings).learn(steps)
    theirs.save(place / "model.zip")
    return theirs, import_sb3(place / "model.zip", name, env)


def require_same_answers(theirs: Any, ours: Any, seen: Any) -> None:
    seen.seed(0)
    for _ in range(8):
        observation = seen.sample()
        expected, found = (agent.predict(observation, deterministic=True)[0] for agent in (theirs, ours))
        np.testing.assert_allclose(found, expected, atol=1e-5)
        if hasattr(theirs.policy, "predict_values"):
            value = theirs.policy.predict_values(theirs.policy.obs_to_tensor(observation)[0])
            assert float(ours.policy.predict_values(observation)) == pytest.approx(
                value.detach().item(), rel=1e-5, abs=1e-5
            )


@pytest.mark.parametrize("name", ["ppo", "a2c", "dqn"])
@pytest.mark.parametrize(
    "networks",
    [
        {"normalize_images": False},
        {"features_extractor_kwargs": {"features_dim": 32}},
        {"share_features_extractor": False},
    ],
    ids=lambda networks: next(iter(networks)),
)
def test_encoders_of_images(name: str, networks: dict[str, Any], tmp_path: Path) -> None:
    if name == "dqn" and "share_features_extractor" in networks:
        pytest.skip("one network")
    require_same_answers(*pair(name, tmp_path, IMAGE, "CnnPolicy", policy_kwargs=networks), IMAGE)


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_squashed_actions(name: str, tmp_path: Path) -> None:
    settings = {"use_sde": True, "policy_kwargs": {"squash_output": True}}
    require_same_answers(*pair(name, tmp_path, VECTOR, **settings), VECTOR)


@pytest.mark.parametrize("name", SMALL)
def test_dict_observations_without_images(name: str, tmp_path: Path) -> None:
    seen = spaces.Dict(PARTS)
    theirs, ours = pair(name, tmp_path, seen, "MultiInputPolicy")
    require_same_answers(theirs, ours, seen)
    assert ours.config.policy == "MultiInputPolicy"


def test_agents_with_goals(tmp_path: Path) -> None:
    env = BitFlippingEnv(4, continuous=True)
    settings = {**SMALL["sac"], "replay_buffer_class": peer.HerReplayBuffer, "seed": 0}
    theirs = peer.SAC("MultiInputPolicy", env, **settings).learn(32)
    theirs.save(tmp_path / "model.zip")
    ours = import_sb3(tmp_path / "model.zip", "sac", env, replay_buffer_class="hindsight")
    require_same_answers(theirs, ours, env.observation_space)
    ours.learn(16)


@pytest.mark.parametrize("name", SMALL)
def test_custom_features_extractors_are_refused(name: str, tmp_path: Path) -> None:
    """Weights that are left out would give other answers, where it has one feature per number of the observation."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Own(BaseFeaturesExtractor):  # type: ignore[misc]
        def __init__(self, space: Any) -> None:
            super().__init__(space, 3)
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.linear(x)
            return found

    with pytest.raises(ArtifactError, match=r"cannot be imported as .*custom features extractor"):
        pair(name, tmp_path, VECTOR, policy_kwargs={"features_extractor_class": Own})


def test_the_learnt_weight_of_the_entropy_is_imported(tmp_path: Path) -> None:
    theirs, ours = pair("sac", tmp_path, VECTOR, learning_rate=0.05)
    entropy = ours.parts.algorithm.entropy
    assert float(entropy.log_alpha) == pytest.approx(float(theirs.log_ent_coef)) != 0.0
    given: Any = import_sb3(tmp_path / "model.zip", "sac", AnySpaceEnv(VECTOR, BOX), ent_coef="auto_0.5")
    assert float(given.parts.algorithm.entropy.log_alpha) == pytest.approx(np.log(0.5))


def test_the_exploration_rate_is_imported(tmp_path: Path) -> None:
    theirs, ours = pair("dqn", tmp_path, VECTOR, exploration_final_eps=0.125)
    assert ours.exploration_rate == theirs.exploration_rate == 0.125


def test_the_environment_of_another_model_has_a_name(tmp_path: Path) -> None:
    peer.A2C("MlpPolicy", "CartPole-v1").save(tmp_path / "model.zip")
    with pytest.raises(ArtifactError, match="with the spaces of the environment given: "):
        import_sb3(tmp_path / "model.zip", "a2c", AnySpaceEnv(spaces.Box(-1.0, 1.0, (5,)), spaces.Discrete(2)))
