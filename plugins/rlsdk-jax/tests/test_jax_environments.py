"""Vector environments of JAX environments: steps, episodes, states and errors. These tests need JAX alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk import tree
from rlsdk.environments import make_vec_env
from rlsdk.errors import DivergenceError, EnvironmentFault, RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.evaluation import evaluate_policy
from rlsdk_jax import FunctionalEnv, JaxVectorEnv, Moved, Task, make_jax_vec_env, task_of
from tests.tables import in_one_test

jax = pytest.importorskip("jax")
jnp = jax.numpy
LIMIT = 6


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Place:
    """The state of `Walk`."""

    at: Any
    time: Any
    key: Any


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of `Walk`."""

    speed: float = 1.0
    max_steps_in_episode: int = LIMIT

    def replace(self, **changes: Any) -> Parameters:
        return dataclasses.replace(self, **changes)


class Walk:
    """A walk of at most six steps with gymnax's interface. It terminates beyond 2.5; the reward is the place."""

    default_params = Parameters()

    def observation_space(self, params: Any) -> Any:
        return spaces.Dict({"at": spaces.Box(-9, 9, (1,)), "time": spaces.Discrete(100)})

    def action_space(self, params: Any) -> Any:
        return spaces.Box(-1, 1, (1,))

    def reset_env(self, key: Any, params: Any) -> Any:
        state = Place(jax.random.uniform(key, (1,)), jnp.int32(0), jax.random.key(3))
        return self.seen(state), state

    def seen(self, state: Any) -> Any:
        return {"at": state.at, "time": state.time}

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        at = state.at + params.speed * action
        after = Place(at, state.time + 1, jax.random.split(state.key)[0])
        info = {"cost": jnp.abs(at[0]), "place": at}
        return self.seen(after), after, at[0], at[0] > 2.5, info

    def is_truncated(self, state: Any, params: Any) -> Any:
        return state.time >= params.max_steps_in_episode


class OldWalk(Walk):
    """The same with the interface of gymnax before 1.0: one flag for terminations and time limits."""

    is_truncated: Any = property()  # raises AttributeError, so there is none

    def is_terminal(self, state: Any, params: Any) -> Any:
        return (state.at[0] > 2.5) | (state.time >= params.max_steps_in_episode)

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        seen, after, reward, _, info = super().step_env(key, state, action, params)
        return seen, after, reward, self.is_terminal(after, params), info


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Physics:
    """The state of `Slide`, with the fields that brax has."""

    pipeline_state: Any
    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any


class Slide:
    """`Walk` with brax's interface: two actions, of which the first one moves."""

    action_size = 2

    def reset(self, key: Any) -> Any:
        at = jax.random.uniform(key, (1,))
        return Physics({"at": at}, at, jnp.zeros(()), jnp.zeros(()), {"speed": jnp.zeros(())}, {"key": key})

    def step(self, state: Any, action: Any) -> Any:
        at = state.pipeline_state["at"] + action[:1]
        done = jnp.where(at[0] > 2.5, 1.0, 0.0)
        # brax's environments return Python numbers, too
        return Physics({"at": at}, at, 1.0, done, {"speed": action[0]}, state.info)


def actions(count: int, t: int, size: int = 1) -> torch.Tensor:
    """Actions partly outside the bounds, mostly positive."""
    return torch.rand(count, size, generator=torch.Generator().manual_seed(t)) * 3 - 1


def walks(count: int = 5, seed: int | None = 3, **settings: Any) -> Any:
    return make_jax_vec_env(Walk(), count, seed, device="cpu", **settings)


def exact_weights(model: Any) -> dict[str, bytes]:
    return {name: value.cpu().numpy().tobytes() for name, value in model.parts.policy.state_dict().items()}


