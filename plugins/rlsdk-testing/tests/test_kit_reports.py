"""What the contract kit reports about a plugin: one report of a crash, time limits under load, causes, and where to look."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import rlsdk
from rlsdk.buffers import ReplayBuffer
from rlsdk.exploration import UniformWarmUp
from rlsdk.interfaces import BuildContext, Parts
from rlsdk.networks import FlattenEncoder
from rlsdk.records import Act, Metrics, Observation, Rollout, Transitions
from rlsdk.registry import AlgorithmSpec, Manifest, unregister
from rlsdk.settings import AgentConfig, described, in_range
from rlsdk.training import OffPolicyPlan, OnPolicyPlan
from rlsdk.updates import FlatOptimizer
from rlsdk_testing import Subject, run_checks, running, worker_process
from rlsdk_testing.kit import Crashes, named_clause, outcome_of, result
from rlsdk_testing.toys import Watch, _where_to_look
from rlsdk_testing.worker_process import Limit
from tests.bad_plugins import add_plugin
from tests.plugin_site import Site


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the kit have only these clauses, in this order."""
    chosen = tuple(map(named_clause, names))
    monkeypatch.setattr(running, "clauses", lambda: chosen)


def registered(build: Any, config: type[Any]) -> None:
    common: dict[str, Any] = {"id": "reported", "family": "test", "policies": ("MlpPolicy",)}
    manifest = Manifest(title="x", summary="x", sdk=">=0.1", actions=("Discrete",), observations=("Box",), **common)
    live = ("learning_rate", "scale") if "scale" in attrs.fields_dict(config) else ()
    rlsdk.register(AlgorithmSpec(config_type=config, build=build, live=live, **common), manifest)


@pytest.fixture
def algorithms() -> Iterator[Any]:
    """A function that registers the algorithm "reported" until the end of the test."""
    yield registered
    unregister("reported")


# --- crashes ---------------------------------------------------------------------------------------------------------

CRASHED = ("algorithm.metrics", "batch.repeatable", "agent.seed-reproduces")


@pytest.mark.parametrize("isolate", [True, False])
def test_one_crash_is_reported_once_with_its_line(site: Site, monkeypatch: pytest.MonkeyPatch, isolate: bool) -> None:
    package = add_plugin(site, update="[][3]")
    only(monkeypatch, "plugin.manifest-agrees", *CRASHED)
    found = {each.id: each for each in run_checks("bad", isolate=isolate)}
    lines = (package / "parts.py").read_text().splitlines()
    place = f"acme_bad/parts.py, line {next(i for i, line in enumerate(lines, 1) if '[][3]' in line)}"
    first, *others = (found[name] for name in CRASHED)
    assert first.status == "failed"
    assert first.detail == f"IndexError: list index out of range ({place})"
    assert first.remedy == f"mend the error that {place} raises; clauses that meet it too are not judged before"
    for each in others:
        assert (each.status, each.remedy) == ("not run", "")
        assert each.detail == f"not judged: the IndexError in {place} that {first.id} met ends it as well"
    assert found["plugin.manifest-agrees"].status == "passed"


def test_another_error_or_line_is_reported_on_its_own() -> None:
    crashes, plain = Crashes(), result(named_clause("algorithm.metrics"), "failed")
    for number, crash in enumerate(
        ("KeyError in a.py, line 1", "IndexError in a.py, line 1", "KeyError in a.py, line 2", "")
    ):
        outcome = attrs.evolve(plain, id=f"group.{number}", crash=crash)
        assert crashes.judged(outcome) is outcome
        assert crashes.judged(outcome) is outcome, "a clause that is checked again is judged again"


# --- time ------------------------------------------------------------------------------------------------------------


class Clock:
    """A process that takes `share` of a processor, under a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
        self.now, self.share = 0.0, share
        monkeypatch.setattr(worker_process.time, "monotonic", lambda: self.now)

    def ends(self, seconds: float, within: float = 1e9) -> tuple[float, Any]:
        """(the time at which the limit is over, the fault)."""
        limit = Limit(seconds, within, lambda: self.share * self.now)
        while (fault := limit.over()) is None:
            self.now += 0.25
        return self.now, fault


@pytest.mark.parametrize(
    ("share", "at", "words"),
    [
        (1.0, 60.0, "60 s of processor time"),
        (0.25, 240.0, "60 s of processor time"),
        (0.05, 600.0, "600 s"),
        (0.0, 60.0, "60 s"),
        (0.005, 60.0, "60 s"),
        (4.0, 15.0, "60 s of processor time"),
    ],
)
def test_a_clause_has_processor_time(share: float, at: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that gets a quarter of a processor, fails no clause. One that waits is found as before."""
    ended, fault = Clock(monkeypatch, share).ends(60.0)
    assert ended == pytest.approx(at, abs=0.3)
    assert fault.text == f"did not end within {words}"
    assert (fault.hangs, fault.late) == (True, False)


