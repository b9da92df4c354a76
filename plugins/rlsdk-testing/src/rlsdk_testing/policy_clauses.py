"""Clauses about policies: their actions, random numbers, carries, masks and log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import UnknownAttributeError
from rlsdk.evaluation import run_episodes
from rlsdk.interfaces import plays_episodes
from rlsdk.records import Observation
from rlsdk.spaces import Space, choices_of
from rlsdk.tree import leaves, map_tensors
from rlsdk.updates import policy_batch
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.acting import (
    GymSpace,
    act_on,
    acting_policies,
    action_spaces,
    allowed,
    chosen,
    extra_of,
    fault_of,
    may_exceed,
    near,
    observations,
    random_masks,
    row_of,
    rows_in,
)
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.rollouts import rollout_of
from rlsdk_testing.strategies import examples
from rlsdk_testing.subject import ACTIONS, Subject, equal_values

ROWS, MANY = 16, 2000
STARTS = 8
"""The number of rows, of which every second one begins an episode. Only some of the other rows must depend on their carry."""
FREQUENCIES = 4000
"""The number of actions sampled for one observation, to count how often each occurs."""


def act(agent: Agent, observation: Observation, carry: object, seed: int, *, deterministic: bool) -> Any:
    """Call `act` of the agent's policy once, with a new generator that has the seed `seed`."""
    return act_on(agent.parts.policy, observation, carry, seed, deterministic=deterministic)


def _acting_on(subject: Subject, space: GymSpace) -> Agent:
    """Return a small agent with the action space `space`."""
    return subject.agent(AnySpaceEnv(subject.seen, space))


@clause(
    "policy.action-in-space",
    "Every action of act() and predict(), sampled or deterministic, lies in the action space, with its"
    " nesting, shapes and `start`.",
    "act(): return actions in the units of the action space: choices counted from `start`, one column for each"
    " choice, Box actions scaled to `low` and `high` of each dimension. This holds for the policy and for a"
    " behavior policy.",
)
def action_in_space(subject: Subject) -> None:
    for what, agent in subject.agents():
        _actions_in_space(subject, what, agent)
        _acts_in_space(what, agent)
    for space in action_spaces(subject):
        agent = _acting_on(subject, space)
        _acts_in_space(str(space), agent)


def _acts_in_space(what: str, agent: Agent) -> None:
    space, seen = agent.context.action_space, observations(agent, ROWS, seed=2)
    for name, policy in acting_policies(agent):
        for deterministic in (True, False):
            answer = act_on(policy, seen, policy.initial_carry(ROWS), seed=3, deterministic=deterministic)
            fault = fault_of(space, answer.action, ROWS, exceeds=may_exceed(agent, answer))
            require(fault is None, f"{what}, {name}(deterministic={deterministic}): {fault}")


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


@clause(
    "policy.deterministic",
    "The deterministic action depends only on the observation and the recurrent state.",
    "act(deterministic=True): return the mode of the distribution, without noise, dropout or epsilon-greedy"
    " exploration.",
)
def deterministic(subject: Subject) -> None:
    for what, agent in subject.agents():
        seen = observations(agent, 3, seed=5)
        one = act(agent, seen, agent.parts.policy.initial_carry(3), seed=1, deterministic=True).action
        two = act(agent, seen, agent.parts.policy.initial_carry(3), seed=2, deterministic=True).action
        require(equal_values(one, two), f"{what}: the deterministic action changed from {one} to {two}")


@clause(
    "policy.rows-independent",
    "The deterministic action for a row is the same alone and in a batch (within 1e-5).",
    "act(): compute each row of the batch from the row's observation and recurrent state only. Use no mean, maximum or"
    " normalization over rows.",
)
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