@pytest.mark.parametrize("env", [Walk, OldWalk])
def test_episodes_end_and_begin(env: Any) -> None:
    """Rewards, flags, time limits, last and first observations, and totals, from the observations before."""
    rows = make_jax_vec_env(env(), 5, 3, device="cpu")
    seen, lengths, totals, played = rows.reset(), torch.zeros(5), torch.zeros(5), []
    assert seen.is_first.all()
    for t in range(40):
        action = actions(5, t)
        step = rows.step(action)
        at = seen.features["at"] + action.clamp(-1, 1)
        lengths, totals = lengths + 1, totals + at[:, 0]
        torch.testing.assert_close(step.reward, at[:, 0])
        assert torch.equal(step.terminated, at[:, 0] > 2.5)
        assert torch.equal(step.truncated, (lengths >= LIMIT) & (~step.terminated if env is OldWalk else True))
        ended = step.terminated | step.truncated
        assert torch.equal(step.observation.is_first, ended)
        torch.testing.assert_close(step.observation.features["at"][~ended], at[~ended])
        assert torch.equal(step.observation.features["time"], torch.where(ended, 0, lengths).long())
        assert bool((step.observation.features["at"][ended] < 1).all())
        assert [episode.env for episode in step.episodes] == ended.nonzero().squeeze(1).tolist()
        for episode in step.episodes:
            assert episode.length == lengths[episode.env]
            assert episode.episode_return == pytest.approx(float(totals[episode.env]), rel=1e-5)
        if step.final_observation is not None:
            torch.testing.assert_close(step.final_observation.features["at"], at[ended])
            assert torch.equal(step.final_observation.features["time"], lengths[ended].long())
        totals[ended], lengths[ended] = 0, 0
        played += step.episodes
        seen = step.observation
    assert LIMIT in {episode.length for episode in played}
    assert min(episode.length for episode in played) < LIMIT


def test_environments_with_the_interface_of_brax() -> None:
    """1,000 steps by default, or as given. Rewards and infos may be numbers of Python."""
    rows = make_jax_vec_env(Slide(), 3, 1, max_episode_steps=4, device="cpu")
    seen = rows.reset()
    for t in range(20):
        action = actions(3, t, 2)
        step = rows.step(action)
        at = seen.features + action[:, :1].clamp(-1, 1)
        assert step.reward.tolist() == [1] * 3
        assert torch.equal(step.terminated, at[:, 0] > 2.5)
        assert all(episode.length == 4 or bool(step.terminated[episode.env]) for episode in step.episodes)
        seen = step.observation
    assert rows.action_space.shape == (2,)
    assert task_of(Slide(), {}).limit == 1000
    configured = Slide()
    configured._config = type("Config", (), {"episode_length": 250})()  # type: ignore[attr-defined]  # MuJoCo Playground
    assert task_of(configured, {}).limit == 250


class Cut(Slide):
    """Like an environment inside brax's EpisodeWrapper: `done` after three steps, and the state names the reason."""

    def reset(self, key: Any) -> Any:
        return dataclasses.replace(super().reset(key), info={"truncation": jnp.zeros(()), "steps": jnp.zeros(())})

    def step(self, state: Any, action: Any) -> Any:
        after, steps = super().step(state, action), state.info["steps"] + 1
        over = jnp.where(steps >= 3, 1.0, 0.0)
        info = {"truncation": over * (1 - after.done), "steps": steps}
        return dataclasses.replace(after, done=jnp.maximum(after.done, over), info=info)


def test_a_time_limit_inside_is_no_termination() -> None:
    rows = make_jax_vec_env(Cut(), 2, 1, device="cpu")
    rows.reset()
    steps = [rows.step(torch.zeros(2, 2)) for _ in range(6)]
    assert [step.truncated.tolist() for step in steps] == [[False] * 2, [False] * 2, [True] * 2] * 2
    assert not any(step.terminated.any() for step in steps)


def test_observations_are_the_memory_of_jax() -> None:
    """No copies on the way to torch, and records stay as they were."""
    vector = JaxVectorEnv(task_of(Slide(), {}, 4), 3)
    first = vector.reset(1)
    before = first.features.clone()
    given: list[Any] = []
    program = vector._stepped
    vector._stepped = lambda *arguments: given.append(program(*arguments)) or given[-1]
    steps = [vector.step(actions(3, t, 2)) for t in range(6)]
    for step, (seen, _) in zip(steps, given, strict=True):
        assert step.observation.features.data_ptr() == seen.observation.unsafe_buffer_pointer()
        assert step.reward.data_ptr() == seen.reward.unsafe_buffer_pointer()
        np.testing.assert_array_equal(step.observation.features.numpy(), np.asarray(seen.observation))
    assert torch.equal(first.features, before)
    assert len({step.observation.features.data_ptr() for step in steps}) == 6


