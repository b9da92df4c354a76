"""One agent against others: turns, rewards between turns, masks, seeds, states, opponents, and errors in one line."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import OpaqueValue, make_vec_env
from rlsdk.errors import ArtifactError, EnvironmentFault, RlsdkError, SettingsError, UsageError
from rlsdk.evaluation import run_episodes
from rlsdk_envs import check_env

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install pettingzoo")
from pettingzoo import AECEnv
from pettingzoo.utils.agent_selector import AgentSelector

from rlsdk_pettingzoo import make_role_env
from rlsdk_pettingzoo.players import Player
from tests.scripted_tasks import TERMINATED, TRUNCATED, Life, Scripted

PPO: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0, "policy_kwargs": {"net_arch": [8]}}
GOAL = 12


class CountUp(AECEnv[str, Any, Any]):
    """Players add 1, 2 or 3 in turn. The player who reaches 12 gets 1, the others -1; a move costs the others 0.25."""

    metadata = {"name": "count_up", "is_parallelizable": False}  # noqa: RUF012  # PettingZoo's own declaration

    def __init__(self, players: int = 2, limit: int = 100) -> None:
        self.possible_agents, self.limit = [f"player_{i}" for i in range(players)], limit
        self.moves: list[tuple[str, int]] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Dict(
            observation=spaces.Box(0, GOAL, (2,), np.float32), action_mask=spaces.Box(0, 1, (3,), np.int8)
        )

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def observe(self, agent: str) -> Any:
        own = self.possible_agents.index(agent)
        allowed = [int(self.total + add <= GOAL) for add in (1, 2, 3)]
        return {"observation": np.array([self.total, own], np.float32), "action_mask": np.array(allowed, np.int8)}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.total, self.moves = self.possible_agents[:], 0, []
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self._turns = AgentSelector(self.agents)
        self.agent_selection = self._turns.reset()

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self.moves.append((agent, int(action)))
        self.total += int(action) + 1
        assert self.total <= GOAL
        won = self.total == GOAL
        for other in self.agents:
            self.rewards[other] = (1.0 if other == agent else -1.0) if won else (0.0 if other == agent else -0.25)
        self.terminations = dict.fromkeys(self.agents, won)
        self.truncations = dict.fromkeys(self.agents, not won and len(self.moves) >= self.limit)
        self.agent_selection = self._turns.next()
        self._accumulate_rewards()
        self._deads_step_first()


def always_one(observation: Any, mask: Any, generator: np.random.Generator) -> int:
    return 0


def play(env: Any, actions: list[int], seed: int = 0) -> list[Any]:
    env.reset(seed=seed)
    return [env.step(action) for action in actions]


def test_rewards_between_two_turns_are_summed() -> None:
    env = make_role_env(CountUp, role="player_0", opponents=always_one)
    steps = play(env, [2, 2, 2])
    assert [step[0].tolist() for step in steps] == [[4, 0], [8, 0], [12, 0]]
    assert [step[1] for step in steps] == [-0.25, -0.25, -1.0]
    assert [step[2] for step in steps] == [False, False, True]
    play(env, [])
    env.task.agents = []
    with pytest.raises(UsageError, match=r"has ended, or never began; call reset\(\)"):
        env.step(0)


def test_the_second_player_sees_the_first_move_and_wins() -> None:
    env = make_role_env(CountUp, role="player_1", opponents=always_one)
    first, _ = env.reset(seed=0)
    assert first.tolist() == [1, 1]
    steps = [env.step(action) for action in (2, 2, 2)]
    assert [step[1] for step in steps] == [-0.25, -0.25, 1.0]
    assert steps[-1][2]
    assert not steps[-1][3]


def test_truncation_is_not_termination() -> None:
    env = make_role_env(lambda: CountUp(limit=4), role="player_0", opponents=always_one)
    steps = play(env, [0, 0])
    assert (steps[-1][2], steps[-1][3]) == (False, True)
    assert env.action_masks().any()


def test_masks_are_those_of_the_turn_and_opponents_follow_theirs() -> None:
    env = make_role_env(CountUp, role="player_0")
    for seed in range(20):
        env.reset(seed=seed)
        done = False
        while not done:
            assert env.action_masks().tolist() == [env.task.total + add <= GOAL for add in (1, 2, 3)]
            _, _, terminated, truncated, _ = env.step(int(np.flatnonzero(env.action_masks())[-1]))
            done = terminated or truncated


def test_any_role_is_another_agent_in_each_episode_and_seeds_repeat_all() -> None:
    env, again = make_role_env(lambda: CountUp(3)), make_role_env(lambda: CountUp(3))
    roles = []
    for seed in range(30):
        assert env.reset(seed=seed)[0].tolist() == again.reset(seed=seed)[0].tolist()
        assert env.agent == again.agent
        assert env.task.moves == again.task.moves
        roles.append(env.agent)
    assert set(roles) == {"player_0", "player_1", "player_2"}


def test_parallel_tasks_have_roles_too() -> None:
    env = make_role_env(lambda: Scripted([[Life(0, 3, TRUNCATED)], [Life(0, 3, TRUNCATED)]]), role="wolf")
    assert env.action_space == spaces.Discrete(3)
    steps = play(env, [1, 1, 1, 1])
    assert [step[1] for step in steps] == [10.25, 11.25, 12.25, 13.25]
    assert [step[3] for step in steps] == [False, False, False, True]


def test_check_env_finds_nothing_wrong() -> None:
    check_env(make_role_env(CountUp, role="player_0"))


def test_stored_agents_are_opponents(tmp_path: Path) -> None:
    env = make_vec_env(lambda: make_role_env(CountUp), 6, vectorization="sync")
    model: Any = rlsdk.make("maskable-ppo", env=env, **PPO)
    model.learn(64)
    model.save(tmp_path / "first.rlsdk")
    against_file = make_role_env(CountUp, role="player_0", opponents=str(tmp_path / "first.rlsdk"), deterministic=True)
    against_agent = make_role_env(CountUp, role="player_0", opponents={"player": model}, deterministic=True)
    scores = [run_episodes(model, each, 5, seed=3).returns for each in (against_file, against_agent)]
    assert scores[0] == scores[1]
    assert len(scores[0]) == 5
    env.env_method("set_opponents", model)
    model.learn(32, reset_num_timesteps=False)


def test_new_opponents_play_from_the_next_game_on() -> None:
    env = make_role_env(CountUp, role="player_0", opponents=always_one)
    play(env, [0])
    env.set_opponents(lambda *_: 1)
    env.step(0)
    assert env.task.moves == [("player_0", 0), ("player_1", 0)] * 2
    play(env, [0])
    assert env.task.moves == [("player_0", 0), ("player_1", 1)]


def test_a_training_resumes_in_the_middle_of_games(tmp_path: Path) -> None:
    def env() -> Any:
        return make_vec_env(lambda: make_role_env(CountUp), 6, vectorization="sync")

    whole: Any = rlsdk.make("maskable-ppo", env=env(), **PPO)
    whole.learn(384)
    part: Any = rlsdk.make("maskable-ppo", env=env(), **PPO)
    part.learn(192)
    part.save(tmp_path / "agent.rlsdk")
    resumed: Any = rlsdk.load(tmp_path / "agent.rlsdk", env=env(), force_reset=False)
    resumed.learn(192, reset_num_timesteps=False)
    assert str(dict(whole.parts.policy.state_dict())) == str(dict(resumed.parts.policy.state_dict()))
    other = make_vec_env(lambda: make_role_env(CountUp, opponents=always_one), 6, vectorization="sync")
    with pytest.raises(ArtifactError, match="does not repeat the episode"):
        rlsdk.load(tmp_path / "agent.rlsdk", env=other, force_reset=False).learn(96, reset_num_timesteps=False)


@pytest.mark.parametrize("role", ["adversary_0", "adversary", "agent"])
def test_episodes_repeat_where_roles_have_different_spaces(role: str) -> None:
    env, again = (make_role_env("simple_tag_v3", role=role) for _ in range(2))
    env.reset(seed=3)
    expected = [env.step(action) for action in (1, 2)]
    again.set_state(env.get_state())
    assert str(again.step(3)) == str(env.step(3))
    assert expected[0][0].shape == env.observation_space.shape


def test_a_task_with_random_numbers_of_its_own_has_no_state() -> None:
    generator = np.random.default_rng()
    env = make_role_env(CountUp, role="player_1", opponents=lambda *_: int(generator.integers(2)))

    def states() -> None:
        for seed in range(20):  # some episodes repeat by chance
            play(env, [0, 0], seed)
            env.get_state()

    with pytest.raises(OpaqueValue, match="does not repeat its episodes from a seed"):
        states()


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"role": "fox"}, SettingsError, "role = 'fox' .*accepted: any, player_0, player_1, player"),
        ({"opponents": 3}, SettingsError, "accepted: 'random', an agent, the path of its file, or a function"),
        ({"opponents": {"player_0": "random"}}, SettingsError, "no policy for agent 'player_1'"),
        ({"opponents": "nowhere.rlsdk"}, RlsdkError, "nowhere.rlsdk"),
        ({"speed": 3}, EnvironmentFault, "could not be made: it raised TypeError.*speed"),
    ],
)
def test_mistakes_are_explained_in_one_line(arguments: Any, kind: type[RlsdkError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        make_role_env(CountUp, **arguments)
    assert "\n" not in str(caught.value)


class Folding(CountUp):
    """The player who adds 3 gives up: the game ends, perhaps before the second player moved."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.limit = 100
        super().reset(seed, options)

    def step(self, action: Any) -> None:
        self.limit = 0 if action == 2 else self.limit
        super().step(action)


