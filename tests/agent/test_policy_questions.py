"""`predict_values`, `evaluate_actions` and `get_distribution` of `model.policy` accept numpy arrays, tensors and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.errors import MaskError, ObservationError, UnknownAttributeError
from rlsdk_envs.toy import InvalidActionEnvDiscrete, SimpleMultiObsEnv
from tests.tables import in_one_test

SMALL: dict[str, Any] = {"n_steps": 8, "seed": 0}


def agent(name: str = "trpo", env: Any = "Pendulum-v1", **settings: Any) -> Any:
    return rlsdk.make(name, env=env, **SMALL, **settings)


@pytest.mark.parametrize(
    "settings", [{}, {"normalize": True}, {"frame_stack": 2}, {"normalize": True, "frame_stack": 2}]
)
def test_one_and_many_numpy_and_torch_give_the_same(settings: dict[str, Any]) -> None:
    model = agent(**settings).learn(16)
    policy, batch = model.policy, np.array([model.observation_space.sample() for _ in range(4)])
    actions = np.array([model.action_space.sample() for _ in range(4)])
    values = policy.predict_values(batch)
    assert values.shape == (4,)
    assert values.requires_grad
    assert torch.allclose(policy.predict_values(torch.from_numpy(batch)), values)
    assert torch.allclose(policy.predict_values(batch[1]), values[1:2], atol=1e-6)
    same, log_prob, entropy = policy.evaluate_actions(batch, actions)
    assert torch.allclose(same, values)
    assert log_prob.shape == entropy.shape == (4,)
    assert torch.allclose(policy.evaluate_actions(torch.from_numpy(batch), torch.from_numpy(actions))[1], log_prob)
    mean = policy.get_distribution(batch).mode()
    assert np.allclose(np.clip(mean.detach().numpy(), -2, 2), model.predict(batch, deterministic=True)[0], atol=1e-5)


def test_normalized_values_are_of_normalized_observations() -> None:
    model = agent(normalize=True).learn(64)
    seen = np.array([model.observation_space.sample() for _ in range(3)])
    inner = model.parts.policy.predict_values(_record(model, model.normalizer.observations(torch.from_numpy(seen))))
    assert torch.equal(model.policy.predict_values(seen), inner)


def _record(model: Any, features: Any) -> Any:
    from rlsdk.records import Observation

    return Observation(features, torch.ones(len(features), dtype=torch.bool), None)


def test_masks_and_discrete_actions() -> None:
    model = agent("maskable-ppo", lambda: InvalidActionEnvDiscrete(6, 4))
    masks = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=bool)
    seen, actions = np.array([2, 3]), np.array([0, 5])
    _, log_prob, entropy = model.policy.evaluate_actions(seen, actions, action_masks=masks)
    assert torch.allclose(log_prob.exp(), torch.full((2,), 0.5), atol=0.02)
    assert float(entropy.max()) <= np.log(2) + 1e-6
    assert torch.equal(model.policy.evaluate_actions(seen, actions, masks)[1], log_prob)  # as documented, by position
    assert torch.equal(model.policy.evaluate_actions(seen.astype(np.float32), actions, masks)[1], log_prob)
    forbidden = model.policy.evaluate_actions(seen, actions[::-1].copy(), action_masks=masks)[1]
    assert float(forbidden.max()) < -50
    assert model.policy.get_distribution(seen, masks).mode().tolist()[1] in (4, 5)
    with pytest.raises(MaskError, match="1 action masks for 2 observations"):
        model.policy.get_distribution(seen, action_masks=masks[:1])
    with pytest.raises(MaskError, match=r"needs \(6,\)"):
        model.policy.get_distribution(seen, action_masks=np.ones((2, 5), bool))
    with pytest.raises(MaskError):
        model.policy.get_distribution(seen, action_masks=[[1, 0, 1, 1, 0, 0], [1]])
    with pytest.raises(ObservationError, match="outside its space"):
        model.policy.evaluate_actions(seen, np.array([0, 6]))
    with pytest.raises(ObservationError, match="action"):
        model.policy.evaluate_actions(seen, [[0], [1, 2]])


def test_dict_observations() -> None:
    model = agent("trpo", SimpleMultiObsEnv(), policy="MultiInputPolicy")
    seen = model.observation_space.sample()
    assert model.policy.predict_values(seen).shape == (1,)
    many = {key: np.stack([value, value]) for key, value in seen.items()}
    assert model.policy.predict_values({key: torch.from_numpy(value) for key, value in many.items()}).shape == (2,)
    with pytest.raises(ObservationError, match="needs the keys"):
        model.policy.predict_values({})


@in_one_test
@pytest.mark.parametrize("given", [{"a": np.zeros(3)}, (np.zeros(3), 1), [{}], None, "text", np.zeros((2, 2, 2))])
@pytest.mark.parametrize("nested", [True, False])
def test_observations_of_another_structure_are_refused(nested: bool, given: Any) -> None:
    env, name = (SimpleMultiObsEnv(), "MultiInputPolicy") if nested else ("Pendulum-v1", "MlpPolicy")
    model = agent("trpo", env, policy=name)
    with pytest.raises(ObservationError):
        model.policy.predict_values(given)
    with pytest.raises(ObservationError):
        model.predict(given)


@pytest.mark.parametrize("settings", [{}, {"normalize": True}])
def test_a_memory_is_what_predict_returned(settings: dict[str, Any]) -> None:
    model = agent("recurrent-ppo", "CartPole-v1", **settings).learn(16)
    seen = np.zeros((2, 4), np.float32) + 0.01
    _, state = model.predict(seen, deterministic=True)
    first, later = model.policy.predict_values(seen), model.policy.predict_values(seen, state)
    assert not torch.allclose(first, later)
    again = model.policy.predict_values(seen, state, episode_starts=np.array([True, False]))
    assert torch.allclose(again[:1], first[:1])
    assert torch.allclose(again[1:], later[1:])
    assert torch.allclose(model.policy.evaluate_actions(seen, np.array([0, 1]), state)[0], later)


@in_one_test
@pytest.mark.parametrize("starts", [[[True], [True, False]], "yes", [None, True], np.zeros(3), np.zeros((2, 1))])
def test_what_says_no_start_of_an_episode_is_refused(starts: Any) -> None:
    model, seen = agent("recurrent-ppo", "CartPole-v1"), np.zeros((2, 4), np.float32)
    for ask in (
        lambda: model.predict(seen, episode_start=starts),
        lambda: model.policy.predict_values(seen, episode_starts=starts),
        lambda: model.session(2).ended(starts),
    ):
        with pytest.raises(ObservationError, match=r"give one value each, shape \(2,\)"):
            ask()


def test_policies_without_values_say_so() -> None:
    model = rlsdk.make("tqc", env="Pendulum-v1", normalize=True, buffer_size=100)
    with pytest.raises(UnknownAttributeError, match="has no method 'predict_values'"):
        model.policy.predict_values(np.zeros(3, np.float32))
