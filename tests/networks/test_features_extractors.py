"""Features extractors of users: their inputs, with every algorithm that takes them, in files and after loading."""

from __future__ import annotations

import runpy
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.vec_env import VecTransposeImage
from torch import Tensor, nn

import rlsdk
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_sb3 import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from tests.tables import in_one_test

LAST, FIRST = spaces.Box(0, 255, (36, 40, 3), np.uint8), spaces.Box(0, 255, (3, 36, 40), np.uint8)
SPACES: dict[str, Any] = {
    "vector": spaces.Box(-2.0, 2.0, (3,), np.float32),
    "whole numbers": spaces.Box(0, 9, (2, 2), np.int64),
    "float64": spaces.Box(-1.0, 1.0, (2,), np.float64),
    "channels last": LAST,
    "channels first": FIRST,
    "float images": spaces.Box(0.0, 1.0, (3, 36, 40), np.float32),
    "Discrete": spaces.Discrete(4),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3),
    "Dict": spaces.Dict({"image": LAST, "n": spaces.Discrete(3), "x": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "tqc": {"buffer_size": 60, "learning_starts": 4, "batch_size": 4},
    "qrdqn": {"buffer_size": 60, "learning_starts": 4, "batch_size": 4, "train_freq": 1},
    "trpo": {"n_steps": 8, "batch_size": 4},
    "maskable-ppo": {"n_steps": 8, "batch_size": 4, "n_epochs": 1},
    "recurrent-ppo": {"n_steps": 8, "batch_size": 4, "n_epochs": 1},
}


class Recorder(BaseFeaturesExtractor):
    """A features extractor that records its inputs."""

    given: list[Any]

    def __init__(self, observation_space: Any, features_dim: int = 5) -> None:
        super().__init__(observation_space, features_dim=1)
        example = observation_space.sample()  # examples in the documentation do this too
        parts = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {"": observation_space}
        self.flat = nn.ModuleDict({name or "all": nn.LazyLinear(features_dim) for name in parts})
        self._features_dim = features_dim * len(parts)
        self.given = []
        assert example in observation_space
        rows = {name: torch.zeros(2, _width(part)) for name, part in parts.items()}
        for name, row in rows.items():
            self.flat[name or "all"](row)

    def forward(self, observations: Any) -> Tensor:
        self.given.append(observations)
        parts = observations if isinstance(observations, dict) else {"": observations}
        return torch.cat([self.flat[name or "all"](part.flatten(1)) for name, part in parts.items()], 1)


def _width(space: Any) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(np.sum(space.nvec)) if isinstance(space, spaces.MultiDiscrete) else int(np.prod(space.shape))


def made(algorithm: str, observation: Any, policy_kwargs: dict[str, Any], **settings: Any) -> Any:
    action = spaces.Box(-1.0, 1.0, (2,), np.float32) if algorithm == "tqc" else spaces.Discrete(3)
    kind = "MultiInput" if isinstance(observation, spaces.Dict) else "Mlp"
    policy = f"{kind}LstmPolicy" if algorithm == "recurrent-ppo" else f"{kind}Policy"
    small = {"net_arch": [4], **({"lstm_hidden_size": 4} if algorithm == "recurrent-ppo" else {}), **policy_kwargs}
    env = AnySpaceEnv(observation, action, 5)
    return rlsdk.make(algorithm, env=env, policy=policy, policy_kwargs=small, seed=0, **SETTINGS[algorithm] | settings)


@pytest.mark.parametrize("normalize_images", [True, False])
@pytest.mark.parametrize("name", SPACES)
def test_an_extractor_gets_what_the_documented_library_gives(name: str, normalize_images: bool) -> None:
    space = SPACES[name]
    kwargs = {"features_extractor_class": Recorder, "normalize_images": normalize_images}
    model = made("qrdqn", space, kwargs)
    space.seed(0)
    observation = space.sample()
    model.predict(observation, deterministic=True)
    extractor = model.policy.encoder.extractor
    transposed, theirs = _transposed(space, observation)
    assert extractor._observation_space == transposed
    batch = theirs if isinstance(theirs, dict) else {"": theirs}
    tensors = {key: torch.as_tensor(np.asarray(value)[None]) for key, value in batch.items()}
    wanted = preprocess_obs(tensors if isinstance(theirs, dict) else tensors[""], transposed, normalize_images)
    (given,) = extractor.given
    for mine, theirs_ in zip(
        given.values() if isinstance(given, dict) else [given],
        wanted.values() if isinstance(wanted, dict) else [wanted],
        strict=True,
    ):
        assert mine.dtype == torch.float32
        assert torch.equal(mine, theirs_)


def _transposed(space: Any, observation: Any) -> tuple[Any, Any]:
    """The space and observation after `VecTransposeImage`, if the image has its channels last."""
    if isinstance(space, spaces.Dict):
        found = {key: _transposed(child, observation[key]) for key, child in space.spaces.items()}
        return spaces.Dict({key: pair[0] for key, pair in found.items()}), {k: pair[1] for k, pair in found.items()}
    if space is LAST:
        return VecTransposeImage.transpose_space(space), np.transpose(observation, (2, 0, 1))
    return space, observation


@pytest.mark.parametrize("algorithm", SETTINGS)
@pytest.mark.parametrize("name", ["vector", "channels last", "Dict"])
def test_they_learn_save_load_and_go_on(algorithm: str, name: str) -> None:
    kwargs = {"features_extractor_class": Recorder, "features_extractor_kwargs": {"features_dim": 3}}
    model = made(algorithm, SPACES[name], kwargs)
    before = {key: value.clone() for key, value in model.policy.state_dict().items()}
    model.learn(16)
    assert any(
        "extractor" in key and not torch.equal(value, before[key]) for key, value in model.policy.state_dict().items()
    )
    file = BytesIO()
    model.save(file)
    objects = {"policy_kwargs.features_extractor_class": Recorder}
    again = rlsdk.load(BytesIO(file.getvalue()), env=model.env, custom_objects=objects)
    SPACES[name].seed(3)
    seen = SPACES[name].sample()
    masks = "none" if algorithm == "maskable-ppo" else None
    actions = [each.predict(seen, deterministic=True, action_masks=masks)[0] for each in (model, again)]
    np.testing.assert_array_equal(*actions)
    again.learn(8, reset_num_timesteps=False)
    with pytest.raises(RlsdkError, match="custom_objects"):
        rlsdk.load(BytesIO(file.getvalue()))


def test_stacked_and_normalized_observations_reach_the_extractor() -> None:
    model = made("trpo", LAST, {"features_extractor_class": Recorder}, frame_stack=2)
    model.predict(LAST.sample())
    assert model.policy.encoder.extractor._observation_space.shape == (6, 36, 40)
    model = made("tqc", SPACES["vector"], {"features_extractor_class": Recorder}, normalize=True).learn(20)
    extractor = model.policy.encoder.extractor
    seen = SPACES["vector"].sample()
    model.predict(seen)
    assert torch.equal(extractor.given[-1], model.normalizer.observations(torch.from_numpy(seen)[None]))


@in_one_test
@pytest.mark.parametrize("algorithm", ["trpo", "qrdqn", "tqc"])
@pytest.mark.parametrize(
    ("name", "kind", "kwargs"),
    [
        ("vector", FlattenExtractor, {}),
        ("Discrete", FlattenExtractor, {}),
        ("channels last", NatureCNN, {"features_dim": 6}),
        ("float images", NatureCNN, {"features_dim": 6, "normalized_image": True}),
        ("Dict", CombinedExtractor, {"cnn_output_dim": 6}),
    ],
)
def test_the_documented_classes_are_known_by_name(algorithm: str, name: str, kind: Any, kwargs: dict[str, Any]) -> None:
    """A file needs no custom objects for these classes. Subclasses of them compute the same numbers."""

    class Derived(kind):  # type: ignore[misc,valid-type]
        pass

    both = [
        made(algorithm, SPACES[name], {"features_extractor_class": each, "features_extractor_kwargs": kwargs})
        for each in (kind, Derived)
    ]
    assert both[0].config.policy_kwargs.features_extractor_class == kind.__name__
    file = BytesIO()
    both[0].save(file)
    again = rlsdk.load(BytesIO(file.getvalue()))
    SPACES[name].seed(1)
    seen = SPACES[name].sample()
    actions = [each.predict(seen, deterministic=True)[0] for each in (*both, again)]
    np.testing.assert_allclose(actions[0], actions[1], atol=1e-5)
    np.testing.assert_array_equal(actions[0], actions[2])


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    class Wrong(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any, dim: int = 3, lazy: bool = False) -> None:
            super().__init__(observation_space, dim)
            self.net = nn.LazyLinear(4) if lazy else nn.Linear(3, 4)

        def forward(self, observations: Tensor) -> Tensor:
            return self.net(observations)

    space = SPACES["vector"]
    for kwargs, wanted in (
        ({"features_extractor_class": Wrong, "features_extractor_kwargs": {"dimm": 3}}, "it takes \\['dim', 'lazy'\\]"),
        ({"features_extractor_class": Wrong, "features_extractor_kwargs": {"dim": 0}}, "positive whole number"),
        ({"features_extractor_class": Wrong, "features_extractor_kwargs": {"lazy": True}}, "lazy layers"),
        ({"features_extractor_class": nn.Linear}, "features_extractor_kwargs do not fit"),
        ({"features_extractor_class": "NatureCMM"}, "NatureCNN"),
        ({"features_extractor_class": 3}, "neither a class nor a known name"),
        ({"features_extractor_kwargs": {"width": 3}}, "do not fit FlattenEncoder"),
    ):
        with pytest.raises(SettingsError, match=wanted):
            made("trpo", space, kwargs)
    model = made("trpo", space, {"features_extractor_class": Wrong})
    with pytest.raises(SettingsError, match=r"returned \(1, 4\)"):
        model.predict(space.sample())
    with pytest.raises(SettingsError, match="candidates are played in numpy"):
        rlsdk.make("ars", env="CartPole-v1", policy_kwargs={"features_extractor_class": Recorder})


def test_the_example_of_a_custom_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "custom_network.py"), run_name="__main__")
    assert (tmp_path / "custom_cnn.rlsdk").is_file()


