"""Simulators with groups of observations and time-outs: records, last observations, and critics that see more than actors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

import rlsdk
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError, UsageError
from rlsdk.records import Observation
from rlsdk_envs import make_isaac_vec_env
from rlsdk_interchange import export

LIMIT, GOAL = 5, 1.0
ASYMMETRIC: dict[str, Any] = {
    "actor_class": "mlp",
    "actor_kwargs": {"net_arch": [8], "keys": ["policy"]},
    "critic_class": "mlp",
    "critic_kwargs": {"net_arch": [8]},
}
PPO: dict[str, Any] = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "seed": 0}


class Cart:
    """Carts on a line with hidden speeds. An episode ends at a distance of 1, or after 5 steps. It resets inside `step`."""

    num_actions, device = 1, "cpu"

    def __init__(self, num_envs: int = 4, *, gives: str = "final_observation", groups: bool = True) -> None:
        self.num_envs, self.gives, self.groups = num_envs, gives, groups
        self.seed(0)
        self.finals: list[Tensor] = []

    def seed(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def _begin(self, rows: Tensor) -> None:
        count = len(rows)
        self.place[rows] = torch.rand(count, generator=self.generator) - 0.5
        self.speed[rows] = torch.randn(count, generator=self.generator) * 0.2
        self.clock[rows] = 0

    def seen(self) -> Any:
        policy, critic = self.place[:, None].clone(), torch.stack([self.place, self.speed], 1)
        if not self.groups:
            return policy
        return {"policy": policy, "critic": critic} if self.gives != "extras" else policy

    def extras(self) -> dict[str, Any]:
        critic = torch.stack([self.place, self.speed], 1)
        return {"observations": {"critic": critic}} if self.gives == "extras" else {}

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self.place, self.speed, self.clock = torch.zeros(3, self.num_envs).unbind()
        self._begin(torch.arange(self.num_envs))
        return self.seen(), self.extras()

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Mapping[str, Any]]:
        self.speed = self.speed + 0.3 * actions[:, 0].clamp(-1, 1)
        self.place, self.clock = self.place + self.speed, self.clock + 1
        out, late = self.place.abs() > GOAL, self.clock >= LIMIT
        done, reward = out | late, 1.0 - self.place.abs()
        extras: dict[str, Any] = {"time_outs": late & ~out, "cost": self.speed.abs()}
        last = self.seen()
        if self.gives == "final_observation":
            extras["final_observation"] = last
        elif self.gives == "final_obs":
            extras["final_obs"] = {name: group[done].clone() for name, group in last.items()}
        rows = done.nonzero().squeeze(-1)
        self.finals.append(torch.stack([self.place, self.speed], 1)[rows])
        self._begin(rows)
        return self.seen(), reward, done.long(), {**extras, **self.extras()}


def stepped(env: Any, steps: int = 12) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    env.reset(3)
    return [env.step(torch.randn(env.num_envs, 1, generator=generator)) for _ in range(steps)]


@pytest.mark.parametrize("gives", ["final_observation", "final_obs"])
def test_episodes_end_by_time_outs_or_for_good_and_give_their_last_observations(gives: str) -> None:
    simulator = Cart(gives=gives)
    env = make_isaac_vec_env(simulator)
    assert set(env.observation_space.spaces) == {"policy", "critic"}  # type: ignore[union-attr]
    totals, lengths = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)
    simulator.finals.clear()
    kinds = set()
    for k, step in enumerate(stepped(env)):
        done = step.terminated | step.truncated
        totals, lengths = totals + step.reward, lengths + 1
        assert not (step.terminated & step.truncated).any()
        assert step.observation.is_first.tolist() == done.tolist()
        kinds |= {("late" if late else "out") for late in step.truncated[done].tolist()}
        assert (lengths[step.truncated] == LIMIT).all()
        if not done.any():
            assert step.final_observation is None
            continue
        torch.testing.assert_close(step.final_observation.features["critic"], simulator.finals[k])
        torch.testing.assert_close(step.final_observation.features["policy"], simulator.finals[k][:, :1])
        for episode in step.episodes:
            assert episode.episode_return == pytest.approx(float(totals[episode.env]), rel=1e-6)
            assert episode.length == int(lengths[episode.env])
        totals, lengths = totals.masked_fill(done, 0.0), lengths.masked_fill(done, 0)
    assert kinds == {"late", "out"}


def test_without_last_observations_those_of_the_step_before_are_taken() -> None:
    env = make_isaac_vec_env(Cart(gives="nothing"))
    before = env.reset(3).features
    for step in stepped(env):
        if step.final_observation is not None:
            rows = (step.terminated | step.truncated).nonzero().squeeze(-1)
            assert torch.equal(step.final_observation.features["critic"], before["critic"][rows])
        before = step.observation.features


def test_groups_in_extras_and_observations_without_groups() -> None:
    both = make_isaac_vec_env(Cart(gives="extras"))
    assert set(both.reset(0).features) == {"policy", "critic"}
    plain = make_isaac_vec_env(Cart(groups=False))
    assert plain.reset(0).features.shape == (4, 1)
    model: Any = rlsdk.make("ppo", env=plain, **PPO)
    model.learn(64)


def test_a_time_out_is_estimated_from_the_last_observation() -> None:
    """The advantage of PPO's update: r + gamma V(last) - V(s) at a time-out, and r - V(s) at a real end."""
    from rlsdk.training.collector import begin_acting, collect
    from rlsdk.updates.minibatches import policy_batch

    env = make_isaac_vec_env(Cart())
    model: Any = rlsdk.make("ppo", env=env, policy="MultiInputPolicy", policy_kwargs=ASYMMETRIC, **PPO)
    network, steps = model.parts.policy, 20
    rollout = collect(env, network, begin_acting(env, network, 0), steps, generator=torch.Generator().manual_seed(0))
    batch = policy_batch(rollout, network, gamma=0.9, lam=0.0)
    advantage = batch.advantage.reshape(4, steps).T.double()
    finals = rollout.final_observations
    assert finals is not None
    ends = network.found_values(finals.observation, ((), ())).double()
    seen = 0
    for time, row, value in zip(finals.time.tolist(), finals.env.tolist(), ends.tolist(), strict=True):
        observation = rlsdk.tree.map_tensors(lambda leaf, t=time, i=row: leaf[t, i : i + 1], rollout.steps.observation)
        own = float(network.found_values(observation, ((), ())))
        late = bool(rollout.steps.truncated[time, row])
        wanted = float(rollout.steps.reward[time, row]) + (0.9 * value if late else 0.0) - own
        assert float(advantage[time, row]) == pytest.approx(wanted, abs=1e-5)
        seen += late
    assert seen


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_only_the_value_function_sees_the_critic_group(algorithm: str, tmp_path: Path) -> None:
    box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    env = make_isaac_vec_env(Cart(), box)
    own = PPO if algorithm == "ppo" else {"seed": 0, "learning_starts": 8, "buffer_size": 200, "batch_size": 8}
    model: Any = rlsdk.make(algorithm, env=env, policy="MultiInputPolicy", policy_kwargs=ASYMMETRIC, **own)
    model.learn(128)
    seen = {"policy": np.full((3, 1), 0.3, np.float32), "critic": np.zeros((3, 2), np.float32)}
    other = {**seen, "critic": np.array([[9.0, -9.0]] * 3, np.float32)}
    actions, _ = model.predict(seen, deterministic=True)
    assert np.array_equal(actions, model.predict(other, deterministic=True)[0])
    moved = {**seen, "policy": np.full((3, 1), -0.8, np.float32)}
    assert not np.array_equal(actions, model.predict(moved, deterministic=True)[0])
    if algorithm == "ppo":
        values = [_value(model, each) for each in (seen, other)]
        assert not np.allclose(*values)
    model.save(tmp_path / "agent.rlsdk")
    again: Any = rlsdk.load(tmp_path / "agent.rlsdk")
    assert np.array_equal(actions, again.predict(seen, deterministic=True)[0])


