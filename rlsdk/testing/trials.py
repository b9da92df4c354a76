"""Short trainings of a plugin that differ in one setting: what each leaves, and whether two leave the same."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

import attrs
import numpy as np
import torch
from gymnasium import spaces

from rlsdk.agent import Agent
from rlsdk.callbacks import Callback
from rlsdk.environments import make_vec_env
from rlsdk.environments.toy import AnySpaceEnv, FakeImageEnv, SimpleMultiObsEnv
from rlsdk.records import Report
from rlsdk.settings import evolve
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.subject import ACTIONS, Subject, differing, flat_state
from rlsdk.training.run import Run

STEPS, ROUNDS = 32, 3
"""Environment steps of a training, and rounds of collecting and updating that it has at least."""
LONG = 4
"""Times the usual length: a training whose halves have several rounds."""
RESTLESS: dict[str, object] = {"learning_rate": 1e-2, "n_epochs": 2}
"""Settings with which a short training moves far, where a config class has them and the plugin declares no others."""
Left = dict[str, torch.Tensor]
"""What a training leaves: name -> tensor."""


class AnsweringEnv(AnySpaceEnv):
    """`AnySpaceEnv` whose rewards depend on the actions too."""

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + float(np.sin(np.sum(_numbers(action)))), terminated, truncated, info


def _numbers(action: object) -> list[float]:
    if isinstance(action, Mapping):
        return [number for part in action.values() for number in _numbers(part)]
    if isinstance(action, tuple):
        return [number for part in action for number in _numbers(part)]
    return [float(number) for number in np.ravel(np.asarray(action))]


@attrs.frozen
class Place:
    """A kind of environment to train in."""

    name: str
    make: Callable[[], object] = attrs.field(eq=False)
    policy: str
    about: str = ""
    """Words of settings that matter there."""


@attrs.frozen
class Refused:
    """A training that the plugin does not take: why."""

    why: str


class Trials:
    """Trainings of one plugin; equal ones run once."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.places = list(_places(subject))
        names = {field.name for field in attrs.fields(subject.spec.config_type)}
        self.base = {name: value for name, value in RESTLESS.items() if name in names - set(subject.settings())}
        self._done: dict[object, Left | Refused] = {}
        with quietly():
            agent = subject.agent(self.places[0].make(), policy=self.places[0].policy, **self.base)
            self.config = agent.config
            self.steps = max(STEPS, ROUNDS * agent.learn(1).num_timesteps)

    def agent(self, place: Place, changes: Mapping[str, object]) -> Agent:
        """An agent that has not learnt, with settings under their dotted names."""
        return self.subject.agent(place.make(), policy=place.policy, **{**self.base, **self._changed(changes)})

    def _changed(self, changes: Mapping[str, object]) -> dict[str, object]:
        """The same for the config class: a nested one is made again."""
        flat = {name: value for name, value in changes.items() if "." not in name}
        for name, value in changes.items():
            if "." in name:
                table, inner = name.split(".")
                flat[table] = evolve(flat.get(table, getattr(self.config, table)), {inner: value})
        if flat:
            evolve(self.config, flat)
        return flat

    def untrained(self, place: Place) -> Left:
        """The weights before the usual training."""
        return flat_state(self.agent(place, {}))

    def accepts(self, name: str, value: object) -> bool:
        """Whether the config class takes this value, under its dotted name."""
        try:
            self._changed({name: value})
        except Exception:  # any error of a validator
            return False
        return True

    def first_half(self, changes: Mapping[str, object]) -> Left | Refused:
        """What the first half of a long training in the usual place leaves."""
        length = LONG * self.steps
        try:
            with quietly():
                agent = self.agent(self.places[0], changes).learn(length, callback=_FirstHalf(length))
        except Exception as error:  # see `left`
            return Refused(f"{type(error).__name__}: {error}")
        return left_by(self.subject, agent)

    def left(self, place: Place, changes: Mapping[str, object], times: int = 1) -> Left | Refused:
        """What a training of `times` the usual length leaves."""
        key = (place.name, times, tuple(sorted((name, repr(value)) for name, value in changes.items())))
        if key not in self._done:
            try:
                with quietly():
                    self._done[key] = left_by(self.subject, self.agent(place, changes).learn(times * self.steps))
            except Exception as error:  # a value may be refused, or be of no use: another one is tried
                self._done[key] = Refused(f"{type(error).__name__}: {error}")
        return self._done[key]


class _FirstHalf(Callback):
    """Ends a training of `length` steps, or updates where no steps are made, in the middle."""

    def __init__(self, length: int) -> None:
        self.length = length

    def on_report(self, run: Run, report: Report) -> bool:
        return 2 * (report.env_steps or report.updates) < self.length


def left_by(subject: Subject, agent: Agent) -> Left:
    """Weights and the like, and what the agent answers; without numbers, which may repeat a setting that nothing reads."""
    found = {name: value for name, value in flat_state(agent).items() if value.dim() and "normalizer" not in name}
    space = agent.observation_space
    space.seed(1)
    for number in range(3):
        seen = space.sample()
        for how in (True, False):
            answer = _numbers(subject.predict(agent, seen, deterministic=how))
            found[f"answer {number} {'sampled' if how else 'best'}"] = torch.tensor(answer)
    return found


def same(one: Left, other: Left) -> bool:
    """To the bit."""
    return not differing(one, other)


@contextmanager
def quietly() -> Iterator[None]:
    """Without what trainings print and warn of."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _places(subject: Subject) -> Iterator[Place]:
    """The first is the usual one."""
    vectors, kinds, first = subject.seen, subject.manifest.observations, ACTIONS[subject.action_kind]
    vector_policy = subject.usual_policy

    def copies(seen: spaces.Space[object], action: spaces.Space[object], number: int = 1) -> Callable[[], object]:
        return lambda: make_vec_env(lambda: subject.with_info(AnsweringEnv(seen, action)), number, vectorization="sync")

    yield Place("vectors", copies(vectors, first), vector_policy)
    for action in subject.manifest.actions[1:]:
        yield Place(f"{action} actions", copies(vectors, ACTIONS[action]), vector_policy)
    for policy in subject.spec.policies:
        if policy.startswith(("Mlp", "Linear")) and policy != vector_policy:
            yield Place(policy, copies(vectors, first), policy, "memory of policies")
    yield Place("two environments", copies(vectors, first, 2), vector_policy, "environments groups")
    about = "images features extractor networks"
    if "Box" in kinds:
        images = FakeImageEnv().observation_space
        yield Place("images", copies(images, first), subject.policy_for("Cnn", "Mlp", "Linear"), about)
    if "Dict" in kinds and any(policy.startswith("MultiInput") for policy in subject.spec.policies):
        parts = SimpleMultiObsEnv().observation_space
        yield Place("Dict observations", copies(parts, first), subject.policy_for("MultiInput"), about)


def usual(trials: Trials) -> Left:
    """What the usual training leaves.

    Raises:
        NotApplicable: two of them differ.
    """
    place = trials.places[0]
    one = trials.left(place, {})
    if isinstance(one, Refused):
        raise NotApplicable(f"the small agent does not train: {one.why}")
    if not same(one, left_by(trials.subject, trials.agent(place, {}).learn(trials.steps))):
        raise NotApplicable("two trainings with equal settings differ; agent.seed-reproduces shows where")
    return one