def test_seeds() -> None:
    """A seed gives the same episodes, resets without a seed others, and large seeds are all different."""

    def play(env: Any, seed: int | None) -> list[float]:
        seen = [env.reset(seed).features["at"]]
        seen += [env.step(actions(5, t)).observation.features["at"] for t in range(10)]
        return torch.stack(seen).flatten().tolist()  # type: ignore[no-any-return]

    one, other = walks(), walks()
    assert play(one, 7) == play(other, 7)
    assert play(one, None) == play(other, None) != play(one, 7)
    assert walks(seed=9).reset().features["at"].tolist() == one.reset(9).features["at"].tolist()
    starts = [one.reset(seed).features["at"].tolist() for seed in (0, 1, 2**31, 2**31 + 1, 2**62)]
    assert len({str(start) for start in starts}) == 5
    assert walks(seed=None).reset().features["at"].tolist() != walks(seed=None).reset().features["at"].tolist()


@pytest.mark.parametrize("env", [Walk, Slide])
def test_restored_episodes_continue(env: Any) -> None:
    one, other = (make_jax_vec_env(env(), 3, seed, max_episode_steps=5, device="cpu") for seed in (1, 2))
    size = one.action_space.shape[0]  # type: ignore[union-attr]
    one.reset()
    for t in range(7):
        one.step(actions(3, t, size))
    state = one.get_state()
    assert all(leaf.is_cpu for leaf in tree.leaves(state["rows"]))
    other.set_state(state)
    for t in range(7, 25):
        mine, theirs = one.step(actions(3, t, size)), other.step(actions(3, t, size))
        assert mine.episodes == theirs.episodes
        for a, b in zip(tree.leaves(mine.observation), tree.leaves(theirs.observation), strict=True):
            assert torch.equal(a, b)


def test_a_state_of_another_environment_is_refused() -> None:
    env = walks(3)
    env.reset()
    state: Any = env.get_state()
    rows = state["rows"]
    lengths = next(name for name, leaf in rows.items() if leaf.dtype == torch.int32 and leaf.shape == (3,))
    for change in (
        {"rows": {}},
        {"rows": {**rows, lengths: torch.zeros(2, dtype=torch.int32)}},
        {"rows": {**rows, lengths: torch.zeros(3)}},
        {"rows": {**rows, [*rows][-1]: torch.full((3,), -1, dtype=torch.int32)}},
        {"returns": torch.full((3,), torch.nan, dtype=torch.float64)},
        {"returns": torch.zeros(3)},
    ):
        with pytest.raises((ValueError, RlsdkError)):
            env.set_state({**state, **change})
    env.set_state(state)
    with pytest.raises((KeyError, RlsdkError)):
        env.set_state({})


@pytest.mark.full
def test_training_continues_from_a_file_in_the_middle_of_episodes(tmp_path: Path) -> None:
    def agent() -> Any:
        return rlsdk.make("ppo", env=walks(4, None), policy="MultiInputPolicy", n_steps=7, batch_size=14, seed=5)

    whole = agent().learn(28).learn(56, reset_num_timesteps=False)
    agent().learn(28).save(tmp_path / "half")
    half = rlsdk.load(tmp_path / "half", env=walks(4, None), force_reset=False)
    half.learn(56, reset_num_timesteps=False)
    assert exact_weights(whole) == exact_weights(half)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.full) for name in ("recurrent-ppo", "sac")), "ppo"]
)
def test_algorithms_train(name: str) -> None:
    """Agents with the same seed get the same weights. `make_vec_env` takes an environment that exists, too."""
    settings: dict[str, Any] = {"policy": "MultiInputLstmPolicy" if name == "recurrent-ppo" else "MultiInputPolicy"}
    settings |= {"learning_starts": 20, "batch_size": 8, "buffer_size": 200} if name == "sac" else {"n_steps": 10}
    agents = [
        rlsdk.make(name, env=make_vec_env(Walk(), 4, vectorization="jax"), seed=1, **settings).learn(80) for _ in "ab"
    ]
    assert agents[0].num_timesteps == 80
    assert exact_weights(agents[0]) == exact_weights(agents[1])
    assert len(agents[0].ep_info_buffer) > 5
    assert len(evaluate_policy(agents[0], walks(2), 4, return_episode_rewards=True)[0]) == 4


