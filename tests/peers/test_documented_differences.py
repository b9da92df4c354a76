"""Differences from stable-baselines3 and sb3-contrib that no other test shows.

tests/repository/test_compatibility_page.py lists all.
"""

from __future__ import annotations

import json
import re
import warnings
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.callbacks import LambdaCallback
from rlsdk.distributions import Bernoulli, SquashedGaussian
from rlsdk.environments import connect, make_vec_env
from rlsdk.errors import (
    ArtifactError,
    EnvironmentFault,
    MaskError,
    ObservationError,
    SettingsError,
    UnknownAttributeError,
    UnsupportedSpaceError,
    UsageError,
)
from rlsdk.sinks import Image, Logger
from rlsdk_ars import ARS
from rlsdk_envs import check_env, load_results, make_atari_env
from rlsdk_envs.toy import AnySpaceEnv, ChainEnv, IdentityEnv, InvalidActionEnvDiscrete
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_qrdqn import QRDQN
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_sb3 import BaseCallback, BaseFeaturesExtractor, NumpyVectorEnv
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO
from rlsdk_trpo.algorithm import conjugate_gradient

ROOT = Path(__file__).parents[2]
ON: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "seed": 0, "policy_kwargs": {"net_arch": [4]}}
OFF: dict[str, Any] = {"buffer_size": 100, "learning_starts": 8, "batch_size": 4, "seed": 0}


def trpo(env: Any = "CartPole-v1", **settings: Any) -> Any:
    return TRPO("MlpPolicy", env, **{**ON, **settings})


def tqc(env: Any = "Pendulum-v1", **settings: Any) -> Any:
    return TQC("MlpPolicy", env, **{**OFF, "policy_kwargs": {"net_arch": [4]}, **settings})


def one_of_each() -> list[Any]:
    masked = InvalidActionEnvDiscrete(4, 2)
    return [
        ARS("LinearPolicy", "CartPole-v1", seed=0),
        MaskablePPO("MlpPolicy", masked, **ON),
        QRDQN("MlpPolicy", "CartPole-v1", **OFF),
        RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **ON),
        tqc(),
        trpo(),
        trpo(normalize=True),
    ]


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_hold_no_pickle_and_ask_for_functions(tmp_path: Path) -> None:
    model = trpo(learning_rate=lambda remaining: 1e-3 * remaining, tensorboard_log=tmp_path / "logs")
    path = model.save(tmp_path / "model")
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("manifest.json"))
        assert not any(name.endswith((".pkl", ".pth")) for name in archive.namelist())
    with pytest.raises(ArtifactError, match=r"give \['learning_rate'\] again: load\(..., custom_objects="):
        TRPO.load(path)
    loaded = TRPO.load(path, custom_objects={"learning_rate": 2e-3})
    assert loaded.learning_rate == 2e-3
    assert loaded.tensorboard_log is None
    again = TRPO.load(path, custom_objects={"learning_rate": 2e-3}, tensorboard_log=tmp_path / "other")
    assert again.tensorboard_log == str(tmp_path / "other")
    with pytest.raises(UsageError, match=r"load makes a new agent: write agent = TRPO.load\(path\)"):
        model.load(path)


# --- constructor, settings, methods -----------------------------------------------------------------------------------


def test_what_the_six_have_not_says_what_to_use() -> None:
    for model in one_of_each():
        assert all(name == text for name, text in type(model).policy_aliases.items())
        questions = {
            "forward",
            "predict",
            "extract_features",
            "obs_to_tensor",
            "reset_noise",
            "save",
            "set_training_mode",
        }
        for name in sorted(questions - ({"forward"} if isinstance(model, QRDQN) else set())):
            with pytest.raises(UsageError, match=rf"{type(model.policy).__name__} has no method '{name}'; \w+"):
                getattr(model.policy, name)(np.zeros(4))
        with pytest.raises(UnknownAttributeError, match=r"collecting is rlsdk\.training\.collector\.collect"):
            model.collect_rollouts(8)
        with pytest.raises(UnknownAttributeError, match="rollouts are records"):
            _ = model.rollout_buffer
        model.set_random_seed(None)
        with pytest.raises(UsageError, match="set_random_seed"):
            model.seed = 3


def test_unknown_keywords_are_value_errors() -> None:
    for wrong in ({"gama": 0.9}, {"policy_kwargs": {"net_arc": [4]}}, {"policy_kwargs": {"sde_net_arch": [4]}}):
        with pytest.raises(SettingsError, match=r"unknown setting '.*'; did you mean '(gamma|net_arch)'"):
            trpo(**wrong)
    assert issubclass(SettingsError, ValueError)
    assert tqc(use_sde=True, policy_kwargs={"net_arch": [4], "sde_net_arch": [4]}).use_sde


