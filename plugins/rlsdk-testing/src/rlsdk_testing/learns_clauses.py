"""Clauses about learning: toy tasks with a few states and known solutions, which any correct algorithm learns within seconds.

Each task is learned twice, from the same weights, with opposite solutions. So a policy that learns nothing, or the opposite,
always fails: if its initial action is right in one of the two tasks, it is wrong in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product

import attrs
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlsdk.agent import Agent
from rlsdk.errors import SettingsError
from rlsdk.evaluation import run_episodes
from rlsdk.interfaces import AlgorithmAbilities, PolicyAbilities, ability
from rlsdk.records import Observation, Sequences, Transitions
from rlsdk.settings import structure
from rlsdk.tree import leaves
from rlsdk_envs import MaskedChoiceEnv, Outcome, TableEnv, TMazeEnv, action_at
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import Subject
from rlsdk_testing.toys import Toy, agreement, greedy_actions, require_learned, score_after, spread, with_masks

BOUND = 0.8
"""The agreement with the right action that must be reached in the worst state. A random or opposite policy reaches at most 0.5
in one of the two tasks. The algorithms of this project reach 0.9 to 1."""
ERROR = 0.25
"""The largest error of a value in the worst state. With a wrong target, one of the values has an error of 0.4 or more."""
LARGE, SPREAD = 10.0, 0.35
"""A weight of the entropy that dominates rewards of 1, and the spread (see `spread`) that sampled actions must then have."""
PATIENT, IMPATIENT = 0.9, 0.4
"""Two discount factors, for which opposite actions are right."""
ACTIONS: dict[str, spaces.Space[object]] = {
    "Discrete": spaces.Discrete(2),
    "Box": spaces.Box(-1.0, 1.0, (1,), np.float32),
    "MultiDiscrete": spaces.MultiDiscrete([2]),
    "MultiBinary": spaces.MultiBinary(1),
}
"""The simplest space of each kind."""
Outcomes = list[tuple[Outcome, Outcome]]


def _kinds(subject: Subject) -> list[str]:
    """Return the kinds of action that both the plugin and the toy tasks support.

    Raises:
        NotApplicable: there are none, or the plugin does not support vectors as observations.
    """
    found = [kind for kind in ACTIONS if kind in subject.manifest.actions]
    if not found or "Box" not in subject.manifest.observations:
        raise NotApplicable(
            "the toys have simple actions and vectors as observations, which the plugin does not support"
        )
    return found


def _has(subject: Subject, setting: str) -> bool:
    return setting in attrs.fields_dict(subject.spec.config_type)


def _require_answers(
    subject: Subject, name: str, env: partial[TableEnv], answers: Mapping[int, float], expected: str, **settings: object
) -> None:
    """Train until the policy chooses the right actions; `answers`: state -> position of its right action in the space."""
    table = env()
    number = {np.asarray(seen).tobytes(): state for state, seen in enumerate(table.shown)}

    def right(observation: Observation) -> object:
        state = number[observation.features[0].numpy().tobytes()]
        return action_at(table.action_space, answers.get(state, 1.0))

    require_learned(subject, Toy(name, env, agreement(table, answers), BOUND, expected, settings, right))


ORDER = (1, -1, -2, 2, 3, -3)
"""The observations of an episode, each with three numbers: which number (from 1) is not 0, and its sign. If the signs are
shifted in time, they differ from these, so that a shift between observations and actions is noticed."""
SIGNS = np.array([np.sign(each) * np.eye(3)[abs(each) - 1] for each in ORDER], np.float32)


@clause(
    "learns.sign-of-observation",
    "In episodes of several steps, training learns the action that depends on the sign of the observation.",
    "update(): make sure that observation, action, reward and advantage of a row belong to the same step.",
)
def sign_of_observation(subject: Subject) -> None:
    count = len(ORDER)
    for kind in [kind for kind in _kinds(subject) if kind in ("Box", "Discrete")]:
        for sense in (1, -1):
            answers = {i: float(each * sense > 0) for i, each in enumerate(ORDER)}
            following = [((i + 1) % count,) for i in range(count)]
            outcomes = [(Outcome(1.0 - answers[i], following[i]), Outcome(answers[i], following[i])) for i in answers]
            env = partial(TableEnv, outcomes, range(count), ACTIONS[kind], SIGNS, count)
            rule = "the sign" if sense > 0 else "the opposite sign"
            expected = f"{kind} actions of {rule} of the one number observed that is not 0 pay 1, others 0"
            settings = {"gamma": 0.5} if _has(subject, "gamma") else {}
            _require_answers(subject, "sign-of-observation", env, answers, expected, **settings)


def _chain(later: float) -> Outcomes:
    """Return the outcomes of a chain: in state 0 either a reward of 1 immediately, or a reward of `later` one step later.

    The last observation of an episode looks like state 0.
    """
    end = Outcome(later, (0,), "terminated")
    return [(Outcome(1.0, (0,), "terminated"), Outcome(0.0, (1,))), (end, end)]


@clause(
    "learns.two-state-chain",
    "Training learns to choose between an immediate reward and a larger reward one step later, according to"
    " the discount.",
    "update(): the target is reward + discount * value(next_observation), with discount 0 after a termination.",
)
def two_state_chain(subject: Subject) -> None:
    kind = _kinds(subject)[0]
    discounts = _has(subject, "gamma")
    for waits in (True, False):
        later = 1.6 if waits or discounts else 0.4
        gamma = PATIENT if waits else IMPATIENT
        env = partial(TableEnv, _chain(later), (0,), ACTIONS[kind])
        choice = f"1 at once, or {later:g} a step later" + (f", at gamma = {gamma}" if discounts else "")
        which = "the later reward is worth more" if waits else "the reward at once is worth more"
        settings = {"gamma": gamma} if discounts else {}
        _require_answers(subject, "two-state-chain", env, {0: float(waits)}, f"{choice}: {which}", **settings)


@clause(
    "learns.entropy",
    "With a large weight of the entropy bonus, sampled actions stay spread over the action space.",
    "update(): subtract ent_coef * entropy from the loss. In soft targets subtract ent_coef * log_prob; in the"
    " actor's loss add it.",
)
def entropy(subject: Subject) -> None:
    kind = _kinds(subject)[0]
    if not _has(subject, "ent_coef"):
        raise NotApplicable("the algorithm has no setting ent_coef")
    _require_spread(subject, "entropy", _one_step(1.0, kind), 200, ent_coef=LARGE)


def _one_step(right: float, kind: str) -> partial[TableEnv]:
    """Return a task of one step: the action at the position `right`, 0 or 1, pays 1, the other one 0."""
    outcomes = [(Outcome(1.0 - right, (0,), "terminated"), Outcome(right, (0,), "terminated"))]
    return partial(TableEnv, outcomes, (0,), ACTIONS[kind])


def _require_spread(subject: Subject, name: str, env: partial[TableEnv], updates: int, **settings: object) -> None:
    """Require that sampled actions vary after `updates` updates."""
    toy = Toy(name, env, spread(env()), SPREAD, "", settings)
    found, bound = score_after(subject, toy, updates), subject.bounds.get(name, SPREAD)
    used = " and ".join(f"{key} = {value}" for key, value in settings.items())
    require(
        found >= bound,
        f"after {updates} updates with {used}, and rewards of 0 and 1, twice the deviation of sampled actions is {found:.2f}"
        f" of the space; {bound:g} is demanded (random actions have 0.58 to 1)",
    )


ENTROPY_LATER = 0.6
"""The agreement with the right action that must be reached. It is below `BOUND`, because with `ent_coef` 1 the policy stays
random; correct algorithms reach 0.7."""
LATER_STEPS = 5


@clause(
    "learns.entropy-later",
    "In targets of an off-policy algorithm with `ent_coef`, the entropy of later actions is added like a reward.",
    "update(): the soft value of next_observation is Q - ent_coef * log_prob of an action sampled for it.",
)
def entropy_later(subject: Subject) -> None:
    kind = _kinds(subject)[0]
    if not _has(subject, "ent_coef"):
        raise NotApplicable("the algorithm has no setting ent_coef")
    if not _remembers(subject, Transitions):
        raise NotApplicable(
            "it does not learn from remembered Transitions, so its entropy may be a part of the loss alone"
        )
    for goes_on in (1, 0):
        ends, on = Outcome(0.0, (0,), "terminated"), Outcome(0.0, (1,))
        outcomes = [(ends, on) if goes_on else (on, ends)]
        outcomes += [(Outcome(0.0, (i + 1,)),) * 2 for i in range(1, LATER_STEPS)] + [(ends, ends)]
        env = partial(TableEnv, outcomes, (0,), ACTIONS[kind])
        table = env()
        which = "high" if goes_on else "low"
        expected = (
            f"rewards are 0, {which} actions lead to {LATER_STEPS} more steps, which pay by their entropy, ent_coef = 1"
        )
        score = agreement(table, {0: float(goes_on)})
        require_learned(subject, Toy("entropy-later", env, score, ENTROPY_LATER, expected, {"ent_coef": 1.0}))


HIGH_ENTROPY = 0.6
"""A target just below the entropy of uniform actions in [-1, 1], log(2)."""


@clause(
    "learns.entropy-coefficient",
    "A learned `ent_coef` shrinks while the policy's entropy is above `target_entropy`, and grows while it is below.",
    "update(): minimize -log(ent_coef) * (log_prob + target_entropy) over log(ent_coef), without a gradient of log_prob.",
)
def entropy_coefficient(subject: Subject) -> None:
    kind = _kinds(subject)[0]
    shrinks = {"ent_coef": "auto_10", "target_entropy": -10.0}
    try:
        structure({"policy": subject.usual_policy, **shrinks}, subject.spec.config_type)
    except SettingsError:
        raise NotApplicable(f"the algorithm does not take the settings {shrinks}") from None
    for right in (1.0, 0.0):
        expected = f"the position {right:g} pays most; ent_coef begins at 10, too large to learn it, and must shrink"
        _require_answers(subject, "entropy-shrinks", _one_step(right, kind), {0: right}, expected, **shrinks)
    grows = {"ent_coef": "auto_0.5", "target_entropy": HIGH_ENTROPY}
    _require_spread(subject, "entropy-grows", _one_step(1.0, kind), 600, **grows)


@clause(
    "learns.time-limit",
    "If the algorithm learns values, the value at a time limit includes the rewards that would have followed.",
    "update(): multiply the next value by discount, or by ~terminated, never by ~truncated.",
)
def time_limit(subject: Subject) -> None:
    kind = _kinds(subject)[0]
    if not _has(subject, "gamma"):
        raise NotApplicable("the algorithm has no setting gamma")
    if not _learns_values(subject):
        raise NotApplicable("nothing shows that the algorithm learns values, rather than whole returns of episodes")
    for stays, gamma in ((True, PATIENT), (False, IMPATIENT)):
        outcomes = [(Outcome(1.0, (0,), "terminated"), Outcome(0.4, (0,), "truncated"))]
        env = partial(TableEnv, outcomes, (0,), ACTIONS[kind])
        worth = 0.4 / (1.0 - gamma)
        expected = (
            f"1 and a termination, or 0.4 again and again, {worth:.2f} in all, in episodes that a time limit ends"
        )
        _require_answers(subject, "time-limit", env, {0: float(stays)}, expected, gamma=gamma)


def _learns_values(subject: Subject) -> bool:
    """Return whether the algorithm learns values: a part estimates them, or its buffer samples rows with discounts."""
    return _estimator(subject.trained()) is not None or _remembers(subject, Transitions, Sequences)


def _remembers(subject: Subject, *kinds: type) -> bool:
    """Return whether the algorithm has a replay buffer that samples one of these kinds of record."""
    buffer = subject.trained().parts.buffer
    return bool(
        buffer is not None and len(buffer) and isinstance(buffer.sample(1, torch.Generator().manual_seed(0)), kinds)
    )


VALUE_GAMMA = 0.6
MEMORY_STEPS = 4
"""The steps of an episode that a time limit ends, for recurrent policies. Their values at later steps than episodes have are
never learned, and must not affect the other values much."""
SCALE, SHIFT = -1.0, 0.5
"""Scale and shift of the rewards. Some become negative, and the values are about as far from 0 as without them."""


def _paying(scale: float, shift: float, *, at_once: bool) -> tuple[Outcomes, list[float]]:
    """Return the outcomes of three states, in which actions have no effect, and the values of the states.

    State 0 has the reward 0 and leads to state 1, which has the reward 2 and terminates. State 2 has the reward 0.4 and leads
    to itself, until a time limit ends the episode: after one step with `at_once`, else at the environment's limit. All
    rewards are multiplied by `scale`; then `shift` is added.
    """
    first, last, again = (scale * reward + shift for reward in (0.0, 2.0, 0.4))
    ends, stays = Outcome(last, (0,), "terminated"), Outcome(again, (2,), "truncated" if at_once else "no")
    values = [first + VALUE_GAMMA * last, last, again / (1.0 - VALUE_GAMMA)]
    return [(each, each) for each in (Outcome(first, (1,)), ends, stays)], values


@clause(
    "learns.known-values",
    "Training learns the values of three states. One of them terminates, and a time limit ends the episode in another.",
    "update(): the target of a value is reward + gamma * V(next). Only after a termination it is the reward alone.",
)
def known_values(subject: Subject) -> None:
    _require_values(subject, "known-values", 1.0, 0.0)


@clause(
    "learns.scaled-rewards",
    "Values scale with rewards: with the rewards 0.5 - r instead of r, the value V of a state without a"
    " termination becomes -V + 0.5 / (1 - gamma).",
    "update(): use rewards unchanged, also negative ones. Clip or normalize them only if a setting requests it.",
)
def scaled_rewards(subject: Subject) -> None:
    _require_values(subject, "scaled-rewards", SCALE, SHIFT)


def _require_values(subject: Subject, name: str, scale: float, shift: float) -> None:
    kind = _kinds(subject)[0]
    if not _has(subject, "gamma"):
        raise NotApplicable("the algorithm has no setting gamma")
    if _estimator(subject.agent()) is None:
        raise NotApplicable(
            "neither the policy nor the algorithm has state_values(observation), see rlsdk.interfaces.PolicyAbilities"
        )
    remembers = bool(leaves(subject.agent().parts.policy.initial_carry(1)))
    outcomes, values = _paying(scale, shift, at_once=not remembers)
    listed = ", ".join(f"{value:g}" for value in values)
    toy = Toy(
        name,
        partial(TableEnv, outcomes, (0, 1, 2), ACTIONS[kind], episode_length=MEMORY_STEPS if remembers else None),
        partial(_value_score, torch.tensor(values)),
        1.0 - ERROR,
        f"the values {listed} of three states whose rewards do not depend on actions",
        {"gamma": VALUE_GAMMA, "gae_lambda": 0.5, "ent_coef": 0.0},
        lasting=True,
    )
    require_learned(subject, toy)


def _value_score(values: Tensor, agent: Agent) -> float:
    """Return 1 minus the largest error of a value; `values` [states] are the right ones."""
    estimator, device = _estimator(agent), agent.context.device
    assert estimator is not None
    shown = Observation(torch.eye(len(values), device=device), torch.ones(len(values), dtype=torch.bool, device=device))
    with torch.no_grad():
        found = estimator.state_values(shown)
    return 1.0 - float((found.cpu() - values).abs().max())


def _estimator(agent: Agent) -> PolicyAbilities | AlgorithmAbilities | None:
    """Return the part that estimates values: the policy or the algorithm; None if neither does."""
    policy = ability(agent.parts.policy, PolicyAbilities, "state_values")
    return policy or ability(agent.parts.algorithm, AlgorithmAbilities, "state_values")


@clause(
    "learns.t-maze",
    "A recurrent policy learns to turn to the side that an observation at the start of the episode shows.",
    "act() and update(): use the recurrent state before each step, let gradients flow through it, and reset it where"
    " is_first is True.",
)
def t_maze(subject: Subject) -> None:
    if "Discrete" not in _kinds(subject):
        raise NotApplicable("the maze has Discrete actions")
    carry = leaves(subject.agent().parts.policy.initial_carry(1))
    if not any(leaf.is_floating_point() for leaf in carry):
        raise NotApplicable("the policy has no memory that is learned: its carry holds no float numbers")
    expected = "the cue -1 or 1 of the first of three steps is the turn 0 or 1 of the last one"
    require_learned(subject, Toy("t-maze", partial(TMazeEnv, 2), _maze_score, BOUND, expected))


def _maze_score(agent: Agent) -> float:
    """Return the share of right turns in 16 episodes with both cues."""
    return run_episodes(agent, with_masks(TMazeEnv(2)), 16, seed=0).mean


@clause(
    "learns.masked-choice",
    "Training learns the best of the actions that a mask allows, also if the mask forbids the best action.",
    "act() and update(): apply the mask of the row's own observation to logits or values before an action is chosen.",
)
def masked_choice(subject: Subject) -> None:
    if subject.spec.action_masks == "ignored":
        raise NotApplicable("the algorithm uses no masks")
    if "Discrete" not in _kinds(subject):
        raise NotApplicable("the masks are of Discrete actions")
    for low in (False, True):
        order = "the first" if low else "the last"
        expected = f"of those of three actions that a mask allows, {order} pays most"
        make = partial(MaskedChoiceEnv, spaces.Discrete(3), low)
        score, right = partial(_mask_score, low), partial(_best_allowed, low)
        require_learned(subject, Toy("masked-choice", make, score, MASK_BOUND, expected, right=right))


def _best_allowed(low: bool, observation: Observation) -> int:
    assert observation.action_mask is not None
    allowed = observation.action_mask[0].nonzero()
    return int(allowed[0] if low else allowed[-1])


MASK_BOUND = 0.95
"""The share of right choices that must be reached; with one wrong choice in seven masks the share is 0.86."""
MASKS = np.array([mask for mask in product((True, False), repeat=3) if any(mask)])


def _mask_score(low: bool, agent: Agent) -> float:
    """Return the share of the masks [7, 3] for which the policy chooses the best allowed action."""
    chosen = greedy_actions(agent, np.ones((len(MASKS), 1), np.float32), MASKS)
    best = MASKS.argmax(1) if low else 2 - MASKS[:, ::-1].argmax(1)
    return float((np.array(chosen) == best).mean())
