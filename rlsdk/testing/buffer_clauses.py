"""What a buffer promises, checked on an environment whose observations determine every row."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.agent import Agent
from rlsdk.environments.toy import ChainEnv
from rlsdk.errors import SettingsError
from rlsdk.records import ActingState, Sequences, Transitions
from rlsdk.testing.kit import clause, require
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.strategies import examples
from rlsdk.testing.subject import Subject
from rlsdk.training import begin_acting
from rlsdk.training.collect import collect
from rlsdk.tree import flatten, leaves, map_tensors


def filled(subject: Subject, num_envs: int, steps: int, **changes: Any) -> tuple[Agent, Any]:
    """An agent on chains of 4 steps whose buffer took `steps` steps of each environment; (agent, buffer)."""
    agent = subject.chain_agent(num_envs, **changes)
    buffer = agent.parts.buffer
    assert buffer is not None
    assert agent.env is not None
    policy = agent.parts.behavior_policy
    acting = begin_acting(agent.env, policy, seed=0)
    for _ in range(steps):
        rollout = collect(agent.env, policy, acting, 1, generator=torch.Generator().manual_seed(0))
        buffer.extend(rollout)
        acting = ActingState(rollout.last_observation, rollout.last_carry)
    return agent, buffer


def capacity_for(subject: Subject, num_envs: int, wanted: int) -> int:
    """`wanted`, or the next of its doubles that the memory accepts: one of sequences needs room for a sequence."""
    for _ in range(8):
        try:
            subject.chain_agent(num_envs, buffer_size=wanted)
        except SettingsError:
            wanted *= 2
        else:
            break
    return wanted


def sharing(subject: Subject, shared: bool) -> dict[str, bool]:
    """`optimize_memory_usage`, where the algorithm has this setting."""
    return {"optimize_memory_usage": shared} if "optimize_memory_usage" in subject.settings() else {}


def untrue(batch: Transitions, gamma: float, length: int = 4) -> str | None:
    """The defect of a batch from `ChainEnv`, or None."""
    rules = ChainEnv(length)
    now, after = batch.observation.features, batch.next_observation.features
    for row in range(len(batch.reward)):
        episode, step = (int(v) for v in now[row])
        ends = step == length - 1
        discount = 0.0 if ends and rules.terminates(episode) else gamma
        expected = torch.tensor([episode, step + 1.0])
        if not torch.equal(after[row], expected):
            return f"step {step} of episode {episode} led to {after[row].tolist()}, not to {expected.tolist()}"
        if float(batch.reward[row]) != float(step):
            return f"step {step} has the reward {float(batch.reward[row])}"
        if abs(float(batch.discount[row]) - discount) > 1e-6:
            kind = "a termination" if discount == 0.0 else "a time limit" if ends else "an ordinary step"
            return f"step {step} of episode {episode}, {kind}, has the discount {float(batch.discount[row])}, not {discount}"
    return None


def transitions_in(batch: object) -> Transitions:
    """The transitions of a sampled batch, in rows.

    Raises:
        NotApplicable: the memory gives records of its own, whose meaning only its plugin knows.
    """
    if isinstance(batch, Sequences):
        rows, mask = batch.steps, batch.loss_mask
        whole = rows.observation, rows.action, rows.reward, batch.discount, batch.next_observation
        observation, action, reward, discount, following = map_tensors(lambda leaf: leaf[mask], whole)
        return Transitions(observation, action, reward, discount, following, torch.arange(len(reward)))
    if isinstance(batch, Transitions):
        return batch
    raise NotApplicable(f"the memory gives {type(batch).__name__}, a record of its own")


@clause(
    "buffer.rows-are-true",
    "Sampled rows equal the stored steps: next observations, rewards, and discounts (0 at terminations only).",
)
def rows_are_true(subject: Subject) -> None:
    @examples
    @given(st.integers(1, 3), st.integers(1, 60), st.booleans())
    def check(num_envs: int, steps: int, shared: bool) -> None:
        room = capacity_for(subject, num_envs, 40)
        agent, buffer = filled(subject, num_envs, steps, buffer_size=room, **sharing(subject, shared))
        batch = transitions_in(buffer.sample(64, torch.Generator().manual_seed(1)))
        problem = untrue(batch, agent.config.gamma)
        require(problem is None, f"{num_envs} environments, {steps} steps, shared={shared}: {problem}")

    check()


@clause("buffer.length", "len() counts the rows that can be sampled and stops at the capacity.")
def length(subject: Subject) -> None:
    if "buffer_size" not in subject.settings():
        raise NotApplicable("the capacity is not a setting called buffer_size")
    capacity = capacity_for(subject, 2, 12)
    for steps in (0, capacity // 4, capacity, 5 * capacity // 2):
        _, buffer = filled(subject, 2, steps, buffer_size=capacity)
        expected = min(2 * steps, capacity)
        require(
            len(buffer) == expected, f"after {steps} steps of 2 environments len() is {len(buffer)}, not {expected}"
        )


@clause(
    "buffer.size-known-first",
    "bytes_required() is known before the first row and equals the memory that the rows take (to 1 %).",
)
def size_known_first(subject: Subject) -> None:
    small = {"buffer_size": capacity_for(subject, 2, 40)} if "buffer_size" in subject.settings() else {}
    empty = subject.chain_agent(2, **small).parts.buffer
    assert empty is not None
    needed = empty.bytes_required()
    require(isinstance(needed, int) and needed > 0, f"bytes_required() is {needed!r}")
    _, full = filled(subject, 2, 200, **small)
    require(full.bytes_required() == needed, "bytes_required() changed once rows were stored")
    state = full.state_dict()
    stored = leaves(state["leaves"]) if "leaves" in state else flatten(state).values()
    taken = sum(leaf.nbytes for leaf in stored if isinstance(leaf, torch.Tensor))
    require(
        abs(taken - needed) <= 0.01 * needed + 64, f"bytes_required() returned {needed}, a full buffer takes {taken}"
    )


@clause("buffer.samples-are-copies", "Changing a sampled batch does not change the buffer.")
def samples_are_copies(subject: Subject) -> None:
    _, buffer = filled(subject, 1, 20)
    before, batch = (buffer.sample(32, torch.Generator().manual_seed(1)) for _ in range(2))
    for leaf in leaves(batch):
        leaf.fill_(1)
    after = buffer.sample(32, torch.Generator().manual_seed(1))
    pairs = zip(leaves(before), leaves(after), strict=True)
    require(all(torch.equal(a, b) for a, b in pairs), "overwriting a sampled batch changed what is sampled next")


@clause(
    "buffer.state-round-trip", "A buffer loaded from state_dict() gives the same samples, now and after further steps."
)
def state_round_trip(subject: Subject) -> None:
    room = capacity_for(subject, 2, 30)
    for shared in (False, True):
        _, one = filled(subject, 2, room - 7, buffer_size=room, **sharing(subject, shared))
        two = subject.chain_agent(2, buffer_size=room, **sharing(subject, shared)).parts.buffer
        assert two is not None
        two.load_state_dict(one.state_dict())
        require(len(one) == len(two), f"shared={shared}: {len(one)} rows became {len(two)}")
        batches = [b.sample(50, torch.Generator().manual_seed(3)) for b in (one, two)]
        pairs = zip(leaves(batches[0]), leaves(batches[1]), strict=True)
        require(all(torch.equal(a, b) for a, b in pairs), f"shared={shared}: samples differ after the round trip")