def test_declared_entries_of_info_are_given() -> None:
    env = walks(3)
    env.reset()
    assert env.step(torch.zeros(3, 1)).info == {}
    env.select_info(("cost",))
    step = env.step(torch.full((3, 1), 0.5))
    assert {*step.info} == {"cost"}
    torch.testing.assert_close(step.info["cost"], step.observation.features["at"][:, 0].abs())
    with pytest.raises(
        EnvironmentFault, match="'Walk' gives no info 'place', which the algorithm needs; it gives cost"
    ):
        env.select_info(("place",))


def test_one_row_is_a_gymnasium_environment() -> None:
    """Also its time limit, its state and its seeds."""
    env, other = FunctionalEnv(task_of(Walk(), {}, 3)), FunctionalEnv(task_of(Walk(), {}, 3))
    seen, _ = env.reset(seed=4)
    assert other.reset(seed=4)[0]["at"] == seen["at"]
    assert env.observation_space.contains(seen | {"time": np.int64(seen["time"])})
    after, reward, terminated, truncated, info = env.step(np.array([5.0]))
    np.testing.assert_allclose(after["at"], seen["at"] + 1)
    assert (reward, terminated, truncated, info) == (
        pytest.approx(after["at"][0]),
        False,
        False,
        {"cost": info["cost"]},
    )
    other.set_state(env.get_state())
    for _ in range(2):
        mine, theirs = env.step(np.array([-0.5])), other.step(np.array([-0.5]))
        assert str(mine) == str(theirs)
    assert mine[2:4] == (False, True)
    with pytest.raises(ValueError, match="other arrays"):
        FunctionalEnv(task_of(Slide(), {})).set_state(env.get_state())
    with pytest.raises(UsageError, match="never reset"):
        FunctionalEnv(task_of(Walk(), {})).step(np.zeros(1))
    with pytest.raises(SettingsError, match="draws no pictures"):
        FunctionalEnv(task_of(Walk(), {}), render_mode="human")


class Typed:
    """Spaces as gymnax describes them."""

    def __init__(self, kind: str, **members: Any) -> None:
        self.kind, self.members = kind, members

    def made(self) -> Any:
        return type(self.kind, (), self.members)()


def test_spaces_of_gymnax() -> None:
    from rlsdk_jax.tasks import gym_space

    box = Typed("Box", low=-jnp.ones(2), high=jnp.inf, shape=(2,), dtype=jnp.float32).made()
    flags = Typed("Box", low=0, high=1, shape=(3, 2), dtype=bool).made()
    image = Typed("Box", low=-1, high=999, shape=(2,), dtype=jnp.uint8).made()
    choice = Typed("Discrete", n=4).made()
    assert gym_space(box, "o") == spaces.Box(np.array([-1, -1], np.float32), np.float32(np.inf), (2,))
    assert gym_space(flags, "o") == spaces.Box(0, 1, (3, 2), np.uint8)
    assert gym_space(image, "o") == spaces.Box(0, 255, (2,), np.uint8)
    nested = Typed("Dict", spaces={"a": choice, "b": Typed("Tuple", spaces=(box, choice)).made()}).made()
    assert [*gym_space(nested, "o").spaces] == ["a", "b"]
    with pytest.raises(UnsupportedSpaceError, match=r"o\['c'\] is .*; rlsdk takes Box, Discrete, Dict and Tuple"):
        gym_space(Typed("Dict", spaces={"c": Typed("Sequence").made()}).made(), "o")
    with pytest.raises(UnsupportedSpaceError, match="o is a Box of complex64"):
        gym_space(Typed("Box", low=0, high=1, shape=(), dtype=jnp.complex64).made(), "o")


def changed(base: type, **members: Any) -> Any:
    return type(base.__name__, (base,), members)()


