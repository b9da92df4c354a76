"""Files of stable-baselines3 with unusual networks or learned numbers: the imported agent answers the same, or is refused."""

from __future__ import annotations

import json
import zipfile
from collections import OrderedDict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.errors import ArtifactError, SettingsError
from rlsdk_envs.toy import AnySpaceEnv, BitFlippingEnv
from rlsdk_interchange.sb3 import import_sb3

peer = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32))
VECTOR, IMAGE = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Box(0, 255, (36, 36, 1), np.uint8)
COLORS, SCALED = spaces.Box(0, 255, (40, 36, 3), np.uint8), spaces.Box(0.0, 1.0, (2, 36, 40), np.float32)
CAMERAS = OrderedDict(z=COLORS, v=VECTOR, a=IMAGE, d=spaces.Discrete(3))
PARTS = OrderedDict(
    z=spaces.Box(-1.0, 1.0, (2, 2), np.float32),
    a=spaces.Discrete(3),
    m=spaces.MultiDiscrete([2, 3]),
    b=spaces.MultiBinary(2),
)
OF_PEER = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg")
CRITICS = ("sac", "td3", "ddpg", "tqc")
"""Algorithms with critics, for Box actions."""
OFF_POLICY: dict[str, Any] = {"buffer_size": 100, "learning_starts": 8, "batch_size": 8}
EVERY: dict[str, dict[str, Any]] = {
    **{name: {"n_steps": 16, "batch_size": 16} for name in ("ppo", "trpo", "maskable-ppo", "recurrent-ppo")},
    "a2c": {},
    **dict.fromkeys(("dqn", "qrdqn"), OFF_POLICY | {"target_update_interval": 24}),
    **dict.fromkeys(CRITICS, OFF_POLICY),
}


def pair(name: str, place: Path, seen: Any, policy: str = "MlpPolicy", steps: int = 32, **settings: Any) -> Any:
    """(model of stable-baselines3 or sb3-contrib, agent imported from its file)."""
    theirs = trained(name, place, seen, policy, steps, **settings)
    changes = {"use_masking": False} if name == "maskable-ppo" else {}
    return theirs, import_sb3(place / "model.zip", name, environment(name, seen), **changes)


def environment(name: str, seen: Any) -> Any:
    return AnySpaceEnv(seen, spaces.Discrete(3) if name in ("dqn", "qrdqn", "maskable-ppo") else BOX)


def trained(name: str, place: Path, seen: Any, policy: str, steps: int = 32, **settings: Any) -> Any:
    """A trained model of stable-baselines3 or sb3-contrib, which is also saved as `model.zip`."""
    other = {"maskable-ppo": "MaskablePPO", "recurrent-ppo": "RecurrentPPO"}.get(name, name.upper())
    kind, settings = getattr(peer, other, None) or getattr(contrib, other), {**EVERY[name], **settings}
    theirs = kind(policy, environment(name, seen), seed=0, device="cpu", **settings)
    theirs.learn(steps, **({"use_masking": False} if name == "maskable-ppo" else {}))
    theirs.save(place / "model.zip")
    return theirs


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


@pytest.mark.parametrize(
    ("name", "networks"),
    [
        *product(
            ["ppo", "a2c", "dqn"], [{"normalize_images": False}, {"features_extractor_kwargs": {"features_dim": 32}}]
        ),
        *product(["ppo", "a2c"], [{"share_features_extractor": False}]),  # DQN has one network
    ],
    ids=lambda given: given if isinstance(given, str) else next(iter(given)),
)
def test_encoders_of_images(name: str, networks: dict[str, Any], tmp_path: Path) -> None:
    require_same_answers(*pair(name, tmp_path, IMAGE, "CnnPolicy", policy_kwargs=networks), IMAGE)


def features(observation: Any) -> Any:
    """One observation as a batch of one row, for the networks of rlsdk."""
    if isinstance(observation, dict):
        return {key: features(value) for key, value in observation.items()}
    return torch.as_tensor(observation)[None]


def require_same_networks(theirs: Any, ours: Any, seen: Any) -> None:
    """Check that critics, target networks and the entropy coefficient are the same in both libraries."""
    algorithm, policy = ours.parts.algorithm, theirs.policy
    unit = torch.tensor([[0.3, -0.7]])
    for _ in range(4):
        observation = seen.sample()
        given, mine = policy.obs_to_tensor(observation)[0], features(observation)
        if not hasattr(policy, "critic"):
            target = policy.q_net_target if hasattr(policy, "q_net_target") else policy.quantile_net_target
            require_close(algorithm.target.network(mine), target(given))
            continue
        for net, critics in (
            (policy.critic, algorithm.trained.critics),
            (policy.critic_target, algorithm.trained.target.network),
        ):
            values = net(given, unit)
            expected = values.transpose(0, 1) if isinstance(values, torch.Tensor) else torch.stack(values)
            require_close(critics(critics.encoder(mine), unit), expected)
        if hasattr(policy, "actor_target"):
            actor = algorithm.actor_target.network
            require_close(actor.unit_action(actor.encoder(mine)), policy.actor_target(given))
    if hasattr(theirs, "log_ent_coef"):
        assert float(algorithm.entropy.log_alpha) == pytest.approx(float(theirs.log_ent_coef)) != 0.0


