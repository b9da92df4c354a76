"""Clauses about resuming: a training that is resumed from a file must equal one that was never stopped."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rlsdk.agent import Agent
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.interfaces import plays_episodes
from rlsdk.records import Report
from rlsdk.settings import Constant, Linear, data_settings
from rlsdk.tree import leaves
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.buffer_clauses import capacity_for
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import ACTIONS, Subject

STEPS, ROUNDS = 60, 4
"""A training has at least this many steps (or updates) and at least this many rounds."""
LONG_ROUND = 400
"""If a round has at least this many steps, a training has only two rounds."""
POINTS = (0.01, 0.09, 0.22, 0.45, 0.7)
"""Shares of the training after which it is saved: before the first update, in the warm-up, and after some updates. In a
training of 60 steps they are in the middle of episodes of 12 steps, and after odd and even numbers of updates."""
ROOM, INTERVAL = 24, 10
"""The rows of the buffer, and the steps or updates between updates of a target. They are not multiples of usual rounds."""
SAMPLED = 64
OUT_OF_FILES = (
    "state_dict() of the algorithm, the buffer or the training loop must include every count, schedule, generator and"
    " statistic that later steps depend on, and load_state_dict() must restore them. rlsdk.interfaces.state_of"
    " collects them; a count is an int64 tensor. The recurrent state of a policy belongs in `Act.carry`."
)


@clause(
    "resume.equals-uninterrupted",
    "A training that is saved and loaded at any point ends exactly like one that never stopped: parameters,"
    " optimizers, buffer, exploration and random streams are equal bit for bit.",
    OUT_OF_FILES,
)
def equals_uninterrupted(subject: Subject) -> None:
    resumes_with(subject, None)


def resumes_with(subject: Subject, policy: str | None) -> None:
    """Check the clause for agents of one policy for the observations `subject.seen`; None: the usual policy.

    Raises:
        ContractViolation: a resumed training ended otherwise than an uninterrupted one.
    """
    training = _Training(subject, lambda: _copies(subject, 1, "sync"), _sensitive(subject), policy=policy)
    _compare(training, POINTS)


@clause(
    "resume.vectors",
    "A resumed training ends exactly like an uninterrupted one also with several environments, in this process"
    " and in others, with normalization and with each kind of action noise.",
    "State of each environment (noise, running returns, counts) belongs in the recurrent state of act(), or in a tensor"
    " [num_envs] that state_dict() of the object includes.",
)
def vectors(subject: Subject) -> None:
    if not subject.agent().parts.plan.needs_environment:
        raise NotApplicable(f"{subject.spec.id} collects nothing")
    for what, changes in _variants(subject):
        _compare(_Training(subject, lambda: _copies(subject, 3, "sync"), changes, what), POINTS[2:4])
    _compare(_Training(subject, lambda: _copies(subject, 2, "async"), {}, "2 environments in processes"), POINTS[3:4])


def _variants(subject: Subject) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (description, settings) for normalization, and for every kind of noise that the manifest lists."""
    yield "3 environments, normalized", {"normalize": {"norm_obs": subject.sees_vectors, "norm_reward": True}}
    traits = subject.manifest.traits
    if "action_noise" in traits:
        yield (
            "3 environments, action noise",
            {"action_noise": {"kind": "ornstein-uhlenbeck", "mean": [0.0], "sigma": [0.2]}},
        )
    if "gsde" in traits and subject.action_kind == "Box":
        yield "3 environments, gSDE", {"use_sde": True, "sde_sample_freq": 4}


def _copies(subject: Subject, count: int, kind: str) -> object:
    def one() -> object:
        return subject.with_info(AnySpaceEnv(subject.seen, ACTIONS[subject.action_kind]))

    return make_vec_env(one, count, vectorization=kind, workers=count)


def _sensitive(subject: Subject) -> dict[str, object]:
    """Return settings with which a state that is missing in the file changes the result.

    Exploration and learning rate change during the whole training, targets move every few steps, and the buffer is full before
    the training ends.
    """
    agent = subject.agent()
    rate = getattr(agent.config, "learning_rate", None)
    falling = {"learning_rate": Linear(rate.value)} if isinstance(rate, Constant) else {}
    small = {"buffer_size": capacity_for(subject, 1, ROOM)} if _remembers(agent) else {}
    return {**falling, **small, "exploration_fraction": 1.0, "target_update_interval": INTERVAL}


@dataclass(frozen=True, slots=True)
class _Training:
    """The settings and the environment of the agents of one comparison."""

    subject: Subject
    make_env: Callable[[], object]
    changes: Mapping[str, object]
    what: str = "1 environment"
    policy: str | None = None

    def agent(self) -> Agent:
        return self.subject.agent(self.make_env(), policy=self.policy, **self.changes)