def test_the_time_of_the_whole_check_is_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, fault = Clock(monkeypatch, 0.1).ends(60.0, within=20.0)
    assert ended == pytest.approx(20.0, abs=0.3)
    assert fault.late


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="processor time is read from /proc")
def test_processor_time_includes_that_of_children(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    work = "import subprocess; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    add_plugin(site, state_dict=work)
    only(monkeypatch, "agent.parameters-round-trip")
    monkeypatch.setattr("rlsdk_testing.isolation.SECONDS", 4.0)
    began = time.monotonic()
    (found,) = run_checks("bad")
    assert found.detail.startswith("it did not end within 4 s of processor time in state_dict (acme_bad/parts.py")
    assert time.monotonic() - began < 60


# --- where to look ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "updated", "words"),
    [
        ([0.5, 0.5, 0.52], False, "No update was made"),
        ([0.5, 0.5, 0.52], True, "The score hardly moved"),
        ([0.5, 0.3, 0.1], True, "It became worse in each training: look for a wrong sign"),
        ([0.5, 0.9, 0.4], True, "It was reached and lost again"),
        ([0.3, 0.6, 0.7], True, "It learns a part"),
        ([float("nan")], True, "No score was a finite number"),
    ],
)
def test_a_task_that_is_not_learned_says_where_to_look(scores: list[float], updated: bool, words: str) -> None:
    watch = Watch(lambda: 0.0, 0.8, 10)
    watch.scores, watch.updated = scores, updated
    assert _where_to_look([watch, watch], 0.8).startswith(words)


# --- a learner that normalizes over the batch ------------------------------------------------------------------------


@attrs.frozen
class Config(AgentConfig):
    learning_rate: float = attrs.field(default=1e-2, validator=in_range(0), metadata=described("step size"))
    gamma: float = attrs.field(default=0.9, validator=in_range(0, 1))
    scale: float = attrs.field(default=1.0, validator=in_range(0), metadata=described("factor of rewards"))
    buffer_size: int = attrs.field(default=100_000, validator=in_range(1))
    rows: int = attrs.field(default=512, validator=in_range(1), metadata=described("steps of an update"))
    begin: int = attrs.field(default=10_000, validator=in_range(0), metadata=described("steps before the first update"))


@attrs.frozen
class Sooner(Config):
    rows: int = attrs.field(default=16, validator=in_range(1), metadata=described("steps of an update"))
    begin: int = attrs.field(default=8, validator=in_range(0), metadata=described("steps before the first update"))


class Greedy(nn.Module):
    bias = False

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        encoder, actions = FlattenEncoder(context.observation_space), context.action_space.n  # type: ignore[union-attr]
        width = encoder.features_dim
        self.net = nn.Sequential(
            encoder, nn.Linear(width, 16, bias=self.bias), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, actions)
        )

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(self, observation: Observation, carry: Any, *, deterministic: bool, generator: Any) -> Act[Any, Any]:
        self.net.eval()
        return Act(self.net(observation.features).argmax(-1), carry, ())