def require_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize(
    "networks",
    [
        {},
        {"normalize_images": False},
        {"features_extractor_kwargs": {"features_dim": 24}},
        {"share_features_extractor": True, "n_critics": 3},
    ],
    ids=lambda networks: next(iter(networks), "usual"),
)
def test_images_of_algorithms_with_critics(name: str, networks: dict[str, Any], tmp_path: Path) -> None:
    """Images whose height, width and number of channels differ."""
    theirs, ours = pair(name, tmp_path, COLORS, "CnnPolicy", policy_kwargs={"net_arch": [8], **networks})
    require_same_answers(theirs, ours, COLORS)
    require_same_networks(theirs, ours, COLORS)
    assert ours.config.policy_kwargs.share_features_extractor == theirs.policy.share_features_extractor
    ours.learn(16)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "networks",
    [{}, {"features_extractor_kwargs": {"cnn_output_dim": 12}, "share_features_extractor": False}],
    ids=["usual", "narrow"],
)
def test_dict_observations_with_images(name: str, networks: dict[str, Any], tmp_path: Path) -> None:
    """Two images of different shapes, with keys that are not in alphabetical order."""
    if name in ("dqn", "qrdqn"):
        networks = {key: value for key, value in networks.items() if key != "share_features_extractor"}
    seen, policy = spaces.Dict(CAMERAS), "MultiInputLstmPolicy" if name == "recurrent-ppo" else "MultiInputPolicy"
    memory = {"lstm_hidden_size": 8} if name == "recurrent-ppo" else {}
    theirs, ours = pair(name, tmp_path, seen, policy, policy_kwargs={"net_arch": [8], **memory, **networks})
    if name == "recurrent-ppo":
        require_same_values_with_memory(theirs, ours, seen)
        return
    require_same_answers(theirs, ours, seen)
    assert ours.config.policy == policy
    if name in (*CRITICS, "dqn", "qrdqn"):
        require_same_networks(theirs, ours, seen)
        ours.learn(16)


def require_same_values_with_memory(theirs: Any, ours: Any, seen: Any) -> None:
    """Check that actions over several steps, and values at the start of an episode, are the same."""
    state, other, starts = None, None, np.ones(1, bool)
    for _ in range(4):
        observation = seen.sample()
        found, state = ours.predict(observation, state, deterministic=True)
        expected, other = theirs.predict(observation, other, episode_start=starts, deterministic=True)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        starts = np.zeros(1, bool)
        given = theirs.policy.obs_to_tensor(observation)[0]
        zeros = torch.zeros(1, 1, 8)
        value = theirs.policy.predict_values(given, (zeros, zeros), torch.ones(1))
        require_close(ours.policy.predict_values(observation).squeeze(), value.squeeze())


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "td3"])
def test_images_that_are_scaled_already(name: str, tmp_path: Path) -> None:
    """With `normalize_images=False` arrays of floats are images too, alone and in a Dict."""
    settings = {"policy_kwargs": {"normalize_images": False, "net_arch": [8]}}
    for seen, policy in (
        (SCALED, "CnnPolicy"),
        (spaces.Dict(OrderedDict(s=SCALED, i=COLORS, b=VECTOR)), "MultiInputPolicy"),
    ):
        require_same_answers(*pair(name, tmp_path, seen, policy, **settings), seen)


def test_scaled_images_that_the_extractor_was_told_of(tmp_path: Path) -> None:
    networks = {"features_extractor_kwargs": {"normalized_image": True}, "net_arch": [8]}
    require_same_answers(*pair("sac", tmp_path, SCALED, "CnnPolicy", policy_kwargs=networks), SCALED)


@pytest.mark.parametrize("name", ["sac", "tqc", "ppo"])
@pytest.mark.parametrize("shared", [False, True])
def test_images_with_state_dependent_noise(name: str, shared: bool, tmp_path: Path) -> None:
    settings = {"use_sde": True, "policy_kwargs": {"net_arch": [8], "share_features_extractor": shared}}
    theirs, ours = pair(name, tmp_path, COLORS, "CnnPolicy", **settings)
    require_same_answers(theirs, ours, COLORS)
    table = next(value for key, value in ours.policy.state_dict().items() if key.endswith("log_std"))
    require_close(table, theirs.policy.actor.log_std if name != "ppo" else theirs.policy.log_std)
    if name != "ppo":
        require_same_networks(theirs, ours, COLORS)