def test_games_that_end_before_the_first_turn_are_left_out() -> None:
    env, again = (make_role_env(Folding, role="player_1") for _ in range(2))
    firsts = {seed: env.reset(seed=seed)[0] for seed in range(30)}
    for seed, first in firsts.items():
        assert float(first[0]) in (1.0, 2.0), "the first player added 1 or 2"  # type: ignore[index]
        assert np.array_equal(again.reset(seed=seed)[0], first)  # type: ignore[arg-type]
        env.reset(seed=seed)
        assert len(env.task.moves) == 1
        again.set_state(env.get_state())
        assert np.array_equal(again.step(0)[0], env.step(0)[0])  # type: ignore[arg-type]


def test_an_agent_that_never_has_a_turn_is_explained() -> None:
    env = make_role_env(lambda: CountUp(limit=1), role="player_1")
    with pytest.raises(EnvironmentFault, match="games ended before the first turn of 'player_1'; give another role"):
        env.reset(seed=0)


def one_argument(observation: Any) -> int:
    return 0


@pytest.mark.parametrize("chosen", [7, -1, None, "x", 0.5, np.zeros(2)])
def test_opponents_that_choose_something_else_are_explained(chosen: Any) -> None:
    env = make_role_env(CountUp, role="player_1", opponents=lambda observation, mask, generator: chosen)
    with pytest.raises(EnvironmentFault, match=r"of another agent chose .* which is not in its space Discrete"):
        env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="the policy 'one_argument' raised TypeError"):
        make_role_env(CountUp, role="player_1", opponents=one_argument).reset(seed=0)


