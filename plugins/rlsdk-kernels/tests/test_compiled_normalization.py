"""Compiled code normalizes observations to the same bits as torch and numpy, and refuses what it cannot read."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

import rlsdk
from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.kernels import factory
from rlsdk.kernels.factory import compiled_off
from rlsdk.networks.normalizer import RunningMoments
from rlsdk.settings.agent_config import Normalization
from rlsdk.spaces import Box
from rlsdk_kernels import compiled_vectors
from rlsdk_kernels.compiled_library import may_compile
from tests.tables import in_one_test

pytestmark = [
    pytest.mark.skipif(not may_compile(), reason="this installation uses no compiled kernels"),
    pytest.mark.kernels("tests compiled kernels"),
]
UNUSUAL = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, 3e38]


def leaf(shape: tuple[int, ...], **settings: Any) -> RunningMoments:
    own = Normalization(**settings)
    found = RunningMoments(shape, own.epsilon, own.clip_obs)
    found.update(3.0 * torch.randn(50, *shape) + 1000.0)
    return found


def assert_same_bits(found: Tensor, expected: Tensor) -> None:
    assert found.dtype is expected.dtype is torch.float32
    assert torch.equal(found.view(torch.int32), expected.view(torch.int32))


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("bound", [10.0, 0.5, 1e-3])
@pytest.mark.parametrize("lead", [(1,), (0,), (5,), (33, 2), (700,)])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (17,), (2, 5)])
def test_compiled_code_and_torch_give_the_same_bits(
    shape: tuple[int, ...], lead: tuple[int, ...], bound: float
) -> None:
    own = leaf(shape, clip_obs=bound)
    values = 30.0 * torch.randn(*lead, *shape) + 1000.0
    values.view(-1)[: len(UNUSUAL)] = torch.tensor(UNUSUAL)[: values.numel()]
    expected = own.normalize(values)
    found = compiled_vectors.Normalization()(values, own.center, own.deviation, own.bound)
    assert found is not None
    assert_same_bits(found, expected)
    assert_same_bits(own.normalize_detached(values), expected)
    with compiled_off():
        other = RunningMoments(shape, own.epsilon, bound)
    other.load_state_dict(own.state_dict())
    assert_same_bits(other.normalize_detached(values), expected)


@in_one_test
@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("off", [False, True], ids=["on", "off"])
def test_rows_are_normalized_one_by_one_with_the_statistics_of_now(off: bool) -> None:
    with compiled_off() if off else torch.no_grad():
        own = leaf((3,))
    values = torch.randn(5, 4, 3) + 1000.0
    into = torch.full_like(values, 7.0)
    normalize = own.by_row(values, into)
    normalize(3)
    assert_same_bits(into[3], own.normalize(values[3]))
    assert (into[[0, 1, 2, 4]] == 7.0).all()
    own.update(torch.randn(8, 3))
    normalize(4)
    assert_same_bits(into[4], own.normalize(values[4]))


@in_one_test
@pytest.mark.parametrize(
    "values",
    [
        torch.randn(4, 3, dtype=torch.float64),
        torch.arange(12).reshape(4, 3),
        torch.randn(3, 4).T,
        torch.randn(4, 1),
        torch.randn(3),
    ],
    ids=["float64", "int64", "transposed", "broadcast", "one row"],
)
def test_what_compiled_code_cannot_read_is_normalized_by_torch(values: Tensor) -> None:
    own = leaf((3,))
    assert compiled_vectors.Normalization()(values, own.center, own.deviation, own.bound) is None
    torch.testing.assert_close(own.normalize_detached(values), own.normalize(values), rtol=0.0, atol=0.0)


def test_a_copy_has_its_own_statistics() -> None:
    """Compiled code reads statistics by their addresses; those of a copy are other ones."""
    own, values = leaf((3,)), torch.randn(4, 3) + 1000.0
    before, other = own.normalize_detached(values), copy.deepcopy(own)
    own.update(torch.randn(100, 3))
    assert_same_bits(other.normalize_detached(values), before)
    assert not torch.equal(own.normalize_detached(values), before)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_training_with_normalization_is_the_same_without_compiled_normalization(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights() -> list[Tensor]:
        small = {"ppo": {"n_steps": 32, "batch_size": 16}, "sac": {"learning_starts": 20, "batch_size": 16}}[algorithm]
        agent: Any = rlsdk.make(algorithm, env="Pendulum-v1", seed=0, normalize=True, **small)
        agent.learn(64)
        return [parameter.detach().clone() for parameter in agent.policy.parameters()]

    own = weights()
    monkeypatch.setattr(factory, "normalization", lambda: None)
    assert all(map(torch.equal, own, weights()))


# --- observations in float64, which MuJoCo gives ---------------------------------------------------------------------


class Doubles(gym.Env[Any, Any]):
    """Observations in the dtype `kind`, in a space of float64."""

    observation_space = gym.spaces.Box(-10, 10, (3,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, kind: Any, wrong: Any = None) -> None:
        self.kind, self.wrong = kind, wrong

    def seen(self) -> Any:
        return self.np_random.random(3).astype(self.kind)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        return self.seen() if self.wrong is None else self.wrong, 0.0, False, False, {}


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, ">f8"])
def test_observations_of_all_float_types_are_stored_as_float32(kind: Any) -> None:
    env = rlsdk.environments.make_vec_env(lambda: Doubles(kind), 2, vectorization="sync")
    env.reset(seed=0)
    found = env.step(torch.zeros(2, dtype=torch.int64)).observation.features
    assert found.dtype is torch.float32
    again = rlsdk.environments.make_vec_env(lambda: Doubles(np.float64), 2, vectorization="sync")
    again.reset(seed=0)
    whole = again.step(torch.zeros(2, dtype=torch.int64)).observation.features
    torch.testing.assert_close(found, whole, atol=1e-3 if kind is np.float16 else 0.0, rtol=0.0)


@in_one_test
@pytest.mark.parametrize("wrong", [np.zeros(4), np.full(3, np.nan), np.zeros(3, complex), "text", np.full(3, 1e300)])
def test_wrong_observations_of_float64_are_refused(wrong: Any) -> None:
    env = rlsdk.environments.make_vec_env(lambda: Doubles(np.float64, wrong), 2, vectorization="sync")
    env.reset(seed=0)
    with pytest.raises(rlsdk.errors.EnvironmentFault, match="observation"), np.errstate(over="ignore"):
        env.step(torch.zeros(2, dtype=torch.int64))


def test_the_dtypes_that_are_copied_without_a_check() -> None:
    floats = ObservationBatcher(Box(np.zeros(2), np.ones(2), (2,), "float64"))
    assert floats.copied == (np.dtype(np.float32), np.dtype(np.float64))
