"""Agents as rows: what is recorded of agents that die and appear, masks, seeds, states, and errors in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import rlsdk
from rlsdk.environments import OpaqueValue, make_vec_env
from rlsdk.errors import ArtifactError, EnvironmentFault, RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.records import EnvStep
from rlsdk.training.collector import begin_acting, collect
from rlsdk.updates.minibatches import policy_batch
from rlsdk_lab.video import record_video

pytest.importorskip("pettingzoo", reason="PettingZoo is not installed: pip install pettingzoo")
from pettingzoo.utils import conversions

from rlsdk_pettingzoo import evaluate_roles, make_agents_vec_env
from rlsdk_pettingzoo import rows as rows_module
from rlsdk_pettingzoo.players import Player
from rlsdk_pettingzoo.tasks import role_of
from tests.scripted_tasks import ACTIONS, TERMINATED, TRUNCATED, Life, Script, Scripted, living

PPO: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0, "policy_kwargs": {"net_arch": [8]}}
LIVES: Script = [
    [Life(0, 1, TERMINATED), Life(4, 6, TRUNCATED)],
    [Life(0, 6, TRUNCATED)],
    [Life(2, 3, TERMINATED), Life(5, 5, TERMINATED)],
]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Two to four agents with one to three lives each in ten steps; one agent is there at the beginning."""
    found = []
    for agent in range(draw(st.integers(2, 4))):
        lives, t = [], 0 if agent == 0 else draw(st.integers(0, 3))
        for _ in range(draw(st.integers(1, 3))):
            last = draw(st.integers(t, 9))
            lives.append(Life(t, last, draw(st.sampled_from([TERMINATED, TRUNCATED]))))
            t = last + draw(st.integers(2, 4))  # an agent that has just ended does not act in the next step
            if t > 9:
                break
        found.append(lives)
    return found


def without_gaps(script: Script) -> bool:
    """Whether some agent acts in every step, as PettingZoo ends an episode when `agents` is empty."""
    length = 1 + max(life.last for lives in script for life in lives)
    return all(any(living(lives, t) for lives in script) for t in range(length))


def made(script: Script = LIVES, copies: int = 1, **kwargs: Any) -> Any:
    return make_vec_env(lambda: Scripted(script, **kwargs), copies, vectorization="pettingzoo")


def played(env: Any, steps: int, seed: int = 0) -> tuple[list[torch.Tensor], list[EnvStep]]:
    """(actions, steps) of random actions after a reset with seed 0."""
    generator = torch.Generator().manual_seed(seed)
    env.reset(0)
    actions = [torch.randint(0, ACTIONS, (env.num_envs,), generator=generator) for _ in range(steps)]
    return actions, [env.step(action) for action in actions]


@settings(max_examples=60, deadline=None)
@given(script=scripts().filter(without_gaps), copies=st.integers(1, 2), seed=st.integers(0, 9))
def test_rows_record_what_the_script_says(script: Script, copies: int, seed: int) -> None:
    env = made(script, copies)
    length = 1 + max(life.last for lives in script for life in lives)
    actions, steps = played(env, 2 * length + 3, seed)
    for row in range(env.num_envs):
        lives, agent, total, count = script[row % len(script)], row % len(script), 0.0, 0
        for k, step in enumerate(steps):
            t, now = k % length, living(lives, k % length)
            after = living(lives, t + 1) if t + 1 < length else living(lives, 0)
            over = now is not None and now.last == t
            assert bool(step.valid[row]) == (now is not None)
            assert bool(step.terminated[row]) == (over and now is not None and now.end == TERMINATED)
            assert bool(step.truncated[row]) == (over and now is not None and now.end == TRUNCATED)
            seen = step.observation.features[row]
            assert bool(step.observation.is_first[row]) == (after is None or over or now is None)
            assert seen[:2].tolist() == ([agent, (t + 1) % length] if after is not None else [0.0, 0.0])
            if now is None:
                assert step.reward[row] == 0.0
                continue
            reward = 10.0 * agent + t + int(actions[k][row]) / 4
            total, count = total + reward, count + 1
            assert step.reward[row] == np.float32(reward)
            if over:
                ended = (step.terminated | step.truncated).nonzero().flatten().tolist().index(row)
                assert step.final_observation is not None
                assert step.final_observation.features[ended][:2].tolist() == [agent, t + 1]
                episode = next(each for each in step.episodes if each.env == row)
                assert (episode.episode_return, episode.length) == (total, count)
                total, count = 0.0, 0


