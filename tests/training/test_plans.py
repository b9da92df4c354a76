"""Plans: training loops of plugins, errors for wrong plans and parts, and groups of environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator

import rlsdk
from rlsdk.agent import agent_class
from rlsdk.callbacks import Callback, LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import DivergenceError, PluginError, UsageError
from rlsdk.interfaces import (
    AlgorithmAbilities,
    BufferAbilities,
    BuildContext,
    Parts,
    PolicyAbilities,
    VectorEnvAbilities,
    ability,
)
from rlsdk.interfaces.parts import Training
from rlsdk.records import ActingState, Cursor, Report
from rlsdk.registry import AlgorithmSpec, Manifest, unregister
from rlsdk.registry.discovery import register
from rlsdk.runtime.process import Streams
from rlsdk.training import (
    LocalCollector,
    OffPolicyPlan,
    begin_acting,
    group_generators,
    split_acting,
)
from rlsdk.training.collector import GroupedPolicy, collect
from rlsdk.tree import flatten, leaves, map_tensors
from rlsdk_ars import PopulationPlan
from rlsdk_envs.toy import IdentityEnv
from rlsdk_parallel import join_rollouts
from tests import small_algorithms


class TwoRollouts:
    """A custom training loop: it collects two rollouts and learns from the one with the larger sum of rewards."""

    needs_environment, unit, log_every = True, "steps", "rounds"

    def __init__(self, length: int) -> None:
        self.length = length

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        collector, parts = training.collector, training.parts
        while cursor.env_steps < training.end:
            found = [collector.collect(parts.behavior_policy, self.length, ends_round=False) for _ in range(2)]
            collector.end_round()
            steps = cursor.env_steps + sum(len(r.steps.reward) for r in found) * collector.num_envs
            better = max(found, key=lambda rollout: float(rollout.steps.reward.sum()))
            metrics = parts.algorithm.update(better, progress=training.progress(steps))
            cursor = Cursor(steps, cursor.updates + 1)
            episodes = tuple(episode for rollout in found for episode in rollout.episodes)
            yield cursor, Report(steps, cursor.updates, episodes, metrics)


class Counting:
    """A plan that counts updates and needs no environment."""

    needs_environment, unit, log_every = False, "updates", "rounds"

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        while cursor.updates < training.end:
            cursor = replace(cursor, updates=cursor.updates + 1)
            yield cursor, Report(cursor.env_steps, cursor.updates, (), {"train/loss": torch.tensor(0.0)})


def agent(plan: Any = None, *, env: Any = None, family: str = "two-rollouts", **changes: Any) -> Any:
    """Return an agent of `small_algorithms` with this plan; `changes` maps names of parts to functions that change them."""

    def build(context: BuildContext, config: small_algorithms.Config) -> Parts:
        parts = small_algorithms.build(context, config)
        for name, change in changes.items():
            parts = replace(parts, **{name: change(getattr(parts, name))})
        return parts if plan is None else replace(parts, plan=plan)

    spec = AlgorithmSpec(
        id="own-loop", family=family, policies=("MlpPolicy",), config_type=small_algorithms.Config, build=build
    )
    environment = make_vec_env(lambda: IdentityEnv(3), 2, vectorization="sync") if env is None else env
    return agent_class(spec)("MlpPolicy", environment, seed=0)


def test_a_loop_of_a_plugin_trains_saves_and_goes_on(tmp_path: Any) -> None:
    whole, first = agent(TwoRollouts(8)), agent(TwoRollouts(8))
    whole.learn(128)
    assert (whole.num_timesteps, whole.cursor) == (128, Cursor(128, 4))
    first.learn(64)
    first.learn(64, reset_num_timesteps=False)
    theirs, ours = (flatten(dict(one.policy.state_dict())) for one in (whole, first))
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    manifest: dict[str, Any] = {"id": "own-loop", "family": "two-rollouts", "policies": ("MlpPolicy",)}
    spaces = {"actions": ("Discrete",), "observations": ("Discrete",)}
    register(first.spec, Manifest(title="t", summary="s", sdk=">=0.1", **manifest, **spaces))
    try:
        first.save(tmp_path / "own")
        loaded = rlsdk.load(tmp_path / "own", env=make_vec_env(lambda: IdentityEnv(3), 2, vectorization="sync"))
        loaded.learn(32, reset_num_timesteps=False)
        assert loaded.num_timesteps == 160
    finally:
        unregister("own-loop")


def test_callbacks_see_one_round_for_several_collects() -> None:
    events = list[str]()

    class Noting(Callback):
        def on_rollout_start(self, run: Any) -> None:
            events.append("start")

        def on_step(self, run: Any, step: Any) -> None:
            events.append("step")

        def on_rollout_end(self, run: Any) -> None:
            events.append("end")

    agent(TwoRollouts(2)).learn(8, Noting())
    assert events == ["start", *["step"] * 4, "end", "start"] or events == ["start", *["step"] * 4, "end"]


def test_an_algorithm_hears_of_the_rollout_that_it_does_not_learn_from() -> None:
    """A callback ended the training in it, so it belongs to no update."""
    model = rlsdk.make("ppo", env=IdentityEnv(3), n_steps=8, batch_size=8, n_epochs=1)
    heard: list[int] = []
    model.parts.algorithm.discarded = lambda rollout: heard.append(len(rollout.steps.reward))
    model.learn(16)
    assert heard == []
    model.learn(16, LambdaCallback(on_step=lambda run, step: run.num_timesteps < 11), reset_num_timesteps=False)
    assert len(heard) == 1


def test_a_plan_without_environment_counts_updates() -> None:
    model = agent(Counting())
    model.learn(7)
    assert (model.num_timesteps, model.cursor, model.acting) == (7, Cursor(0, 7), ())
    model.learn(3, reset_num_timesteps=False)
    assert model.num_timesteps == 10


def test_a_plan_without_environment_cannot_collect() -> None:
    plan = TwoRollouts(2)
    plan.needs_environment = False
    with pytest.raises(UsageError, match="needs_environment = False but collects"):
        agent(plan).learn(4)


class Yields(TwoRollouts):
    """A plan whose `rounds` yields the given values."""

    def __init__(self, *values: Any) -> None:
        super().__init__(1)
        self.values = values

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[Any]:
        yield from self.values


class NoGenerator(TwoRollouts):
    def rounds(self, training: Training, cursor: Cursor) -> Any:
        return [(cursor, None)]


class OtherArguments(TwoRollouts):
    def rounds(self, env: Any) -> Any:  # type: ignore[override]
        yield env


def _declaring(name: str, value: object) -> TwoRollouts:
    plan = TwoRollouts(1)
    setattr(plan, name, value)
    return plan


def _without(name: str) -> Any:
    members = {"rounds": TwoRollouts.rounds, "needs_environment": True, "unit": "steps", "log_every": "rounds"}
    return type("Incomplete", (), {key: value for key, value in members.items() if key != name})()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (object(), "no rounds"),
        (_without("rounds"), "no rounds"),
        (_without("unit"), "its training loop, Incomplete, has no unit"),
        (OtherArguments(1), r"is called as rounds\(training, cursor\)"),
        (_declaring("unit", "episodes"), "has unit = 'episodes'; accepted: 'steps', 'updates'"),
        (_declaring("log_every", "days"), "accepted: 'episodes', 'rounds'"),
        (_declaring("needs_environment", "yes"), "accepted: True, False"),
        (OffPolicyPlan(1, 1, 8, 0), "samples a buffer; pass Parts"),
        (PopulationPlan(lambda parameters: lambda seen: seen, 1), r"Reinforce has no propose\(progress=\)"),
    ],
)
def test_plans_are_checked_when_parts_are_assembled(plan: Any, words: str) -> None:
    with pytest.raises(PluginError, match=words) as caught:
        agent(plan)
    assert "own-loop" in str(caught.value)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (NoGenerator(1), "returned list, no iterator"),
        (Yields(None), "yielded None"),
        (Yields((Cursor(1), "report")), r"yielded \(Cursor, str\)"),
        (Yields((1, 2, 3)), r"yielded \(int, int, int\)"),
        (Yields((Cursor(-1), Report(0, 0, (), None))), "counts of its training loop fell"),
        (
            Yields((Cursor(8, 2), Report(8, 2, (), None)), (Cursor(9, 1), Report(9, 1, (), None))),
            "counts of its training loop fell",
        ),
    ],
)
def test_what_a_plan_yields_is_checked(plan: Any, words: str) -> None:
    with pytest.raises(PluginError, match=words) as caught:
        agent(plan).learn(64)
    assert "own-loop" in str(caught.value)


def _with(name: str, value: Any) -> Any:
    """Return a function that sets the attribute `name` of a part to `value`."""

    def change(part: Any) -> Any:
        object.__setattr__(part, name, value)
        return part

    return change


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        (
            "policy",
            _with("begin_rolout", lambda carry: carry),
            "its policy, Softmax, has begin_rolout.*to begin_rollout",
        ),
        ("policy", _with("begin_rollout", lambda: None), r"is called as begin_rollout\(carry\)"),
        ("policy", _with("begin_rollout", 3), "begin_rollout = 3, which is not a method"),
        ("algorithm", _with("td_errors", None), "its algorithm, Reinforce, has td_errors.*rename it to td_error"),
        ("algorithm", _with("reconfigured", lambda config: None), "rename it to reconfigure"),
        ("algorithm", _with("collected", lambda steps: None), r"is called as collected\(env_steps, progress\)"),
        ("algorithm", _with("update", lambda batch: {}), r"is called as update\(batch, progress=\)"),
        ("policy", _with("initial_carry", lambda: ()), r"is called as initial_carry\(batch\)"),
        ("policy", _with("act", 1), "act = 1, which is not a method"),
    ],
)
def test_misspelt_and_wrong_members_are_errors(part: str, change: Any, words: str) -> None:
    with pytest.raises(PluginError, match=words) as caught:
        agent(**{part: change})
    assert "own-loop" in str(caught.value)


class ActsWith:
    """A wrapper of a policy: `result` changes what `act` returns."""

    def __init__(self, inner: Any, result: Any) -> None:
        self.inner, self.result = inner, result

    def initial_carry(self, batch: int) -> Any:
        return self.inner.initial_carry(batch)

    def act(self, observation: Any, carry: Any, *, deterministic: bool, generator: Any) -> Any:
        return self.result(self.inner.act(observation, carry, deterministic=deterministic, generator=generator))

    def state_dict(self) -> Any:
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None: ...


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda act: act.action, "act of its policy, ActsWith, returned Tensor; return rlsdk.records.Act"),
        (lambda act: None, "returned NoneType; return rlsdk.records.Act"),
        (lambda act: replace(act, action=act.action[:1]), r"an action of shape \[1\] for 2 environments"),
        (lambda act: replace(act, action=torch.tensor(0)), r"an action of shape \[\] for 2 environments"),
        (lambda act: replace(act, action=act.action.numpy()), "an action ndarray for 2 environments; give tensors"),
    ],
)
def test_what_a_policy_returns_is_checked_in_the_first_rollout(result: Any, words: str) -> None:
    model = agent(policy=lambda policy: ActsWith(policy, result))
    with pytest.raises(PluginError, match=words) as caught:
        model.learn(64)
    assert str(caught.value).startswith("'own-loop': ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [0, -1, 2.0, None])
def test_a_length_that_cannot_be_collected_is_an_error(length: Any) -> None:
    with pytest.raises(
        PluginError, match=r"'own-loop': its training loop called collect\(.*whole number of at least 1"
    ):
        agent(TwoRollouts(length)).learn(4)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", range(3))
def test_each_metric_must_be_finite(place: int, wrong: float) -> None:
    metrics = {name: torch.tensor(wrong if i == place else 1.0) for i, name in enumerate("abc")}
    model = agent(algorithm=_with("update", lambda batch, *, progress: metrics))
    with pytest.raises(DivergenceError, match=f"diverged at update .*: {{'{'abc'[place]}': {wrong}}};"):
        model.learn(64)


@pytest.mark.parametrize("metrics", [None, {}, {"loss": 0.1}, {"loss": torch.zeros(2)}, {"loss": torch.zeros(1)}])
def test_what_an_update_returns_is_checked(metrics: Any) -> None:
    model = agent(algorithm=_with("update", lambda batch, *, progress: metrics))
    with pytest.raises(PluginError, match=r"'own-loop': update\(\) must return metrics"):
        model.learn(64)
    tqc = rlsdk.make("tqc", env="Pendulum-v1", buffer_size=50, learning_starts=2, batch_size=2)
    tqc.parts.algorithm.update = lambda batch, *, progress: metrics  # type: ignore[method-assign]
    with pytest.raises(PluginError, match=r"'tqc': update\(\) must return metrics"):
        tqc.learn(8)


class PrioritisedMemory:
    """A replay buffer with a misspelt method: `prioritise` instead of `prioritize`."""

    def extend(self, item: Any) -> None: ...
    def sample(self, size: int, generator: Any) -> Any: ...
    def __len__(self) -> int:
        return 0

    def bytes_required(self) -> int:
        return 0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...
    def prioritise(self, index: Any, error: Any) -> None: ...


def test_a_misspelt_method_of_a_memory_is_an_error() -> None:
    with pytest.raises(PluginError, match=r"its buffer, PrioritisedMemory, has prioritise.*to prioritize"):
        agent(buffer=lambda _: PrioritisedMemory())


class LeavesAllOut(AlgorithmAbilities, BufferAbilities, VectorEnvAbilities):
    """Has one of the optional members of its base classes."""

    def collected(self, env_steps: int, progress: float, /) -> object:
        return env_steps + progress


class Passing:
    """Passes attributes on."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("wrap", [lambda part: part, Passing])
