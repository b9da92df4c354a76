"""Short trainings of a plugin that differ in settings, and the comparison of the weights and actions after them."""

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
from rlsdk.callbacks import Callback, Run
from rlsdk.environments import make_vec_env
from rlsdk.records import Report
from rlsdk.settings import evolve
from rlsdk_envs import AnySpaceEnv, FakeImageEnv, SimpleMultiObsEnv
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import ACTIONS, Subject, differing, flat_state

STEPS, ROUNDS = 32, 3
"""The smallest numbers of environment steps and of rounds (collecting and updating) of a training."""
LONG = 4
"""A long training has this multiple of the usual length, so that each half has several rounds."""
RESTLESS: dict[str, object] = {"learning_rate": 1e-2}
"""Settings with which a short training changes the weights much. They are used if the plugin has them and no other values are
given."""
Left = dict[str, torch.Tensor]
"""The result of a training: name -> tensor, for the weights and for actions of the policy."""


class AnsweringEnv(AnySpaceEnv):
    """An `AnySpaceEnv` whose rewards also depend on the actions."""

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
    """Words in the descriptions of settings that are likely to have an effect in this environment."""


@attrs.frozen
class Refused:
    """A training that the plugin refused with an error; `why` is the error as text."""

    why: str


class Trials:
    """Runs short trainings of one plugin. Results are cached, so that a training with equal settings runs once."""

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
        """Return an untrained agent; `changes`: dotted name of a setting -> value."""
        return self.subject.agent(place.make(), policy=place.policy, **{**self.base, **self._changed(changes)})

    def _changed(self, changes: Mapping[str, object]) -> dict[str, object]:
        """Return the changes as name -> value of the config class. Dotted names become a changed nested config object."""
        flat = {name: value for name, value in changes.items() if "." not in name}
        for name, value in changes.items():
            if "." in name:
                table, inner = name.split(".")
                flat[table] = evolve(flat.get(table, getattr(self.config, table)), {inner: value})
        if flat:
            evolve(self.config, flat)
        return flat

    def untrained(self, place: Place) -> Left:
        """Return the weights of an agent before the usual training."""
        return flat_state(self.agent(place, {}))

    def accepts(self, name: str, value: object) -> bool:
        """Return whether the config class accepts this value for the setting with the dotted name `name`."""
        try:
            self._changed({name: value})
        except Exception:  # any error of a validator
            return False
        return True

    def first_half(self, changes: Mapping[str, object]) -> Left | Refused:
        """Return the result of the first half of a long training in the usual environment."""
        length = LONG * self.steps
        try:
            with quietly():
                agent = self.agent(self.places[0], changes).learn(length, callback=_FirstHalf(length))
        except Exception as error:  # see `left`
            return Refused(f"{type(error).__name__}: {error}")
        return left_by(self.subject, agent)

    def left(self, place: Place, changes: Mapping[str, object], times: int = 1) -> Left | Refused:
        """Return the result of a training of `times` the usual length."""
        key = (place.name, times, tuple(sorted((name, repr(value)) for name, value in changes.items())))
        if key not in self._done:
            try:
                with quietly():
                    self._done[key] = left_by(self.subject, self.agent(place, changes).learn(times * self.steps))
            except Exception as error:  # a value may be refused or unusable; the caller tries another one
                self._done[key] = Refused(f"{type(error).__name__}: {error}")
        return self._done[key]


class _FirstHalf(Callback):
    """A callback that ends a training of `length` steps, or updates if no steps are made, in the middle."""

    def __init__(self, length: int) -> None:
        self.length = length

    def on_report(self, run: Run, report: Report) -> bool:
        return 2 * (report.env_steps or report.updates) < self.length


def left_by(subject: Subject, agent: Agent) -> Left:
    """Return the weights and other tensors of the agent, and its actions for some observations.

    0-d tensors are left out, because they may be copies of a setting that nothing reads.
    """
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
    """Return whether two results are equal, bit for bit."""
    return not differing(one, other)


@contextmanager
def quietly() -> Iterator[None]:
    """Inside the `with` statement, suppress warnings and what trainings print."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _places(subject: Subject) -> Iterator[Place]:
    """Yield the environments to train in. The first is the usual one."""
    vectors, kinds, first = subject.seen, subject.manifest.observations, ACTIONS[subject.action_kind]
    vector_policy = subject.usual_policy

    def copies(seen: spaces.Space[object], action: spaces.Space[object], number: int = 1) -> Callable[[], object]:
        return lambda: make_vec_env(lambda: subject.with_info(AnsweringEnv(seen, action)), number, vectorization="sync")

    yield Place("vectors", copies(vectors, first), vector_policy)
    for action in subject.manifest.actions[1:]:
        yield Place(f"{action} actions", copies(vectors, ACTIONS[action]), vector_policy, f"{action} actions")
    for policy in subject.spec.policies:
        if policy.startswith(("Mlp", "Linear")) and policy != vector_policy:
            yield Place(policy, copies(vectors, first), policy, "memory recurrent layers of policies")
    yield Place("two environments", copies(vectors, first, 2), vector_policy, "environments groups")
    about = "images features extractor networks"
    if "Box" in kinds:
        images = FakeImageEnv().observation_space
        yield Place("images", copies(images, first), subject.policy_for("Cnn", "Mlp", "Linear"), about)
    if "Dict" in kinds and any(policy.startswith("MultiInput") for policy in subject.spec.policies):
        parts = SimpleMultiObsEnv().observation_space
        yield Place("Dict observations", copies(parts, first), subject.policy_for("MultiInput"), about)


def usual(trials: Trials) -> Left:
    """Return the result of the usual training.

    Raises:
        NotApplicable: the plugin refuses this training, or two equal trainings differ.
    """
    place = trials.places[0]
    one = trials.left(place, {})
    if isinstance(one, Refused):
        raise NotApplicable(f"the small agent does not train: {one.why}")
    if not same(one, left_by(trials.subject, trials.agent(place, {}).learn(trials.steps))):
        raise NotApplicable("two trainings with equal settings differ; agent.seed-reproduces shows where")
    return one