@settings(max_examples=15, deadline=None)
@given(script=scripts().filter(without_gaps), steps=st.integers(3, 25))
def test_advantages_of_living_agents_are_those_of_their_episodes(script: Script, steps: int) -> None:
    """Against float64 sums over each episode; a terminated one has no rest, a truncated one that of its last observation."""
    gamma, lam, env = 0.9, 0.8, made(script)
    model: Any = rlsdk.make("ppo", env=env, **PPO)
    generator = torch.Generator().manual_seed(0)
    rollout = collect(env, model.parts.policy, begin_acting(env, model.parts.policy, 0), steps, generator=generator)
    network = model.parts.policy
    batch = policy_batch(rollout, network, gamma=gamma, lam=lam)

    def value(observation: Any) -> Any:
        return network.found_values(observation, ((), ())).double().numpy()

    own, after = value_table(rollout, value)
    valid, terminated = rollout.steps.valid.numpy(), rollout.steps.terminated.numpy()
    ended = terminated | rollout.steps.truncated.numpy()
    found = batch.advantage.reshape(env.num_envs, steps).T.numpy()
    weight = np.ones_like(found) if batch.weight is None else batch.weight.reshape(env.num_envs, steps).T.numpy()
    assert (weight == valid).all()
    for row in range(env.num_envs):
        following = 0.0
        for t in reversed(range(steps)):
            if not valid[t, row]:
                continue
            rest = 0.0 if terminated[t, row] else gamma * after[t, row]
            delta = float(rollout.steps.reward[t, row]) + rest - own[t, row]
            following = delta + (0.0 if ended[t, row] or t == steps - 1 else gamma * lam * following)
            assert found[t, row] == pytest.approx(following, rel=1e-4, abs=1e-4)


def value_table(rollout: Any, value: Callable[[Any], Any]) -> tuple[Any, Any]:
    """(V of the observation before each step, V of the one after it) [T, B], float64."""
    observation = rollout.steps.observation
    length, count = observation.is_first.shape
    own = np.stack([value(rlsdk_rows(observation, t)) for t in range(length)])
    after = np.concatenate([own[1:], value(rollout.last_observation)[None]])
    if finals := rollout.final_observations:
        after[finals.time.numpy(), finals.env.numpy()] = value(finals.observation)
    assert own.shape == (length, count)
    return own, after


def rlsdk_rows(observation: Any, t: int) -> Any:
    from rlsdk import tree

    return tree.map_tensors(lambda leaf: leaf[t], observation)


@pytest.mark.parametrize("algorithm", ["ppo", "recurrent-ppo", "dqn"])
def test_what_rows_of_dead_agents_hold_changes_no_weight(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"dqn": {"learning_starts": 20, "buffer_size": 200, "batch_size": 8, "exploration_fraction": 0.1}}
    arguments = own.get(algorithm, {"n_steps": 16, "batch_size": 16, "normalize": True})
    if algorithm == "recurrent-ppo":
        arguments = {"n_steps": 16, "batch_size": 16, "policy_kwargs": {"lstm_hidden_size": 4, "net_arch": [4]}}

    def weights(constant: float) -> dict[str, torch.Tensor]:
        with monkeypatch.context() as patch:
            patch.setattr(rows_module, "neutral", lambda space: np.full((3,), constant, np.float32))
            model: Any = rlsdk.make(algorithm, env=made(copies=2), seed=0, **arguments)
            model.learn(400)
        return dict(model.parts.policy.state_dict())

    first, second = weights(0.0), weights(50.0)
    assert str(first) == str(second)