def test_logs_come_as_often_as_documented() -> None:
    for model, interval, unit in ((trpo(ChainEnv(5)), 1, 8), (tqc(ChainEnv(5)), 4, 20)):
        rows: list[int] = []
        intervals: list[int] = []

        class Rows:
            def write(self, step: int, values: Any, rows: list[int] = rows) -> None:
                rows.append(step)

            def close(self) -> None: ...

        model.set_logger(Rows())
        model.learn(40, callback=lambda scope, _, seen=intervals: seen.append(scope["log_interval"]))
        assert set(intervals) == {interval}
        assert rows == list(range(unit, 41, unit))


# --- policies ---------------------------------------------------------------------------------------------------------


class Recorder(BaseFeaturesExtractor):
    """A features extractor that records its inputs."""

    def __init__(self, observation_space: Any, features_dim: int = 3) -> None:
        super().__init__(observation_space, features_dim)
        self.given: list[Any] = []

    def forward(self, observations: Any) -> torch.Tensor:
        self.given.append(observations)
        rows = observations[0] if isinstance(observations, tuple) else observations
        return torch.zeros(len(rows), 3)


def test_what_extractors_are_given() -> None:
    kwargs = {"net_arch": [4], "features_extractor_class": Recorder}
    box = spaces.Box(-3.0, 7.0, (2,), np.float32)
    model = trpo(AnySpaceEnv(box, spaces.Discrete(2), 4), policy_kwargs=kwargs, normalize=True)
    assert model.policy.encoder.extractor._observation_space == box
    pair = spaces.Tuple([box, spaces.Discrete(3)])
    model = trpo(AnySpaceEnv(pair, spaces.Discrete(2), 4), policy_kwargs=kwargs)
    model.predict((np.zeros(2, np.float32), 2))
    vector, table = model.policy.encoder.extractor.given[0]
    assert vector.tolist() == [[0.0, 0.0]]
    assert table.tolist() == [[0.0, 0.0, 1.0]]


def test_networks_are_those_asked_for() -> None:
    separate = trpo(policy_kwargs={"net_arch": [6, 6]}).policy
    shared = trpo(policy_kwargs={"net_arch": [6, {"pi": [4], "vf": [4]}]}).policy
    sizes = [sum(p.numel() for p in each.parameters()) for each in (separate, shared)]
    assert sizes[0] == 2 * (4 * 6 + 6 + 6 * 6 + 6) + 6 * 2 + 2 + 6 * 1 + 1
    assert sizes[1] == 4 * 6 + 6 + 2 * (6 * 4 + 4) + 4 * 2 + 2 + 4 * 1 + 1
    gru = RecurrentPPO("MlpGruPolicy", "CartPole-v1", **ON)
    assert any(isinstance(module, torch.nn.GRU | torch.nn.GRUCell) for module in gru.policy.modules())
    observation = np.zeros((2, 4), np.float32)
    _, state = gru.predict(observation)
    assert gru.policy.get_distribution(observation, state).log_prob(torch.zeros(2)).shape == (2,)
    assert gru.predict(observation, state)[1] is not state
    session = gru.session(2)
    assert session.act(observation).shape == (2,)


# --- callbacks and logging --------------------------------------------------------------------------------------------


def test_callbacks_that_return_nothing_go_on() -> None:
    found: list[dict[str, Any]] = []
    assert trpo().learn(16, callback=lambda scope, _: found.append(dict(scope))).num_timesteps == 16

    class Silent(BaseCallback):
        def _on_step(self) -> None:  # type: ignore[override]
            self.logger.record("mine", 1.0)
            assert dict(self.logger.name_to_value) == {"mine": 1.0}

    metrics: list[str] = []
    note = LambdaCallback(on_update=lambda run, report: metrics.extend(report.metrics))
    assert trpo().learn(16, callback=[Silent(), note]).num_timesteps == 16
    assert any(name.startswith("train/") for name in metrics)
    assert not {"obs_tensor", "values", "log_probs", "rollout_buffer"} & set(found[0])
    page = (ROOT / "docs" / "callbacks.md").read_text()
    promised = set(re.findall(r"`([a-z_]+)`", page.partition("- In `locals`:")[2].partition("With normalization")[0]))
    promised -= {"terminal_observation", "episode"}  # these are entries of infos
    assert len(promised) > 14
    assert promised <= set(found[0])