def test_opponents_may_give_arrays_of_another_dtype() -> None:
    """Box spaces of PettingZoo are float32, numbers of numpy float64."""
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def acting(result: Any) -> Any:
        return Player(lambda *_: result, box).act(None, None)

    for chosen in (np.zeros(2), np.zeros(2, int), np.zeros(2, np.float32)):
        assert acting(chosen) is chosen
    for wrong in (np.full(2, 1.5), np.full(2, np.nan), np.zeros(3), None, ["a", "b"]):
        with pytest.raises(EnvironmentFault, match="which is not in its space"):
            acting(wrong)


class Stuck(CountUp):
    """A game in which the second player may do nothing."""

    def observe(self, agent: str) -> Any:
        seen = super().observe(agent)
        return seen if agent == "player_0" else {**seen, "action_mask": np.zeros(3, np.int8)}


def test_a_mask_without_actions_and_a_step_before_reset_are_explained() -> None:
    env = make_role_env(Stuck, role="player_0")
    with pytest.raises(UsageError, match=r"never began; call reset\(\)"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="'player_1': its action mask allows no action"):
        env.step(0)


def test_an_error_of_the_task_is_named() -> None:
    env = make_role_env(CountUp, role="player_0", opponents=lambda *_: 2)
    with pytest.raises(EnvironmentFault, match=r"task 'CountUp' raised AssertionError in step\(2\)") as caught:
        play(env, [2, 1, 2, 2])
    assert "\n" not in str(caught.value)


def test_an_agent_that_appears_in_turns_of_a_parallel_task_is_named() -> None:
    script = [[Life(0, 1, TERMINATED), Life(4, 6, TRUNCATED)], [Life(0, 6, TRUNCATED)]]
    env = make_role_env(lambda: Scripted(script), role="wolf_1")
    words = r"agent 'sheep_0' appeared during an episode.*a row for each agent"
    with pytest.raises(EnvironmentFault, match=words) as caught:
        play(env, [0] * 7)
    assert "\n" not in str(caught.value)
    rows = make_vec_env(lambda: Scripted(script), vectorization="pettingzoo")  # what the message advises
    rows.reset(0)
    assert [int(rows.step(torch.zeros(2, dtype=torch.long)).valid.sum()) for _ in range(7)] == [2, 2, 1, 1, 2, 2, 2]


class Forgetful(Scripted):
    """A parallel task whose `step` raises a KeyError with the name of an agent that is present."""

    def step(self, actions: Any) -> Any:
        return {}["sheep_0"]


def test_a_key_that_a_task_itself_lacks_is_no_agent_that_appears() -> None:
    env = make_role_env(lambda: Forgetful([[Life(0, 6, TRUNCATED)], [Life(0, 6, TRUNCATED)]]), role="wolf_1")
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="raised KeyError in step"):
        env.step(0)


def test_games_of_pettingzoo_have_ids() -> None:
    pytest.importorskip("pygame", reason="the classic games need pygame-ce")
    env = make_vec_env("pettingzoo-role/tictactoe_v3?role=player_1", 2, vectorization="sync")
    assert env.has_masks
    model: Any = rlsdk.make("maskable-ppo", env=env, **PPO)
    model.learn(64)
    with pytest.raises(EnvironmentFault, match="pettingzoo-role/tictactoe_v3"):
        make_vec_env("pettingzoo/tictactoe_v3")


@pytest.mark.full
def test_the_self_play_example_learns_to_win() -> None:
    pytest.importorskip("pygame", reason="the classic games need pygame-ce")
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "self_play.py"))
    won, lost = example["main"](rounds=4, steps=1024, games=60)
    assert won > 0.5  # random moves win 44 %
    assert won + lost <= 1.0