@in_one_test
@pytest.mark.parametrize(
    ("env", "words"),
    [
        (3, "^3 is neither an id of gymnax or brax nor an environment with their interface"),
        (gymnasium.make("CartPole-v1"), "lacks action_size; it needs the interface of gymnax"),
        ("CartPole-v1", "'CartPole-v1' is not an environment in JAX; give an id such as 'gymnax/CartPole-v1'"),
        (lambda: 1 / 0, "cannot be made: division by zero"),
        (
            changed(Walk, reset_env=lambda *_: 1 / 0),
            "'Walk' cannot be traced by JAX: ZeroDivisionError: division by zero",
        ),
        (changed(Slide, step=lambda *_: 1 / 0), "'Slide' cannot be traced by JAX: ZeroDivisionError"),
        (changed(Walk, seen=lambda self, state: state.at), "observation .* is not nested as its space: observation"),
        (
            changed(Walk, seen=lambda self, state: {"at": state.at[0], "time": state.time}),
            r"observation\['at'\] has the shape \(\), its space has \(1,\)",
        ),
        (
            changed(Walk, step_env=lambda self, key, state, action, params: ({}, state, action, action > 0, {})),
            "a step gives observations of another structure than reset",
        ),
        (
            changed(Slide, step=lambda self, state, action: dataclasses.replace(state, info={})),
            "a step gives states of another structure than reset",
        ),
        (
            changed(Slide, step=lambda self, state, action: dataclasses.replace(state, info={"key": jnp.zeros(5)})),
            r"a step gives states of shape \(5,\), reset \(2,\)",
        ),
        (
            changed(Slide, step=lambda self, state, action: dataclasses.replace(state, reward=action)),
            r"reward of one row has the shape \(2,\)|states of shape",
        ),
        (
            changed(Slide, reset=lambda self, key: key),
            "the state that reset returns lacks obs, reward, done, info, metrics",
        ),
        (
            type("AutoResetWrapper", (Slide,), {"env": None})(),
            "is inside AutoResetWrapper; give the environment without it",
        ),
        (type("Wrapper", (), {"default_params": Parameters()})(), "give the environment inside its wrappers"),
    ],
)
def test_wrong_environments_are_one_line(env: Any, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words) as caught:
        make_jax_vec_env(env, 2, device="cpu")
    assert "\n" not in str(caught.value)