def test_members_that_a_class_leaves_out_are_absent(wrap: Callable[[object], object]) -> None:
    part = wrap(LeavesAllOut())
    assert (found := ability(part, AlgorithmAbilities, "collected")) is not None
    assert found.collected(2, 0.5) == 2.5
    absent = [(AlgorithmAbilities, "td_error"), (BufferAbilities, "prioritize"), (VectorEnvAbilities, "set_state")]
    assert [ability(part, kind, name) for kind, name in absent] == [None] * 3
    with pytest.raises(KeyError):  # no such member: a mistake of the caller
        ability(part, AlgorithmAbilities, "colected")


def test_parts_may_derive_from_the_classes_of_their_abilities() -> None:
    def derive(part: Any) -> Any:
        base = PolicyAbilities if hasattr(part, "act") else AlgorithmAbilities
        part.__class__ = type("Derived", (type(part), base), {})
        return part

    plain, derived = agent(TwoRollouts(8)), agent(TwoRollouts(8), policy=derive, algorithm=derive)
    assert isinstance(derived.parts.policy, PolicyAbilities)
    assert isinstance(derived.parts.algorithm, AlgorithmAbilities)
    theirs, ours = (flatten(dict(one.learn(64).policy.state_dict())) for one in (plain, derived))
    assert all(torch.equal(theirs[name], value) for name, value in ours.items())