@clause(
    "policy.randomness-from-generator",
    "Sampled actions depend on the given generator, and on no other random state.",
    "act(): pass `generator` to every function that draws random numbers (torch.rand(..,"
    " generator=generator)), in the policy and in a behavior policy. torch.distributions accepts no"
    " generator; rlsdk.distributions does.",
)
def randomness_from_generator(subject: Subject) -> None:
    agent = subject.agent()
    seen, before = observations(agent, 4, seed=3), torch.random.get_rng_state()
    for name, policy in acting_policies(agent):
        one = act_on(policy, seen, policy.initial_carry(4), seed=7, deterministic=False).action
        require(torch.equal(before, torch.random.get_rng_state()), f"{name} moved torch's global random state")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(99)
            two = act_on(policy, seen, policy.initial_carry(4), seed=7, deterministic=False).action
        require(equal_values(one, two), f"{name}: the same generator gave {one} and {two}")


@clause(
    "policy.samples-vary",
    "Sampled actions of the behavior policy differ between rows and between generators, and every discrete"
    " choice occurs.",
    "act(deterministic=False): draw an action for each row with `generator`. If a wrapper adds the"
    " exploration, pass it as Parts.behavior.",
)
def samples_vary(subject: Subject) -> None:
    plan = subject.agent().parts.plan
    if plays_episodes(plan) or not plan.needs_environment:
        raise NotApplicable(f"{subject.spec.id} does not explore by sampling actions")
    for space in action_spaces(subject):
        agent = _acting_on(subject, space)
        seen, collecting = observations(agent, 1, seed=4), agent.parts.behavior_policy
        same = map_tensors(lambda leaf: leaf.expand(MANY, *leaf.shape[1:]), seen)
        for name, policy in acting_policies(agent):
            start = policy.initial_carry(MANY)
            one, two = (act_on(policy, same, start, seed=seed, deterministic=False).action for seed in (1, 2))
            if policy is not collecting and equal_values(leaves(one), leaves(two)):
                continue  # only the behavior policy explores
            _require_variety(f"{space}, {name}", agent.context.action_space, one, two)


def _require_variety(what: str, space: Space, one: object, two: object) -> None:
    """Check that actions vary. `one` and `two` were sampled for equal rows with two generators."""
    require(not equal_values(leaves(one), leaves(two)), f"{what}: two generators gave the same {MANY} sampled actions")
    constant = [leaf for leaf in leaves(one) if bool((leaf == leaf[:1]).all())]
    require(not constant, f"{what}: {MANY} rows with one observation got the same sampled action")
    for i, (column, size) in enumerate(zip(chosen(space, one).unbind(1), choices_of(space), strict=True)):
        missing = sorted(set(range(size)) - set(column.tolist()))
        require(not missing, f"{what}: of {MANY} samples none has, in choice {i}, the values of number {missing}")


@clause(
    "policy.log-prob-is-true",
    "If the extras of act() have `log_prob`, it is the log-probability of the returned action. It agrees with"
    " the frequency of that action in samples (within 5 standard errors).",
    "act(): compute the log-probability of the same action that is returned, after masks, summed over its choices.",
)
def log_prob_is_true(subject: Subject) -> None:
    checked = 0
    for space in action_spaces(subject):
        agent = _acting_on(subject, space)
        inner = agent.context.action_space
        policy, same = agent.parts.policy, observations(agent, 1, seed=4)
        same = map_tensors(lambda leaf: leaf.expand(FREQUENCIES, *leaf.shape[1:]), same)
        answer = act_on(policy, same, policy.initial_carry(FREQUENCIES), seed=5, deterministic=False)
        log_prob, choices = extra_of(answer, "log_prob"), chosen(inner, answer.action)
        if log_prob is None or len(leaves(answer.action)) > 1 or not choices.shape[1]:
            continue
        for action in map(torch.tensor, sorted(set(map(tuple, choices.tolist())))):
            rows = (choices == action).all(1)
            share, stated = float(rows.double().mean()), float(log_prob[rows][0].exp())
            error = (max(stated * (1.0 - stated), 0.0) / FREQUENCIES) ** 0.5
            require(
                abs(share - stated) <= 5 * error + 1e-3,
                f"{space}: action {action.tolist()}, from 0, has probability {stated:.3f} by log_prob, and is sampled"
                f" {share:.3f} of the time",
            )
        checked += 1
    if not checked:
        raise NotApplicable("act() gives no log_prob of discrete actions")


