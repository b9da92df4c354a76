"""`BuildContext.observation_normalizer` and `reward_normalizer`, for algorithms with their own replay buffer or data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.buffers import ReplayBuffer
from rlsdk.buffers.replay import PrioritizedReplay
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts
from rlsdk.interfaces.abilities import require_parts
from rlsdk.records import Rollout, Sequences, Transitions
from rlsdk.registry import AlgorithmSpec, Manifest, unregister
from rlsdk.registry.discovery import register
from rlsdk.training import OffPolicyPlan
from rlsdk_qrdqn import QRDQN
from rlsdk_tqc import TQC
from tests.small_algorithms import Config, Softmax

MADE: list[Any] = []


class Rows:
    """A custom replay buffer whose batches are plain dicts of all stored steps."""

    def __init__(self) -> None:
        self.items: list[Rollout[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.items)

    def bytes_required(self) -> int:
        return 0

    def extend(self, item: Any) -> None:
        self.items.append(item)

    def sample(self, size: int, generator: Any) -> Any:
        steps = [item.steps for item in self.items]
        return {
            "seen": torch.cat([step.observation.features.flatten(0, 1) for step in steps]),
            "reward": torch.cat([step.reward.flatten() for step in steps]),
        }

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any, /) -> None:
        pass


class Watching:
    """An algorithm that learns nothing and stores every batch in `given`."""

    def __init__(self, context: BuildContext) -> None:
        self.context = context
        self.given: list[Any] = []
        MADE.append(self)

    def update(self, batch: Any, *, progress: float) -> dict[str, torch.Tensor]:
        self.given.append(batch)
        return {"train/loss": torch.zeros(())}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any, /) -> None:
        pass


@pytest.fixture
def watching() -> Iterator[None]:
    def build(context: BuildContext, config: Config) -> Parts:
        plan = OffPolicyPlan(4, 1, 16, 0)
        return Parts(policy=Softmax(context), algorithm=Watching(context), plan=plan, buffer=Rows())

    words: dict[str, Any] = {"title": "Watching", "summary": "for tests", "sdk": ">=0.1"}
    context: dict[str, Any] = {"id": "watching", "family": "off-policy", "policies": ("MlpPolicy",)}
    manifest = Manifest(actions=("Discrete",), observations=("Box",), **context, **words)
    register(AlgorithmSpec(config_type=Config, build=build, **context), manifest)
    yield
    unregister("watching")


class Large(gymnasium.Env[Any, Any]):
    """Observations with mean 40 and deviation 5, rewards with mean 0 and deviation 100."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation(), {}

    def observation(self) -> Any:
        return self.np_random.normal(40.0, 5.0, 2).astype(np.float32)

    def step(self, action: Any) -> Any:
        return (
            self.observation(),
            float(self.np_random.normal(0.0, 100.0)),
            False,
            bool(self.np_random.random() < 0.1),
            {},
        )


def test_a_memory_of_ones_own_is_normalized_by_the_facts(watching: None) -> None:
    agent = rlsdk.make("watching", env=make_vec_env(Large, 2), normalize=True, seed=0).learn(400)
    algorithm = MADE[-1]
    batch = algorithm.given[-1]
    assert float(batch["seen"].mean()) > 30.0, "batches of other types are given as they are"
    assert float(batch["reward"].std()) > 50.0
    seen = algorithm.context.observation_normalizer(batch["seen"])
    assert abs(float(seen.mean())) < 0.2
    assert 0.8 < float(seen.std()) < 1.2
    assert agent.normalizer is not None
    assert np.allclose(seen, agent.normalizer.normalize_obs(batch["seen"].numpy()), atol=1e-5)
    reward = algorithm.context.reward_normalizer(batch["reward"])
    assert np.allclose(reward, agent.normalizer.normalize_reward(batch["reward"].numpy()), atol=1e-5)
    assert 0.1 < float(reward.std()) < 3.0
    sequence = torch.full((5, 3, 2), 40.0)  # [T, B, ...] is accepted too
    assert algorithm.context.observation_normalizer(sequence).shape == sequence.shape


def test_statistics_that_are_loaded_are_those_it_uses(watching: None, tmp_path: Any) -> None:
    rlsdk.make("watching", env=make_vec_env(Large, 1), normalize=True, seed=0).learn(100).save(tmp_path / "a")
    agent = rlsdk.load(tmp_path / "a", env=make_vec_env(Large, 1))
    assert abs(float(MADE[-1].context.observation_normalizer(torch.full((1, 2), 40.0)).mean())) < 1.0
    assert agent.num_timesteps == 100