@pytest.mark.parametrize("masks", ["observation", "info"])
def test_masks_of_observations_and_infos_reach_the_policy(masks: str) -> None:
    env = made(masks=masks)
    assert env.has_masks
    assert str(env.observation_space) == "Box(shape=(3,), dtype='float32')"
    model: Any = rlsdk.make("maskable-ppo", env=env, **PPO)
    model.learn(96)
    task = env.env.copies[0].task
    for actions in task.received[-7:]:
        for agent, action in actions.items():
            assert action in range(ACTIONS), agent
    observation = env.reset(1)
    for _ in range(20):
        allowed = observation.action_mask
        assert allowed is not None
        assert allowed.any(-1).all()
        alive = observation.features[:, 1] > 0
        for row in alive.nonzero().flatten().tolist():
            task.t = int(observation.features[row, 1])
            assert allowed[row].int().tolist() == task.allowed(row)
        observation = env.step(allowed.float().argmax(-1)).observation


def test_actions_of_living_agents_only_reach_the_task() -> None:
    env = made(start=5)
    actions, _ = played(env, 7)
    env.reset(0)
    received = env.env.copies[0].task.received
    received.clear()
    for action in actions:
        env.step(action + 5)
    names = env.env.agents_of_rows
    for t, given_actions in enumerate(received):
        assert given_actions == {
            name: int(actions[t][row]) + 5 for row, name in enumerate(names) if living(LIVES[row], t)
        }


def test_copies_and_episodes_have_seeds_of_their_own() -> None:
    env, again = made(copies=2), made(copies=2)
    noise = [[float(x) for x in each.reset(7).features[:, 2] if x] for each in (env, again)]
    assert noise[0] == noise[1]
    assert len(set(noise[0])) == 2
    later = [float(x) for x in env.reset().features[:, 2] if x]
    assert not set(later) & set(noise[0])


def test_a_training_resumes_in_the_middle_of_episodes(tmp_path: Path) -> None:
    whole: Any = rlsdk.make("ppo", env=made(copies=2), **PPO)
    whole.learn(96 * 4)
    part: Any = rlsdk.make("ppo", env=made(copies=2), **PPO)
    part.learn(96 * 2)
    assert part.env.get_state()["copies"]["00000"]["length"] > 0
    part.save(tmp_path / "agent.rlsdk")
    resumed: Any = rlsdk.load(tmp_path / "agent.rlsdk", env=made(copies=2), force_reset=False)
    resumed.learn(96 * 2, reset_num_timesteps=False)
    assert str(dict(whole.parts.policy.state_dict())) == str(dict(resumed.parts.policy.state_dict()))