@clause(
    "policy.no-hidden-state",
    "The policy has no state except the recurrent state: equal calls give equal results.",
    "act(): store nothing in the object between calls. Return counts, noise and recurrent state in Act.carry.",
)
def no_hidden_state(subject: Subject) -> None:
    agent = subject.agent()
    for name, policy in acting_policies(agent):
        first = observations(agent, 2, seed=1)
        carry = act_on(policy, first, policy.initial_carry(2), seed=1, deterministic=False).carry
        seen = observations(agent, 2, seed=2, first=False)
        one = act_on(policy, seen, carry, seed=4, deterministic=False)
        act_on(policy, observations(agent, 2, seed=6), carry, seed=5, deterministic=False)
        two = act_on(policy, seen, carry, seed=4, deterministic=False)
        same = "the same observation, carry and generator"
        require(equal_values(one.action, two.action), f"{name}: {same} gave {one.action}, then {two.action}")
        require(near(one.carry, two.carry), f"{name}: {same} gave {one.carry}, then {two.carry}")


@clause(
    "policy.episode-start-forgets",
    "At the start of an episode the policy ignores the recurrent state of that row. Rows in the middle of an episode use"
    " their recurrent state.",
    "act(): reset the recurrent state row by row: torch.where(is_first, initial, carry) for each tensor, with is_first"
    " bool [B]. Do not reset all rows together, and do not use the first row's flag for the others.",
)
def episode_start_forgets(subject: Subject) -> None:
    agent, remembers = subject.agent(), _noise_starts_again(subject)
    for name, policy in acting_policies(agent):
        fresh = policy.initial_carry(STARTS)
        used = act_on(policy, observations(agent, STARTS, seed=1), fresh, seed=1, deterministic=False).carry
        if not rows_in(fresh) or near(rows_in(fresh), rows_in(used)):
            continue
        remembers = True
        first = torch.arange(STARTS) % 2 == 0
        depends = False
        seen = Observation(observations(agent, STARTS, seed=2).features, first)
        mixed, forgotten = (act_on(policy, seen, carry, seed=3, deterministic=True) for carry in (used, fresh))
        for row in range(STARTS):
            own = row_of((mixed.action, mixed.carry), row)
            single = act_on(policy, row_of(seen, row), row_of(used, row), seed=3, deterministic=True)
            require(
                near(rows_in(own), rows_in((single.action, single.carry))),
                f"{name}: with is_first = {first.tolist()} row {row} gives {own[0]}, alone with its carry {single.action}",
            )
            same = near(rows_in(own), rows_in(row_of((forgotten.action, forgotten.carry), row)))
            if first[row]:
                action = row_of(forgotten.action, row)
                require(same, f"{name}: at an episode's start a used carry gives {own[0]}, a fresh one {action}")
            depends = depends or not (first[row] or same)
        require(depends, f"{name}: in the middle of an episode no row depends on its carry")
    if not remembers:
        raise NotApplicable("the policy remembers nothing")


def _noise_starts_again(subject: Subject) -> bool:
    """Check that action noise begins again at episode starts; return False if the manifest does not list `action_noise`.

    The noise is correlated in time, and added to sampled actions only.
    """
    if "action_noise" not in subject.manifest.traits:
        return False
    noise = {"kind": "ornstein-uhlenbeck", "mean": [0.0], "sigma": [0.2]}
    agent = subject.agent(action_noise=noise, learning_starts=0)
    policy, first = agent.parts.behavior_policy, torch.tensor([True, False, True, False])
    fresh = policy.initial_carry(4)
    used = act_on(policy, observations(agent, 4, seed=1), fresh, seed=1, deterministic=False).carry
    seen = Observation(observations(agent, 4, seed=2).features, first)
    answers = [act_on(policy, seen, carry, seed=3, deterministic=False) for carry in (used, fresh)]
    for row in range(4):
        one, two = (row_of((answer.action, answer.carry), row) for answer in answers)
        where = "at an episode's start" if first[row] else "in the middle of an episode"
        require(
            near(rows_in(one), rows_in(two)) == bool(first[row]),
            f"action noise: {where} a used carry gives {one[0]}, a fresh one {two[0]}",
        )
    return True


