"""Trains a plugin on a toy task with a known solution until it has learned it. The clauses `learns.*` use this."""

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
from rlsdk.callbacks import Callback, Run
from rlsdk.environments import make_vec_env, to_space
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Features, Observation, Report
from rlsdk.spaces import choices_of
from rlsdk_envs import ActionMasker, TableEnv, position_in
from rlsdk_testing.datasets import random_action, recordable, recorded_dataset
from rlsdk_testing.kit import require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import SMALL, Subject

ENVS = 4
STEPS, UPDATES = 20_000, 800
"""A training ends after this many environment steps or this many updates. The plugins of this project need several times
fewer."""
OFFLINE = 2_000
"""The largest number of updates of offline trainings, whose updates are faster."""
EVERY = 128
"""The number of steps plus updates between two evaluations of the policy."""
SAMPLES = 200
"""The number of actions that are sampled to measure their spread."""
LOOKS = 6
"""The mean score of this many successive evaluations must reach the bound, because a single score may be luck."""
EPISODES, EXPERT = 100, 0.75
"""The episodes of a data set, and its share of right actions. With that share, imitating most rows and comparing rewards lead
to the same policy."""
QUICK: dict[str, object] = {
    # as many epochs as the plugin has by default: a few of them learn little from the same number of steps
    **{name: value for name, value in SMALL.items() if name != "n_epochs"},
    "n_steps": 32,
    "batch_size": 32,
    "buffer_size": 10_000,
    "learning_starts": 64,
    "target_update_interval": 2,
    "tau": 0.05,
    "action_noise": {"kind": "normal", "mean": 0.0, "sigma": 0.5},
}
"""Settings with which trainings take a few seconds. They are used if the plugin has them and declares no other values."""
RATES: tuple[Callable[[float], float], ...] = (
    lambda usual: max(usual, 1e-2),
    lambda usual: 10.0 * usual,
    lambda usual: 3.0 * usual,
)
"""Functions from the plugin's default learning rate to the rates to try, one after another. For a default of 1e-3 the first two
are equal."""
ATTEMPTS = 4
"""The number of trainings, each with another learning rate or seed; the third and fourth are twice as long. One of them must
reach the bound; a plugin with a bug does so in none."""

Score = Callable[[Agent], float]


@dataclass(frozen=True)
class Toy:
    """A toy task: an environment, a score of policies and the bound that the score must reach."""

    name: str
    """The name of the task, which is its key in the `testing_bounds` that a plugin may declare."""
    make: Callable[[], gymnasium.Env[object, object]]
    score: Score
    bound: float
    expected: str
    """What a policy must learn, as text for messages."""
    settings: Mapping[str, object] = field(default_factory=dict)
    right: Callable[[Observation], object] | None = None
    """Function from an observation [1, ..] to the right action, from which data sets for offline algorithms are made."""
    updates: int = UPDATES
    """The largest number of updates of the first training, for algorithms that make environment steps."""
    lasting: bool = False
    """Whether the bound must still be reached after twice the training in which it was first reached. Values that converge to
    a wrong limit may pass the right one before."""


def agreement(env: TableEnv, answers: Mapping[int, float]) -> Score:
    """Return a score of policies: 1 minus the distance of the policy's action to the right one, in the worst state.

    `answers`: state -> position of its right action in the space, from 0 to 1.
    """
    shown = np.stack([np.asarray(env.shown[state]) for state in answers])
    wanted = np.array(list(answers.values()))

    def score(agent: Agent) -> float:
        actions = greedy_actions(agent, shown)
        found = np.array([position_in(env.action_space, action) for action in actions])
        return float((1.0 - np.abs(found - wanted)).min())

    return score


def spread(env: TableEnv) -> Score:
    """Return a score of policies: how much sampled actions vary.

    It is twice the standard deviation of their positions in the space, 1 for two equally likely actions.
    """
    shown = np.stack([np.asarray(env.shown[0])] * SAMPLES)

    def score(agent: Agent) -> float:
        actions = agent.predict(shown, deterministic=False, action_masks=_masks(agent))[0]
        return 2.0 * float(np.std([position_in(env.action_space, action) for action in actions]))

    return score


def greedy_actions(agent: Agent, observations: object, masks: object = None) -> list[object]:
    """Return the deterministic actions of the policy for observations [N, ..] that begin episodes."""
    masks = _masks(agent) if masks is None else masks
    return list(agent.predict(observations, deterministic=True, action_masks=masks)[0])


def _masks(agent: Agent) -> str | None:
    """Return the argument `action_masks` of `predict`: a mask that allows all actions if the algorithm requires masks."""
    return "none" if agent.spec.action_masks == "required" else None