class Unseeded(Scripted):
    """Its noise does not follow from the seed."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None)


def test_a_task_that_ignores_the_seed_has_no_state_and_trains_on_with_new_episodes(tmp_path: Path) -> None:
    def env() -> Any:
        return make_vec_env(lambda: Unseeded(LIVES), 1, vectorization="pettingzoo")

    model: Any = rlsdk.make("ppo", env=env(), **PPO)
    model.learn(48)
    with pytest.raises(OpaqueValue, match="does not repeat its episodes from a seed"):
        model.env.get_state()
    model.save(tmp_path / "agent.rlsdk")
    rlsdk.load(tmp_path / "agent.rlsdk", env=env(), force_reset=False).learn(48, reset_num_timesteps=False)


def test_a_state_of_another_script_is_refused() -> None:
    env = made()
    played(env, 5)
    state = env.get_state()
    other = made([[Life(0, 6, TRUNCATED)]] * 3)
    with pytest.raises(ArtifactError, match=r"does not repeat the episode of the file.*force_reset"):
        other.set_state(state)


def test_agents_that_do_not_learn_act_by_policies_of_their_own() -> None:
    acted = []

    def other(observation: Any, mask: Any, generator: np.random.Generator) -> int:
        acted.append(float(observation[0]))
        return 2

    env = make_vec_env(
        lambda: Scripted(LIVES), 2, vectorization="pettingzoo", env_kwargs={"agents": "wolf", "others": other}
    )
    assert env.num_envs == 4
    assert set(env.env.agents_of_rows) == {"wolf_1", "wolf_2"}
    played(env, 7)
    assert acted == [0.0] * len(acted)
    assert acted
    assert env.env.copies[0].task.received[0]["sheep_0"] == 2


def test_evaluation_per_role() -> None:
    model: Any = rlsdk.make("ppo", env=made(), **PPO)
    found = evaluate_roles(model, made(copies=2), 2, seed=0)
    assert {role: len(each.returns) for role, each in found.items()} == {"sheep": 4, "wolf": 8}
    by_agent = evaluate_roles(model, made(copies=2), 2, by="agent", seed=0)
    assert sorted(by_agent) == ["sheep_0", "wolf_1", "wolf_2"]
    assert sorted(found["wolf"].returns) == sorted(by_agent["wolf_1"].returns + by_agent["wolf_2"].returns)
    assert set(found["sheep"].lengths) <= {2, 3}
    with pytest.raises(SettingsError, match="has no rows of agents"):
        evaluate_roles(model, "CartPole-v1")
    with pytest.raises(SettingsError, match="an evaluation needs an agent, got 'hi'"):
        evaluate_roles("hi", made())
    with pytest.raises(SettingsError, match="must be 'role' or 'agent'"):
        evaluate_roles(model, made(), by="color")
    for episodes in (0, 1.5, True, "3"):
        with pytest.raises(SettingsError, match=r"^episodes = .* must be a positive whole number"):
            evaluate_roles(model, made(), episodes)  # type: ignore[arg-type]


def test_attributes_and_methods_are_those_of_the_task_of_each_row() -> None:
    env = made(copies=2)
    env.reset(0)
    env.env.copies[1].task.t = 1
    assert env.get_attr("t") == [0, 0, 0, 1, 1, 1]
    first, second = (copy.task.allowed(1) for copy in env.env.copies)
    assert first != second
    assert env.env_method("allowed", 1, indices=[0, 5]) == [first, second]
    assert env.env_method("allowed", 1, indices=3) == [second]
    with pytest.raises(UsageError, match="has no 'speed'"):
        env.get_attr("speed")
    with pytest.raises(SettingsError, match=r"indices = 6 .*0 to 5"):
        env.get_attr("t", 6)


def test_a_video_shows_all_agents(tmp_path: Path) -> None:
    pytest.importorskip("mpe2", reason="mpe2 is not installed: pip install mpe2")
    model: Any = rlsdk.make("ppo", env="pettingzoo/simple_spread_v3", **PPO)
    found = record_video(model, "pettingzoo/simple_spread_v3", tmp_path / "agents.gif", episodes=3)
    assert found.frames == 25
    assert len(found.returns) == 3


def test_infos_and_declared_entries_are_those_of_each_agent() -> None:
    env = made()
    env.keep_infos(True)
    env.select_info(["t"])
    _, steps = played(env, 3)
    assert [info.get("t") for info in steps[0].infos or ()] == [1, 1, None]
    assert steps[1].info["t"].tolist() == [2.0, 2.0, 0.0]
    env.select_info(["cost"])
    with pytest.raises(EnvironmentFault, match=r"info of agent 'sheep_0' needs 'cost', a finite number"):
        played(env, 1)


class Broken(Scripted):
    """Breaks PettingZoo's interface in one way."""

    def __init__(self, how: str) -> None:
        super().__init__(LIVES, masks="observation" if "mask" in how else "none")
        self.how = how
        if how == "no agents":
            self.possible_agents = []

    def action_space(self, agent: str) -> Any:
        from gymnasium import spaces

        if self.how == "two spaces" and agent != "sheep_0":
            return spaces.Discrete(7)
        return super().action_space(agent)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        found = super().reset(seed)
        if self.how == "empty reset":
            self.agents = []
        return found[0] if self.how == "one value" else found

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, terminated, truncated, infos = super().step(actions)
        first = self.possible_agents[0]
        if self.how == "raises":
            raise RuntimeError("out of fuel")
        if self.how == "unknown agent" and self.agents:
            self.agents.append("fox_9")
        if self.how == "reward":
            rewards[first] = float("nan")
        if self.how == "silent end":
            terminated[first] = truncated[first] = False
        if self.how == "no last observation":
            observations.pop("wolf_1", None)
        if self.how == "shape":
            observations[first] = np.zeros(4, np.float32)
        if self.how == "nan":
            observations[first][0] = np.nan
        if self.how == "long mask":
            observations[first]["action_mask"] = [1, 1]
        if self.how == "empty mask":
            observations[first]["action_mask"] = [0, 0, 0]
        return observations, rewards, terminated, truncated, infos


