"""Running statistics: who reads them, what moves them, and where they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rlsdk.errors import SettingsError, UsageError
from rlsdk_crossq import CrossQ
from rlsdk_crossq.config import CrossQPolicyConfig
from rlsdk_crossq.layers import BatchRenorm, batch_statistics
from rlsdk_envs import FakeImageEnv, SimpleMultiObsEnv, TableEnv
from rlsdk_interchange import export, import_sb3

SMALL: dict[str, Any] = {"seed": 0, "buffer_size": 200, "learning_starts": 10, "batch_size": 8}
NETWORKS: dict[str, Any] = {"net_arch": [8, 8]}


def made(env: Any = "Pendulum-v1", policy: str = "MlpPolicy", **settings: Any) -> CrossQ:
    return CrossQ(policy, env, **SMALL, **{"policy_kwargs": NETWORKS, **settings})


def statistics(network: torch.nn.Module) -> list[Tensor]:
    return [each.clone() for name, each in network.named_buffers() if name.endswith(("mean", "variance", "passes"))]


def are_equal(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(map(torch.equal, one, two))


def test_an_action_does_not_depend_on_other_rows_or_on_the_mode() -> None:
    model = made().learn(60)
    seen = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    before = statistics(model.actor)
    together, _ = model.predict(seen, deterministic=True)
    model.actor.train()
    alone = np.concatenate([model.predict(row[None], deterministic=True)[0] for row in seen])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    assert are_equal(statistics(model.actor), before)


def test_each_step_moves_the_statistics_of_its_own_network_only() -> None:
    model = made(policy_delay=2).learn(40)
    moved = []
    for _ in range(2):
        actor, critic = statistics(model.actor), statistics(model.critic)
        passes = int(model.critic.ensemble.layers[0].passes)  # type: ignore[union-attr,arg-type]
        model.train(1)
        assert int(model.critic.ensemble.layers[0].passes) == passes + 1, "the actor's step moves none"  # type: ignore[union-attr,arg-type]
        assert not are_equal(statistics(model.critic), critic)
        moved.append(not are_equal(statistics(model.actor), actor))
    assert sorted(moved) == [False, True]


def test_statistics_are_in_files_and_a_resumed_training_is_equal(tmp_path: Path) -> None:
    networks = NETWORKS | {"renorm_warmup_steps": 20}
    whole = made(policy_kwargs=networks).learn(100)
    half = made(policy_kwargs=networks).learn(50, schedule_until=100)
    half.save(tmp_path / "half")
    half.save_replay_buffer(tmp_path / "steps")
    again = CrossQ.load(tmp_path / "half", env="Pendulum-v1")
    assert are_equal(statistics(again.actor), statistics(half.actor))
    assert are_equal(statistics(again.critic), statistics(half.critic))
    assert int(again.critic.ensemble.layers[0].passes) == 40  # type: ignore[union-attr,arg-type]
    assert whole.num_timesteps == 100


@pytest.mark.parametrize("warm_up", [0, 100])
def test_the_layer_normalizes_and_corrects_towards_running_statistics(warm_up: int) -> None:
    layer = BatchRenorm((3,), CrossQPolicyConfig(renorm_warmup_steps=warm_up, batch_norm_momentum=0.5))
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0)) * 2.0 + 1.0
    with batch_statistics(layer):
        plain, second = layer(x), layer(x)
    torch.testing.assert_close(plain.mean(0), torch.zeros(3), atol=1e-6, rtol=0.0)
    torch.testing.assert_close(layer.mean, 0.75 * x.mean(0))
    torch.testing.assert_close(layer.variance, 0.75 * x.var(0) + 0.25)
    # corrected, the result is that of the statistics before this pass
    middle = (x - 0.5 * x.mean(0)) / (0.5 * x.var(0) + 0.5 + 1e-3).sqrt()
    torch.testing.assert_close(second, plain if warm_up else middle, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(layer(x), (x - layer.mean) / (layer.variance + 1e-3).sqrt())


def test_a_constant_feature_has_finite_gradients_after_the_warm_up() -> None:
    layer = BatchRenorm((2,), CrossQPolicyConfig(renorm_warmup_steps=0))
    x = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 4.0]], requires_grad=True)
    with batch_statistics(layer):
        layer(x)
        layer(x).square().sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def test_a_constant_feature_passes_no_gradient_and_the_others_pass_that_of_the_formula() -> None:
    layer = BatchRenorm((3,), CrossQPolicyConfig())
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(16, 3, generator=generator), torch.randn(16, 3, generator=generator)
    x[:, 1] = 0.7
    x.requires_grad_()
    with batch_statistics(layer):
        (layer(x) * weight).sum().backward()
    exact = x.detach().double().requires_grad_()
    centered = exact - exact.mean(0)
    (centered / (exact.var(0) + layer.eps).sqrt() * weight).sum().backward()
    assert x.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(x.grad[:, [0, 2]].double(), exact.grad[:, [0, 2]], atol=1e-5, rtol=1e-5)
    assert not x.grad[:, 1].any()
    # the bias moves all rows alike, so it still learns
    torch.testing.assert_close(layer.bias.grad, weight.sum(0))


@pytest.mark.parametrize("shown", [1.0, -0.3])
def test_where_the_observation_is_constant_the_agent_plays_the_policy_that_it_trains(shown: float) -> None:
    networks = {"net_arch": [16, 16], "batch_norm_momentum": 0.2}
    env = TableEnv(
        observations=np.full((2, 1), shown, np.float32), action_space=spaces.Box(-1.0, 1.0, (1,), np.float32)
    )
    settings = SMALL | {"batch_size": 32, "learning_rate": 1e-2, "policy_delay": 1, "ent_coef": 10.0}
    model = CrossQ("MlpPolicy", env, **settings, policy_kwargs=networks).learn(150)
    actor, seen = model.actor, torch.full((32, 1), shown)
    before = [each.clone() for each in actor.parameters()]
    played = actor.mean(actor.body(seen))
    with batch_statistics(actor):
        trained = actor.mean(actor.body(seen))
    torch.testing.assert_close(played, trained, atol=0.01, rtol=0.0)
    model.train(1)
    moved = [not torch.equal(one, two) for one, two in zip(before, actor.parameters(), strict=True)]
    names = {name.partition(".")[0] for (name, _), each in zip(actor.named_parameters(), moved, strict=True) if each}
    assert names == {"body", "mean", "log_std"}
    assert moved.count(True) == 5, "the last bias of the body, and two layers"


def test_one_row_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"at least 2 rows; give 2 or more, or policy_kwargs\.batch_norm = false"):
        CrossQ("MlpPolicy", "Pendulum-v1", batch_size=1)
    with pytest.raises(UsageError, match="an update of one row"):
        made().learn(20).train(1, batch_size=1)
    plain = made(policy_kwargs=NETWORKS | {"batch_norm": False}).learn(20)
    plain.train(1, batch_size=1)
    assert not statistics(plain.actor)


@pytest.mark.parametrize(
    ("env", "policy", "settings"),
    [
        (SimpleMultiObsEnv, "MultiInputPolicy", {}),
        (FakeImageEnv, "CnnPolicy", {"policy_kwargs": NETWORKS | {"share_features_extractor": True}}),
        (None, "MlpPolicy", {"use_sde": True, "n_steps": 3, "replay_buffer_class": "prioritized"}),
    ],
)
def test_other_observations_and_settings_train(env: Any, policy: str, settings: dict[str, Any]) -> None:
    given: Any = "Pendulum-v1" if env is None else env()
    model = made(given, policy, **settings)
    before = [each.clone() for each in model.actor.parameters()]
    model.learn(20)
    assert not are_equal(before, list(model.actor.parameters()))
    assert all(bool(each.isfinite().all()) for each in model.actor.parameters())


def test_a_file_of_the_peer_predicts_the_same(tmp_path: Path) -> None:
    peer = pytest.importorskip("sb3_contrib").CrossQ
    settings = {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [16, 12]}, "n_critics": 3}, "ent_coef": "auto_0.3"}
    theirs = peer("MlpPolicy", "Pendulum-v1", learning_starts=10, buffer_size=100, policy_delay=2, **settings)
    theirs.learn(40)
    theirs.save(tmp_path / "model.zip")
    ours: Any = import_sb3(tmp_path / "model.zip", "crossq", "Pendulum-v1")
    seen = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    expected, _ = theirs.predict(seen, deterministic=True)
    np.testing.assert_allclose(ours.predict(seen, deterministic=True)[0], expected, atol=1e-5)
    assert ours.policy_delay == 2
    assert float(ours.parts.algorithm.entropy.value) == pytest.approx(float(theirs.log_ent_coef.exp()), rel=1e-5)
    assert int(ours.critic.ensemble.layers[0].passes) == theirs._n_updates
    ours.learn(20)


@pytest.mark.slow
def test_an_exported_actor_uses_running_statistics(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = made().learn(40)
    export(model, tmp_path / "actor.onnx")
    session = runtime.InferenceSession(str(tmp_path / "actor.onnx"))
    seen = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    (found, *_) = session.run(None, {session.get_inputs()[0].name: seen})
    np.testing.assert_allclose(found, model.predict(seen, deterministic=True)[0], atol=1e-5)