def test_sinks_get_numbers_and_media_apart() -> None:
    class Mine:
        def __init__(self) -> None:
            self.numbers: list[Any] = []
            self.others: list[Any] = []

        def write(self, step: int, values: Any) -> None:
            self.numbers.append((step, dict(values)))

        def media(self, step: int, values: Any) -> list[str]:
            self.others.append((step, list(values)))
            return list(values)

        def close(self) -> None: ...

    sink = Mine()
    logger = Logger(None, [sink])
    logger.record("number", 1)
    logger.record("picture", Image(np.zeros((2, 2, 3))))
    logger.record("text", "words")
    logger.dump(7)
    assert sink.numbers == [(7, {"number": 1})]
    assert sink.others == [(7, ["picture", "text"])]


# --- environments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["auto", "sync", "async", "gymnasium"])
def test_the_loop_over_what_make_vec_env_gives(kind: str) -> None:
    model = trpo()
    vec_env: Any = (
        connect(gymnasium.make_vec("CartPole-v1", 2))
        if kind == "gymnasium"
        else make_vec_env("CartPole-v1", 2, vectorization=kind)
    )
    record = vec_env.reset()
    for wrong in (record, vec_env.step(torch.zeros(2, dtype=torch.int64))):
        for call in (model.predict, model.session(2).act):
            with pytest.raises(ObservationError, match=r"a record .*NumpyVectorEnv\(env\), or model.get_env\(\)"):
                call(wrong)
    for actions in (np.zeros(2, np.int64), [0, 0], None):
        with pytest.raises(UsageError, match=r"actions are of type .*a torch tensor.*NumpyVectorEnv\(env\)"):
            vec_env.step(actions)
    loop = NumpyVectorEnv(vec_env)
    observation = loop.reset()
    for _ in range(3):
        action, _ = model.predict(observation)
        observation, rewards, dones, infos = loop.step(action)
        assert (observation.shape, rewards.shape, dones.shape, len(infos)) == ((2, 4), (2,), (2,), 2)
    assert loop.env_is_wrapped("Monitor") == [False, False]
    loop.close()


def test_arguments_of_make_vec_env_are_explained() -> None:
    for name in ("wrapper_class", "vec_env_cls", "vec_env_kwargs", "start_index", "monitor_kwargs"):
        with pytest.raises(SettingsError, match=f"make_vec_env takes no '{name}'; use "):
            make_vec_env("CartPole-v1", **{name: None})


def test_nested_actions_and_observations_that_are_none() -> None:
    for space in (spaces.Dict(a=spaces.Discrete(2)), spaces.Tuple([spaces.Discrete(2)])):
        vec_env = make_vec_env(lambda space=space: AnySpaceEnv(spaces.Discrete(3), space, 4), 2, vectorization="sync")
        vec_env.reset()
        for actions in ([0, 1], None, 3, {"b": 0}, (np.zeros(2),), {"a": [0, 1]}):
            with pytest.raises(UsageError, match=r"actions are of type .*NumpyVectorEnv\(env\)"):
                vec_env.step(actions)
    with pytest.raises(ObservationError, match=r"reset gives .*: pass its first part"):
        trpo().predict(gymnasium.make("CartPole-v1").reset())
    with pytest.raises(ObservationError, match="a list that makes no array"):
        trpo().predict([[0.0] * 4, [0.0]])
    discrete = trpo(IdentityEnv(3))
    for given in (discrete.env.reset(), IdentityEnv(3).reset(), None, "x"):
        with pytest.raises(ObservationError):
            discrete.predict(given)


def test_streams_of_environments_differ() -> None:
    vec_env = NumpyVectorEnv(make_vec_env("CartPole-v1", 3))
    vec_env.seed(5)
    rows = vec_env.reset()
    peer = gymnasium.make("CartPole-v1").reset(seed=6)[0]
    assert len(np.unique(rows, axis=0)) == 3
    assert not any(np.array_equal(row, peer) for row in rows)


@pytest.mark.parametrize("of", ["stable_baselines3.common.envs", "sb3_contrib.common.envs"])
def test_documented_test_environments_pass_the_check(of: str) -> None:
    module = pytest.importorskip(of)
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, gymnasium.Env)]
    assert len(kinds) >= 3
    for kind in kinds:
        check_env(kind(), warn=False)


def test_vector_environments_of_the_peer_are_refused() -> None:
    theirs = pytest.importorskip("stable_baselines3.common.env_util").make_vec_env("CartPole-v1")
    for call in (lambda: trpo(theirs), lambda: trpo().set_env(theirs)):
        with pytest.raises(EnvironmentFault, match=r"of another library; .*make_vec_env"):
            call()


