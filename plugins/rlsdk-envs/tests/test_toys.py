"""The toy environments pass gymnasium's checker, and known actions earn the known returns."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

from rlsdk.environments import connect
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk_envs import toy
from rlsdk_envs.registration import register
from rlsdk_tqc import TQC
from tests.tables import in_one_test

OTHERS = ("AnySpaceEnv", "ExtraInfo", "ChainEnv", "FakeImageEnv", "SimpleMultiObsEnv")
NAMES = [name for name in toy.__all__ if "Env" in name and name not in OTHERS]
MASKED = [toy.InvalidActionEnvDiscrete, toy.InvalidActionEnvMultiDiscrete, toy.InvalidActionEnvMultiBinary]


@in_one_test
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    register()
    gymnasium_check(gymnasium.make(f"rlsdk/{name}-v0").unwrapped, skip_render_check=True)


def play(env: Any, choose: Any, seed: int = 0) -> float:
    """Return the total reward of one episode with the actions `choose(env, observation)`."""
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(choose(env, observation))
        total, over = total + reward, terminated or truncated
    return total


@in_one_test
@pytest.mark.parametrize("kind", [toy.IdentityEnv, toy.IdentityEnvMultiDiscrete, toy.IdentityEnvMultiBinary, *MASKED])
def test_naming_the_observation_earns_everything(kind: Any) -> None:
    assert play(kind(episode_length=30), lambda env, seen: seen) == 30.0
    assert play(kind(episode_length=300), lambda env, seen: env.action_space.sample()) < 250.0
    assert play(toy.IdentityEnvBox(-2.0, 5.0), lambda env, seen: seen) == 0.0


@pytest.mark.parametrize("kind", MASKED)
def test_masks_forbid_as_many_as_asked_and_never_the_answer(kind: Any) -> None:
    env = kind(dim=9, n_invalid_actions=6)
    observation, _ = env.reset(seed=3)
    seen = set()
    for _ in range(200):
        mask = env.action_masks()
        assert mask.dtype == np.bool_
        assert (~mask).sum() == 6
        target = np.atleast_1d(observation)
        offsets = {9: [0], 18: [0, 9]}[len(mask)] if kind is not toy.InvalidActionEnvMultiBinary else range(0, 18, 2)
        assert all(mask[offset + value] for offset, value in zip(offsets, target, strict=True))
        seen.add(mask.tobytes())
        observation, *_ = env.step(observation)
    assert len(seen) > 50
    for wrong in (-1, 50):
        with pytest.raises(SettingsError, match="n_invalid_actions"):
            kind(dim=9, n_invalid_actions=wrong)


@pytest.mark.parametrize("continuous", [False, True])
def test_bits_can_be_flipped_to_the_goal(continuous: bool) -> None:
    env = toy.BitFlippingEnv(6, continuous=continuous)
    observation, _ = env.reset(seed=1)
    wrong = observation["observation"] != observation["desired_goal"]
    if continuous:
        _, reward, terminated, _, info = env.step(np.where(wrong, 1.0, -1.0).astype(np.float32))
        assert (reward, terminated, info["is_success"]) == (0.0, True, True)
    else:
        results = [env.step(int(bit)) for bit in np.flatnonzero(wrong)]
        assert [r[1] for r in results] == [-1.0] * (len(results) - 1) + [0.0]
    stacked = env.compute_reward(np.zeros((3, 6)), np.array([[0] * 6, [1] * 6, [0] * 6]), None)
    assert stacked.tolist() == [0.0, -1.0, 0.0]
    assert play(toy.BitFlippingEnv(8, max_steps=5), lambda env, seen: 0, seed=2) == -5.0


def test_the_maze_needs_memory() -> None:
    cue: list[float] = []

    def remember(env: Any, seen: Any) -> int:
        if seen[0]:
            cue[:] = [seen[0]]
        return int(cue[0] > 0)

    assert all(play(toy.TMazeEnv(4), remember, seed) == 1.0 for seed in range(20))
    assert 0.2 < np.mean([play(toy.TMazeEnv(4), lambda env, seen: 1, seed) for seed in range(50)]) < 0.8


def test_the_hybrid_action_has_both_parts() -> None:
    def answer(env: Any, seen: Any) -> Any:
        return {"tool": round(float(seen[0]) * 2), "force": seen[1:]}

    assert play(toy.HybridActionEnv(), answer) == pytest.approx(50.0, abs=1e-4)


def test_a_table_pays_by_where_the_action_lies() -> None:
    box = gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
    spaces = [box, gymnasium.spaces.Discrete(3, start=-1), gymnasium.spaces.MultiDiscrete([2, 4])]
    spaces += [gymnasium.spaces.MultiBinary(2), gymnasium.spaces.Dict({"a": spaces[0], "b": spaces[1]})]
    for space in [*spaces, gymnasium.spaces.Tuple(spaces[:2])]:
        for position in (0.0, 1.0):
            assert space.contains(action := toy.action_at(space, position))
            assert toy.position_in(space, action) == position
        env = toy.TableEnv(action_space=space)
        assert play(env, lambda env, seen: toy.action_at(env.action_space, 0.0)) == 1.0
        assert play(env, lambda env, seen: toy.action_at(env.action_space, 1.0)) == pytest.approx(1.6)
    assert toy.position_in(box, [0.0, 2.0]) == 0.75
    assert toy.position_in(gymnasium.spaces.Discrete(1), 0) == 0.0
    assert toy.position_in(gymnasium.spaces.MultiDiscrete([1, 3]), [0, 2]) == 0.5
    half = toy.TableEnv(action_space=box)
    mean = np.mean([play(half, lambda env, seen: [0.0, 0.5], seed) for seed in range(400)])
    assert mean == pytest.approx(1.3, abs=0.05)


def test_a_table_ends_episodes_as_its_outcomes_say() -> None:
    goes = toy.Outcome(0.5, (1,))
    ends = toy.Outcome(2.0, (0,), "truncated")
    env = toy.TableEnv([(goes, goes), (ends, ends)], (0,))
    assert env.reset(seed=0)[0].tolist() == [1.0, 0.0]
    seen, *rest = env.step(0)
    assert (seen.tolist(), rest[:3]) == ([0.0, 1.0], [0.5, False, False])
    seen, *rest = env.step(0)
    assert (seen.tolist(), rest[:3]) == ([1.0, 0.0], [2.0, False, True])
    limited = toy.TableEnv([(goes, goes), (goes, goes)], observations="number", episode_length=3)
    assert limited.reset(seed=0)[0] == 0
    assert [limited.step(0)[3] for _ in range(3)] == [False, False, True]


def test_the_masked_choice_pays_for_the_best_that_is_allowed() -> None:
    for low in (False, True):
        env = toy.MaskedChoiceEnv(low_pays=low)
        total, best, masks = 0.0, 0.0, set()
        for seed in range(60):
            env.reset(seed=seed)
            over = False
            while not over:
                allowed = np.flatnonzero(env.action_masks())
                masks.add(tuple(allowed))
                action = allowed[0] if low else allowed[-1]
                best += 1.0 - action / 2 if low else action / 2
                _, reward, over, _, _ = env.step(action)
                total += reward
        assert total == best
        assert len(masks) == 7


def test_ids_of_the_namespace_work_wherever_an_environment_is_named() -> None:
    assert connect("rlsdk/TMazeEnv-v0").num_envs == 1
    TQC("MlpPolicy", "rlsdk/IdentityEnvBox-v0", buffer_size=50, learning_starts=5, batch_size=4).learn(10)
    with pytest.raises(EnvironmentFault, match="IdentityEnvBoxx"):
        connect("rlsdk/IdentityEnvBoxx-v0")


def test_equal_seeds_give_equal_episodes() -> None:
    for name in NAMES:
        kind = getattr(toy, name)
        pair = [kind() for _ in range(2)]
        first = [env.reset(seed=5)[0] for env in pair]
        pair[0].action_space.seed(1)
        action = pair[0].action_space.sample()
        after = [env.step(action)[0] for env in pair]
        for one, two in (first, after):
            np.testing.assert_equal(one, two)
