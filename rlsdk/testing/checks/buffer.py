"""What a buffer promises, checked on an environment whose observations tell the truth about every row."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.agent import Agent
from rlsdk.collect import collect
from rlsdk.environments.toy import ChainEnv
from rlsdk.loops import Cursor
from rlsdk.records import Transitions
from rlsdk.testing.kit import NotApplicable, clause, require
from rlsdk.testing.strategies import examples
from rlsdk.testing.subject import Subject
from rlsdk.tree import leaves


def filled(subject: Subject, num_envs: int, steps: int, **changes: Any) -> tuple[Agent, Any]:
    """An agent on chains of 4 steps whose buffer took `steps` steps of each environment; (agent, buffer)."""
    agent = subject.chain_agent(num_envs, **changes)
    buffer = agent.parts.buffer
    assert buffer is not None
    assert agent.env is not None
    cursor = Cursor.begin(agent.env, agent.parts.collector, seed=0)
    observation, carry = cursor.observation, cursor.carry
    for _ in range(steps):
        rollout = collect(
            agent.env, agent.parts.collector, observation, carry, 1, generator=torch.Generator().manual_seed(0)
        )
        buffer.extend(rollout)
        observation, carry = rollout.last_observation, rollout.last_carry
    return agent, buffer


def untrue(batch: Transitions, gamma: float, length: int = 4) -> str | None:
    """What is wrong with a batch from `ChainEnv`, or None."""
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


@clause(
    "buffer.rows-are-true",
    "Sampled rows are what happened: successors, rewards, and discounts (0 at terminations only).",
)
def rows_are_true(subject: Subject) -> None:
    @examples
    @given(st.integers(1, 3), st.integers(1, 60), st.booleans())
    def check(num_envs: int, steps: int, shared: bool) -> None:
        agent, buffer = filled(subject, num_envs, steps, buffer_size=40, optimize_memory_usage=shared)
        problem = untrue(buffer.sample(64, torch.Generator().manual_seed(1)), agent.config.gamma)
        require(problem is None, f"{num_envs} environments, {steps} steps, shared={shared}: {problem}")

    check()


@clause("buffer.length", "len() counts the rows that can be sampled and stops at the capacity.")
def length(subject: Subject) -> None:
    if "buffer_size" not in subject.settings():
        raise NotApplicable("the capacity is not a setting called buffer_size")
    capacity = 12
    for steps in (0, 3, 12, 30):
        _, buffer = filled(subject, 2, steps, buffer_size=capacity)
        expected = min(2 * steps, capacity)
        require(
            len(buffer) == expected, f"after {steps} steps of 2 environments len() is {len(buffer)}, not {expected}"
        )


@clause(
    "buffer.size-known-first", "bytes_required() is known before the first row and is what the rows then take (to 1 %)."
)
def size_known_first(subject: Subject) -> None:
    empty = subject.chain_agent(2).parts.buffer
    assert empty is not None
    needed = empty.bytes_required()
    require(isinstance(needed, int) and needed > 0, f"bytes_required() is {needed!r}")
    _, full = filled(subject, 2, 200)
    require(full.bytes_required() == needed, "bytes_required() changed once rows were stored")
    taken = sum(leaf.nbytes for leaf in leaves(full.state_dict()["leaves"]))
    require(abs(taken - needed) <= 0.01 * needed + 64, f"bytes_required() said {needed}, a full buffer takes {taken}")


@clause("buffer.samples-are-copies", "Changing a sampled batch does not change the buffer.")
def samples_are_copies(subject: Subject) -> None:
    agent, buffer = filled(subject, 1, 20)
    for leaf in leaves(buffer.sample(32, torch.Generator().manual_seed(1))):
        leaf.fill_(1)
    problem = untrue(buffer.sample(32, torch.Generator().manual_seed(1)), agent.config.gamma)
    require(problem is None, f"after a sampled batch was overwritten: {problem}")


@clause("buffer.state-round-trip", "state_dict() into a fresh buffer gives the same samples, and goes on alike.")
def state_round_trip(subject: Subject) -> None:
    for shared in (False, True):
        _, one = filled(subject, 2, 23, buffer_size=30, optimize_memory_usage=shared)
        two = subject.chain_agent(2, buffer_size=30, optimize_memory_usage=shared).parts.buffer
        assert two is not None
        two.load_state_dict(one.state_dict())
        require(len(one) == len(two), f"shared={shared}: {len(one)} rows became {len(two)}")
        batches = [b.sample(50, torch.Generator().manual_seed(3)) for b in (one, two)]
        pairs = zip(leaves(batches[0]), leaves(batches[1]), strict=True)
        require(all(torch.equal(a, b) for a, b in pairs), f"shared={shared}: samples differ after the round trip")