def test_objects_of_the_peer_work_or_are_refused() -> None:
    peers = pytest.importorskip("stable_baselines3")
    from sb3_contrib.common.wrappers import TimeFeatureWrapper
    from sb3_contrib.tqc.policies import TQCPolicy
    from stable_baselines3.common.buffers import ReplayBuffer
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.torch_layers import FlattenExtractor

    env = TimeFeatureWrapper(Monitor(gymnasium.make("CartPole-v1")))
    model = trpo(env, policy_kwargs={"net_arch": [4], "features_extractor_class": FlattenExtractor}).learn(8)
    for call, words in (
        (
            lambda: TQC(TQCPolicy, "Pendulum-v1", **OFF),
            "is a class of another library; give a name such as 'MlpPolicy'",
        ),
        (lambda: tqc(replay_buffer_class=ReplayBuffer), "is a class of another library; give 'uniform'"),
        (lambda: tqc(replay_buffer_class=peers.HerReplayBuffer), "is a class of another library; give 'hindsight'"),
        (
            lambda: tqc(action_noise=NormalActionNoise(np.zeros(1), np.ones(1))),
            r"rlsdk\.exploration\.NormalActionNoise",
        ),
        (lambda: model.set_logger(configure(None, [])), r"rlsdk_sb3\.configure"),
    ):
        with pytest.raises(SettingsError, match=words):
            call()


def test_discrete_spaces_have_a_largest_size() -> None:
    def made(size: int) -> Any:
        return make_vec_env(lambda: AnySpaceEnv(spaces.Discrete(size), spaces.Discrete(2), 4))

    assert made(2**20).num_envs == 1
    with pytest.raises(UnsupportedSpaceError, match="at most 1048576"):
        made(2**20 + 1)


def test_masks_are_needed_unless_refused() -> None:
    with pytest.raises(MaskError, match="use_masking=False"):
        MaskablePPO("MlpPolicy", "CartPole-v1", **ON)
    free = MaskablePPO("MlpPolicy", "CartPole-v1", use_masking=False, **ON).learn(8)
    assert free.predict(np.zeros(4, np.float32))[0].shape == ()
    masked = MaskablePPO("MlpPolicy", InvalidActionEnvDiscrete(4, 2), **ON)
    with pytest.raises(MaskError, match="action_masks"):
        masked.predict(np.int64(0))
    assert masked.predict(np.int64(0), action_masks="none")[0] in range(4)


@pytest.mark.parametrize("kind", [TRPO, QRDQN, RecurrentPPO])
def test_other_algorithms_use_masks_that_are_there(kind: Any) -> None:
    policy = "MlpLstmPolicy" if kind is RecurrentPPO else "MlpPolicy"
    model = kind(policy, InvalidActionEnvDiscrete(6, 5), **(OFF if kind is QRDQN else ON)).learn(16)
    mask = [False, False, True, False, False, False]
    actions = {int(model.predict(np.int64(0), action_masks=mask)[0]) for _ in range(20)}
    assert actions == {2}
    assert model.predict(np.int64(0))[0] in range(6)


def test_atari_environments_have_the_documented_rewards(tmp_path: Path) -> None:
    for arguments, words in (({"vec_env_cls": object}, "vectorization="), ({"monitor_kwargs": {}}, "monitor_dir")):
        with pytest.raises(SettingsError, match=words):
            make_atari_env("ALE/Breakout-v5", **arguments)  # type: ignore[arg-type]
    pytest.importorskip("ale_py")
    vec_env = make_atari_env("ALE/Breakout-v5", seed=0, monitor_dir=tmp_path, vectorization="sync")
    vec_env.reset()
    lengths: list[int] = []
    for t in range(400):
        lengths += [episode.length for episode in vec_env.step(torch.tensor([t % 4])).episodes]
    rows = load_results(tmp_path)
    assert len(lengths) >= 2
    assert rows["l"] == lengths, "an episode for each life"


def test_masked_bits_have_the_documented_probabilities() -> None:
    peers = pytest.importorskip("sb3_contrib.common.maskable.distributions")

    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 0, 0, 1], [0, 1, 1, 1, 1, 0]], dtype=torch.bool).repeat(3, 1)[:5]
    theirs = peers.MaskableBernoulliDistribution(3)
    theirs.proba_distribution(torch.stack([torch.zeros_like(logits), logits], -1).flatten(1))
    theirs.apply_masking(mask.numpy())
    actions = mask.unflatten(1, (3, 2))[..., 1].float()
    torch.testing.assert_close(
        Bernoulli.of(logits, mask).log_prob(actions), theirs.log_prob(actions), atol=1e-6, rtol=1e-5
    )


