"""What a policy promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env, to_space
from rlsdk.environments.adapters.observations import stack
from rlsdk.environments.toy import AnySpaceEnv
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.interfaces import HasRolloutLength
from rlsdk.records import Observation
from rlsdk.spaces import choices_of
from rlsdk.testing.kit import clause, require
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.rollouts import rollout_of
from rlsdk.testing.strategies import examples
from rlsdk.testing.subject import ACTIONS, OBSERVATIONS, Subject, equal_values
from rlsdk.tree import leaves, map_tensors
from rlsdk.updates.minibatches import policy_batch


def observations(agent: Agent, count: int, seed: int, *, first: bool = True) -> Observation:
    """`count` random observations of the agent's space."""
    space = agent.observation_space
    space.seed(seed)
    features = stack(agent.context.observation_space, [space.sample() for _ in range(count)])
    return Observation(features, torch.full((count,), first))


def act(agent: Agent, observation: Observation, carry: Any, seed: int, *, deterministic: bool) -> Any:
    """One call of the policy with a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    return agent.parts.policy.act(observation, carry, deterministic=deterministic, generator=generator)


@clause("policy.action-in-space", "Every action lies in the action space, sampled or not, for any observation.")
def action_in_space(subject: Subject) -> None:
    for what, agent in subject.agents():
        _actions_in_space(subject, what, agent)


def _actions_in_space(subject: Subject, what: str, agent: Agent) -> None:
    space, values = agent.action_space, agent.observation_space

    @examples
    @given(st.integers(0, 2**20), st.booleans())
    def check(seed: int, deterministic: bool) -> None:
        values.seed(seed)
        action = subject.predict(agent, values.sample(), deterministic=deterministic)
        inside = space.contains(action) or (space.dtype is not None and space.contains(np.asarray(action, space.dtype)))
        require(bool(inside), f"{what}: action {action!r} is outside {space}")

    check()


@clause("policy.deterministic", "The deterministic action depends on observation and carry only.")
def deterministic(subject: Subject) -> None:
    for what, agent in subject.agents():
        seen = observations(agent, 3, seed=5)
        one = act(agent, seen, agent.parts.policy.initial_carry(3), seed=1, deterministic=True).action
        two = act(agent, seen, agent.parts.policy.initial_carry(3), seed=2, deterministic=True).action
        require(equal_values(one, two), f"{what}: the deterministic action changed from {one} to {two}")


@clause("policy.rows-independent", "Acting on one row or on many gives the same deterministic action (to 1e-5).")
def rows_independent(subject: Subject) -> None:
    for what, agent in subject.agents():
        seen = observations(agent, 5, seed=9)
        together = act(agent, seen, agent.parts.policy.initial_carry(5), seed=1, deterministic=True).action
        for i in range(5):
            row = map_tensors(lambda leaf, i=i: leaf[i : i + 1], seen)
            alone = act(agent, row, agent.parts.policy.initial_carry(1), seed=1, deterministic=True).action
            pairs = zip(leaves(alone), leaves(together), strict=True)
            near = all(torch.allclose(one[0].double(), many[i].double(), atol=1e-5) for one, many in pairs)
            require(near, f"{what}: row {i} alone gives {alone}, in a batch of 5 {together}")


@clause("policy.randomness-from-generator", "Samples depend on the generator given, and on no other random state.")
def randomness_from_generator(subject: Subject) -> None:
    agent = subject.agent()
    seen, before = observations(agent, 4, seed=3), torch.random.get_rng_state()
    one = act(agent, seen, agent.parts.policy.initial_carry(4), seed=7, deterministic=False).action
    require(torch.equal(before, torch.random.get_rng_state()), "acting moved torch's global random state")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        two = act(agent, seen, agent.parts.policy.initial_carry(4), seed=7, deterministic=False).action
    require(equal_values(one, two), f"the same generator gave {one} and {two}")


@clause("policy.no-hidden-state", "The policy's state is in the carry: equal calls give equal results.")
def no_hidden_state(subject: Subject) -> None:
    agent = subject.agent()
    carry = act(
        agent, observations(agent, 2, seed=1), agent.parts.policy.initial_carry(2), seed=1, deterministic=False
    ).carry
    seen = observations(agent, 2, seed=2, first=False)
    one = act(agent, seen, carry, seed=4, deterministic=False).action
    act(agent, observations(agent, 2, seed=6), carry, seed=5, deterministic=False)
    two = act(agent, seen, carry, seed=4, deterministic=False).action
    require(equal_values(one, two), f"the same observation, carry and generator gave {one}, then {two}")


@clause("policy.episode-start-forgets", "At the start of an episode the carry of that row is ignored.")
def episode_start_forgets(subject: Subject) -> None:
    agent = subject.agent()
    fresh = agent.parts.policy.initial_carry(3)
    if not leaves(fresh):
        raise NotApplicable("the policy remembers nothing")
    used = act(agent, observations(agent, 3, seed=1), fresh, seed=1, deterministic=False).carry
    seen = observations(agent, 3, seed=2)
    one = act(agent, seen, fresh, seed=3, deterministic=True).action
    two = act(agent, seen, used, seed=3, deterministic=True).action
    require(equal_values(one, two), f"at an episode's start a used carry gives {two}, a fresh one {one}")


@clause("policy.masks-obeyed", "With masks, no forbidden action is played, in training or in evaluation.")
def masks_obeyed(subject: Subject) -> None:
    if subject.spec.action_masks == "ignored":
        raise NotApplicable("the algorithm ignores action masks")
    for kind in subject.manifest.actions:
        if not sum(choices_of(to_space(ACTIONS[kind]))):
            continue
        strict = _strict_environment(subject, kind)
        agent = subject.agent(make_vec_env(strict, 2, vectorization="sync")).learn(60)
        for deterministic in (False, True):
            run_episodes(agent, strict(), 5, deterministic=deterministic)


def _strict_environment(subject: Subject, kind: str) -> Callable[[], object]:
    """Makes environments that raise at a forbidden action."""
    return lambda: subject.with_info(AnySpaceEnv(OBSERVATIONS["Box"], ACTIONS[kind], strict=True))


@clause("policy.ratio-is-one", "Log-probabilities recomputed for learning equal those of collecting (to 1e-5).")
def ratio_is_one(subject: Subject) -> None:
    checked = 0
    for what, agent in subject.agents():
        network = getattr(agent.parts.policy, "evaluate", None)
        if network is None or not isinstance(agent.parts.plan, HasRolloutLength):
            continue
        policy: Any = agent.policy
        rows = policy_batch(rollout_of(agent, 16), policy, gamma=0.9, lam=0.9)
        with torch.no_grad():
            distribution, value = network(rows.observation, rows.memory, rows.starts)
            log_prob = distribution.log_prob(policy.internal(rows.action))
        for name, now, then in (("log-probability", log_prob, rows.log_prob), ("value", value, rows.value)):
            gap = float((now - then).abs().max())
            require(gap < 1e-5, f"{what}: a recomputed {name} differs by {gap}")
        checked += 1
    if not checked:
        raise NotApplicable("the policy is not an actor-critic of rlsdk.networks")