FAULTS = {
    "no agents": r"has no agents: its possible_agents is empty",
    "two spaces": r"agent 'wolf_1' has the action space Discrete\(n=7.*'sheep_0' has Discrete\(n=3.*from 'sheep', 'wolf'",
    "empty reset": r"there are no agents after reset\(\)",
    "one value": r"reset returned .*not tables by agent \(observations, infos\)",
    "raises": r"raised RuntimeError in step\(.*out of fuel",
    "reward": r"agent 'sheep_0', step 1 of the episode: the reward is nan",
    "silent end": r"agent 'sheep_0', step 2 .*left `agents`, but is neither terminated nor truncated",
    "no last observation": r"agent 'wolf_1'.*has no observation",
    "unknown agent": r"agent 'fox_9', step .*in `agents`, but not in possible_agents",
    "shape": r"agent 'sheep_0', step .*has shape \(4,\), but its space is Box",
    "nan": r"agent 'sheep_0'.*holds NaN or infinity",
    "long mask": r"the action mask is \[1, 1\]; it must be 3 values 0 or 1",
    "empty mask": r"its action mask allows no action",
}


@pytest.mark.parametrize("how", FAULTS)
def test_faults_of_a_task_are_named_in_one_line(how: str) -> None:
    with pytest.raises(EnvironmentFault, match=FAULTS[how]) as caught:
        played(make_vec_env(lambda: Broken(how), 1, vectorization="pettingzoo"), 8)
    assert "\n" not in str(caught.value)


def test_a_mask_without_actions_of_an_agent_that_does_not_learn_is_named() -> None:
    env = make_vec_env(lambda: Broken("empty mask"), 1, vectorization="pettingzoo", env_kwargs={"agents": "wolf"})
    with pytest.raises(EnvironmentFault, match=r"agent 'sheep_0'.*its action mask allows no action"):
        played(env, 8)
    env.reset(0)
    with pytest.raises(UsageError, match="an action for each of 2 rows, got 3"):
        env.step(torch.zeros(3, dtype=torch.int64))


def test_random_actions_follow_the_masks_of_several_choices() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    player = Player("random", space)
    player.begin(0)
    mask = np.array([True, False, False, True, True])
    chosen = [player.act(None, mask).tolist() for _ in range(50)]  # type: ignore[attr-defined]
    assert {tuple(each) for each in chosen} == {(0, 6), (0, 7)}
    player.begin(0)
    assert [player.act(None, mask).tolist() for _ in range(50)] == chosen  # type: ignore[attr-defined]


def aec() -> Any:
    env = conversions.parallel_to_aec(Scripted(LIVES))
    env.metadata["is_parallelizable"] = False
    return env


