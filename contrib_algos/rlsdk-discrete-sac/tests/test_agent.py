"""Discrete SAC as a user sees it: settings, masks, several choices, images, files and exported policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk.evaluation import run_episodes
from rlsdk_discrete_sac import DiscreteSAC
from rlsdk_envs import FakeImageEnv, InvalidActionEnvDiscrete, SimpleMultiObsEnv
from rlsdk_envs.toy import IdentityEnvMultiDiscrete, InvalidActionEnvMultiDiscrete
from rlsdk_interchange import export

SMALL: dict[str, Any] = {"seed": 0, "buffer_size": 200, "learning_starts": 10, "batch_size": 8}
NETWORKS: dict[str, Any] = {"net_arch": [32]}
QUICK: dict[str, Any] = {"learning_rate": 3e-3, "gamma": 0.0, "seed": 0, "batch_size": 64, "ent_coef": 0.05}


def images() -> FakeImageEnv:
    return FakeImageEnv(action_space=spaces.Discrete(3))


def made(env: Any = "CartPole-v1", policy: str = "MlpPolicy", **settings: Any) -> DiscreteSAC:
    return DiscreteSAC(policy, env, **(SMALL | {"policy_kwargs": NETWORKS} | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"target_entropy_scale": 1.5},
            "target_entropy_scale reaches 1.5, and no policy has more than the largest entropy",
        ),
        ({"target_entropy_scale": -0.1}, "target_entropy_scale must stay finite and not negative"),
        ({"target_entropy_scale": {"kind": "linear", "start": 0.5, "end": 2.0}}, "target_entropy_scale reaches 2"),
        (
            {"target_entropy_scale": {"kind": "piecewise", "points": [[0.0, 0.5], [0.3, 1.2], [1.0, 0.5]]}},
            "target_entropy_scale reaches 1.2",
        ),
        ({"ent_coef": "automatic"}, "ent_coef 'automatic' must be"),
        ({"ent_coef": -1.0}, "ent_coef -1.0 must be not negative"),
        ({"target_entropy": 0.5}, "unknown setting 'target_entropy'"),
        ({"policy_kwargs": {"n_critics": 0}}, "n_critics = 0"),
        ({"policy_kwargs": {"net_arch": {"vf": [8]}}}, "net_arch names ['vf']"),
    ],
)
def test_settings_out_of_range_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        made(**settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_box_actions_are_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="DiscreteSAC cannot act in a Box action space"):
        made("Pendulum-v1")


def test_the_target_of_the_entropy_follows_its_schedule() -> None:
    """From the largest entropy to 0: the coefficient rises in the beginning, and falls in the end."""
    model = made(target_entropy_scale={"kind": "linear", "start": 1.0, "end": 0.0}).learn(20)
    update: Any = model.parts.algorithm
    batch = model.parts.sample(8, torch.Generator().manual_seed(0))
    last: Any = model.actor.head[0]
    with torch.no_grad():
        last.bias.copy_(torch.tensor([0.0, 2.0]))  # far from uniform and from certain
    losses = [float(update.update(batch, progress=progress)["train/ent_coef_loss"]) for progress in (0.0, 1.0)]
    largest, log_alpha = model.actor.largest_entropy(None), float(update.entropy.log_alpha.detach())
    assert largest == pytest.approx(np.log(2.0))
    # the loss is log alpha times the excess of the entropy over its target
    assert np.sign(losses[0]) == -np.sign(log_alpha)
    assert np.sign(losses[1]) == np.sign(log_alpha)


def test_an_update_takes_no_random_numbers() -> None:
    """Expectations are exact, so two updates from equal weights with one batch are equal."""
    found: list[list[torch.Tensor]] = []
    for _ in range(2):
        model = made().learn(20)
        torch.manual_seed(len(found))
        model.parts.algorithm.update(model.parts.sample(8, torch.Generator().manual_seed(0)), progress=0.0)
        found.append([each.clone() for each in model.actor.parameters()])
    assert all(map(torch.equal, *found))


def test_masks_are_obeyed_and_the_task_is_learned() -> None:
    class Strict(InvalidActionEnvDiscrete):
        def step(self, action: Any) -> Any:
            assert self.action_masks()[action]
            return super().step(action)

    env = make_vec_env(lambda: Strict(12, 9), 2, vectorization="sync")
    model = DiscreteSAC("MlpPolicy", env, policy_kwargs={"net_arch": [32]}, **QUICK).learn(2500)
    batch = model.parts.sample(200, torch.Generator().manual_seed(0))
    assert bool(batch.observation.action_mask.gather(1, batch.action[:, None]).all())
    assert bool((batch.next_observation.action_mask.sum(1) == 3).all())
    assert run_episodes(model, Strict(12, 9), 3, seed=1).mean > 80.0


def test_masks_of_several_choices_are_obeyed() -> None:
    class Strict(InvalidActionEnvMultiDiscrete):
        def step(self, action: Any) -> Any:
            sizes, masks = list(self.action_space.nvec), self.action_masks()  # type: ignore[attr-defined]
            parts = np.split(np.asarray(masks), np.cumsum(sizes)[:-1])
            assert all(part[value] for part, value in zip(parts, action, strict=True))
            return super().step(action)

    made(make_vec_env(lambda: Strict(5, 4), 2, vectorization="sync"), n_steps=2).learn(200)


def test_several_choices_are_learned_each_by_itself() -> None:
    env = IdentityEnvMultiDiscrete(3)
    model = DiscreteSAC("MlpPolicy", env, policy_kwargs={"net_arch": [32]}, **QUICK).learn(1500)
    assert run_episodes(model, IdentityEnvMultiDiscrete(3), 5, seed=1).mean > 90.0


@pytest.mark.parametrize(
    ("env", "policy", "settings"),
    [
        (lambda: SimpleMultiObsEnv(spaces.Discrete(3)), "MultiInputPolicy", {}),
        (images, "CnnPolicy", {}),
        (images, "CnnPolicy", {"policy_kwargs": NETWORKS | {"share_features_extractor": True}}),
        (None, "MlpPolicy", {"n_steps": 3, "replay_buffer_class": "prioritized", "frame_stack": 2, "normalize": True}),
        (None, "MlpPolicy", {"policy_kwargs": {"net_arch": [], "activation_fn": "tanh", "n_critics": 1}}),
    ],
)
def test_other_observations_and_settings_train(env: Any, policy: str, settings: dict[str, Any]) -> None:
    model = made("CartPole-v1" if env is None else env(), policy, **settings)
    before = [each.clone() for each in (*model.actor.parameters(), *model.critic.parameters())]
    model.learn(20)
    after = [*model.actor.parameters(), *model.critic.parameters()]
    assert not any(map(torch.equal, before, after))
    assert all(bool(each.isfinite().all()) for each in after)


def test_a_shared_encoder_is_trained_by_the_actors_loss_alone() -> None:
    networks = NETWORKS | {"share_features_extractor": True}
    model = made(images(), "CnnPolicy", policy_kwargs=networks).learn(12)
    update: Any = model.parts.algorithm
    assert model.critic.encoder is model.actor.encoder
    before = [each.clone() for each in model.actor.encoder.parameters()]
    batch = model.parts.sample(8, torch.Generator().manual_seed(0))
    update._learn_values(batch, update.entropy.value, 1e-2)
    assert all(map(torch.equal, before, model.actor.encoder.parameters()))
    update.update(batch, progress=0.0)
    assert not any(map(torch.equal, before, model.actor.encoder.parameters()))


def test_one_row_is_a_batch() -> None:
    model = made(batch_size=1).learn(20)
    assert all(bool(each.isfinite().all()) for each in model.actor.parameters())


@pytest.mark.slow
def test_an_exported_actor_chooses_the_same_allowed_actions(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = made(InvalidActionEnvDiscrete(12, 9)).learn(40)
    export(model, tmp_path / "actor.onnx")
    session = runtime.InferenceSession(str(tmp_path / "actor.onnx"))
    rng = np.random.default_rng(0)
    seen, masks = rng.integers(12, size=20), rng.random((20, 12)) < 0.5
    masks[:, 0] = True
    names = [each.name for each in session.get_inputs()]
    (found, *_) = session.run(None, dict(zip(names, (seen, masks), strict=True)))
    np.testing.assert_array_equal(found, model.predict(seen, deterministic=True, action_masks=masks)[0])
    assert bool(masks[np.arange(20), found].all())