def _compare(training: _Training, points: tuple[float, ...]) -> None:
    """Compare an uninterrupted training with trainings resumed from its files; raise ContractViolation if they differ."""
    total = _length(training)
    with tempfile.TemporaryDirectory() as folder:
        whole = training.agent()
        saver = _Saver(whole, Path(folder), total, points)
        whole.learn(total, LambdaCallback(on_report=saver))
        expected, collected = _state(whole), whole.num_timesteps
        _close(whole)
        require(bool(saver.files), f"{training.what}: no round ended before the training did")
        for at, path in saver.files.items():
            environments = training.make_env()
            agent = type(whole).load(path, env=environments, force_reset=False, custom_objects=_data_sets(whole))
            found = _differing(saver.numbers[at], _numbers(agent))
            agent.learn(total - at, reset_num_timesteps=False)
            wrong = _differing(expected, _state(agent))
            _close(agent)
            unit = whole.parts.plan.unit
            hint = f"; after loading, these attributes differ: {', '.join(found[:4])}" if found else ""
            require(
                not wrong and agent.num_timesteps == collected,
                f"{training.what}: saved after {at} of {total} {unit} and resumed, these differ at the end: {wrong[:5]}{hint}",
            )


def _length(training: _Training) -> int:
    """Return the length of the training, in the unit of the plan (steps or updates)."""
    first = _first_round(training, STEPS)
    if first == STEPS:  # perhaps cut short by the end of the training
        first = _first_round(training, LONG_ROUND)
    return max(STEPS, first * (ROUNDS if first < LONG_ROUND else 2))


def _first_round(training: _Training, total: int) -> int:
    """Return the length of the first round in a training of the length `total`."""
    agent, found = training.agent(), list[int]()

    def stop(run: object, report: Report) -> bool:
        found.append(_count(agent, report))
        return False

    agent.learn(total, LambdaCallback(on_report=stop))
    _close(agent)
    return found[0]


def _count(agent: Agent, report: Report) -> int:
    return report.env_steps if agent.parts.plan.unit == "steps" else report.updates


def _data_sets(agent: Agent) -> dict[str, object]:
    """Return the data sets of the agent: setting -> data set. Agent files do not contain the paths of data sets."""
    return {name: getattr(agent.config, name) for name in data_settings(type(agent.config))}


def _close(agent: Agent) -> None:
    if agent.env is not None:
        agent.env.close()


class _Saver:
    """A callback that saves the agent in the first round after each of the given shares of the training."""

    def __init__(self, agent: Agent, folder: Path, total: int, shares: tuple[float, ...]) -> None:
        self.agent, self.folder, self.total = agent, folder, total
        self.wanted = [max(1, round(share * total)) for share in shares]
        self.files: dict[int, Path] = {}
        self.numbers: dict[int, dict[str, object]] = {}

    def __call__(self, run: object, report: Report) -> None:
        at, before = _count(self.agent, report), len(self.wanted)
        self.wanted = [count for count in self.wanted if count > at]
        if len(self.wanted) == before or at >= self.total:
            return
        memory = ["replay"] if _remembers(self.agent) else []
        path = self.agent.save(self.folder / str(at), include=memory)
        assert path is not None
        self.files[at], self.numbers[at] = path, _numbers(self.agent)


def _remembers(agent: Agent) -> bool:
    return agent.replay_buffer is not None and agent.parts.plan.needs_environment


def _state(agent: Agent) -> dict[str, object]:
    """Return name -> copy of all state that later training depends on: the content of files, and samples of the buffer."""
    state = agent.training_state()
    found = dict(_flat({"policy": state["policy"], **state["training"]}))
    if plays_episodes(agent.parts.plan):  # which environment played the last episode has no effect
        found = {name: value for name, value in found.items() if not name.startswith("episodes/environments")}
    buffer = agent.parts.buffer
    if buffer is not None and len(buffer):
        batch = buffer.sample(SAMPLED, torch.Generator().manual_seed(1))
        found |= {f"memory/{i}": leaf.clone() for i, leaf in enumerate(leaves(batch))} | {"memory/rows": len(buffer)}
    return found


def _flat(state: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _flat(value, f"{name}/{key}" if name else str(key))
    elif isinstance(state, list | tuple):
        for i, value in enumerate(state):
            yield from _flat(value, f"{name}/{i}")
    else:
        yield name, state.clone() if isinstance(state, torch.Tensor) else state


def _numbers(agent: Agent) -> dict[str, object]:
    """Return name -> value of attributes of the parts that are numbers. `state_dict` may have left out such state."""
    parts = agent.parts
    owners: dict[str, object] = {
        "algorithm": parts.algorithm,
        "policy": parts.policy,
        "behavior": parts.behavior,
        "plan": parts.plan,
        "buffer": parts.buffer,
    }
    return {
        f"{role}.{name}": value
        for role, owner in owners.items()
        for name, value in getattr(owner, "__dict__", {}).items()
        if isinstance(value, bool | int | float)
    }


def _differing(left: Mapping[str, object], right: Mapping[str, object]) -> list[str]:
    """Return the names whose values differ in a bit, or exist in one of the two only."""
    common = set(left) & set(right)
    unequal = {name for name in common if not _same(left[name], right[name])}
    return sorted({*unequal, *(set(left) ^ set(right))})


def _same(one: object, two: object) -> bool:
    """Return whether two values are equal; NaN equals NaN."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return one.dtype == two.dtype and np.array_equal(
            one.cpu().numpy(), two.cpu().numpy(), equal_nan=one.is_floating_point()
        )
    return one == two or (one != one and two != two)