@in_one_test
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"spede": 2.0}, "'Walk' has no parameter 'spede'; did you mean 'speed'"),
        ({"speed": "fast"}, "speed = 'fast' must be a number like 1.0"),
        ({"max_steps_in_episode": 2.5}, "max_steps_in_episode = 2.5 must be a number like 6"),
        ({"max_episode_steps": 0}, "max_episode_steps = 0 must be a whole number from 1 to"),
        ({"device": "cuda"}, "device 'cuda' "),
        ({"device": "mps:3"}, "device 'mps:3' "),
        ({"device": 3}, "device = 3 must be text"),
        ({"n_envs": 0}, "n_envs = 0 must be a positive whole number"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        make_jax_vec_env(Walk(), **{"n_envs": 2, "device": "cpu", **settings})
    assert "\n" not in str(caught.value)


def test_parameters_and_limits() -> None:
    assert walks(1, speed=0.5, max_steps_in_episode=2).reset().features["at"].shape == (1, 1)
    rows = walks(2, max_steps_in_episode=2)
    rows.reset()
    assert [rows.step(torch.zeros(2, 1)).truncated.tolist() for _ in range(2)] == [[False] * 2, [True] * 2]
    with pytest.raises(SettingsError, match="'Slide' exists, so it takes no speed"):
        make_jax_vec_env(Slide(), 2, speed=3)
    made = make_jax_vec_env(Walk, 2, device="cpu")
    assert made.name == "Walk"


def test_numbers_that_are_not_finite() -> None:
    env = walks(2)
    env.reset()
    with pytest.raises(DivergenceError, match="an action that is not finite"):
        env.step(torch.full((2, 1), torch.nan))
    lost = changed(Slide, step=lambda self, state, action: dataclasses.replace(state, reward=jnp.log(-1.0)))
    env = make_jax_vec_env(lost, 2, 1, device="cpu")
    env.reset()
    with pytest.raises(
        EnvironmentFault, match="'Slide': step gave an observation, a reward or an info that is not finite"
    ):
        env.step(torch.zeros(2, 2))
    with pytest.raises(UsageError, match="was never reset"):
        walks(2).step(torch.zeros(2, 1))


def test_tasks_of_other_authors() -> None:
    """Any `Task` may be stepped: choices, and images."""
    task = Task(
        name="counts",
        observation_space=spaces.Box(0, 255, (4, 4, 1), np.uint8),
        action_space=spaces.MultiDiscrete([3, 2]),
        begin=lambda key: (jnp.zeros((4, 4, 1), "uint8"), jnp.int32(0)),
        advance=lambda key, state, action: Moved(
            jnp.full((4, 4, 1), state + action[0] + action[1]), state + 1, 1.0 * action[0], state < 0, state >= 2, {}
        ),
        limit=None,
    )
    rows = JaxVectorEnv(task, 2)
    rows.reset(0)
    step = rows.step(torch.tensor([[2, 1], [0, 1]]))
    assert step.observation.features[:, 0, 0, 0].tolist() == [3, 1]
    assert step.observation.features.dtype == torch.uint8
    assert step.reward.tolist() == [2, 0]
    assert rlsdk.make("ppo", env=rows, n_steps=4, batch_size=8, seed=0).learn(16).num_timesteps == 16


def begin(key: Any) -> Any:
    return jnp.zeros(1), jnp.zeros(1)


def moved(**changes: Any) -> Any:
    """A function `advance` whose steps differ from one that is right."""
    right = {"observation": jnp.zeros(1), "state": jnp.zeros(1), "reward": jnp.zeros(()), "info": {}}
    ends = {"terminated": jnp.array(False), "truncated": jnp.array(False)}
    return lambda key, state, action: Moved(**{**right, **ends, **changes})


@pytest.mark.parametrize(
    ("first", "step", "words"),
    [
        (lambda key: None, moved(), r"begin gave None, not \(observation, state\)"),
        (begin, lambda *_: None, "advance gave None, not a rlsdk_jax.Moved"),
        (
            begin,
            lambda key, state, action: (state, state, 0.0, False, False, {}),
            r"advance gave \(.*not a rlsdk_jax.Moved",
        ),
        (begin, moved(info=None), "not a rlsdk_jax.Moved whose info is a dict"),
        (begin, moved(terminated=jnp.array(0.5)), "terminated is of float32; give bool"),
        (begin, moved(truncated=None), "truncated is of None; give bool"),
        (begin, moved(reward=None), "reward is of None; give a float"),
        (begin, moved(reward=jnp.complex64(1j)), "reward is of complex64; give a float"),
    ],
)
def test_functions_of_a_task_that_give_something_else(first: Any, step: Any, words: str) -> None:
    box = spaces.Box(-1.0, 1.0, (1,))
    with pytest.raises(EnvironmentFault, match=words):
        JaxVectorEnv(Task("mine", box, box, first, step, 5), 2)


def test_what_is_no_task_and_what_is_no_device_are_one_line() -> None:
    with pytest.raises(EnvironmentFault, match=r"None is not a rlsdk_jax.Task; make_jax_vec_env\(env, n\)"):
        JaxVectorEnv(None, 2)  # type: ignore[arg-type]
    box = spaces.Box(-1.0, 1.0, (1,))
    for device in ("cpu:x", "cpu:-1", "cpu:9", "nowhere"):
        with pytest.raises(SettingsError, match=f"device '{device}' is not a device of JAX"):
            JaxVectorEnv(Task("mine", box, box, begin, moved(), 5), 2, device)


def test_choices_outside_their_space_and_numbers_of_a_task() -> None:
    box, three = spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(3)

    def counted(first: int, later: int, limit: Any = 5, count: Any = 2) -> JaxVectorEnv:
        step = moved(observation=jnp.array(later), state=jnp.array(0))
        return JaxVectorEnv(Task("mine", three, box, lambda key: (jnp.array(first), jnp.array(0)), step, limit), count)

    with pytest.raises(EnvironmentFault, match=r"'mine': reset gave .* or a choice that is not one of its space"):
        counted(3, 0).reset(0)
    env = counted(2, -1)
    env.reset(0)
    with pytest.raises(EnvironmentFault, match=r"'mine': step gave .* or a choice that is not one of its space"):
        env.step(torch.zeros(2, 1))
    for seed in ("x", -1, 2**64):
        with pytest.raises(SettingsError, match="seed = "):
            env.reset(seed)  # type: ignore[arg-type]
    for limit in (0, -1, 1.5, "x"):
        with pytest.raises(SettingsError, match="max_episode_steps = "):
            counted(0, 0, limit)
    for count in (0, "x", 1.5):
        with pytest.raises(SettingsError, match="n_envs = "):
            counted(0, 0, count=count)