# --- training, noise, single algorithms ---------------------------------------------------------------------------------


def test_rounds_are_whole_and_actions_are_stored_as_given() -> None:
    low, high = np.float32([-2.0, 1e5]), np.float32([2.0, 1e5 + 1])
    box = spaces.Box(low, high)
    given: list[Any] = []

    class Noting(AnySpaceEnv):
        def step(self, action: Any) -> Any:
            given.append(np.array(action))
            return super().step(action)

    model = tqc(Noting(spaces.Box(-1, 1, (2,), np.float32), box, 4), train_freq=7, learning_starts=5).learn(10)
    assert model.num_timesteps == 14
    stored = model.replay_buffer.at(torch.arange(14)).action.numpy()
    np.testing.assert_array_equal(stored, np.stack(given))


def test_the_density_of_the_peer_is_off_where_tanh_saturates() -> None:
    peers = pytest.importorskip("stable_baselines3.common.distributions")
    for raw, off in ((3.0, 1e-4), (10.0, 4.8)):
        mean = torch.tensor([[raw]])
        theirs = peers.SquashedDiagGaussianDistribution(1).proba_distribution(mean, torch.zeros(1, 1))
        _, mine = SquashedGaussian(mean, torch.zeros(1, 1)).transform(torch.zeros(1, 1))
        assert float(mine - theirs.log_prob(mean.tanh(), mean)) == pytest.approx(off, rel=0.05)


def test_conjugate_gradients_start_at_zero_and_stop_without_curvature() -> None:
    b, directions = torch.tensor([1.0, 2.0, 3.0]), []

    def product(v: torch.Tensor) -> torch.Tensor:
        directions.append(v.clone())
        return v * torch.tensor([1.0, 1.0, -2.0])

    assert torch.equal(conjugate_gradient(product, b), torch.zeros(3))
    assert len(directions) == 1
    assert torch.equal(directions[0], b), "the residual of a start at zero"
    mixed = torch.diag(torch.tensor([1.0, 2.0, -0.1]))
    reached = conjugate_gradient(lambda v: mixed @ v, b)
    assert bool(reached.isfinite().all())


def test_ars_plays_sixteen_candidates_side_by_side() -> None:
    small: dict[str, Any] = {"n_delta": 3, "seed": 0}
    model = ARS("LinearPolicy", "CartPole-v1", **small)
    assert model.n_envs == 16
    alone = ARS("LinearPolicy", make_vec_env("CartPole-v1", 1, vectorization="sync"), **small)
    one, other = (dict(each.learn(200).policy.state_dict()) for each in (model, alone))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_the_normalizer_stands_for_the_wrapper() -> None:
    model = trpo("Pendulum-v1", normalize=True).learn(16)
    normalizer = model.get_vec_normalize_env()
    rows = np.ones((2, 3), np.float32)
    back = normalizer.unnormalize_obs(normalizer.normalize_obs(rows))
    np.testing.assert_allclose(back, rows, atol=1e-4)
    rewards = np.float32([0.5, -0.5])
    np.testing.assert_allclose(normalizer.unnormalize_reward(normalizer.normalize_reward(rewards)), rewards, rtol=1e-5)
    assert trpo().get_vec_normalize_env() is None
    loaded = rlsdk.load(BytesIO(_bytes(model)))
    np.testing.assert_array_equal(loaded.get_vec_normalize_env().normalize_obs(rows), normalizer.normalize_obs(rows))


def _bytes(model: Any) -> bytes:
    target = BytesIO()
    model.save(target)
    return target.getvalue()


@pytest.mark.parametrize("algorithm", ["dqn", "qrdqn"])
def test_a_target_interval_of_less_than_a_step_warns(algorithm: str) -> None:
    settings: dict[str, Any] = {"buffer_size": 100, "learning_starts": 8, "batch_size": 4, "seed": 0}
    words = r"target_update_interval = 2 is less than one step of 3 environments: .* every 3 environment steps"
    env = make_vec_env("CartPole-v1", 3)
    with pytest.warns(UserWarning, match=words):
        rlsdk.make(algorithm, env=env, target_update_interval=2, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = rlsdk.make(algorithm, env=env, target_update_interval=3, **settings)
    with pytest.warns(UserWarning, match=words):
        model.target_update_interval = 2
