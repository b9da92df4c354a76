"""Every documented constructor parameter has its documented default, and takes effect."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.buffers import ReplayBuffer
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk.exploration import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from rlsdk.settings import structure, unstructure
from rlsdk.tree import leaves
from rlsdk_envs.toy import AnySpaceEnv, FakeImageEnv, IdentityEnvBox, SimpleMultiObsEnv
from rlsdk_tqc import TQC
from rlsdk_tqc.config import TQCConfig
from tests.tables import in_one_test

DOCUMENTED = {
    "learning_rate": 0.0003,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
    "action_noise": None,
    "replay_buffer_class": None,
    "replay_buffer_kwargs": None,
    "optimize_memory_usage": False,
    "ent_coef": "auto",
    "target_update_interval": 1,
    "target_entropy": "auto",
    "top_quantiles_to_drop_per_net": 2,
    "use_sde": False,
    "sde_sample_freq": -1,
    "use_sde_at_warmup": False,
    "tensorboard_log": None,
    "verbose": 0,
    "seed": None,
    "device": "auto",
}
POLICY_DEFAULTS = {
    "net_arch": None,
    "activation_fn": "relu",
    "log_std_init": -3.0,
    "sde_net_arch": None,
    "use_expln": False,
    "clip_mean": 2.0,
    "features_extractor_class": None,
    "normalize_images": True,
    "optimizer_class": "adam",
    "n_quantiles": 25,
    "n_critics": 2,
    "share_features_extractor": False,
}


def every_round(function: Any) -> LambdaCallback:
    return LambdaCallback(on_report=lambda run, report: function())


def small(**settings: Any) -> TQC:
    env = settings.pop("env", None) or IdentityEnvBox(episode_length=10)
    kwargs = {"net_arch": [8], **settings.pop("policy_kwargs", {})}
    defaults: dict[str, Any] = {"buffer_size": 200, "learning_starts": 5, "batch_size": 8, "seed": 0}
    return TQC(settings.pop("policy", "MlpPolicy"), env, policy_kwargs=kwargs, **{**defaults, **settings})


def test_defaults_are_the_documented_ones() -> None:
    written = unstructure(structure({"policy": "MlpPolicy"}, TQCConfig))
    assert {name: written[name] for name in DOCUMENTED} == DOCUMENTED
    assert {name: written["policy_kwargs"][name] for name in POLICY_DEFAULTS} == POLICY_DEFAULTS


def test_signature_has_the_documented_order() -> None:
    names = list(inspect.signature(TQC).parameters)
    documented = [name for name in DOCUMENTED if name not in ("tensorboard_log", "verbose", "seed", "device")]
    assert names[:2] == ["policy", "env"]
    assert [n for n in names[2:] if n in documented] == documented
    assert "largest quantiles that are dropped" in (TQC.__init__.__doc__ or "")


def test_default_networks() -> None:
    model = TQC("MlpPolicy", "Pendulum-v1", buffer_size=100)
    assert [layer.out_features for layer in model.policy.body if hasattr(layer, "out_features")] == [256, 256]
    assert model.parts.algorithm.critics.ensemble.layers[0].weight.shape == (2, 4, 256)
    assert model.parts.algorithm.critics.ensemble.layers[-1].weight.shape == (2, 256, 25)


def test_net_arch_as_table_activation_and_counts() -> None:
    arch = {"pi": [5], "qf": [7, 6]}
    kwargs = {"net_arch": arch, "activation_fn": torch.nn.Tanh, "n_critics": 3, "n_quantiles": 4}
    model = small(policy_kwargs=kwargs, top_quantiles_to_drop_per_net=1)
    layers = model.parts.algorithm.critics.ensemble.layers
    assert [layers[i].weight.shape for i in (0, 2, 4)] == [(3, 2, 7), (3, 7, 6), (3, 6, 4)]
    assert isinstance(layers[1], torch.nn.Tanh)
    assert model.policy.body[0].out_features == 5
    assert model.parts.algorithm.objective.keep == 9


@pytest.mark.parametrize(
    ("frequency", "gradient_steps", "updates"),
    [(1, 1, 15), (4, 1, 4), (4, 3, 12), (2, -1, 16), ((1, "episode"), 1, 2), ((1, "episode"), -1, 20)],
)
def test_train_freq_and_gradient_steps(frequency: Any, gradient_steps: int, updates: int) -> None:
    # 20 steps, episodes of 10; rounds that end at or before step 5 only collect
    model = small(train_freq=frequency, gradient_steps=gradient_steps).learn(20)
    assert model.num_timesteps == 20
    assert model.cursor.updates == updates


def test_updates_count_rounds_over_several_environments() -> None:
    env = make_vec_env(lambda: IdentityEnvBox(episode_length=10), 4)
    model = small(env=env, learning_starts=0, gradient_steps=-1).learn(40)
    assert (model.num_timesteps, model.cursor.updates) == (40, 40)
    model = small(env=make_vec_env(lambda: IdentityEnvBox(), 4), learning_starts=0).learn(40)
    assert model.cursor.updates == 10  # one per vector step


@pytest.mark.parametrize(
    ("value", "start", "learned"), [("auto", 1.0, True), ("auto_0.1", 0.1, True), (0.3, 0.3, False)]
)
def test_ent_coef(value: Any, start: float, learned: bool) -> None:
    model = small(ent_coef=value, learning_rate=1e-2)
    seen: list[float] = []
    model.learn(30, callback=LambdaCallback(on_report=lambda run, report: seen.append(_ent_coef(report))))
    values = [v for v in seen if v]
    assert values[0] == pytest.approx(start, rel=1e-6)
    assert (values[-1] != values[0]) == learned


def _ent_coef(report: Any) -> float:
    return float(report.metrics["train/ent_coef"]) if report.metrics else 0.0


def test_target_entropy() -> None:
    two = AnySpaceEnv(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (3,), np.float32))
    assert small(env=two).parts.algorithm.entropy.target_entropy == -3.0
    assert small(target_entropy=-0.5).parts.algorithm.entropy.target_entropy == -0.5


def test_target_update_interval_and_tau() -> None:
    model = small(target_update_interval=3, tau=1.0, learning_starts=0, gradient_steps=1)
    algorithm = model.parts.algorithm
    equal = []
    model.learn(
        7, callback=every_round(lambda: equal.append(_same(algorithm.critics, algorithm.trained.target.network)))
    )
    assert equal == [True, False, False, True, False, False, True]


def _same(one: torch.nn.Module, two: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_learning_rate_schedule_follows_progress() -> None:
    rates: list[float] = []
    model = small(learning_rate="lin_0.1", learning_starts=0)
    groups = model.parts.algorithm.trained.actor_optimizer.optimizer.param_groups[0]
    model.learn(10, callback=every_round(lambda: rates.append(groups["lr"])))
    assert rates == pytest.approx([0.1 * (1 - (i + 1) / 10) for i in range(10)])


def test_a_continued_training_goes_on_with_its_schedule() -> None:
    rates: list[float] = []
    model = small(learning_rate="lin_0.1", learning_starts=0)
    groups = model.parts.algorithm.trained.actor_optimizer.optimizer.param_groups[0]
    model.learn(10)
    model.learn(10, reset_num_timesteps=False, callback=every_round(lambda: rates.append(groups["lr"])))
    assert rates == pytest.approx([0.1 * (1 - (i + 11) / 20) for i in range(10)])


@pytest.mark.parametrize("noise", [NormalActionNoise(0.0, 0.3), OrnsteinUhlenbeckActionNoise(0.0, 0.3)])
def test_action_noise_changes_training_actions_only(noise: Any) -> None:
    model, plain = small(action_noise=noise).learn(30), small().learn(30)
    stored = model.replay_buffer.at(torch.arange(30)).action
    assert not torch.equal(stored, plain.replay_buffer.at(torch.arange(30)).action)
    assert bool(((stored >= -1.0) & (stored <= 1.0)).all())
    rebuilt = structure({"policy": "MlpPolicy", "action_noise": unstructure(noise)}, TQCConfig)
    assert rebuilt.action_noise == noise


def test_warm_up_is_uniform_over_asymmetric_bounds_and_stored_in_the_same_units() -> None:
    space = spaces.Box(np.array([-2.0, 10.0], np.float32), np.array([5.0, 11.0], np.float32))
    env = AnySpaceEnv(spaces.Box(-1, 1, (2,), np.float32), space)
    model = small(env=env, learning_starts=2000, buffer_size=3000).learn(2000)
    warm = model.replay_buffer.at(torch.arange(2000)).action
    for column, (low, high) in enumerate([(-2.0, 5.0), (10.0, 11.0)]):
        values = warm[:, column]
        assert low <= float(values.min()) < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < float(values.max()) <= high
        assert float(values.mean()) == pytest.approx((low + high) / 2, abs=0.03 * (high - low))
    unit = model.policy.scale.to_unit(warm)
    assert bool((unit.abs() <= 1 + 1e-6).all())
    torch.testing.assert_close(model.policy.scale.to_environment(unit), warm, atol=1e-5, rtol=1e-5)


def test_warm_up_is_not_repeated_by_a_second_learn() -> None:
    model = small(learning_starts=20).learn(20)
    before = model.acting[0].carry.taken.item()
    model.learn(10)
    assert before == 20
    assert model.acting[0].carry.taken.item() == 20


@pytest.mark.parametrize(
    "settings",
    [
        {"use_sde": True},
        {"use_sde": True, "sde_sample_freq": 4, "use_sde_at_warmup": True},
        {"use_sde": True, "policy_kwargs": {"use_expln": True, "sde_net_arch": [], "clip_mean": 0.0}},
        {"use_sde": True, "policy_kwargs": {"sde_net_arch": [6], "log_std_init": -1.0}, "train_freq": (1, "episode")},
    ],
)
def test_gsde_trains_and_learns_its_deviation(settings: dict[str, Any]) -> None:
    model = small(learning_rate=1e-2, **settings)
    before = model.policy.sde.log_std.clone()
    model.learn(40)
    assert not torch.equal(model.policy.sde.log_std, before)
    assert np.isfinite(model.predict(np.zeros(1, np.float32))[0]).all()


def test_gsde_noise_is_held_between_samplings() -> None:
    frozen = AnySpaceEnv(spaces.Box(1.0, 1.0001, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32), 1000)
    options = {"use_sde": True, "use_sde_at_warmup": True, "sde_sample_freq": 5, "learning_starts": 1000}
    model = small(env=frozen, policy_kwargs={"log_std_init": 0.0}, train_freq=7, **options).learn(20)
    actions = model.replay_buffer.at(torch.arange(21)).action.squeeze(-1)
    changes = (actions[1:] - actions[:-1]).abs() > 1e-3
    # a round of 7 steps is completed: 21 steps
    assert (changes.nonzero().squeeze(-1) + 1).tolist() == [5, 7, 12, 14, 19]


@pytest.mark.parametrize("first", [False, True])
def test_cnn_policy(first: bool) -> None:
    model = small(policy="CnnPolicy", env=FakeImageEnv(size=40, channels=3, channels_first=first), batch_size=4).learn(
        12
    )
    assert model.policy.encoder.features_dim == 512
    assert model.predict(model.observation_space.sample())[0].shape == (2,)
    assert model.parts.algorithm.critics.encoder is not model.policy.encoder


def test_shared_features_extractor_is_trained_by_the_actor_only() -> None:
    kwargs = {"share_features_extractor": True}
    model = small(policy="MultiInputPolicy", env=SimpleMultiObsEnv(), policy_kwargs=kwargs, batch_size=4).learn(10)
    algorithm = model.parts.algorithm
    assert algorithm.critics.encoder is model.policy.encoder
    trained = algorithm.trained.optimizer.flat.numel()
    assert trained == sum(p.numel() for p in algorithm.critics.ensemble.parameters())


def test_custom_features_extractor_batch_norm_statistics_reach_the_target() -> None:
    class Normed(torch.nn.Module):
        def __init__(self, space: Any, width: int) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(space.shape[0], width), torch.nn.BatchNorm1d(width))
            self.features_dim = width

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    kwargs = {"features_extractor_class": Normed, "features_extractor_kwargs": {"width": 6}}
    model = small(policy_kwargs=kwargs).learn(30)
    online, target = model.parts.algorithm.critics, model.parts.algorithm.trained.target.network
    assert torch.equal(online.encoder.extractor.net[1].running_mean, target.encoder.extractor.net[1].running_mean)
    assert online.encoder.extractor.net[1].num_batches_tracked > 0
    counted = int(model.policy.encoder.extractor.net[1].num_batches_tracked)
    model.predict(np.zeros((3, 1), np.float32), deterministic=True)
    assert int(model.policy.encoder.extractor.net[1].num_batches_tracked) == counted, (
        "predict must not train the statistics"
    )


def test_a_memory_of_ones_own() -> None:
    class Newest(ReplayBuffer):
        """A replay buffer that samples the newest transitions only."""

        def __init__(self, *arguments: Any, window: int, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.window = window

        def sample(self, size: int, generator: torch.Generator) -> Any:
            back = torch.randint(1, min(self.window, len(self)) + 1, (size,), generator=generator)
            return self.at((self.head - back) % self.rows)

    model = small(replay_buffer_class=Newest, replay_buffer_kwargs={"window": 3}).learn(40)
    assert isinstance(model.replay_buffer, Newest)
    assert set(model.replay_buffer.sample(50, torch.Generator().manual_seed(0)).index.tolist()) == {37, 38, 39}
    assert small(replay_buffer_class="uniform").learn(10).num_timesteps == 10
    with pytest.raises(SettingsError, match="do not fit"):
        small(replay_buffer_class=Newest, replay_buffer_kwargs={"windows": 3})


def test_optimize_memory_usage_gives_the_same_training() -> None:
    models = [small(optimize_memory_usage=shared).learn(60) for shared in (False, True)]
    states = [list(leaves(model.get_parameters()["policy"])) for model in models]
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_optimize_memory_usage_halves_what_observations_take() -> None:
    wide = AnySpaceEnv(spaces.Box(-1, 1, (100,), np.float32), spaces.Box(-1, 1, (1,), np.float32))
    usual, shared = (small(env=wide, optimize_memory_usage=choice).replay_buffer for choice in (False, True))
    assert shared.bytes_required() < 0.55 * usual.bytes_required()


@in_one_test
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rat": 1}, "did you mean 'learning_rate'"),
        ({"policy_kwargs": {"n_critic": 2}}, "did you mean 'n_critics'"),
        ({"buffer_size": 3.5}, "not a whole number"),
        ({"buffer_size": 0}, "outside"),
        ({"gamma": 1.5}, "outside [0, 1]"),
        ({"gamma": float("nan")}, "outside"),
        ({"train_freq": (1, "epoch")}, "episode"),
        ({"train_freq": 0}, "positive"),
        ({"ent_coef": "automatic"}, "auto_"),
        ({"ent_coef": -1.0}, "not negative"),
        ({"learning_rate": "quadratic"}, "lin_3e-4"),
        ({"learning_rate": -1e-3}, "not negative"),
        ({"top_quantiles_to_drop_per_net": 25}, "leaves nothing"),
        ({"action_noise": "loud"}, "not a kind of noise"),
        ({"replay_buffer_class": "unifrom"}, "did you mean 'uniform'"),
        ({"policy_kwargs": {"activation_fn": "rellu"}}, "relu"),
        ({"policy_kwargs": {"net_arch": [0]}}, "positive whole numbers"),
        ({"policy_kwargs": {"net_arch": {"pi": [4]}}}, "'qf'"),
        ({"policy_kwargs": {"optimizer_kwargs": {"momentun": 1}}}, "do not fit"),
        ({"device": "gpu"}, "cpu"),
        ({"seed": -1}, "outside"),
    ],
)
def test_bad_settings_name_the_culprit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        TQC("MlpPolicy", "Pendulum-v1", **{"buffer_size": 100, **settings})
    assert words in str(caught.value)


def test_bad_spaces() -> None:
    with pytest.raises(UnsupportedSpaceError, match="Box"):
        TQC("MlpPolicy", "CartPole-v1")
    unbounded = AnySpaceEnv(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-np.inf, np.inf, (1,), np.float32))
    with pytest.raises(UnsupportedSpaceError, match="finite bounds"):
        TQC("MlpPolicy", unbounded)
    with pytest.raises(UnsupportedSpaceError, match="MultiInputPolicy"):
        TQC("MlpPolicy", SimpleMultiObsEnv())
    with pytest.raises(UnsupportedSpaceError, match="CnnPolicy needs"):
        TQC("CnnPolicy", "Pendulum-v1")
    with pytest.raises(SettingsError, match="MlpPolicy, CnnPolicy, MultiInputPolicy"):
        TQC("MlpLstmPolicy", "Pendulum-v1")
