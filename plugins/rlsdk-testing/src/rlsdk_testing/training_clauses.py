"""Clauses about training: every trained tensor, optimizer and target network changes, and counts are correct."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn

from rlsdk.agent import Agent
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.interfaces import Buffer
from rlsdk.kernels import kernels_off
from rlsdk.records import Report
from rlsdk_envs import AnySpaceEnv, FakeImageEnv, SimpleMultiObsEnv
from rlsdk_testing.batches import EPISODE, recording, small_agent, wrapping
from rlsdk_testing.datasets import recordable
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found, equal, held, overlaps
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.noted_env import NotedEnv, NotedEpisode, steps_in
from rlsdk_testing.subject import ACTIONS, Subject
from rlsdk_testing.trials import quietly
from rlsdk_testing.watched import TINY, watched

FIRST, LONGEST = 48, 1600
"""The steps (or updates) of the first training, and the limit for all trainings together. A tensor that has not changed then
counts as never changing."""
ENVS = 3
MEMBERS = 10
"""A tensor of three dimensions whose first one is at most this is taken for the weights of an ensemble of networks."""


def _train_until(agent: Agent, done: Callable[[], bool]) -> int:
    """Train, each time twice as long, until `done()` or `LONGEST` steps; return the number of steps."""
    steps, total = FIRST, 0
    while total < LONGEST:
        agent.learn(steps, reset_num_timesteps=False)
        total += steps
        if done():
            break
        steps *= 2
    return total


def _still(before: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors that have not changed in a bit, or of which a member of an ensemble [C, .., ..] has not."""
    return [path for path, value in before.items() if not _moved(value, now[path])]


def _moved(before: Tensor, now: Tensor) -> bool:
    if before.dim() == 3 and len(before) <= MEMBERS:
        return bool((before != now).flatten(1).any(1).all())
    return not torch.equal(before, now)


@clause(
    "training.parameters-move",
    "Every tensor that requires gradients changes in a short training, for every kind of action, and with"
    " encoders for images and nested observations.",
    "build(), update(): pass the tensor to an optimizer, and let the loss depend on it. Call"
    " requires_grad_(False) on tensors that are not trained.",
)
def parameters_move(subject: Subject) -> None:
    for kind in subject.manifest.actions:
        _require_movement(f"{kind} actions", small_agent(subject, kind))
    for what, agent in _with_encoders(subject):
        _require_movement(what, agent)


def _with_encoders(subject: Subject) -> Iterator[tuple[str, Agent]]:
    """Yield (description, small agent) for policies whose encoders have parameters."""
    actions = ACTIONS[subject.action_kind]
    makers = {"Cnn": ("images", FakeImageEnv), "MultiInput": ("Dict observations with an image", SimpleMultiObsEnv)}
    for prefix, (what, make) in makers.items():
        policy = next((name for name in subject.spec.policies if name.startswith(prefix)), None)
        if policy is not None:
            envs = make_vec_env(lambda make=make: subject.with_info(make(action_space=actions)), ENVS)
            yield f"{policy}, {what}", subject.agent(envs, policy=policy)


def _require_movement(what: str, agent: Agent) -> None:
    found = Found(agent).parameters()
    if not found:
        raise NotApplicable("nothing requires gradients")
    before = {path: value.detach().clone() for path, value in found.items()}
    steps = _train_until(agent, lambda: not _still(before, found))
    still = _still(before, found)
    unit = agent.parts.plan.unit
    require(
        not still,
        f"{what}: after {steps} {unit} of training these are what they were at first: {', '.join(still[:5])}",
    )


@clause(
    "training.optimizers-hold-networks",
    "The tensors of every optimizer are those that the agent uses: parameters of its networks, or tensors of"
    " its algorithm.",
    "__init__(): create optimizers after the networks are complete, for the networks that act and learn, not"
    " for copies.",
)
def optimizers_hold_networks(subject: Subject) -> None:
    agent = small_agent(subject)
    for moment in ("at first", "after a training"):
        found = Found(agent)
        if not found.optimizers:
            raise NotApplicable("it has no optimizer")
        used = [each for module in found.modules.values() for each in module.parameters()] + list(
            found.tensors.values()
        )
        for path, optimizer in found.optimizers.items():
            every = held(optimizer)
            shared = {id(tensor): tensor for each in every for tensor in used if overlaps(each, tensor)}
            stale = sum(each.numel() for each in every) - sum(tensor.numel() for tensor in shared.values())
            require(
                stale <= 0, f"{moment} {path} trains {stale} numbers that belong to no network or tensor of the agent"
            )
        agent.learn(FIRST)


