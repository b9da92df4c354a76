"""The choice of the kernel for an update depends only on the number of rows."""

from __future__ import annotations

from typing import Any

import pytest

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk_envs.toy import InvalidActionEnvDiscrete
from rlsdk_kernels import choice
from rlsdk_kernels.choice import NUMPY_SIZE
from rlsdk_kernels.compiled_library import may_compile
from tests.tables import in_one_test

NUMPY_ROWS = NUMPY_SIZE // 64
"""The largest number of rows for which the numpy kernel is chosen, with layers of 64 units."""
pytestmark = pytest.mark.kernels("which kernel is chosen")


@in_one_test
@pytest.mark.parametrize(
    ("name", "envs", "settings", "expected"),
    [
        ("maskable-ppo", 1, {"n_steps": NUMPY_ROWS, "batch_size": None}, "numpy"),
        ("maskable-ppo", 1, {"n_steps": NUMPY_ROWS + 1, "batch_size": None}, "torch"),
        ("maskable-ppo", 2, {"n_steps": NUMPY_ROWS, "batch_size": None}, "torch"),
        ("maskable-ppo", 2, {"n_steps": NUMPY_ROWS, "batch_size": 32}, "numpy"),
        ("trpo", 1, {"n_steps": NUMPY_ROWS}, "numpy"),
        ("trpo", 2, {"n_steps": NUMPY_ROWS}, "torch"),
        ("trpo", 2, {"n_steps": NUMPY_ROWS, "sub_sampling_factor": 2}, "numpy"),
    ],
)
def test_the_rows_of_a_rollout_count(
    name: str, envs: int, settings: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "has_avx2", lambda: False)  # as on processors without it
    env = make_vec_env(lambda: InvalidActionEnvDiscrete(4, 1), envs, vectorization="sync")
    algorithm: Any = rlsdk.make(name, env=env, seed=0, **settings).parts.algorithm
    found = (algorithm.kernel if name == "trpo" else algorithm._kernels().evaluator).name
    assert found == ("compiled" if expected == "numpy" and may_compile() else expected)