@clause(
    "policy.carry",
    "Carries have a row for each environment, constant shapes and dtypes, and require no gradient. act() does"
    " not write into the recurrent state that it receives.",
    "initial_carry() and act(): return detached tensors [batch, ..], and do not write into the tensors that"
    " they receive.",
)
def carry(subject: Subject) -> None:
    agent = subject.agent()
    for name, policy in acting_policies(agent):
        fresh, single = policy.initial_carry(3), policy.initial_carry(1)
        given = [leaf.clone() for leaf in leaves(fresh)]
        short = [tuple(leaf.shape) for leaf in rows_in(fresh) if len(leaf) != 3]
        require(not short, f"{name}: initial_carry(3) has tensors of shape {short}")
        alike = all(near(rows_in(row_of(fresh, row)), rows_in(single)) for row in range(3))
        require(alike, f"{name}: a row of initial_carry(3) is not initial_carry(1)")
        with torch.enable_grad():
            answer = act_on(policy, observations(agent, 3, seed=1), fresh, seed=1, deterministic=False)
        kinds = [[(tuple(leaf.shape), leaf.dtype) for leaf in leaves(each)] for each in (fresh, answer.carry)]
        require(kinds[0] == kinds[1], f"{name}: the carry {kinds[0]} became {kinds[1]}")
        require(not any(leaf.requires_grad for leaf in leaves(answer.carry)), f"{name}: the carry has a graph")
        untouched = all(torch.equal(a, b) for a, b in zip(given, leaves(fresh), strict=True))
        require(untouched, f"{name} wrote into the carry that it was given")
        own = [leaf.data_ptr() for leaf in rows_in(fresh)]
        require(len(own) == len(set(own)), f"{name}: tensors of initial_carry share their memory")


@clause(
    "policy.masks-obeyed",
    "With masks, the policy takes no forbidden action: sampled or deterministic, in training with any number"
    " of environments, in evaluation, and if only one action is allowed.",
    "act(): use observation.action_mask wherever an action is chosen: in the distribution, in the greedy"
    " choice, and in random actions of a warm-up or of epsilon-greedy exploration.",
)
def masks_obeyed(subject: Subject) -> None:
    if subject.spec.action_masks == "ignored":
        raise NotApplicable("the algorithm ignores action masks")
    for kind in subject.manifest.actions:
        if not sum(choices_of(to_space(ACTIONS[kind]))):
            continue
        strict = _strict_environment(subject, kind)
        agent = subject.agent(make_vec_env(strict, 2, vectorization="sync")).learn(60)
        for deterministic in (False, True):
            run_episodes(agent, strict(), 2, deterministic=deterministic)
        _masks_in_act(subject.agent(make_vec_env(strict, 1, vectorization="sync")))
        _masks_in_act(agent)
    if subject.agent().parts.plan.needs_environment:
        env = make_vec_env(_strict_environment(subject, _masked_kind(subject)), 3, vectorization="async", workers=2)
        subject.agent(env, env_groups=3).learn(40)
        env.close()


def _masked_kind(subject: Subject) -> str:
    """Return the first kind of action that has masks, that is, contains discrete choices."""
    return next(kind for kind in subject.manifest.actions if sum(choices_of(to_space(ACTIONS[kind]))))