def _value(model: Any, seen: dict[str, Any]) -> Any:
    features = {name: torch.as_tensor(value) for name, value in seen.items()}
    observation = Observation(features, torch.ones(3, dtype=torch.bool))
    return model.parts.policy.found_values(observation, ((), ())).detach().numpy()


def test_a_seed_repeats_the_steps_and_declared_entries_come_from_extras() -> None:
    first, second = (stepped(make_isaac_vec_env(Cart())) for _ in range(2))
    assert all(torch.equal(a.reward, b.reward) for a, b in zip(first, second, strict=True))
    env = make_isaac_vec_env(Cart())
    env.select_info(["cost"])
    assert stepped(env, 1)[0].info["cost"].shape == (4,)
    env.select_info(["torque"])
    with pytest.raises(EnvironmentFault, match=r"extras\['torque'\], which the algorithm reads"):
        stepped(env, 1)


class Wrong(Cart):
    """Breaks the interface in one way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def reset(self) -> Any:
        seen, extras = super().reset()
        if self.how == "rows":
            return {"policy": torch.zeros(3, 1)}, extras
        return seen if self.how == "reset" else ({"policy": {"joint": 1}} if self.how == "terms" else seen, extras)

    def step(self, actions: Tensor) -> Any:
        seen, reward, done, extras = super().step(actions)
        if self.how == "step":
            return seen, reward, done, done, extras
        if self.how == "rewards":
            return seen, reward[:2], done, extras
        return (seen["policy"] if self.how == "lost group" else seen), reward, done, extras


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("rows", r"an observation is \(3, 1\), not \[4, ..\]"),
        ("reset", r"reset returned .*, not \(obs, extras\)"),
        ("terms", r"the group 'policy' is .*, not a tensor; join its terms"),
        ("step", r"step returned .*, not \(obs, rewards, dones, extras\)"),
        ("rewards", r"rewards: got torch.float32 \(2,\), not a tensor torch.float32 \(4,\)"),
        ("lost group", r"observation|not nested as the space"),
    ],
)
def test_faults_of_a_simulator_are_named_in_one_line(how: str, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words) as caught:
        stepped(make_isaac_vec_env(Wrong(how)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: make_isaac_vec_env(object()), EnvironmentFault, "lacks num_envs, device, reset, step"),  # type: ignore[arg-type]
        (lambda: make_isaac_vec_env(_without_actions()), UsageError, "neither num_actions nor single_action_space"),
        (lambda: _asymmetric(["fox"]), SettingsError, r"keys = \['fox'\] must be .*it has 'critic', 'policy'"),
        (lambda: _asymmetric("policy"), SettingsError, r"keys = 'policy' must be a list of entries"),
        (lambda: _asymmetric(["policy"], groups=False), SettingsError, "the space has no entries, so leave keys out"),
    ],
)
def test_mistakes_are_explained_in_one_line(make: Any, kind: type[RlsdkError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def _without_actions() -> Any:
    class Still(Cart):
        num_actions = property()

    return Still()


def _asymmetric(keys: Any, *, groups: bool = True) -> Any:
    networks = {**ASYMMETRIC, "actor_kwargs": {"keys": keys}}
    policy = "MultiInputPolicy" if groups else "MlpPolicy"
    return rlsdk.make("ppo", env=make_isaac_vec_env(Cart(groups=groups)), policy=policy, policy_kwargs=networks, **PPO)


def test_the_exported_actor_gives_the_same_actions_for_any_critic_group(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the export needs rlsdk-interchange[export]")
    import onnxruntime

    model: Any = rlsdk.make(
        "ppo", env=make_isaac_vec_env(Cart()), policy="MultiInputPolicy", policy_kwargs=ASYMMETRIC, **PPO
    )
    export(model, tmp_path / "actor.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "actor.onnx"))
    seen = {"policy": np.full((3, 1), 0.3, np.float32), "critic": np.zeros((3, 2), np.float32)}
    wanted, _ = model.predict(seen, deterministic=True)
    for critic in (seen["critic"], seen["critic"] + 9.0):
        given = {each.name: critic if each.name.endswith("critic") else seen["policy"] for each in session.get_inputs()}
        np.testing.assert_allclose(session.run(None, given)[0], wanted, rtol=1e-5, atol=1e-6)


class Spoiled(Cart):
    """Carts whose step returns something else in one place: an observation, `rewards`, `dones`, or an entry of `extras`."""

    def __init__(self, place: str, value: Any) -> None:
        super().__init__(groups=False)
        self.spoiled, self.value = place, value

    def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Mapping[str, Any]]:
        seen, reward, done, extras = super().step(actions)
        given = {"obs": seen, "rewards": reward, "dones": done, **extras, self.spoiled: self.value}
        return given.pop("obs"), given.pop("rewards"), given.pop("dones"), given


ENDED = torch.ones(4, dtype=torch.long)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("obs", torch.full((4, 1), np.nan), "step: an observation or a reward is NaN or infinite"),
        ("rewards", torch.full((4,), np.inf), "step: an observation or a reward is NaN or infinite"),
        ("rewards", np.zeros(4), "rewards: got array"),
        ("rewards", torch.zeros(4, 1), r"rewards: got torch.float32 \(4, 1\)"),
        ("dones", None, "dones: got None"),
        ("dones", torch.full((4,), 0.5), "dones: floats other than 0 and 1"),
        ("dones", torch.full((4,), np.nan), "dones: floats other than 0 and 1"),
        ("time_outs", torch.zeros(4, 1), r"time_outs'\]: got torch.float32 \(4, 1\)"),
        ("time_outs", torch.full((4,), np.nan), "floats other than 0 and 1"),
    ],
)
def test_numbers_of_a_step_that_cannot_be_used_are_named(place: str, value: Any, message: str) -> None:
    env = make_isaac_vec_env(Spoiled(place, value))
    env.reset(0)
    with pytest.raises(EnvironmentFault, match=message):
        env.step(torch.zeros(4, 1))


@pytest.mark.parametrize(("rows", "message"), [(7, r"got torch.float32 \(7, 1\)"), (2, r"got torch.float32 \(2, 1\)")])
def test_last_observations_are_those_of_all_rows_or_of_those_that_ended(rows: int, message: str) -> None:
    class Ending(Spoiled):
        def step(self, actions: Tensor) -> tuple[Any, Tensor, Tensor, Mapping[str, Any]]:
            seen, reward, _, extras = super().step(actions)
            return seen, reward, ENDED * torch.tensor([1, 0, 1, 1]), extras

    env = make_isaac_vec_env(Ending("final_observation", torch.zeros(rows, 1)))
    env.reset(0)
    with pytest.raises(EnvironmentFault, match=message):
        env.step(torch.zeros(4, 1))


def test_flags_may_be_floats_and_time_outs_another_kind_of_array() -> None:
    env = make_isaac_vec_env(Spoiled("time_outs", np.array([1.0, 0.0, 1.0, 0.0])))
    env.reset(0)
    for _ in range(LIMIT):
        step = env.step(torch.zeros(4, 1))
        assert not (step.truncated & step.terminated).any()
        assert not step.truncated[1::2].any()
    assert (step.truncated | step.terminated).any()


def test_a_simulator_that_cannot_be_used_is_refused_at_once() -> None:
    class Wrong(Cart):
        num_actions = -1

    class Blind(Cart):
        def seen(self) -> Any:
            return {}

    with pytest.raises(UsageError, match="give action_space"):
        make_isaac_vec_env(Wrong())
    with pytest.raises(EnvironmentFault, match="no group of observations"):
        make_isaac_vec_env(Blind())
    for name, value, message in (
        ("num_envs", "4", "n_envs = '4'"),
        ("device", "nope", "device 'nope' cannot be used here"),
    ):
        env = Cart()
        setattr(env, name, value)
        with pytest.raises(SettingsError, match=message):
            make_isaac_vec_env(env)