def test_without_normalization_values_stay_as_they_are(watching: None) -> None:
    rlsdk.make("watching", env=make_vec_env(Large, 1), seed=0)
    context, values = MADE[-1].context, torch.full((3, 2), 40.0)
    assert context.observation_normalizer(values) is values
    assert context.reward_normalizer(values[:, 0]).tolist() == [40.0] * 3


@pytest.mark.parametrize(
    ("normalize", "expected"),
    [({"norm_obs": False}, 40.0), ({"norm_reward": False, "sign_reward": True}, None), ({"norm_reward": False}, None)],
)
def test_parts_of_it_that_are_off(watching: None, normalize: Any, expected: float | None) -> None:
    rlsdk.make("watching", env=make_vec_env(Large, 1), normalize=normalize, seed=0).learn(60)
    context = MADE[-1].context
    seen = context.observation_normalizer(torch.full((1, 2), 40.0))
    assert (float(seen[0, 0]) == expected) if expected is not None else abs(float(seen[0, 0])) < 2.0
    reward = context.reward_normalizer(torch.tensor([-50.0, 0.0, 70.0]))
    if normalize.get("sign_reward"):
        assert reward.tolist() == [-1.0, 0.0, 1.0]
    elif not normalize.get("norm_reward", True):
        assert reward.tolist() == [-50.0, 0.0, 70.0]


def test_the_memory_of_the_loop_is_normalized_once() -> None:
    model = TQC("MlpPolicy", "Pendulum-v1", normalize=True, buffer_size=100, learning_starts=10**6, seed=0).learn(60)
    buffer: Any = model.parts.buffer
    raw = buffer.at(torch.arange(60)).observation.features
    batch = model.parts.sample(64, torch.Generator().manual_seed(0))
    expected = model.preprocessing.build_context.observation_normalizer(raw)[batch.index]
    assert torch.allclose(batch.observation.features, expected)


class Windows(ReplayBuffer):
    """A replay buffer that samples sequences, but the update needs transitions."""

    def sample(self, size: int, generator: torch.Generator) -> Sequences[None]:  # type: ignore[override]
        raise AssertionError("it is refused before anything is sampled")


class Regression(Watching):
    """An algorithm that learns from transitions."""

    def update(self, batch: Transitions, *, progress: float) -> dict[str, torch.Tensor]:
        return super().update(batch, progress=progress)


def test_a_users_memory_of_other_batches_is_refused_when_parts_are_assembled() -> None:
    wanted = "'tqc': its buffer, Windows, samples Sequences, but its algorithm, SoftActorCritic, learns from Transitions; give"
    with pytest.raises(SettingsError, match=wanted):
        TQC("MlpPolicy", "Pendulum-v1", replay_buffer_class=Windows, buffer_size=100)


def test_a_plugins_memory_of_other_batches_is_refused_when_parts_are_assembled() -> None:
    def parts(context: BuildContext, memory: Any) -> Parts:
        plan = OffPolicyPlan(4, 1, 16, 0)
        return Parts(policy=Softmax(context), algorithm=Regression(context), plan=plan, buffer=memory)

    context = QRDQN("MlpPolicy", "CartPole-v1", buffer_size=100).context
    wanted = "'own': its buffer, Windows, samples Sequences, but its algorithm, Regression, learns from Transitions"
    with pytest.raises(SettingsError, match=wanted):
        require_parts(parts(context, Windows(context, 10, 0.9)), "own")
    require_parts(parts(context, ReplayBuffer(context, 10, 0.9)), "own")
    require_parts(parts(context, Rows()), "own")  # its `sample` has no type of the batch, so it is accepted


def test_a_memory_with_priorities_names_the_algorithm_without_errors() -> None:
    context = QRDQN("MlpPolicy", "CartPole-v1", buffer_size=100).context
    memory = PrioritizedReplay(context, 10, 0.9)
    plan = OffPolicyPlan(4, 1, 16, 0)
    built = Parts(policy=Softmax(context), algorithm=Regression(context), plan=plan, buffer=memory)
    with pytest.raises(
        SettingsError, match=r"'own': its buffer, PrioritizedReplay, .* algorithm, Regression, has no td_error"
    ):
        require_parts(built, "own")
