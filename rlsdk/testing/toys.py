"""Training a plugin on a task whose answer is known, until it has learnt it: what the clauses `learns.*` do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import gymnasium
import numpy as np
import torch
from torch import Generator

from rlsdk.agent import Agent
from rlsdk.callbacks import Callback
from rlsdk.environments import ActionMasker, make_vec_env, to_space
from rlsdk.environments.toy import TableEnv, position_in
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Features, Observation, Report
from rlsdk.settings.dataset import dataset_names
from rlsdk.spaces import choices_of
from rlsdk.testing.datasets import random_action, recorded_dataset
from rlsdk.testing.kit import require
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.subject import SMALL, Subject
from rlsdk.training.run import Run

ENVS = 4
STEPS, UPDATES = 20_000, 800
"""A training ends after so many environment steps or updates, whichever is first; several times what our plugins take."""
OFFLINE = 2_000
"""Updates where no steps are made, which are quicker."""
EVERY = 128
"""Steps and updates between two looks at the policy."""
SAMPLES = 200
LOOKS = 6
"""Looks in a row whose mean has to reach the bound: one alone may be luck."""
EPISODES, EXPERT = 100, 0.75
"""Of a data set: its episodes, and the share of right actions; a method that imitates most rows and one that compares rewards
find the same."""
QUICK: dict[str, object] = {
    **SMALL,
    "n_steps": 32,
    "batch_size": 32,
    "buffer_size": 10_000,
    "learning_starts": 64,
    "target_update_interval": 2,
    "tau": 0.05,
    "action_noise": {"kind": "normal", "mean": 0.0, "sigma": 0.5},
}
"""Settings that make trainings of a few seconds possible, used where the plugin's config has them and declares no others."""
RATES: tuple[Callable[[float], float], ...] = (
    lambda usual: max(usual, 1e-2),
    lambda usual: 10.0 * usual,
    lambda usual: 3.0 * usual,
)
"""Step sizes that are tried in turn, of the plugin's own; from 1e-3 the first two are the same."""
ATTEMPTS = 4
"""Trainings with one step size and seed after the other, from the third on twice as long. One that suits is enough: a bug
reaches the bound with none."""

Score = Callable[[Agent], float]


@dataclass(frozen=True)
class Toy:
    """A task, and how near a policy is to what it should learn there."""

    name: str
    """Key of the `testing_bounds` that a plugin may declare."""
    make: Callable[[], gymnasium.Env[object, object]]
    score: Score
    bound: float
    expected: str
    """What is to be learnt, for the message."""
    settings: Mapping[str, object] = field(default_factory=dict)
    right: Callable[[Observation], object] | None = None
    """observation [1, ..] -> the right action; data sets of offline algorithms are made of it."""
    updates: int = UPDATES
    """Of the first training, where steps are made."""
    lasting: bool = False
    """Whether the bound must still be held after twice the training in which it was reached: numbers that grow to a wrong end
    pass the right one on their way."""


def agreement(env: TableEnv, answers: Mapping[int, float]) -> Score:
    """1 minus the distance of the policy's action to the right one, in the worst state.

    `answers`: where in the space the right actions lie, from 0 to 1, by state.
    """
    shown = np.stack([np.asarray(env.shown[state]) for state in answers])
    wanted = np.array(list(answers.values()))

    def score(agent: Agent) -> float:
        actions = greedy_actions(agent, shown)
        found = np.array([position_in(env.action_space, action) for action in actions])
        return float((1.0 - np.abs(found - wanted)).min())

    return score


def spread(env: TableEnv) -> Score:
    """How much sampled actions vary: twice the deviation of where they lie in the space, 1 for fair coins."""
    shown = np.stack([np.asarray(env.shown[0])] * SAMPLES)

    def score(agent: Agent) -> float:
        actions = agent.predict(shown, deterministic=False, action_masks=_masks(agent))[0]
        return 2.0 * float(np.std([position_in(env.action_space, action) for action in actions]))

    return score


def greedy_actions(agent: Agent, observations: object, masks: object = None) -> list[object]:
    """The policy's own choices for observations [N, ..] that begin episodes."""
    masks = _masks(agent) if masks is None else masks
    return list(agent.predict(observations, deterministic=True, action_masks=masks)[0])


def _masks(agent: Agent) -> str | None:
    """For algorithms that need masks: one that forbids nothing."""
    return "none" if agent.spec.action_masks == "required" else None