@clause(
    "training.optimizers-remember",
    "Every optimizer keeps its state for each of its parameters between updates.",
    "Create optimizers once, in __init__(), not in update(). Pass only parameters that get gradients.",
)
def optimizers_remember(subject: Subject) -> None:
    agent, updates = small_agent(subject), list[object]()
    with recording(agent.parts.algorithm, updates.append):
        _train_until(agent, lambda: len(updates) > 4)
    found = Found(agent)
    stateful = {path: optimizer for path, optimizer in found.optimizers.items() if optimizer.state}
    if not stateful:
        raise NotApplicable("it has no optimizer with a state")
    for path, optimizer in stateful.items():
        without = [
            tuple(each.shape) for each in held(optimizer) if each.requires_grad and not optimizer.state.get(each)
        ]
        require(
            not without, f"{path} has no state for its parameters of shapes {without[:5]}: they never get gradients"
        )
        counts = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
        require(
            len(updates) < 2 or not counts or max(counts) >= 2,
            f"after {len(updates)} updates {path} counts {max(counts, default=0):g} step: it is made again in every update",
        )


def _copies(subject: Subject) -> tuple[Agent, dict[str, tuple[nn.Module, nn.Module]]]:
    """Return a new agent, and its networks that begin as copies of trained ones; see `Found.copies`.

    Raises NotApplicable if there are no such networks.
    """
    agent = small_agent(subject)
    copies = Found(agent).copies()
    if not copies:
        raise NotApplicable("it has no target network: none begins as a copy of a trained one")
    return agent, copies


@clause(
    "training.targets-follow",
    "Every network that begins as a copy of a trained network, such as a target network, is updated towards it"
    " repeatedly.",
    "update() or collected(): update the copy towards its source, as `TargetNetwork.update(tau)` does.",
)
def targets_follow(subject: Subject) -> None:
    agent, copies = _copies(subject)
    tensors = {f"{path}.{name}": p for path, (copy, _) in copies.items() for name, p in copy.named_parameters()}
    for moment in ("at first", "after they had moved once"):
        before = {path: value.detach().clone() for path, value in tensors.items()}
        steps = _train_until(agent, lambda: not _still(before, tensors))  # noqa: B023  # used in this round only
        still = _still(before, tensors)
        unit = agent.parts.plan.unit
        require(not still, f"after {steps} {unit} of training these are what they were {moment}: {still[:5]}")


@clause(
    "training.targets-lag",
    "A target network differs from its source after an update, except directly after a full copy.",
    "update() or collected(): update the target network with tau, or copy its source every few updates, not in"
    " every update.",
)
def targets_lag(subject: Subject) -> None:
    agent, copies = _copies(subject)
    lagging = dict.fromkeys(copies, False)
    count = 0

    def look(_: object) -> None:
        nonlocal count
        count += 1
        lagging.update({path: lagging[path] or not equal(*pair) for path, pair in copies.items()})

    with recording(agent.parts.algorithm, look):
        _train_until(agent, lambda: all(lagging.values()) and count > 1)
    never = [path for path, seen in lagging.items() if not seen]
    require(not never, f"after each of {count} updates {never} are equal to the networks that they copy, to the bit")


@clause(
    "training.counts",
    "Reports and the agent count the steps of all environments. They also count the calls of update(), or use"
    " the attribute `updates` of the algorithm if it has one.",
    "rounds(): add len(rollout.steps.reward) * collector.num_envs to cursor.env_steps, and the number of calls"
    " of update() to cursor.updates.",
)
def counts(subject: Subject) -> None:
    for num_envs in (1, ENVS):
        episodes, calls, reports = list[NotedEpisode](), list[object](), list[Report]()
        agent = subject.agent(make_vec_env(lambda: _noted(subject, episodes), num_envs))  # noqa: B023  # in this round only
        episodes.clear()  # remove those that creating the agent has begun
        watch = LambdaCallback(on_report=lambda run, report: reports.append(report))  # noqa: B023
        with recording(agent.parts.algorithm, calls.append):
            while len(calls) < 4 and (not reports or reports[-1].env_steps + reports[-1].updates < LONGEST):
                agent.learn(FIRST, watch, reset_num_timesteps=False)
        made = steps_in(episodes)
        found = [reports[-1].env_steps, *([agent.num_timesteps] if agent.parts.plan.needs_environment else [])]
        what = f"{num_envs} environments"
        require(set(found) == {made}, f"{what} made {made} steps, and {found} are counted")
        own = getattr(agent.parts.algorithm, "updates", len(calls))
        require(
            reports[-1].updates in (len(calls), own),
            f"{what}: update() was called {len(calls)} times, and {reports[-1].updates} updates are counted",
        )