def _masks_in_act(agent: Agent) -> None:
    """Check that the policy and the behavior policy obey random masks; half of the rows allow a single action."""
    space = agent.context.action_space
    mask = random_masks(space, MANY, seed=1)
    seen = Observation(observations(agent, MANY, seed=1).features, torch.ones(MANY, dtype=torch.bool), mask)
    for name, policy in acting_policies(agent):
        for deterministic in (True, False):
            answer = act_on(policy, seen, policy.initial_carry(MANY), seed=2, deterministic=deterministic)
            wrong = (~allowed(space, answer.action, mask)).nonzero().flatten().tolist()
            if wrong:
                choice = chosen(space, row_of(answer.action, wrong[0])).tolist()
                found = f"{len(wrong)} of {MANY} actions are forbidden: {choice}, from 0, by {mask[wrong[0]].int().tolist()}"
                require(False, f"{name}(deterministic={deterministic}): {found}")


def _strict_environment(subject: Subject, kind: str) -> Callable[[], object]:
    """Return a function that makes environments which raise an error at a forbidden action."""
    return lambda: subject.with_info(AnySpaceEnv(subject.seen, ACTIONS[kind], strict=True))


@clause(
    "policy.ratio-is-one",
    "Log-probabilities that are recomputed for learning equal those of the collected actions (within 1e-5).",
    "update(): compute log-probabilities and values from the same observations, masks, carries and unclipped"
    " actions as in act(), with the same layers and modes.",
)
def ratio_is_one(subject: Subject) -> None:
    checked = 0
    for what, agent in subject.agents():
        policy: Any = agent.policy
        is_actor_critic = {"evaluate", "estimates", "internal"} <= set(dir(policy))
        if not hasattr(agent.parts.plan, "n_steps"):
            continue
        if not is_actor_critic:
            checked += _own_ratio_is_one(what, agent)
            continue
        policy.stores_estimates = True  # also if the algorithm does not need it
        rollout = rollout_of(agent, 16)
        for cut_every in (None, 1):  # from carries at the start of episodes, and from carries stored with each row
            rows = policy_batch(rollout, policy, gamma=0.9, lam=0.9, cut_every=cut_every)
            with torch.no_grad():
                distribution, value = policy.evaluate(rows.observation, rows.memory, rows.starts)
                log_prob = distribution.log_prob(policy.internal(rows.action))
            for name, now, then in (("log-probability", log_prob, rows.log_prob), ("value", value, rows.value)):
                gap = float((now - then).abs().max())
                require(
                    gap < 1e-5, f"{what}, sequences of {cut_every or 'all'} steps: a recomputed {name} differs by {gap}"
                )
        checked += 1
    if not checked:
        raise NotApplicable(
            "the policy is not an actor-critic of rlsdk.networks. With log_prob in its extras and a method evaluate_actions("
            "observation, action) -> (values, log-probabilities, entropies), each [N], this clause compares them"
        )


def _own_ratio_is_one(what: str, agent: Any) -> bool:
    """Compare `log_prob` of the extras with `evaluate_actions` of a policy without carry; return False if it lacks one."""
    recompute = getattr(agent.policy, "evaluate_actions", None)
    if not callable(recompute) or leaves(agent.policy.initial_carry(1)):
        return False
    steps = rollout_of(agent, 16).steps
    then = extra_of(steps, "log_prob")
    if not isinstance(then, torch.Tensor):
        return False
    rows = map_tensors(lambda leaf: leaf.flatten(0, 1), (steps.observation, steps.action))
    try:
        with torch.no_grad():
            now = recompute(*rows)[1]
    except UnknownAttributeError:  # the method of stable-baselines3, of a policy without a value function
        return False
    shape = (steps.reward.numel(),)
    require(now.shape == shape, f"{what}: log-probabilities of evaluate_actions are {tuple(now.shape)}, not {shape}")
    gap = float((now - then.flatten())[steps.valid.flatten()].abs().max())
    require(gap < 1e-5, f"{what}: a log-probability of evaluate_actions differs from that of act by {gap}")
    return True