@in_one_test
@pytest.mark.parametrize(
    ("algorithm", "given", "wanted"),
    [
        ("trpo", [128, {"vf": [12, 6]}], ([128], [128, 12, 6])),
        ("trpo", [8, 9, {"pi": [5], "vf": []}], ([8, 9, 5], [8, 9])),
        ("recurrent-ppo", [{"pi": [16], "vf": [15]}], ([16], [15])),
        ("maskable-ppo", {"pi": [16]}, ([16], [])),
        ("trpo", [], ([], [])),
        ("trpo", {}, ([], [])),
    ],
)
def test_documented_forms_of_net_arch(algorithm: str, given: Any, wanted: Any) -> None:
    env = "CartPole-v1" if algorithm != "maskable-ppo" else AnySpaceEnv(SPACES["vector"], spaces.Discrete(3), 5)
    settings = SETTINGS[algorithm]
    model = rlsdk.make(algorithm, env=env, policy_kwargs={"net_arch": given}, seed=0, **settings)
    bodies = model.policy.body, model.policy.critic_body
    assert tuple([layer.out_features for layer in body if isinstance(layer, nn.Linear)] for body in bodies) == wanted
    model.learn(16)
    file = BytesIO()
    model.save(file)
    again = rlsdk.load(BytesIO(file.getvalue()), env=env)
    for name, value in model.policy.state_dict().items():
        assert torch.equal(value, again.policy.state_dict()[name])
    if isinstance(given, list) and given and isinstance(given[0], int):
        assert again.policy.body[0] is again.policy.critic_body[0]
    again.learn(16)