def require_learnt(subject: Subject, toy: Toy) -> None:
    """Train until the bound of `toy` is reached, with one step size and seed after the other.

    Raises:
        ContractViolation: it is reached with none.
    """
    bound = subject.bounds.get(toy.name, toy.bound)
    found: list[str] = []
    for number, attempt in enumerate(islice(_attempts(subject), ATTEMPTS)):
        with _agent(subject, toy, {**attempt, **toy.settings}) as agent:
            watch = Watch(partial(toy.score, agent), bound, toy.updates * (1 + number // 2), lasting=toy.lasting)
            agent.learn(STEPS if agent.parts.plan.unit == "steps" else OFFLINE, callback=watch)
        if watch.reached:
            return
        found.append(f"{watch.best:.2f}")
    tried = f"in {len(found)} trainings with other step sizes and seeds it reached {', '.join(found)}"
    require(False, f"{toy.expected}; {tried}, where {bound:g} is demanded (1 is perfect)")


def score_after(subject: Subject, toy: Toy, updates: int) -> float:
    """The score after so many updates with the first step size of `RATES`, however good it was before."""
    with _agent(subject, toy, {**next(_attempts(subject)), **toy.settings}) as agent:
        steps = STEPS if agent.parts.plan.unit == "steps" else updates
        agent.learn(steps, callback=Watch(lambda: -1.0, 0.0, updates))
        return toy.score(agent)


def _attempts(subject: Subject) -> Iterator[dict[str, object]]:
    """Settings with each of `RATES` in turn, and another seed each time."""
    seed = subject.settings()["seed"]
    assert isinstance(seed, int)
    for number, rate in enumerate(cycle(_rates(subject))):
        yield {**rate, "seed": seed + number}


def _rates(subject: Subject) -> list[dict[str, object]]:
    """Settings with each of `RATES`; none where the config has no `learning_rate`, or the plugin declares one for testing."""
    known = {each.name: each for each in attrs.fields(subject.spec.config_type)}
    if "learning_rate" not in known or "learning_rate" in subject.given:
        return [{}]
    default = known["learning_rate"].default
    usual = float(default(1.0) if callable(default) else default)
    return [{"learning_rate": each} for each in dict.fromkeys(rate(usual) for rate in RATES)]


@contextmanager
def _agent(subject: Subject, toy: Toy, settings: Mapping[str, object]) -> Iterator[Agent]:
    """An agent for several copies of the toy; with a data set of it where the algorithm needs one."""

    def make() -> object:
        return subject.with_info(with_masks(toy.make()))

    copies = make_vec_env(make, ENVS, vectorization="sync")
    names = dataset_names(subject.spec.config_type)
    if names and toy.right is None:
        raise NotApplicable("the algorithm learns from recordings, which the kit does not make of this toy")
    with TemporaryDirectory(prefix="rlsdk-toy-") as folder:
        data = dict.fromkeys(names, _recorded(make_vec_env(make, 1), toy, Path(folder))) if names else {}
        yield subject.agent(copies, QUICK, policy=subject.policy_for("Linear", "Mlp"), **{**settings, **data})


def with_masks(env: gymnasium.Env[object, object]) -> gymnasium.Env[object, object]:
    """The environment, with masks that forbid nothing where it has choices and no masks of its own."""
    choices = sum(choices_of(to_space(env.action_space)))
    if not choices or hasattr(env, "action_masks"):
        return env
    return ActionMasker(env, lambda _: np.ones(choices, bool))


def _recorded(env: object, toy: Toy, folder: Path) -> Path:
    """A data set of the toy, `EXPERT` of whose actions are right and the others random."""
    right = toy.right
    assert right is not None

    def act(envs: VectorEnv, observation: Observation, generator: Generator) -> Features:
        if float(torch.rand((), generator=generator)) > EXPERT:
            return random_action(envs, observation, generator)
        return _as_row(right(observation))

    return recorded_dataset(env, folder / "toy", act, EPISODES)


def _as_row(action: object) -> Features:
    """An action of a gymnasium space as tensors [1, ..], nested as the space."""
    if isinstance(action, dict):
        return {name: _as_row(part) for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(map(_as_row, action))
    return torch.as_tensor(np.asarray(action)).unsqueeze(0)


class Watch(Callback):
    """Looks at the policy now and then; ends the training once it has learnt, or after `updates`."""

    def __init__(self, score: Callable[[], float], bound: float, updates: int, *, lasting: bool = False) -> None:
        self.score, self.bound, self.updates, self.lasting = score, bound, updates, lasting
        self.looks: deque[float] = deque(maxlen=LOOKS)
        self.next, self.best = 0, -np.inf
        """`best`: the largest mean of `LOOKS` looks; the newest one while the bound has to be held."""
        self.until: int | None = None
        """Steps and updates after which the bound must still be held, once it was reached."""

    def on_report(self, run: Run, report: Report) -> bool | None:
        count = report.env_steps + report.updates
        if count < self.next:
            return None
        self.next = count + EVERY
        self.looks.append(self.score())
        if len(self.looks) == LOOKS:
            self._decide(count)
        limit = self.updates if report.env_steps else OFFLINE
        if self.until is not None and count < self.until:
            return True
        return report.updates < limit and not self.reached

    def _decide(self, count: int) -> None:
        mean = float(np.mean(self.looks))
        self.best = max(self.best, mean) if self.until is None else mean
        if self.best < self.bound:
            self.until = None
        elif self.until is None and self.lasting:
            self.until = 2 * count

    @property
    def reached(self) -> bool:
        return self.best >= self.bound