def test_other_names_are_no_misspellings() -> None:
    agent(algorithm=_with("n_updates", 0), policy=_with("collect", None))


def _policy(count: int, *, recurrent: bool) -> Any:
    name, extra = ("recurrent-ppo", {"batch_size": 8}) if recurrent else ("trpo", {"use_sde": True})
    env = make_vec_env("Pendulum-v1", count, vectorization="sync")
    return rlsdk.make(name, env=env, seed=3, n_steps=8, **extra).parts.policy


def test_values_of_groups_are_those_of_their_rows() -> None:
    env = make_vec_env(lambda: IdentityEnv(3), 4, vectorization="sync")
    policy = rlsdk.make("ppo", env=env, seed=0).parts.policy
    grouped = GroupedPolicy(policy, (2, 2), [Generator(), Generator()])
    at = ActingState(env.reset(0), policy.initial_carry(4))
    steps = collect(env, policy, at, 5, generator=Generator()).steps
    steps = replace(steps, extras=replace(steps.extras, value=None, log_prob=None))
    found, wanted = grouped.estimates(steps), policy.estimates(steps)
    assert wanted.value is not None
    torch.testing.assert_close(found.value, wanted.value)


@pytest.mark.parametrize("recurrent", [False, True])
def test_groups_give_the_same_whether_stepped_together_or_apart(recurrent: bool) -> None:
    policy, lengths = _policy(4, recurrent=recurrent), (130, 100)
    together = make_vec_env("Pendulum-v1", 4, vectorization="sync")
    first = together.reset(0)
    collector = LocalCollector(together, split_acting(first, policy, 2), group_generators(Streams(7), 2))
    whole = [collector.collect(policy, length) for length in lengths]

    apart = make_vec_env("Pendulum-v1", 4, vectorization="sync")
    apart.reset(0)
    states = split_acting(first, policy, 2)
    halves = []
    for group, generator in enumerate(group_generators(Streams(7), 2)):
        rows = slice(2 * group, 2 * group + 2)
        env = _Half(make_vec_env("Pendulum-v1", 4, vectorization="sync"), rows)
        one = LocalCollector(env, (states[group],), [generator])
        halves.append([one.collect(policy, length) for length in lengths])
    for k, rollout in enumerate(whole):
        joined = join_rollouts([half[k] for half in halves])
        ours, theirs = leaves(rollout.steps), leaves(joined.steps)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert all(
            torch.equal(a, b) for a, b in zip(leaves(rollout.last_carry), leaves(joined.last_carry), strict=True)
        )
        assert rollout.episodes == joined.episodes
        assert (rollout.final_observations is None) == (joined.final_observations is None)
        if rollout.final_observations is not None:
            pairs = zip(leaves(rollout.final_observations), leaves(joined.final_observations), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
    assert any(rollout.episodes for rollout in whole)


class _Half:
    """Some environments (`rows`) of a vector as a vector environment of their own; the others always get action 0."""

    def __init__(self, env: Any, rows: slice) -> None:
        self.env, self.rows = env, rows
        env.reset(0)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.num_envs = rows.stop - rows.start

    def step(self, action: Any) -> Any:
        every = torch.zeros(self.env.num_envs, *action.shape[1:], dtype=action.dtype)
        every[self.rows] = action
        step = self.env.step(every)
        ended = (step.terminated | step.truncated).nonzero()[:, 0].tolist()
        mine = [i for i, env in enumerate(ended) if self.rows.start <= env < self.rows.stop]
        keep = [e for e in step.episodes if self.rows.start <= e.env < self.rows.stop]
        final = step.final_observation

        def cut(leaf: torch.Tensor) -> torch.Tensor:
            return leaf[self.rows]

        return replace(
            step,
            observation=map_tensors(cut, step.observation),
            reward=cut(step.reward),
            terminated=cut(step.terminated),
            truncated=cut(step.truncated),
            valid=cut(step.valid),
            final_observation=None if final is None or not mine else map_tensors(lambda leaf: leaf[mine], final),
            episodes=tuple(replace(e, env=e.env - self.rows.start) for e in keep),
        )


def test_one_group_is_what_collecting_was() -> None:
    policy = _policy(2, recurrent=False)
    env, other = (make_vec_env("Pendulum-v1", 2, vectorization="sync") for _ in range(2))
    one = LocalCollector(env, (begin_acting(env, policy, 0),), group_generators(Streams(7), 1))
    start = begin_acting(other, policy, 0)
    begun = ActingState(start.observation, policy.begin_rollout(start.carry))
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            leaves(one.collect(policy, 8).steps),
            leaves(collect(other, policy, begun, 8, generator=Streams(7)["action"]).steps),
            strict=True,
        )
    )