def require_learned(subject: Subject, toy: Toy) -> None:
    """Train until the bound of `toy` is reached, with several learning rates and seeds one after another.

    Raises:
        ContractViolation: none of the trainings reaches the bound.
    """
    bound = subject.bounds.get(toy.name, toy.bound)
    found: list[str] = []
    watches: list[Watch] = []
    for number, attempt in enumerate(islice(_attempts(subject), ATTEMPTS)):
        with _agent(subject, toy, {**attempt, **toy.settings}) as agent:
            watch = Watch(partial(toy.score, agent), bound, toy.updates * (1 + number // 2), lasting=toy.lasting)
            agent.learn(STEPS if agent.parts.plan.unit == "steps" else OFFLINE, callback=watch)
        if watch.reached:
            return
        found.append(f"{watch.best:.2f}")
        watches.append(watch)
    tried = f"in {len(found)} trainings with other step sizes and seeds it reached {', '.join(found)}"
    message = f"{toy.expected}; {tried}, where {bound:g} is demanded (1 is perfect). {_where_to_look(watches, bound)}"
    require(False, message)


def _where_to_look(watches: list[Watch], bound: float) -> str:
    """Return a sentence about the likely place of the bug, from how the scores of failed trainings went."""
    scores = [[score for score in watch.scores if np.isfinite(score)] for watch in watches]
    if not any(scores):
        return "No score was a finite number: look for a NaN in the losses"
    known = [each for each in scores if each]
    if not any(watch.updated for watch in watches):
        return "No update was made: look at learning_starts, n_steps and what else begins updates"
    if all(max(each) - min(each) < STILL for each in known):
        return "The score hardly moved: look whether gradients reach the policy (detach, zero_grad, the optimizer's parameters)"
    if any(max(each) >= bound for each in known):
        return "It was reached and lost again: look for a sum in place of a mean, or a target that grows without end"
    if all(each[-1] < each[0] - STILL for each in known):
        return "It became worse in each training: look for a wrong sign in the loss, the advantage or the target"
    return (
        "It learns a part: look for rows, steps or actions that are mixed up, and at the clauses batch.* and rollout.*"
    )


STILL = 0.05
"""A smaller difference of two scores is none."""


def score_after(subject: Subject, toy: Toy, updates: int) -> float:
    """Train for `updates` updates with the first learning rate of `RATES`, and return the score after the training."""
    with _agent(subject, toy, {**next(_attempts(subject)), **toy.settings}) as agent:
        steps = STEPS if agent.parts.plan.unit == "steps" else updates
        agent.learn(steps, callback=Watch(lambda: -1.0, 0.0, updates))
        return toy.score(agent)


def _attempts(subject: Subject) -> Iterator[dict[str, object]]:
    """Yield settings for trainings without end: the learning rates of `RATES` in turn, each time with another seed."""
    seed = subject.settings()["seed"]
    assert isinstance(seed, int)
    for number, rate in enumerate(cycle(_rates(subject))):
        yield {**rate, "seed": seed + number}


def _rates(subject: Subject) -> list[dict[str, object]]:
    """Return settings with each learning rate of `RATES`.

    The settings are empty if the config class has no `learning_rate`, or the plugin declares one for testing.
    """
    known = {each.name: each for each in attrs.fields(subject.spec.config_type)}
    if "learning_rate" not in known or "learning_rate" in subject.given:
        return [{}]
    default = known["learning_rate"].default
    usual = float(default(1.0) if callable(default) else default)
    return [{"learning_rate": each} for each in dict.fromkeys(rate(usual) for rate in RATES)]


@contextmanager
def _agent(subject: Subject, toy: Toy, settings: Mapping[str, object]) -> Iterator[Agent]:
    """Make an agent on several copies of the toy's environment, with a data set of it if the algorithm needs one."""

    def make() -> object:
        return subject.with_info(with_masks(toy.make()))

    copies = make_vec_env(make, ENVS, vectorization="sync")
    names = recordable(subject.spec.config_type)
    if names and toy.right is None:
        raise NotApplicable("the algorithm learns from recordings, which the kit does not make of this toy")
    with TemporaryDirectory(prefix="rlsdk-toy-") as folder:
        data = dict.fromkeys(names, _recorded(make_vec_env(make, 1), toy, Path(folder))) if names else {}
        yield subject.agent(copies, QUICK, policy=subject.policy_for("Linear", "Mlp"), **{**settings, **data})


def with_masks(env: gymnasium.Env[object, object]) -> gymnasium.Env[object, object]:
    """Return the environment with masks that allow all actions; unchanged if it has masks or no discrete choices."""
    choices = sum(choices_of(to_space(env.action_space)))
    if not choices or hasattr(env, "action_masks"):
        return env
    return ActionMasker(env, lambda _: np.ones(choices, bool))


def _recorded(env: object, toy: Toy, folder: Path) -> Path:
    """Write a data set of the toy, in which the share `EXPERT` of the actions is right and the others are random."""
    right = toy.right
    assert right is not None

    def act(envs: VectorEnv, observation: Observation, generator: Generator) -> Features:
        if float(torch.rand((), generator=generator)) > EXPERT:
            return random_action(envs, observation, generator)
        return _as_row(right(observation))

    return recorded_dataset(env, folder / "toy", act, EPISODES)


def _as_row(action: object) -> Features:
    """Return an action of a gymnasium space as tensors [1, ..], nested as the space."""
    if isinstance(action, dict):
        return {name: _as_row(part) for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(map(_as_row, action))
    return torch.as_tensor(np.asarray(action)).unsqueeze(0)


class Watch(Callback):
    """A callback that evaluates the policy every few steps. It ends the training if the bound is reached or after `updates`."""

    def __init__(self, score: Callable[[], float], bound: float, updates: int, *, lasting: bool = False) -> None:
        self.score, self.bound, self.updates, self.lasting = score, bound, updates, lasting
        self.looks: deque[float] = deque(maxlen=LOOKS)
        self.next, self.best = 0, -np.inf
        """`best`: the largest mean of `LOOKS` scores; with `lasting`, once the bound was reached, the newest mean."""
        self.scores: list[float] = []
        """Every score, in order."""
        self.updated = False
        """Whether an update was made."""
        self.until: int | None = None
        """The number of steps plus updates at which the bound must still be reached; None before it was first reached."""

    def on_report(self, run: Run, report: Report) -> bool | None:
        count = report.env_steps + report.updates
        self.updated = self.updated or report.updates > 0
        if count < self.next:
            return None
        self.next = count + EVERY
        self.scores.append(self.score())
        self.looks.append(self.scores[-1])
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