class Joint:
    """Q-learning without a target network: both observations of a transition pass the network in one batch, as in CrossQ."""

    ends, flat = True, True

    def __init__(self, policy: Greedy, config: Config) -> None:
        self.policy, self.config = policy, config
        self.optimizer: Any = torch.optim.Adam(policy.parameters(), config.learning_rate)
        if self.flat:
            self.optimizer = FlatOptimizer(policy, "adam", config.learning_rate)

    def update(self, batch: Transitions, *, progress: float) -> Metrics:
        self.policy.net.train()
        both = torch.cat([batch.observation.features, batch.next_observation.features])
        values, following = self.policy.net(both).chunk(2)
        discount = batch.discount if self.ends else torch.full_like(batch.discount, self.config.gamma)
        target = self.config.scale * batch.reward + discount * following.max(-1).values.detach()
        error = (target - values.gather(-1, batch.action.long()[:, None])[:, 0]).square()
        loss = (error if batch.weight is None else error * batch.weight).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step(*[self.config.learning_rate] * self.flat)
        return {"train/loss": loss.detach()}

    def reconfigure(self, config: Config) -> None:
        """The bug that `settings.live-take-over` finds: the new settings are stored where nothing reads them."""
        self.settings = config

    def state_dict(self) -> Mapping[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        self.optimizer.load_state_dict(state["optimizer"])


def build_joint(context: BuildContext, config: Config) -> Parts:
    policy = Greedy(context)
    return Parts(
        policy=policy,
        algorithm=Joint(policy, config),
        plan=OffPolicyPlan(1, 1, config.rows, config.begin),
        buffer=ReplayBuffer(context, config.buffer_size, config.gamma),
        behavior=UniformWarmUp(policy, context.action_space, steps=config.begin),
    )


def test_settings_of_unknown_names_are_named(algorithms: Any) -> None:
    algorithms(build_joint, Config)
    subject = Subject("reported")
    settings = subject.settings()
    assert settings["buffer_size"] == 300
    assert not {"rows", "begin"} & set(settings)
    outcome = outcome_of(named_clause("batch.repeatable"), "reported")
    assert outcome.status == "not applicable"
    hint = "the kit does not know rows = 512, begin = 10000: give smaller values in testing_settings of the manifest"
    assert outcome.detail.endswith(hint)


@pytest.mark.parametrize(("bias", "flat"), [(False, True), (True, True), (True, False)])
def test_joint_batch_normalization_needs_no_exceptions(
    algorithms: Any, monkeypatch: pytest.MonkeyPatch, bias: bool, flat: bool
) -> None:
    """The normalization subtracts a bias in front of it again: its gradient is rounding, of which Adam makes whole steps."""
    monkeypatch.setattr(Greedy, "bias", bias)
    monkeypatch.setattr(Joint, "flat", flat)
    algorithms(build_joint, Sooner)
    for name in ("batch.ends-have-no-next", "batch.weights", "batch.rows-permuted", "batch.duplicates"):
        found = outcome_of(named_clause(name), "reported")
        assert found.status == "passed", found
    monkeypatch.setattr(Joint, "ends", False)
    outcome = outcome_of(named_clause("batch.ends-have-no-next"), "reported")
    assert outcome.status != "passed"


# --- settings that are not taken over, and log-probabilities of other policies ---------------------------------------


def test_settings_that_fail_alike_are_one_message(algorithms: Any) -> None:
    algorithms(build_joint, Sooner)
    outcome = outcome_of(named_clause("settings.live-take-over"), "reported")
    assert outcome.status == "failed"
    assert outcome.detail.count("\n") == 0
    assert outcome.detail.startswith("Changes nothing in the training that follows: agent.learning_rate = ")
    assert "As there are 2, look first whether reconfigure() runs at all" in outcome.detail
    assert "agent.scale = " in outcome.detail


@attrs.frozen
class Rollouts(AgentConfig):
    n_steps: int = attrs.field(default=16, validator=in_range(1))


class Softmax(nn.Module):
    shift = 0.0

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        encoder, actions = FlattenEncoder(context.observation_space), context.action_space.n  # type: ignore[union-attr]
        self.net = nn.Sequential(encoder, nn.Linear(encoder.features_dim, actions))

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(self, observation: Observation, carry: Any, *, deterministic: bool, generator: Any) -> Act[Any, Any]:
        scores = self.net(observation.features).log_softmax(-1)
        action = scores.argmax(-1) if deterministic else torch.multinomial(scores.exp(), 1, generator=generator)[:, 0]
        return Act(action, carry, {"log_prob": scores.gather(-1, action[:, None])[:, 0]})

    def evaluate_actions(self, observation: Observation, action: Any) -> tuple[Any, Any, Any]:
        scores = self.net(observation.features).log_softmax(-1)
        log_prob = scores.gather(-1, action.long()[:, None])[:, 0]
        return torch.zeros_like(log_prob), log_prob + self.shift, -(scores.exp() * scores).sum(-1)


class Nothing:
    def update(self, batch: Rollout[Any, Any], *, progress: float) -> Metrics:
        return {}

    def state_dict(self) -> Mapping[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


def build_softmax(context: BuildContext, config: Rollouts) -> Parts:
    return Parts(policy=Softmax(context), algorithm=Nothing(), plan=OnPolicyPlan(config.n_steps))


def test_log_probabilities_of_other_policies_are_compared(algorithms: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithms(build_softmax, Rollouts)
    clause = named_clause("policy.ratio-is-one")
    assert outcome_of(clause, "reported").status == "passed"
    monkeypatch.setattr(Softmax, "shift", 0.1)
    outcome = outcome_of(clause, "reported")
    assert outcome.status == "failed"
    assert "a log-probability of evaluate_actions differs from that of act by 0.1" in outcome.detail
    monkeypatch.delattr(Softmax, "evaluate_actions")
    assert "with log_prob in its extras and a method evaluate_actions(" in outcome_of(clause, "reported").detail.lower()
