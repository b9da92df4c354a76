"""PQN as a user sees it: settings, exploration, normalized layers, masks, several choices, images and exported policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk.evaluation import run_episodes
from rlsdk_envs import FakeImageEnv, InvalidActionEnvDiscrete, SimpleMultiObsEnv
from rlsdk_envs.toy import IdentityEnvMultiDiscrete, InvalidActionEnvMultiDiscrete
from rlsdk_interchange import export
from rlsdk_pqn import PQN

SMALL: dict[str, Any] = {"seed": 0, "n_steps": 8, "batch_size": 8, "n_epochs": 2}
NETWORKS: dict[str, Any] = {"net_arch": [32]}
QUICK: dict[str, Any] = {"learning_rate": 3e-3, "gamma": 0.0, "seed": 0, "n_steps": 16, "batch_size": 32}


def made(env: Any = "CartPole-v1", policy: str = "MlpPolicy", **settings: Any) -> PQN:
    return PQN(policy, env, **(SMALL | {"policy_kwargs": NETWORKS} | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"q_lambda": 1.5}, "q_lambda = 1.5"),
        ({"n_steps": 0}, "n_steps = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"n_epochs": 0}, "n_epochs = 0"),
        ({"exploration_final_eps": -0.1}, "exploration_final_eps = -0.1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm = 0.0"),
        ({"learning_rate": -1.0}, "learning_rate must stay finite and not negative"),
        ({"buffer_size": 100}, "unknown setting 'buffer_size'"),
        ({"policy_kwargs": {"net_arch": {"pi": [8]}}}, "net_arch names ['pi']"),
    ],
)
def test_settings_out_of_range_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        made(**settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_box_actions_are_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="PQN cannot act in a Box action space"):
        made("Pendulum-v1")


def test_the_exploration_rate_is_a_probability() -> None:
    model = made()
    model.exploration_rate = 0.25
    assert model.exploration_rate == 0.25
    with pytest.raises(SettingsError, match=r"exploration_rate = 1\.5 is outside"):
        model.exploration_rate = 1.5


@pytest.mark.parametrize("n_envs", [1, 4])
def test_exploration_falls_after_each_rollout(n_envs: int) -> None:
    env = make_vec_env("CartPole-v1", n_envs, vectorization="sync")
    model = made(env, exploration_fraction=0.5, exploration_final_eps=0.2)
    seen = [model.exploration_rate]
    model.learn(16 * 8 * n_envs, LambdaCallback(on_report=lambda run, report: seen.append(model.exploration_rate)))
    wanted = [max(0.2, 1.0 - 0.8 * rounds / 8) for rounds in range(17)]
    np.testing.assert_allclose(seen, wanted, atol=1e-6)


def kinds(network: nn.Module) -> list[str]:
    return [type(each).__name__ for each in network.modules() if not list(each.children())]


def test_every_hidden_layer_is_normalized_before_its_activation() -> None:
    assert kinds(made(policy_kwargs={"net_arch": [8, 8]}).q_net.body) == ["Linear", "LayerNorm", "ReLU"] * 2
    assert kinds(made(policy_kwargs={"net_arch": [8], "layer_norm": False}).q_net.body) == ["Linear", "ReLU"]
    images = made(FakeImageEnv(action_space=spaces.Discrete(3)), "CnnPolicy", policy_kwargs={})
    convolutions = ["Conv2d", "GroupNorm", "ReLU"] * 3
    assert kinds(images.q_net.encoder) == [*convolutions, "Flatten", "Linear", "LayerNorm", "ReLU"]
    both = made(SimpleMultiObsEnv(spaces.Discrete(3)), "MultiInputPolicy", policy_kwargs={})
    assert kinds(both.q_net.encoder).count("GroupNorm") == 3
    assert kinds(both.q_net.body) == ["Linear", "LayerNorm", "ReLU"] * 2


def test_masks_are_obeyed_and_the_task_is_learned() -> None:
    class Strict(InvalidActionEnvDiscrete):
        def step(self, action: Any) -> Any:
            assert self.action_masks()[action]
            return super().step(action)

    env = make_vec_env(lambda: Strict(12, 9), 4, vectorization="sync")
    model = PQN("MlpPolicy", env, policy_kwargs={"net_arch": [32]}, **QUICK).learn(8000)
    assert run_episodes(model, Strict(12, 9), 3, seed=1).mean > 80.0


def test_masks_of_several_choices_are_obeyed() -> None:
    class Strict(InvalidActionEnvMultiDiscrete):
        def step(self, action: Any) -> Any:
            sizes, masks = list(self.action_space.nvec), self.action_masks()  # type: ignore[attr-defined]
            parts = np.split(np.asarray(masks), np.cumsum(sizes)[:-1])
            assert all(part[value] for part, value in zip(parts, action, strict=True))
            return super().step(action)

    made(make_vec_env(lambda: Strict(5, 4), 2, vectorization="sync")).learn(200)


def test_several_choices_are_learned_each_by_itself() -> None:
    env = make_vec_env(lambda: IdentityEnvMultiDiscrete(3), 4, vectorization="sync")
    model = PQN("MlpPolicy", env, policy_kwargs={"net_arch": [32]}, **QUICK).learn(6000)
    assert run_episodes(model, IdentityEnvMultiDiscrete(3), 5, seed=1).mean > 90.0


@pytest.mark.parametrize(
    ("env", "policy", "settings"),
    [
        (lambda: SimpleMultiObsEnv(spaces.Discrete(3)), "MultiInputPolicy", {}),
        (lambda: FakeImageEnv(action_space=spaces.Discrete(3)), "CnnPolicy", {}),
        (None, "MlpPolicy", {"frame_stack": 2, "normalize": True, "batch_size": None}),
        (None, "MlpPolicy", {"policy_kwargs": {"net_arch": [], "optimizer_class": "adam"}, "max_grad_norm": None}),
    ],
)
def test_other_observations_and_settings_train(env: Any, policy: str, settings: dict[str, Any]) -> None:
    model = made("CartPole-v1" if env is None else env(), policy, **settings)
    before = [each.clone() for each in model.q_net.parameters()]
    model.learn(24)
    after = list(model.q_net.parameters())
    assert not any(map(torch.equal, before, after))
    assert all(bool(each.isfinite().all()) for each in after)


def test_one_step_is_a_rollout() -> None:
    model = made(n_steps=1, batch_size=1).learn(10)
    assert model.num_timesteps == 10
    assert all(bool(each.isfinite().all()) for each in model.q_net.parameters())


@pytest.mark.slow
def test_an_exported_policy_chooses_the_same_allowed_actions(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = made(InvalidActionEnvDiscrete(12, 9)).learn(40)
    export(model, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    rng = np.random.default_rng(0)
    seen, masks = rng.integers(12, size=20), rng.random((20, 12)) < 0.5
    masks[:, 0] = True
    names = [each.name for each in session.get_inputs()]
    (found, *_) = session.run(None, dict(zip(names, (seen, masks), strict=True)))
    np.testing.assert_array_equal(found, model.predict(seen, deterministic=True, action_masks=masks)[0])