def test_net_arch_of_networks_that_a_policy_has_not() -> None:
    for algorithm, given, wanted in (
        ("trpo", {"pi": [4], "qf": [4]}, "shared, pi, vf"),
        ("tqc", {"pi": [4], "vf": [4]}, "it has pi, qf"),
        ("tqc", {"pi": [4]}, "also needs 'qf'"),
        ("qrdqn", {"pi": [4]}, "it has qf"),
        ("qrdqn", [8, {"qf": [4]}], "it has qf"),
    ):
        with pytest.raises(SettingsError, match=wanted):
            made(algorithm, SPACES["vector"], {"net_arch": given})
    model = made("tqc", SPACES["vector"], {"net_arch": {"pi": [4], "qf": []}})
    model.learn(8)


class Listening(nn.Module):
    """Notes whether it was called in training mode. Its dropout makes the two modes different."""

    called: ClassVar[list[bool]] = []

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.features_dim = space.shape[0]
        self.dropout = nn.Dropout(0.1)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        self.called.append(self.training)
        found: torch.Tensor = self.dropout(observations)
        return found


@in_one_test
@pytest.mark.parametrize("name", ["a2c", "acer", "dqn", "ppo", "qrdqn", "sac", "td3", "tqc", "trpo"])
def test_networks_learn_in_training_mode_and_act_without_it(name: str) -> None:
    env = "Pendulum-v1" if name in ("sac", "td3", "tqc") else "CartPole-v1"
    more: dict[str, Any] = {"n_steps": 16} if name in ("a2c", "ppo", "trpo", "acer") else {"learning_starts": 1000}
    networks = {"net_arch": [8], "features_extractor_class": Listening}
    agent = rlsdk.make(name, env=env, seed=0, policy_kwargs=networks, **more)
    Listening.called.clear()
    agent.learn(16)
    if "learning_starts" in more:
        assert Listening.called
        assert not any(Listening.called), "actions are chosen without dropout"
        agent.train(2)
    assert any(Listening.called), "updates have dropout"
    Listening.called.clear()
    agent.predict(agent.observation_space.sample())
    assert Listening.called == [False]
