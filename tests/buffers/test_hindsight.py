"""Hindsight replay: relabeled rows are compared with their episodes, and it solves what uniform replay does not."""

from __future__ import annotations

import enum
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rlsdk import tree
from rlsdk.buffers.hindsight import GoalSelectionStrategy, HindsightReplay
from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import EnvironmentFault, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.records import ActingState
from rlsdk.training import begin_acting
from rlsdk.training.collector import collect
from rlsdk_envs.toy import BitFlippingEnv
from rlsdk_qrdqn import QRDQN
from rlsdk_testing.subject import differing, flat_state
from rlsdk_tqc import TQC

GOAL, ACHIEVED = "desired_goal", "achieved_goal"


class Numbered(gymnasium.Env[Any, Any]):
    """Episode k has 3 + k % 4 steps. The achieved goal is the pair (episode, step), the desired goal is (-1, -1)."""

    def __init__(self, end: str = "truncate") -> None:
        pair = spaces.Box(-1.0, 1e6, (2,), np.float32)
        self.observation_space = spaces.Dict({"observation": pair, ACHIEVED: pair, GOAL: pair})
        self.action_space = spaces.Discrete(2)
        self.end, self.episode, self.now = end, -1, 0

    def seen(self) -> Any:
        here = np.array([self.episode, self.now], np.float32)
        return {"observation": here, ACHIEVED: here.copy(), GOAL: np.full(2, -1.0, np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.now = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        over = self.now >= 3 + self.episode % 4
        return self.seen(), -1.0, over and self.end == "terminate", over and self.end == "truncate", {}

    def compute_reward(self, achieved: Any, goal: Any, info: Any) -> Any:
        assert len(info) == len(goal)
        return (np.asarray(goal)[..., 1] - np.asarray(achieved)[..., 1]).astype(np.float32)


def played(rounds: list[int], envs: int = 1, rows: int = 12, **settings: Any) -> tuple[QRDQN, Any]:
    """(agent, its replay buffer) after rollouts of these lengths; a length of 0 resets the environments in mid-episode."""
    shared = settings.pop("shared_observations", False)
    arguments = {"n_sampled_goal": 10_000, **settings}
    env = make_vec_env(Numbered, envs, vectorization="sync")
    kwargs: dict[str, Any] = {"policy_kwargs": {"net_arch": [4], "n_quantiles": 2}, "seed": 0, "gamma": 0.5}
    model = QRDQN(
        "MultiInputPolicy",
        env,
        buffer_size=rows * envs,
        replay_buffer_class="hindsight",
        replay_buffer_kwargs=arguments,
        optimize_memory_usage=shared,
        train_freq=1,
        **kwargs,
    )
    buffer: Any = model.replay_buffer
    policy = model.parts.behavior_policy
    at = begin_acting(env, policy, 0)
    for length in rounds:
        if not length:
            at = ActingState(env.reset(1), at.carry)
            continue
        rollout = collect(env, policy, at, length, generator=torch.Generator())
        buffer.extend(rollout)
        at = ActingState(rollout.last_observation, rollout.last_carry)
    return model, buffer


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@given(st.lists(st.integers(0, 5), min_size=1, max_size=14), st.integers(1, 2), st.booleans())
def test_goals_come_from_the_right_part_of_the_episode(
    strategy: str, rounds: list[int], envs: int, shared: bool
) -> None:
    _, buffer = played([3, *rounds], envs, goal_selection_strategy=strategy, shared_observations=shared)
    batch = buffer.sample(300, torch.Generator().manual_seed(0))
    now, after = batch.observation.features["observation"], batch.next_observation.features["observation"]
    goal = batch.observation.features[GOAL]
    assert torch.equal(goal, batch.next_observation.features[GOAL])
    relabeled = goal[:, 0] >= 0
    over = buffer._last_row.flatten()[batch.index] >= 0
    assert torch.equal(relabeled, over)
    episode, step, wanted = now[relabeled, 0], after[relabeled, 1], goal[relabeled]
    assert torch.equal(wanted[:, 0], episode)
    last = 3 + episode % 4
    if 0 not in rounds:  # no episode was broken off
        if strategy == "final":
            assert torch.equal(wanted[:, 1], last)
        assert bool((wanted[:, 1] <= last).all())
    if strategy != "episode":
        assert bool((wanted[:, 1] >= step).all())
    assert bool((wanted[:, 1] >= 1).all())
    assert torch.equal(batch.reward[relabeled], wanted[:, 1] - step)
    assert bool((batch.reward[~relabeled] == -1.0).all())
    assert bool((batch.discount == 0.5).all())


def test_future_goals_are_uniform_over_what_is_left() -> None:
    _, buffer = played([3], rows=3)
    batch = buffer.sample(9000, torch.Generator().manual_seed(0))
    first = batch.observation.features["observation"][:, 1] == 0
    counts = torch.bincount(batch.observation.features[GOAL][first, 1].long(), minlength=4)
    assert counts[0] == 0
    assert bool((counts[1:] > 900).all())
    assert bool((counts[1:] < 1100).all())


def test_the_memory_that_is_asked_for_has_the_ends_of_episodes_too() -> None:
    _, buffer = played([3], envs=2, shared_observations=True)
    columns = [*tree.leaves(buffer.inner.storage), buffer._first_row, buffer._last_row]
    assert buffer.bytes_required() == sum(leaf.nbytes for leaf in columns)


def test_the_share_of_relabeled_rows() -> None:
    _, buffer = played([3], rows=3, n_sampled_goal=4)
    batch = buffer.sample(10_000, torch.Generator().manual_seed(0))
    assert float((batch.observation.features[GOAL][:, 0] >= 0).float().mean()) == pytest.approx(0.8, abs=0.02)


def test_terminations_are_those_of_the_new_goal() -> None:
    """A row with a new goal terminates exactly if it reaches this goal, as in BitFlippingEnv itself."""
    env = make_vec_env(lambda: BitFlippingEnv(4), 2, vectorization="sync")
    settings: dict[str, Any] = {"learning_starts": 10_000, "buffer_size": 400, "gamma": 0.9, "seed": 0}
    model = QRDQN("MultiInputPolicy", env, replay_buffer_class="hindsight", **settings).learn(300)
    batch = model.replay_buffer.sample(500, torch.Generator().manual_seed(0))
    after = batch.next_observation.features
    reached = (after[ACHIEVED] == after[GOAL]).all(1)
    assert bool(reached.any())
    assert torch.equal(batch.reward == 0.0, reached)
    assert torch.equal(batch.discount == 0.0, reached)


@pytest.mark.full
def test_an_environment_in_a_process_is_asked_too() -> None:
    env = make_vec_env(lambda: BitFlippingEnv(4), 2, vectorization="async")
    settings: dict[str, Any] = {
        "learning_starts": 50,
        "buffer_size": 400,
        "seed": 0,
        "policy_kwargs": {"net_arch": [8]},
    }
    model = QRDQN("MultiInputPolicy", env, replay_buffer_class="hindsight", train_freq=2, **settings).learn(100)
    twin = make_vec_env(lambda: BitFlippingEnv(4), 2, vectorization="sync")
    other = QRDQN("MultiInputPolicy", twin, replay_buffer_class="hindsight", train_freq=2, **settings).learn(100)
    assert not differing(flat_state(model), flat_state(other))
    env.close()


def test_it_is_saved_and_goes_on(tmp_path: Any) -> None:
    model, buffer = played([4, 3, 2])
    model.save_replay_buffer(tmp_path / "memory")
    again, other = played([1])
    again.load_replay_buffer(tmp_path / "memory")
    one, two = (b.sample(50, torch.Generator().manual_seed(0)) for b in (buffer, other))
    assert torch.equal(one.observation.features[GOAL], two.observation.features[GOAL])
    small, _ = played([1], rows=5)
    with pytest.raises((UsageError, ValueError), match="buffer_size"):
        small.load_replay_buffer(tmp_path / "memory")


def test_its_state_is_taken_at_every_position_of_the_ring() -> None:
    # episodes of 3, 4, 5 and 6 steps begin at each of 11 rows
    model, buffer = played([4], rows=11)
    _, other = played([1], rows=11)
    for _ in range(5 * buffer.inner.ring):
        model.learn(1, reset_num_timesteps=False)
        other.load_state_dict(buffer.state_dict())
        found, wanted = other.state_dict(), buffer.state_dict()
        for part, name in (("rows", "first"), ("rows", "last"), ("running", "begin"), ("running", "length")):
            assert torch.equal(found[part][name], wanted[part][name]), name


def test_bad_input_is_named() -> None:
    class NoBatches(Numbered):
        def compute_reward(self, achieved: Any, goal: Any, info: Any) -> Any:
            return 0.0

    def agent(env: Any, **arguments: Any) -> Any:
        policy = "MultiInputPolicy" if env is not None and not isinstance(env, str) else "MlpPolicy"
        settings: dict[str, Any] = {"learning_starts": 10, "buffer_size": 50, "batch_size": 8, "train_freq": 1}
        return QRDQN(policy, env, replay_buffer_class="hindsight", replay_buffer_kwargs=arguments, **settings)

    with pytest.raises(UnsupportedSpaceError, match="achieved_goal"):
        agent("CartPole-v1")
    with pytest.raises(SettingsError, match="did you mean 'final'"):
        agent(Numbered(), goal_selection_strategy="finale")
    with pytest.raises(SettingsError, match="n_sampled_goal"):
        agent(Numbered(), n_sampled_goal=-1)
    with pytest.raises(SettingsError, match="one step ahead"):
        agent(Numbered(), n_steps=3)
    with pytest.raises(SettingsError, match="leave frame_stack out"):
        QRDQN("MultiInputPolicy", Numbered(), replay_buffer_class="hindsight", frame_stack=2, buffer_size=50)
    with pytest.raises(EnvironmentFault, match="stacked"):
        agent(NoBatches()).learn(60)
    space = to_space(Numbered().observation_space)
    assert HindsightReplay.__init__.__kwdefaults__["n_sampled_goal"] == 4
    assert space is not None


def solved(kind: str, bits: int, steps: int, seed: int) -> float:
    """The share of 50 goals that an agent with the replay buffer `kind` reaches after training."""
    env = make_vec_env(lambda: BitFlippingEnv(bits), 1, vectorization="sync")
    settings: dict[str, Any] = {
        "learning_rate": 1e-3,
        "batch_size": 128,
        "buffer_size": 100_000,
        "learning_starts": 500,
        "gamma": 0.98,
        "gradient_steps": 2,
        "target_update_interval": 200,
        "exploration_fraction": 0.3,
        "exploration_final_eps": 0.05,
        "policy_kwargs": {"net_arch": [128], "n_quantiles": 10},
    }
    model = QRDQN("MultiInputPolicy", env, replay_buffer_class=kind, seed=seed, **settings).learn(steps)
    found = run_episodes(model, make_vec_env(lambda: BitFlippingEnv(bits), 1, vectorization="sync"), 50, seed=1)
    return sum(result > -bits for result in found.returns) / 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fifteen_bits_are_learned_with_hindsight_only(seed: int) -> None:
    assert solved("hindsight", 15, 12_000, seed) >= 0.9
    assert solved("uniform", 15, 12_000, seed) <= 0.1


def test_continuous_actions_learn_with_hindsight() -> None:
    env = make_vec_env(lambda: BitFlippingEnv(4, continuous=True), 2, vectorization="sync")
    settings: dict[str, Any] = {"learning_starts": 50, "buffer_size": 1000, "seed": 0, "batch_size": 16}
    kwargs = {"net_arch": [8], "n_quantiles": 3}
    model = TQC("MultiInputPolicy", env, replay_buffer_class="hindsight", policy_kwargs=kwargs, **settings).learn(100)
    assert len(model.replay_buffer) == 100


PEERS = enum.Enum("PEERS", {"FUTURE": 0})


@pytest.mark.parametrize("given", [*GoalSelectionStrategy, "final", PEERS.FUTURE])
def test_strategies_are_texts_or_members_of_the_documented_names(given: Any, tmp_path: Any) -> None:
    model, buffer = played([3], goal_selection_strategy=given)
    assert buffer.strategy in (given, GoalSelectionStrategy.FUTURE)
    if isinstance(given, str):
        model.save(tmp_path / "agent")
        env = make_vec_env(Numbered, 1, vectorization="sync")
        assert QRDQN.load(tmp_path / "agent", env=env).replay_buffer.strategy is buffer.strategy


def test_relabeled_rewards_are_signs_where_the_others_are() -> None:
    env = make_vec_env(Numbered, 2, vectorization="sync")
    signs = {"norm_obs": False, "norm_reward": False, "sign_reward": True}
    more: dict[str, Any] = {"replay_buffer_kwargs": {"goal_selection_strategy": "episode"}, "learning_starts": 10**6}
    model = QRDQN(
        "MultiInputPolicy", env, replay_buffer_class="hindsight", normalize=signs, buffer_size=100, seed=0, **more
    ).learn(80)
    batch = model.replay_buffer.sample(300, torch.Generator().manual_seed(0))
    relabeled = batch.observation.features[GOAL][:, 0] >= 0
    assert 100 < int(relabeled.sum()) < 300
    difference = batch.observation.features[GOAL] - batch.next_observation.features[ACHIEVED]
    assert torch.equal(batch.reward[relabeled], difference[relabeled, 1].sign())
    assert set(batch.reward[relabeled].tolist()) == {-1.0, 0.0, 1.0}