@pytest.mark.parametrize("name", ["dqn", "td3"])
def test_images_in_stacks(name: str, tmp_path: Path) -> None:
    """`frame_stack` joins the channels of images as VecFrameStack does."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    env = VecFrameStack(DummyVecEnv([lambda: environment(name, COLORS)]), 2)
    networks = {"net_arch": [8]}
    theirs = getattr(peer, name.upper())("CnnPolicy", env, seed=0, policy_kwargs=networks, **OFF_POLICY).learn(32)
    theirs.save(tmp_path / "model.zip")
    ours = import_sb3(tmp_path / "model.zip", name, environment(name, COLORS), frame_stack=2)
    assert theirs.observation_space.shape == (6, 40, 36)
    stack, memory = np.zeros((40, 36, 0), np.uint8), None
    for _ in range(4):
        image = COLORS.sample()
        stack = np.concatenate([stack, image] if stack.size else [image, image], -1)[..., -6:]
        found, memory = ours.predict(image, memory, deterministic=True)
        np.testing.assert_allclose(found, theirs.predict(stack, deterministic=True)[0], atol=1e-5)


OTHER_SPACES = {
    "another order": OrderedDict(v=VECTOR, z=COLORS, a=IMAGE, d=spaces.Discrete(3)),
    "a dot": OrderedDict(z=COLORS, v=VECTOR, **{"a.b": IMAGE}, d=spaces.Discrete(3)),
    "one less": OrderedDict(z=COLORS, v=VECTOR, a=IMAGE),
    "other images": OrderedDict(z=spaces.Box(0, 255, (36, 40, 3), np.uint8), v=VECTOR, a=IMAGE, d=spaces.Discrete(3)),
    "no image": OrderedDict(z=COLORS, v=VECTOR, a=spaces.Box(0.0, 1.0, (36, 36, 1), np.float32), d=spaces.Discrete(3)),
}


@pytest.mark.parametrize("name", ["a2c", "dqn", "sac"])
def test_other_dict_observations_are_refused(name: str, tmp_path: Path) -> None:
    """Other Dict observations are refused even if all shapes fit, because the weights would give other answers."""
    trained(name, tmp_path, spaces.Dict(CAMERAS), "MultiInputPolicy", 16, policy_kwargs={"net_arch": [8]})
    given = [*map(spaces.Dict, OTHER_SPACES.values()), COLORS, VECTOR]
    for seen in given:
        with pytest.raises(ArtifactError) as caught:
            import_sb3(tmp_path / "model.zip", name, environment(name, seen))
        assert "\n" not in str(caught.value)
    expected = (
        r"the entries 'v', 'z', 'a', 'd', in this order; the model was trained on the entries 'z', 'v', 'a', 'd', in"
    )
    with pytest.raises(ArtifactError, match=expected):
        import_sb3(tmp_path / "model.zip", name, environment(name, given[0]))


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_any_key_may_name_an_image(name: str, tmp_path: Path) -> None:
    """Numeric keys are not read as positions, and keys with quotes are read too."""
    seen = spaces.Dict(OrderedDict({"1": COLORS, "0": VECTOR, "it's": IMAGE, "cnn": spaces.MultiDiscrete([2, 3])}))
    theirs, ours = pair(name, tmp_path, seen, "MultiInputPolicy", policy_kwargs={"net_arch": [8]})
    require_same_answers(theirs, ours, seen)


def test_entries_as_older_versions_write_them(tmp_path: Path) -> None:
    seen = spaces.Dict(CAMERAS)
    theirs = trained("a2c", tmp_path, seen, "MultiInputPolicy", 16, policy_kwargs={"net_arch": [8]})
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(content["data"])
    order = [*theirs.observation_space.spaces.items()]
    for entries, fits in ((order, True), (order[::-1], False)):
        data["observation_space"]["spaces"] = (
            f"OrderedDict([{', '.join(f'({key!r}, {space})' for key, space in entries)}])"
        )
        with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
            for name, value in {**content, "data": json.dumps(data)}.items():
                archive.writestr(name, value)
        if fits:
            require_same_answers(theirs, import_sb3(tmp_path / "model.zip", "a2c", environment("a2c", seen)), seen)
            continue
        with pytest.raises(ArtifactError, match="in this order"):
            import_sb3(tmp_path / "model.zip", "a2c", environment("a2c", seen))


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_images_alone_are_not_dicts(name: str, tmp_path: Path) -> None:
    trained(name, tmp_path, COLORS, "CnnPolicy", 16, policy_kwargs={"net_arch": [8]})
    with pytest.raises(ArtifactError, match="the model was trained on observations without entries"):
        import_sb3(tmp_path / "model.zip", name, environment(name, spaces.Dict({"a": COLORS})))
    turned = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    with pytest.raises(ArtifactError, match=r"its images are \(36, 40, 3\); the model reads them as \(3, 40, 36\)"):
        import_sb3(tmp_path / "model.zip", name, environment(name, turned))


@pytest.mark.parametrize("name", ["a2c", "td3"])
def test_images_without_convolutions_need_channels_first(name: str, tmp_path: Path) -> None:
    """For images, MlpPolicy of stable-baselines3 flattens (channels, height, width). rlsdk flattens in the
    environment's order, so it needs channels first."""
    theirs = trained(name, tmp_path, COLORS, "MlpPolicy", 16, policy_kwargs={"net_arch": [8]})
    with pytest.raises(ArtifactError, match=r"its images are \(40, 36, 3\); the model reads them as \(3, 40, 36\)"):
        import_sb3(tmp_path / "model.zip", name, environment(name, COLORS))
    first = spaces.Box(0, 255, (3, 40, 36), np.uint8)
    ours = import_sb3(tmp_path / "model.zip", name, environment(name, first))
    require_same_answers(theirs, ours, first)
    require_same_answers(*pair(name, tmp_path, IMAGE, policy_kwargs={"net_arch": [8]}), IMAGE)


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_custom_features_extractors_without_weights_are_refused(name: str, tmp_path: Path) -> None:
    from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN

    class Doubled(FlattenExtractor):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = 2.0 * super().forward(x)
            return found

    class Inverted(NatureCNN):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = super().forward(1.0 - x)
            return found

    for seen, policy, own in ((VECTOR, "MlpPolicy", Doubled), (COLORS, "CnnPolicy", Inverted)):
        with pytest.raises(SettingsError, match=r"features_extractor_class .*(Doubled|Inverted)") as caught:
            pair(name, tmp_path, seen, policy, policy_kwargs={"net_arch": [8], "features_extractor_class": own})
        assert "\n" not in str(caught.value)


