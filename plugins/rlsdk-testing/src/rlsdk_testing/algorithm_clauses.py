"""Clauses about algorithms: their updates, metrics and state."""

from __future__ import annotations

from typing import Any

import torch

from rlsdk.agent import Agent
from rlsdk.interfaces import AlgorithmAbilities, BufferAbilities, Stateful, plays_episodes, shortcut
from rlsdk.records import Rollout
from rlsdk.runtime import Streams
from rlsdk.training import ReplayUpdates
from rlsdk.tree import flatten, unflatten
from rlsdk_testing.batches import EPISODE, is_scored, small_agent
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.rollouts import rollout_of, scored
from rlsdk_testing.subject import Subject, differing, equal_values, flat_state


def _batch(agent: Agent) -> object:
    """Return a batch that the algorithm can learn from: transitions of its buffer, a rollout, or candidates with scores."""
    if plays_episodes(agent.parts.plan):
        return scored(agent)
    if agent.parts.buffer is not None:  # checked first: a plugin's own plan may have both a buffer and a rollout length
        return agent.parts.sample(16, torch.Generator().manual_seed(5))
    if hasattr(agent.parts.plan, "n_steps"):
        return rollout_of(agent, agent.parts.plan.n_steps)
    raise NotApplicable("the algorithm learns from nothing the kit knows")


SEVERAL, ROWS = 6, 16
"""The number of updates that are made together, and the rows of each batch."""
UPDATES = 10
"""Updates in which the policy must change. One is not enough: an algorithm may update its actor only every few updates."""


@clause(
    "algorithm.metrics",
    "update() returns metrics: finite 0-d float tensors under names with a slash.",
    'update(): return {"train/loss": loss.detach(), ...}, with 0-d tensors that require no gradient.',
)
def metrics(subject: Subject) -> None:
    agent = subject.trained()
    values = agent.parts.algorithm.update(_batch(agent), progress=0.5)
    wrong = {n: v for n, v in values.items() if v.dim() or not v.is_floating_point() or not bool(v.isfinite())}
    require(not wrong, f"metrics that are not finite 0-d floats: {wrong}")
    require(all("/" in name for name in values), f"metric names without a group: {sorted(values)}")
    require(not any(v.requires_grad for v in values.values()), "a metric keeps its graph alive; detach it")


@clause(
    "algorithm.update-learns",
    "update() changes the policy's parameters.",
    "update(): call backward() on the loss and step() on an optimizer that holds the policy's parameters.",
)
def update_learns(subject: Subject) -> None:
    agent = subject.trained()
    before = {n: v.clone() for n, v in agent.parts.policy.state_dict().items()}
    for _ in range(UPDATES):
        agent.parts.algorithm.update(_batch(agent), progress=0.0)
        if any(not torch.equal(v, before[n]) for n, v in agent.parts.policy.state_dict().items()):
            return
    require(False, f"no parameter of the policy changed in {UPDATES} updates")


@clause(
    "algorithm.batch-unchanged",
    "update() does not change the batch.",
    "update(): compute new tensors. Methods that end in an underscore, and assignments to rows, write into the batch.",
)
def batch_unchanged(subject: Subject) -> None:
    from rlsdk.tree import leaves

    agent = subject.trained()
    batch = _batch(agent)
    parts: Any = (batch.steps, batch.initial_carry, batch.last_observation) if isinstance(batch, Rollout) else batch
    parts = (batch.parameters, batch.score) if is_scored(batch) else parts
    before = [leaf.clone() for leaf in leaves(parts)]
    agent.parts.algorithm.update(batch, progress=0.0)
    same = [torch.equal(a, b) for a, b in zip(before, leaves(parts), strict=True)]
    require(all(same), "update() wrote into its batch")


@clause(
    "algorithm.state-round-trip",
    "After load_state_dict() another instance learns as the first one does, bit for bit.",
    "state_dict() and load_state_dict(): include the states of optimizers, the target networks and every counter.",
)
def state_round_trip(subject: Subject) -> None:
    one = subject.trained()
    two = subject.agent(seed=2)
    batch = _batch(one)
    two.set_parameters(one.get_parameters())
    two.streams.load_state_dict(one.streams.state_dict())
    for agent in (one, two):
        for _ in range(3):
            agent.parts.algorithm.update(batch, progress=0.25)
    wrong = differing(flat_state(one), flat_state(two))
    require(not wrong, f"after three more updates these differ: {wrong[:5]}")


@clause(
    "algorithm.state-restored",
    "load_state_dict() restores every number of a state_dict(), also those that a short training does not change.",
    "load_state_dict(): assign every entry of state_dict().",
)
def state_restored(subject: Subject) -> None:
    algorithm = subject.trained().parts.algorithm
    state = _flat(algorithm)
    for name, value in state.items():
        if not (isinstance(value, float) or (isinstance(value, torch.Tensor) and value.is_floating_point())):
            continue
        other = value * 1.25 + 0.125
        try:
            algorithm.load_state_dict(unflatten({**state, name: other}))
        except Exception:  # noqa: S112  # the changed state may be impossible, and refused with any error
            continue
        found = _flat(algorithm).get(name)
        require(equal_values(found, other), f"{name} is {found} after load_state_dict() of a state where it is {other}")


def _flat(algorithm: Stateful) -> dict[str, Any]:
    """Return a copy of the state of the algorithm: names of entries joined with slashes -> value."""
    found = flatten(algorithm.state_dict())
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in found.items()}


@clause(
    "algorithm.several-equal-single",
    "A buffer's `sample_several` and an algorithm's `update_several` give the same results as the same number"
    " of calls of `sample` and `update`, bit for bit.",
    "sample_several(): draw each batch as sample() does. update_several(): share only values that the updates"
    " do not change.",
)
def several_equal_single(subject: Subject) -> None:
    agents = small_agent(subject), small_agent(subject)
    parts = agents[0].parts
    has_several = (
        shortcut(parts.buffer, BufferAbilities, "sample_several", "sample"),
        shortcut(parts.algorithm, AlgorithmAbilities, "update_several", "update"),
    )
    if has_several == (None, None) or parts.buffer is None:
        raise NotApplicable("it has neither sample_several nor update_several")
    for agent, each in zip(agents, (None, lambda _: None), strict=True):
        agent.learn(SEVERAL * EPISODE)
        ReplayUpdates(agent.parts, Streams(0)).update(SEVERAL, ROWS, 0.5, each)  # with `each`: one at a time
    together, single = (Found(agent).parameters() for agent in agents)
    different = [name for name, value in single.items() if not torch.equal(value, together[name])]
    require(
        not different, f"after {SEVERAL} updates together {different[:5]} differ from those after one update at a time"
    )