def _noted(subject: Subject, episodes: list[NotedEpisode]) -> object:
    return subject.with_info(NotedEnv(subject, episodes))


@clause(
    "batch.normalized",
    "With `normalize`, an environment whose observations and rewards are 1024 times as large gives the same gradients.",
    "update(), rounds(): apply context.observation_normalizer and context.reward_normalizer to your own records, sample with"
    " parts.sample(), and pass newest steps that you learn from through parts.preprocess_batch().",
)
def normalized(subject: Subject) -> None:
    subject.needs_vectors("vectors are normalized")
    if not hasattr(subject.agent().config, "normalize"):
        raise NotApplicable("it has no setting normalize")
    one, other = (_last_gradients(subject, factor) for factor in (1.0, LARGER))
    if not one:
        raise NotApplicable("no optimizer makes a step in its update")
    for path in one.keys() & other.keys():
        for before, after in zip(one[path], other[path], strict=False):
            size, difference = max(float(before.norm()), float(after.norm())), float((before - after).norm())
            require(
                difference <= SCALED * size + TINY,
                f"with normalize, observations and rewards {LARGER:g} times as large change a gradient of {path} by"
                f" {difference / max(size, TINY):.1%}",
            )


LARGER, SCALED, LAST = 1024.0, 0.05, 6
"""The factor of observations and rewards, the largest change of a gradient, and the number of last steps that are compared."""


def _last_gradients(subject: Subject, factor: float) -> dict[str, deque[Tensor]]:
    """Return path of each optimizer -> the gradients [P] of its last steps in a training; the steps are not made.

    `factor`: how many times as large observations and rewards are. The statistics are known before the training, because the
    first values are normalized with start values, which do not have that factor.
    """

    def make() -> object:
        low, high = np.full(4, -3.0 * factor, np.float32), np.full(4, 3.0 * factor, np.float32)
        env = AnySpaceEnv(spaces.Box(low, high, dtype=np.float32), ACTIONS[subject.action_kind], EPISODE)
        return subject.with_info(gymnasium.wrappers.TransformReward(env, lambda reward: factor * float(reward)))

    count = 1 if recordable(subject.spec.config_type) else ENVS  # data sets are recorded in one environment
    found: dict[str, deque[Tensor]] = defaultdict(lambda: deque(maxlen=LAST))
    with quietly(), kernels_off():
        # one epoch, as no step is made: another epoch would compute the same gradients again. Of the first agent only the
        # statistics are read, which need no updates
        known, agent = (
            subject.agent(
                make_vec_env(make, count), normalize=True, max_grad_norm=1e9, n_epochs=1, learning_starts=starts
            )
            for starts in (8 * FIRST, FIRST // 6)
        )
        with watched(known, lambda _: None, hold=True):
            known.learn(8 * FIRST)
        learned, fresh = (dict(each.get_parameters()) for each in (known, agent))
        agent.set_parameters({**fresh, "policy": {**fresh["policy"], "normalizer": learned["policy"]["normalizer"]}})
        with watched(agent, lambda step: found[step.optimizer].append(step.gradient), hold=True):
            agent.learn(4 * FIRST)
    return found


@clause(
    "training.samples-differ",
    "Every sample of the buffer is drawn with different random numbers, which depend on the seed.",
    "rounds(): pass sample() a generator of training.streams, such as training.streams['replay']. Do not reset"
    " or recreate the generator.",
)
def samples_differ(subject: Subject) -> None:
    states = list[bytes]()
    for seed in (1, 2):
        agent = subject.agent(seed=seed)
        memory = agent.parts.buffer
        if memory is None:
            raise NotApplicable("it has no memory")
        before = len(states)
        with _noting_generators(memory, states):
            _train_until(agent, lambda: len(states) > before + 4)  # noqa: B023  # used in this round only
    require(
        len(set(states)) == len(states),
        f"of {len(states)} samples in trainings with two seeds only {len(set(states))} began with other random numbers",
    )


@contextmanager
def _noting_generators(memory: Buffer[object, object], states: list[bytes]) -> Iterator[None]:
    """Inside the `with` statement, append the generator's state at each call of `sample` and `sample_several` to `states`."""

    def noted(method: Callable[..., object], *sizes: int | Generator) -> object:
        if isinstance(sizes[-1], Generator):
            states.append(sizes[-1].get_state().numpy().tobytes())
        return method(*sizes)

    with wrapping(memory, noted, "sample", "sample_several"):
        yield