def test_search_has_no_features_extractor() -> None:
    from rlsdk_ars.interchange import from_sb3

    weights = {"action_net.0.weight": torch.ones(1, 3), "features_extractor.linear.weight": torch.ones(3, 3)}
    with pytest.raises(ValueError, match="features extractors are not imported"):
        from_sb3(weights, None)  # type: ignore[arg-type]


def test_documented_features_extractors_may_be_named(tmp_path: Path) -> None:
    from stable_baselines3.common.torch_layers import NatureCNN

    networks = {"net_arch": [8], "features_extractor_class": NatureCNN}
    require_same_answers(*pair("td3", tmp_path, COLORS, "MlpPolicy", policy_kwargs=networks), COLORS)


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_squashed_actions(name: str, tmp_path: Path) -> None:
    settings = {"use_sde": True, "policy_kwargs": {"squash_output": True}}
    require_same_answers(*pair(name, tmp_path, VECTOR, **settings), VECTOR)


@pytest.mark.parametrize("name", OF_PEER)
def test_dict_observations_without_images(name: str, tmp_path: Path) -> None:
    seen = spaces.Dict(PARTS)
    theirs, ours = pair(name, tmp_path, seen, "MultiInputPolicy")
    require_same_answers(theirs, ours, seen)
    assert ours.config.policy == "MultiInputPolicy"
    turned = spaces.Dict(OrderedDict(reversed(PARTS.items())))
    with pytest.raises(ArtifactError, match="'b', 'm', 'a', 'z', in this order"):
        import_sb3(tmp_path / "model.zip", name, environment(name, turned))


def test_agents_with_goals(tmp_path: Path) -> None:
    env = BitFlippingEnv(4, continuous=True)
    settings = {**OFF_POLICY, "replay_buffer_class": peer.HerReplayBuffer, "seed": 0}
    theirs = peer.SAC("MultiInputPolicy", env, **settings).learn(32)
    theirs.save(tmp_path / "model.zip")
    ours = import_sb3(tmp_path / "model.zip", "sac", env, replay_buffer_class="hindsight")
    require_same_answers(theirs, ours, env.observation_space)
    ours.learn(16)


@pytest.mark.parametrize("name", OF_PEER)
def test_custom_features_extractors_are_refused(name: str, tmp_path: Path) -> None:
    """A custom features extractor is refused, even if its output has as many features as the observation has
    numbers: answers would differ."""
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


def test_the_learned_weight_of_the_entropy_is_imported(tmp_path: Path) -> None:
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