@pytest.mark.parametrize(
    ("env", "arguments", "kind", "words"),
    [
        ("pettingzoo/nothing_v1", {}, EnvironmentFault, "there is no task 'nothing_v1'"),
        ("pettingzoo/os", {}, EnvironmentFault, "give the name of a module with its version"),
        (aec, {}, EnvironmentFault, "act one after another .*pettingzoo-role/aec"),
        (lambda: 3, {}, EnvironmentFault, "made 3, not an environment of PettingZoo"),
        (Scripted(LIVES), {}, SettingsError, "that exists already; give the name of a task, or a function"),
        (lambda: Scripted(LIVES), {"agents": "fox"}, SettingsError, "agents = 'fox' .*it has sheep, sheep_0, wolf"),
        (lambda: Scripted(LIVES), {"agents": 3}, SettingsError, "agents = 3 .*it has sheep, sheep_0, wolf"),
        (lambda: Scripted(LIVES), {"agents": "wolf", "others": 3}, SettingsError, "the policy of another agent is 3"),
        (
            lambda: Scripted(LIVES),
            {"agents": "wolf", "others": {"fox": "random"}},
            SettingsError,
            "for agent 'sheep_0'",
        ),
        (lambda: Scripted(LIVES, speed=3), {}, EnvironmentFault, "could not be made: it raised TypeError.*speed"),  # type: ignore[call-arg]
        ("pettingzoo/nothing_v1?wrapper=TimeLimit", {}, SettingsError, "takes no wrappers"),
    ],
)
def test_mistakes_are_explained_in_one_line(env: Any, arguments: Any, kind: type[RlsdkError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        make_vec_env(env, 1, vectorization="pettingzoo", env_kwargs=arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("arguments", [{"vectorization": "async"}, {"collectors": 2, "n_envs": 2}])
def test_ids_of_several_agents_are_no_single_environments(arguments: Any) -> None:
    with pytest.raises(EnvironmentFault, match=r"a row for each of its agents.*'pettingzoo-role/simple_spread_v3'"):
        make_vec_env("pettingzoo/simple_spread_v3", **arguments)


def test_the_same_environment_twice_is_refused() -> None:
    task = Scripted(LIVES)
    with pytest.raises(EnvironmentFault, match="returned the same environment twice"):
        make_vec_env(lambda: task, 2, vectorization="pettingzoo")


def test_a_policy_of_other_spaces_is_refused() -> None:
    model: Any = rlsdk.make("ppo", env=made(), **PPO)
    with pytest.raises(UnsupportedSpaceError):
        evaluate_roles(model, made(start=5))


def test_roles_are_names_without_numbers() -> None:
    assert list(map(role_of, ("adversary_0", "agent-12", "player_0", "Eve", "3"))) == [
        "adversary",
        "agent",
        "player",
        "Eve",
        "3",
    ]


class Numbered(Scripted):
    """Its agents are numbers."""

    def __init__(self) -> None:
        super().__init__([[Life(0, 3, TRUNCATED)], [Life(0, 3, TRUNCATED)]])
        self.possible_agents = [0, 1]  # type: ignore[list-item]


def test_agents_may_be_numbers() -> None:
    env = make_vec_env(Numbered, 2, vectorization="pettingzoo")
    assert env.env.agents_of_rows == ["0", "1", "0", "1"]  # type: ignore[attr-defined]
    assert len(played(env, 4)[1][-1].episodes) == 4
    chosen = make_vec_env(
        Numbered, 1, vectorization="pettingzoo", env_kwargs={"agents": "1", "others": {"0": "random"}}
    )
    assert chosen.num_envs == 1


def test_one_task_that_is_made_here() -> None:
    assert make_agents_vec_env(lambda: Scripted(LIVES), 2).num_envs == 6


def test_tasks_of_mpe2_train_from_their_ids(tmp_path: Path) -> None:
    pytest.importorskip("mpe2", reason="mpe2 is not installed: pip install mpe2")
    model: Any = rlsdk.make("ppo", env="pettingzoo/simple_spread_v3", **PPO)
    model.learn(96)
    assert model.env.num_envs == 3
    model.save(tmp_path / "agent.rlsdk")
    resumed: Any = rlsdk.load(tmp_path / "agent.rlsdk", env="pettingzoo/simple_spread_v3", force_reset=False)
    resumed.learn(48, reset_num_timesteps=False)
    model.learn(48, reset_num_timesteps=False)
    assert str(dict(model.parts.policy.state_dict())) == str(dict(resumed.parts.policy.state_dict()))
    with pytest.raises(EnvironmentFault, match="from 'adversary', 'agent'"):
        make_vec_env("pettingzoo/simple_tag_v3")
    assert make_vec_env("pettingzoo/simple_tag_v3?agents=adversary", 2).num_envs == 6
    continuous = make_vec_env("pettingzoo/simple_spread_v3?N=2&continuous_actions=true", 2)
    assert continuous.num_envs == 4
    rlsdk.make("sac", env=continuous, learning_starts=8, buffer_size=100, seed=0).learn(40)
