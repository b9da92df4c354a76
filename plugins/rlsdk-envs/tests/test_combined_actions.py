"""`CombinedActions`: the parts of an action become one choice, with masks that forbid combinations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check

from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, MaskError, SettingsError, UnsupportedSpaceError
from rlsdk_envs import CombinedActions
from rlsdk_envs.toy import AnySpaceEnv, IdentityEnvMultiDiscrete
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_qrdqn import QRDQN
from rlsdk_sb3 import get_action_masks, is_masking_supported
from tests.tables import in_one_test

KINDS = 3


class Lock(gymnasium.Env[Any, Any]):
    """The action (kind, 2 * kind mod 4) has reward 1, others 0. The first part decides which second parts are allowed."""

    observation_space = spaces.Box(0.0, 1.0, (KINDS,), np.float32)
    action_space = spaces.MultiDiscrete([KINDS, 4])

    def __init__(self, source: str = "method") -> None:
        self.source, self.kind, self.t = source, 0, 0

    def allowed(self) -> np.ndarray[Any, Any]:
        return np.array([[(b - a - self.kind) % 4 < 2 for b in range(4)] for a in range(KINDS)])

    def __getattr__(self, name: str) -> Any:
        if name == "action_masks" and self.__dict__.get("source") == "method":
            return self.allowed
        raise AttributeError(name)

    def seen(self) -> tuple[Any, dict[str, Any]]:
        self.kind = int(self.np_random.integers(KINDS))
        info = {"action_mask": self.allowed()} if self.source == "info" else {}
        return np.eye(KINDS, dtype=np.float32)[self.kind], info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.seen()

    def step(self, action: Any) -> Any:
        assert self.allowed()[tuple(action)], f"{action} is forbidden"
        reward = float(tuple(action) == (self.kind, 2 * self.kind % 4))
        self.t += 1
        observation, info = self.seen()
        return observation, reward, False, self.t >= 20, info


class Masked(AnySpaceEnv):
    """An environment with any action space and the same mask in every step."""

    def __init__(self, space: spaces.Space[Any], mask: Any) -> None:
        super().__init__(spaces.Box(-1, 1, (2,), np.float32), space)
        self.mask = mask

    def action_masks(self) -> Any:
        return self.mask


@pytest.mark.parametrize("source", ["method", "info"])
@pytest.mark.parametrize("algorithm", [MaskablePPO, QRDQN])
def test_agents_never_take_a_forbidden_combination(algorithm: Any, source: str) -> None:
    env = make_vec_env(lambda: CombinedActions(Lock(source)), 2)
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 0}
    small |= {"n_steps": 32, "batch_size": 32} if algorithm is MaskablePPO else {"learning_starts": 50}
    model = algorithm("MlpPolicy", env, **small).learn(400)
    assert model.num_timesteps >= 400
    env = CombinedActions(Lock())
    observation, _ = env.reset(seed=1)
    mask = env.action_masks()
    for _ in range(20):
        assert mask[model.predict(observation, action_masks=mask, deterministic=False)[0]]


def test_combinations_are_counted_as_numpy_does() -> None:
    space = spaces.MultiDiscrete([2, 3, 2], start=[5, 0, 1])
    env = CombinedActions(AnySpaceEnv(spaces.Box(-1, 1, (2,), np.float32), space))
    assert env.action_space == spaces.Discrete(12)
    found = [tuple(env.action(value)) for value in range(12)]
    assert found == [(a + 5, b, c + 1) for a in range(2) for b in range(3) for c in range(2)]
    assert all(space.contains(np.asarray(env.action(value))) for value in range(12))
    for without in (CombinedActions(IdentityEnvMultiDiscrete()), CombinedActions(Lock("info"))):
        assert not is_masking_supported(without)
        assert not hasattr(without, "action_masks")


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([[2, 3], [2, 2]]), spaces.MultiBinary((2, 2))])
def test_parts_may_have_any_shape(space: Any) -> None:
    inner = Lock()
    inner.action_space = space
    env = CombinedActions(inner)
    taken = [env.action(value) for value in range(int(env.action_space.n))]
    assert all(space.contains(action) for action in taken)
    assert len({action.tobytes() for action in taken}) == len(taken)


def test_masks_of_combinations_and_of_parts() -> None:
    space = spaces.MultiDiscrete([2, 2])
    joint = np.array([[True, False], [False, True]])
    assert get_action_masks(CombinedActions(Masked(space, joint))).tolist() == [True, False, False, True]
    assert get_action_masks(CombinedActions(Masked(space, [0, 1, 1, 1]))).tolist() == [False, False, True, True]
    whole = get_action_masks(CombinedActions(Masked(spaces.MultiBinary(2), joint)))
    assert whole.tolist() == [True, False, False, True]


@in_one_test
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((2, 2), bool), r"shape \(2, 2\); CombinedActions needs \(2, 3\), or \(5,\)"),
        (np.ones(6, bool), r"shape \(6,\)"),
        (np.full((2, 3), 2), "other values than true and false"),
        (np.full((2, 3), np.nan), "other values than true and false"),
        ([[1], [1, 0]], r"shape \(0,\)"),
        ("all", "other values than true and false"),
        (np.zeros((2, 3), bool), "allows no action"),
    ],
)
def test_wrong_masks_are_refused(mask: Any, message: str) -> None:
    env = CombinedActions(Masked(spaces.MultiDiscrete([2, 3]), mask))
    with pytest.raises((MaskError, EnvironmentFault), match=message):
        MaskablePPO("MlpPolicy", make_vec_env(lambda: env, 1), n_steps=8, batch_size=8).learn(8)


def test_other_actions_are_refused() -> None:
    observations = spaces.Box(-1, 1, (2,), np.float32)
    for space in (spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)):
        with pytest.raises(UnsupportedSpaceError, match="parts of MultiDiscrete and MultiBinary"):
            CombinedActions(AnySpaceEnv(observations, space))
    with pytest.raises(SettingsError, match="1099511627776 combinations; CombinedActions takes at most 1000000"):
        CombinedActions(AnySpaceEnv(observations, spaces.MultiBinary(40)))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasiums_checker_accepts_it() -> None:
    space = spaces.MultiDiscrete([2, 3])
    gymnasium_check(CombinedActions(AnySpaceEnv(spaces.Box(-1, 1, (2,), np.float32), space)), skip_render_check=True)


def test_the_command_line_wraps_with_it(cli: Any, tmp_path: Any) -> None:
    wrapped = ("--wrapper", "rlsdk_envs:CombinedActions", "--set", "n_steps=16", "--set", "batch_size=16")
    code, _, err = cli(
        "run", "maskable-ppo", "--env", "rlsdk/InvalidActionEnvMultiDiscrete-v0", *wrapped, "--steps", "64",
        "--eval-every", "0", "--out", str(tmp_path / "run"), "-q",
    )  # fmt: skip
    assert code == 0, err
