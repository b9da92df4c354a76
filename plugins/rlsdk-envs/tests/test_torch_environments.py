"""Environments that are written in torch: their steps, episodes, states and checks, and training in them."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Generator, Tensor

import rlsdk
from rlsdk import tree
from rlsdk.agent.persistence import chosen_device
from rlsdk.callbacks import CheckpointCallback, EvalCallback
from rlsdk.environments import on_device
from rlsdk.environments.states.capture import read_state
from rlsdk.environments.vector.connected import OnDevice, device_of
from rlsdk.errors import DivergenceError, EnvironmentFault, RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.evaluation import evaluate_policy
from rlsdk.runtime.process import choose_device
from rlsdk_datasets import open_episodes
from rlsdk_envs import check_env, make_torch_vec_env
from rlsdk_envs.torch_vector import TorchVectorEnv
from rlsdk_interchange import record_episodes
from rlsdk_kernels.cuda_graphs import GraphedTransition
from rlsdk_sb3 import NumpyVectorEnv
from tests.kernels.test_gpu import has_gpu, on_gpu, stand_in
from tests.stateful_environments import Chase
from tests.tables import in_one_test

CartPole = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "torch_environment" / "cartpole.py"))["CartPole"]
DEVICE = "cuda" if has_gpu else "cpu"


class Masked(Chase):
    """Allows the first `count` of three actions."""

    action_space = spaces.Discrete(3)

    def transition(self, state: Any, action: Tensor, rng: Generator) -> Any:
        return super().transition(state, action.unsqueeze(1).float() - 1, rng)

    def action_mask(self, state: Any) -> Any:
        return torch.arange(3, device=state.count.device) <= state.count.unsqueeze(1)


def exact_weights(model: Any) -> dict[str, bytes]:
    return {name: value.cpu().numpy().tobytes() for name, value in model.parts.policy.state_dict().items()}


def actions(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 2, generator=Generator().manual_seed(seed)) * 4 - 2


def test_cartpole_of_the_examples_is_that_of_gymnasium() -> None:
    ours, theirs = make_torch_vec_env(CartPole(), 8, seed=1, device="cpu"), gymnasium.make("CartPole-v1").unwrapped
    seen, rng = ours.reset().features, np.random.default_rng(0)
    ends = 0
    for _ in range(120):
        chosen = rng.integers(2, size=8)
        step = ours.step(torch.from_numpy(chosen))
        finals = iter([] if step.final_observation is None else step.final_observation.features)
        for i in range(8):
            theirs.state = seen[i].double().tolist()
            theirs.steps_beyond_terminated = None
            after, reward, terminated, _, _ = theirs.step(int(chosen[i]))
            assert bool(step.terminated[i]) is terminated
            assert float(step.reward[i]) == reward
            found = next(finals) if terminated else step.observation.features[i]
            np.testing.assert_allclose(found, after, rtol=1e-5, atol=1e-6)
            ends += terminated
        seen = step.observation.features
    assert ends > 20


def test_episodes_end_and_begin() -> None:
    """Five steps of three environments: clipped actions, terminations, time limits, last and first observations, totals."""
    env, played = make_torch_vec_env(Chase(), 3, seed=3, device="cpu"), []
    observation = env.reset()
    assert observation.is_first.all()
    totals, lengths = torch.zeros(3), torch.zeros(3)
    for t in range(40):
        action = actions(3, t)
        step = env.step(action)
        expected = observation.features["at"] + action.clamp(-1, 1)
        totals, lengths = totals + expected[:, 0], lengths + 1
        torch.testing.assert_close(step.reward, expected[:, 0])
        ended = step.terminated | step.truncated
        assert torch.equal(step.terminated, expected.abs().amax(1) > 3)
        assert torch.equal(step.truncated, lengths >= 5)
        assert torch.equal(step.observation.is_first, ended)
        assert torch.equal(step.observation.features["at"][~ended], expected[~ended])
        assert bool((step.observation.features["at"][ended] < 1).all())
        assert [episode.env for episode in step.episodes] == ended.nonzero().squeeze(1).tolist()
        for episode in step.episodes:
            assert episode.episode_return == pytest.approx(float(totals[episode.env]), rel=1e-5)
            assert episode.length == lengths[episode.env]
        if step.final_observation is not None:
            assert torch.equal(step.final_observation.features["at"], expected[ended])
            assert torch.equal(step.final_observation.features["was"], observation.features["at"][ended])
            assert not step.final_observation.is_first.any()
        assert step.valid.all()
        totals[ended], lengths[ended] = 0, 0
        played += step.episodes
        observation = step.observation
    assert {episode.length for episode in played} > {5}


def test_records_are_not_overwritten() -> None:
    env = make_torch_vec_env(Chase(), 3, seed=3, device=DEVICE)
    records = [env.reset()] + [env.step(actions(3, t)) for t in range(30)]
    copies = [tree.map_tensors(Tensor.clone, record) for record in records[:1]]
    copies += [replace(step, observation=tree.map_tensors(Tensor.clone, step.observation)) for step in records[1:]]
    again = make_torch_vec_env(Chase(), 3, seed=3, device=DEVICE)
    same = [again.reset()] + [again.step(actions(3, t)) for t in range(30)]
    for one, other in zip(records[1:], same[1:], strict=True):
        assert torch.equal(one.observation.features["at"], other.observation.features["at"])
        assert torch.equal(one.reward, other.reward)
    assert len({step.observation.features["at"].data_ptr() for step in records[1:]}) == 30
    assert torch.equal(records[0].features["at"], copies[0].features["at"])
    assert not torch.equal(records[1].observation.features["at"], records[2].observation.features["at"])


class Places(NamedTuple):
    """The state of `Shifting`."""

    before: Tensor
    now: Tensor
    reward: Tensor
    mask: Tensor


class Shifting:
    """Observation, reward and mask are the memory of the state. Each step swaps places."""

    observation_space = spaces.Box(-9, 9, (2,))
    action_space = spaces.Discrete(3)
    max_episode_steps = 4

    def initial(self, count: int, rng: Generator) -> Any:
        place = torch.rand(count, 2, generator=rng, device=rng.device)
        return Places(place, place + 1, place[:, 0], torch.arange(3, device=rng.device).expand(count, 3) == 0)

    def transition(self, state: Any, action: Tensor, rng: Generator) -> Any:
        return Places(state.now, state.before, state.reward + 1, state.mask.roll(1, 1))

    def observation(self, state: Any) -> Any:
        return state.now

    def reward(self, state: Any, action: Tensor, next_state: Any) -> Any:
        return state.reward

    def terminal(self, state: Any) -> Any:
        return state.reward > 100

    def action_mask(self, state: Any) -> Any:
        return state.mask


def test_states_may_be_returned_as_they_are() -> None:
    """Observations, rewards and masks that are memory of the states stay as they were, and states can change places."""
    env = make_torch_vec_env(Shifting(), 3, seed=2, device=DEVICE)
    first = env.reset()
    steps = [env.step(torch.ones(3, dtype=torch.int64)) for _ in range(12)]
    for k, step in enumerate(steps):
        t = k % 4
        begin = first if k < 4 else steps[k - t - 1].observation
        after = step.observation
        if t == 3:
            assert step.final_observation is not None
            assert allowed(after) == [0, 0, 0]
            after = step.final_observation
        torch.testing.assert_close(after.features, begin.features - 1 if t % 2 == 0 else begin.features)
        torch.testing.assert_close(step.reward, begin.features[:, 0] - 1 + t)
        assert allowed(after) == [(t + 1) % 3] * 3


def allowed(observation: Any) -> list[int]:
    """The only action that each mask allows."""
    assert observation.action_mask.sum(1).tolist() == [1] * 3
    found: list[int] = observation.action_mask.int().argmax(1).tolist()
    return found


def test_a_reset_begins_episodes() -> None:
    """Also in the middle of episodes. Without a seed, each reset begins others; with one, the same ones."""
    env = make_torch_vec_env(Shifting(), 2, seed=2, device=DEVICE)
    seen = [env.reset().features, env.reset().features, env.reset(5).features, env.reset(5).features]
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[2], seen[3])
    action = torch.ones(2, dtype=torch.int64)
    for _ in range(3):
        env.step(action)
    env.reset(5)
    ended = [env.step(action).episodes for _ in range(4)]
    assert [len(episodes) for episodes in ended] == [0, 0, 0, 2]
    assert [episode.length for episode in ended[-1]] == [4, 4]
    start = seen[3][:, 0] - 1
    assert [episode.episode_return for episode in ended[-1]] == pytest.approx((4 * start + 6).tolist(), rel=1e-5)


def test_restored_episodes_continue() -> None:
    env, other = (make_torch_vec_env(Chase(), 3, seed=seed, device=DEVICE) for seed in (1, 2))
    env.reset()
    for t in range(7):
        env.step(actions(3, t))
    other.set_state(read_state(env))
    for t in range(7, 25):
        one, two = env.step(actions(3, t)), other.step(actions(3, t))
        assert one.episodes == two.episodes
        assert torch.equal(one.observation.features["at"], two.observation.features["at"])
        assert torch.equal(one.truncated, two.truncated)


def test_masks_are_used() -> None:
    env = make_torch_vec_env(Masked(), 4, seed=0, device=DEVICE)
    model = rlsdk.make("maskable-ppo", env=env, policy="MultiInputPolicy", n_steps=10, batch_size=20, seed=0).learn(80)
    assert model.num_timesteps == 80
    observation = env.reset(1)
    assert observation.action_mask.tolist() == [[True, False, False]] * 4  # type: ignore[union-attr]
    step = env.step(torch.ones(4, dtype=torch.int64))
    assert step.observation.action_mask.tolist() == [[True, True, False]] * 4  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["ppo", "trpo", "recurrent-ppo", "a2c", "sac", "tqc", "td3"])
def test_algorithms_train(name: str) -> None:
    """The same seed gives the same weights; the agent is on the device of the environments."""
    settings: dict[str, Any] = {"policy": "MultiInputLstmPolicy" if name == "recurrent-ppo" else "MultiInputPolicy"}
    if name in ("sac", "tqc", "td3"):
        settings |= {"learning_starts": 20, "batch_size": 8, "buffer_size": 200}
    else:
        settings |= {"n_steps": 10}
    agents = [
        rlsdk.make(name, env=make_torch_vec_env(Chase(), 4, device=DEVICE), seed=1, normalize=True, **settings).learn(
            80
        )
        for _ in range(2)
    ]
    assert agents[0].device == DEVICE
    assert agents[0].num_timesteps == 80
    if not has_gpu:
        assert exact_weights(agents[0]) == exact_weights(agents[1])
    assert len(agents[0].ep_info_buffer) > 5


def test_training_continues_from_a_file_in_the_middle_of_episodes(tmp_path: Path) -> None:
    def agent() -> Any:
        env = make_torch_vec_env(Chase(), 4, device="cpu")
        return rlsdk.make("ppo", env=env, policy="MultiInputPolicy", n_steps=7, batch_size=14, seed=5)

    whole = agent().learn(28).learn(56, reset_num_timesteps=False)
    agent().learn(28).save(tmp_path / "half")
    half = rlsdk.load(tmp_path / "half", env=make_torch_vec_env(Chase(), 4, device="cpu"), force_reset=False)
    half.learn(56, reset_num_timesteps=False)
    assert exact_weights(whole) == exact_weights(half)


class Costs(Chase):
    """Has entries of `info`."""

    def info(self, state: Any, action: Any, next_state: Any) -> Any:
        return {"cost": (next_state.place - state.place).norm(dim=1), "other": next_state.count.float()}


def test_declared_entries_of_info_are_given() -> None:
    env: Any = make_torch_vec_env(Costs(), 3, seed=0, device=DEVICE)
    first = env.reset()
    assert env.step(torch.zeros(3, 2)).info == {}
    env.select_info(("cost",))
    steps = [env.step(torch.full((3, 2), 0.6)) for _ in range(10)]
    assert {tuple(step.info) for step in steps} == {("cost",)}
    assert len({step.info["cost"].data_ptr() for step in steps}) == 10
    for step in steps:
        torch.testing.assert_close(step.info["cost"].cpu(), torch.full((3,), 0.72**0.5))
    env.select_info(("cost", "missing"))
    with pytest.raises(EnvironmentFault, match="'Costs', info, 'missing': got None, not a tensor"):
        env.step(torch.zeros(3, 2))
    assert first.features["at"].shape == (3, 2)
    chase = make_torch_vec_env(Chase(), 3, device="cpu")
    with pytest.raises(EnvironmentFault, match="'Chase' has no info, but the algorithm needs 'cost'; write info"):
        chase.select_info(("cost",))


def test_evaluations_and_loops_take_it() -> None:
    env = make_torch_vec_env(Chase(), 2, seed=0, device=DEVICE)
    model = rlsdk.make("ppo", env=env, policy="MultiInputPolicy", n_steps=10, batch_size=20, device="cpu").learn(40)
    assert model.device == "cpu"
    returns, lengths = evaluate_policy(model, env, 4, return_episode_rewards=True)
    assert len(returns) == 4
    assert max(lengths) <= 5
    calls: list[Any] = []
    evaluate_policy(model, env, 2, callback=lambda known, _: calls.append(known["reward"]))
    assert len(calls) >= 2
    loop = NumpyVectorEnv(env)
    observation = loop.reset()
    assert observation["at"].shape == (2, 2)  # type: ignore[call-overload,index]
    _, rewards, dones, infos = loop.step(model.predict(observation)[0])
    assert rewards.dtype == np.float32
    assert dones.tolist() == [False, False]
    assert infos[0]["TimeLimit.truncated"] is False


def test_callbacks_recordings_and_checks_take_it(tmp_path: Path) -> None:
    env = make_torch_vec_env(Shifting(), 2, seed=0, device=DEVICE)
    model = rlsdk.make("maskable-ppo", env=env, n_steps=10, batch_size=20, seed=0, frame_stack=2)
    seen: list[Any] = []

    def note(known: Any, _: Any) -> bool:
        seen.append(known["rewards"].shape)
        return True

    other = [make_torch_vec_env(Shifting(), 2, seed=1, device=DEVICE) for _ in range(3)]
    evaluation = EvalCallback(other[0], n_eval_episodes=4, eval_freq=20, verbose=0)
    model.learn(60, callback=[evaluation, CheckpointCallback(20, tmp_path), note])
    assert [steps for steps, _ in evaluation.history] == [20, 40, 60]
    assert len(list(tmp_path.glob("*.rlsdk"))) == 2
    assert set(seen) == {(2,)}
    path = record_episodes(model, other[1], 4, tmp_path / "played")
    assert [len(episode.rewards) for episode in open_episodes(path)] == [4] * 4
    assert check_env(other[2]) == []


def test_a_state_of_another_environment_is_refused() -> None:
    env = make_torch_vec_env(Chase(), 3, seed=3, device="cpu")
    env.reset()
    state: Any = read_state(env)
    for change in (
        {"states": {}},
        {"states": {**state["states"], "000": torch.zeros(2, 2)}},
        {"counts": {**state["counts"], "lengths": torch.tensor([-1, 0, 0])}},
        {"counts": {**state["counts"], "returns": torch.full((3,), torch.nan, dtype=torch.float64)}},
        {"generator": torch.zeros(7, dtype=torch.uint8)},
    ):
        with pytest.raises((ValueError, RlsdkError)):
            env.set_state({**state, **change})
    env.set_state(state)
    assert torch.equal(read_state(env)["states"]["000"], state["states"]["000"])


def given(changes: dict[str, Any]) -> Any:
    """A `Chase` with other members."""
    return type("Chase", (Chase,), changes)()


@in_one_test
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": lambda *_: torch.zeros(3, 1)}, r"'Chase', reward: got torch.float32 \(3, 1\), not a tensor"),
        ({"reward": lambda *_: torch.zeros(3, dtype=torch.float64)}, r"reward: got torch.float64"),
        (
            {"reward": lambda *_: torch.full((3,), torch.inf)},
            "'Chase' gave an observation, a reward or an info that is not finite",
        ),
        (
            {
                "transition": lambda self, state, action, rng: replace(state, place=state.place / 0),
                "reward": lambda *_: torch.ones(3),
                "terminal": lambda *_: torch.ones(3, dtype=torch.bool),
            },
            "'Chase' gave an observation, a reward or an info that is not finite",
        ),
        (
            {
                "initial": lambda self, count, rng: {"a": torch.zeros(count, 2)},
                "transition": lambda self, state, action, rng: {**state, "b": state["a"]},
                "observation": lambda self, state: {"at": state["a"], "was": state["a"]},
            },
            "transition: got .*, not states with the structure",
        ),
        ({"terminal": lambda *_: torch.zeros(3)}, r"terminal: got torch.float32 \(3,\), not a tensor torch.bool"),
        ({"observation": lambda self, state: state.place}, "features .* are not nested as the space"),
        (
            {"observation": lambda self, state: {"at": state.place, "was": state.before.double()}},
            r"observation\['was'\]: got torch.float64 \(3, 2\)",
        ),
        ({"initial": lambda self, count, rng: 3}, "initial: int is not a tree of tensors"),
        ({"initial": lambda self, count, rng: ()}, r"initial: got \(\), which has no tensors"),
        ({"initial": lambda self, count, rng: torch.zeros(2)}, r"initial: got torch.float32 \(2,\)"),
        (
            {"transition": lambda self, state, action, rng: state.place},
            "transition: got .*, not states with the structure",
        ),
        (
            {"transition": lambda self, state, action, rng: replace(state, count=state.count.float())},
            r"transition: got torch.float32 \(3,\), not a tensor torch.int64",
        ),
        ({"transition": lambda self, state, action, rng: 1 / 0}, "ZeroDivisionError"),
    ],
)
def test_wrong_functions_are_told(changes: dict[str, Any], words: str) -> None:
    env = make_torch_vec_env(given(changes), 3, seed=0, device="cpu")

    def play() -> None:
        env.reset()
        env.step(torch.zeros(3, 2))

    with pytest.raises(EnvironmentFault, match=words):
        play()


@in_one_test
@pytest.mark.parametrize(
    ("env", "arguments", "error", "words"),
    [
        (Chase(), {"n_envs": 0}, SettingsError, "n_envs = 0 must be a positive whole number"),
        (Chase(), {"n_envs": 2.0}, SettingsError, "n_envs = 2.0"),
        (Chase(), {"seed": -1}, SettingsError, "seed = -1"),
        (Chase(), {"device": "quantum"}, SettingsError, "device 'quantum' cannot be used here"),
        (object(), {}, EnvironmentFault, "lacks observation_space, action_space, initial, max_episode_steps"),
        (gymnasium.make("CartPole-v1"), {}, EnvironmentFault, "lacks initial, max_episode_steps, observation, reward"),
        (given({"max_episode_steps": 0}), {}, SettingsError, "max_episode_steps = 0 must be"),
        (given({"observation_space": spaces.Text(3)}), {}, UnsupportedSpaceError, "observation is a Text"),
        (given({"action_space": 4}), {}, EnvironmentFault, "the action space is 4"),
    ],
)
def test_wrong_arguments_are_told(env: Any, arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make_torch_vec_env(env, **{"n_envs": 3, **arguments})


def test_a_step_needs_a_reset() -> None:
    env = make_torch_vec_env(Chase(), 3, seed=0, device=DEVICE)
    with pytest.raises(UsageError, match="'Chase' was never reset"):
        env.step(torch.zeros(3, 2))


def test_actions_that_are_not_finite_are_told() -> None:
    env = make_torch_vec_env(Chase(), 3, seed=0, device=DEVICE)
    env.reset()
    with pytest.raises(DivergenceError, match="not finite"):
        env.step(torch.full((3, 2), torch.nan))


def test_auto_is_the_device_of_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = make_torch_vec_env(Chase(), 2, device="cpu")
    assert device_of(env) == device_of("CartPole-v1") == device_of(None) == "cpu"
    assert chosen_device("auto", env) == "auto"
    env.device = "cuda:1"
    assert chosen_device("auto", env) == "cuda:1"
    assert chosen_device("cpu", env) == "cpu"
    assert on_device(env, "cuda:1") is env
    assert isinstance(on_device(env, "cpu"), OnDevice)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", "MlpPolicy", "cuda:1") == ("cuda:1", "the environments are on this device")
    assert choose_device("auto", "MlpPolicy", "cpu")[0] == "cpu"


def test_tensors_are_moved_between_devices() -> None:
    """`meta` is the other device, as there may be no GPU."""
    env: Any = make_torch_vec_env(Masked(), 2, seed=0, device="cpu")
    given: list[Any] = []
    moved = OnDevice(env, "cpu", "meta")
    assert moved.reset(1).features["at"].is_meta
    env.env.step, step = lambda action: given.append(action) or step(action), env.env.step
    found = moved.step(torch.zeros(2, dtype=torch.int64))
    assert given[0].is_cpu
    assert all(leaf.is_meta for leaf in tree.leaves(_tensors(found)))


# --- graphs ---------------------------------------------------------------------------------------------------------


class Rerun(GraphedTransition[Any, Any, Any]):
    """Makes the step again where a graph would be replayed, with the same tensors for inputs and results."""

    def _capture(self, inputs: Any) -> Any:
        own = tree.map_tensors(Tensor.clone, inputs)
        values = self.vector.twin()._transition(own, Generator())  # type: ignore[attr-defined]  # a capture changes nothing
        return stand_in(lambda: self._step(own, self._generator), values, tree.leaves(own), [])


class Replayed(TorchVectorEnv[Any]):
    """Replays steps on the CPU, too."""

    def __init__(self, env: Any, count: int) -> None:
        made = make_torch_vec_env(env, count, device=DEVICE)
        super().__init__(env, count, (made.observation_space, made.action_space), made.device)
        if not has_gpu:
            graph = self._replayed = Rerun(self._transition, env, self._generator)
            graph.vector = self  # type: ignore[attr-defined]

    def twin(self) -> TorchVectorEnv[Any]:
        found = TorchVectorEnv(self.env, self.num_envs, (self.observation_space, self.action_space), DEVICE)
        found.reset(0)
        return found


def as_written(env: Any, count: int) -> TorchVectorEnv[Any]:
    """The same environments without graphs."""
    found = Replayed(env, count)
    found._replayed = None
    return found


def require_equal_steps(ours: TorchVectorEnv[Any], theirs: TorchVectorEnv[Any], count: int = 12) -> None:
    for t in range(count):
        action = actions(3, t).to(DEVICE)
        one, other = ours.step(action), theirs.step(action)
        assert one.episodes == other.episodes
        for mine, plain in zip(tree.leaves(_tensors(one)), tree.leaves(_tensors(other)), strict=True):
            assert torch.equal(mine, plain)


def _tensors(step: Any) -> Any:
    return step.observation, step.reward, step.terminated, step.truncated, step.final_observation


def test_a_replayed_step_is_the_step_as_written() -> None:
    """Also after a changed attribute, and after a reset."""
    env = Chase()
    ours, theirs = Replayed(env, 3), as_written(env, 3)
    for vector in (ours, theirs):
        vector.reset(4)
    require_equal_steps(ours, theirs)
    graph: Any = ours._replayed
    first = dict(graph.captures.made)
    assert first
    env.speed = 0.25
    require_equal_steps(ours, theirs)
    assert graph.captures.made
    assert not set(first.values()) & set(graph.captures.made.values())
    for vector in (ours, theirs):
        vector.reset(6)
    assert not graph.captures.made
    require_equal_steps(ours, theirs)
    assert torch.equal(ours._generator.get_state(), theirs._generator.get_state())


def test_an_environment_that_changes_its_attributes_is_never_replayed() -> None:
    class Counts(Chase):
        calls = 0

        def transition(self, state: Any, action: Tensor, rng: Generator) -> Any:
            self.calls += 1000
            return super().transition(state, action, rng)

    ours = Replayed(Counts(), 3)
    ours.reset(1)
    for t in range(10):
        ours.step(actions(3, t).to(DEVICE))
    assert not ours._replayed.captures.made  # type: ignore[union-attr]
    assert ours.env.calls == 10_000


@on_gpu
def test_an_environment_that_reads_values_is_never_replayed() -> None:
    class Reads(Chase):
        def transition(self, state: Any, action: Tensor, rng: Generator) -> Any:
            return super().transition(state, action * float(torch.rand(1, generator=rng, device="cuda")), rng)

    ours, theirs = Replayed(Reads(), 3), as_written(Reads(), 3)
    for vector in (ours, theirs):
        vector.reset(4)
    require_equal_steps(ours, theirs)
    assert ours._replayed.captures.fails  # type: ignore[union-attr]


@on_gpu
def test_training_copies_nothing_between_cpu_and_gpu(tmp_path: Path) -> None:
    env = make_torch_vec_env(CartPole(), 16, seed=0)
    assert env.device == "cuda"
    model = rlsdk.make("ppo", env=env, n_steps=16, batch_size=64, seed=0)
    assert model.device == "cuda"
    assert model.device_reason == "the environments are on this device"
    model.learn(2048)
    model.save(tmp_path / "there")
    again = rlsdk.load(tmp_path / "there", env=make_torch_vec_env(CartPole(), 16)).learn(256)
    assert again.device == "cuda"
    assert rlsdk.load(tmp_path / "there", env=env, device="cpu").learn(256).device == "cpu"
    step = model.env.step(torch.zeros(16, dtype=torch.int64, device="cuda"))
    assert step.reward.is_cuda
    assert rlsdk.make("ppo", env=make_torch_vec_env(CartPole(), 2, device="cuda:0"), device="cuda").learn(4096)
