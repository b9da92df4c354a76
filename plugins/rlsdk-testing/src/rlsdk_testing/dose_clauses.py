"""Clauses about how much a setting does: twice a weight is twice its term, and a schedule has its value at every point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from rlsdk.agent import Agent
from rlsdk.interfaces import AlgorithmAbilities, ability
from rlsdk.kernels import kernels_off
from rlsdk.settings import Constant, Piecewise
from rlsdk_testing.acting import act_on, chosen, observations
from rlsdk_testing.alternatives import Setting, settings_of
from rlsdk_testing.batches import Batch, recording, small_agent, wrapping
from rlsdk_testing.effects import shown
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import Subject
from rlsdk_testing.watched import TINY, Effect, Observed, apart, of_weights, watched

EQUAL = 1e-3
"""Effects that differ by at most this share are equal: the rest is rounding of float32."""
FACTOR = 0.02
"""The largest error of a factor that must be 2."""
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The shares of the training at which schedules are looked at."""
MOST_MOVES = 8
"""The most moves of a target network in a call that makes no step of an optimizer, such as `collected`."""
UNKNOWN = 0.1
"""The value for weights that are 0 by default, and for settings that are a text, and may be a number (`ent_coef = "auto"`)."""
WEIGHTS = ("weight of", "coefficient of", "standard deviation of", "strength of")
"""Descriptions with one of these words promise a factor: twice the value is twice the term."""


def _level(setting: Setting) -> float | None:
    """Return the number that a setting has, or one to try; None if it has another type, or does not affect the training."""
    value = setting.value.value if isinstance(setting.value, Constant) else setting.value
    if setting.doc.affects != "training" or "." in setting.name:
        return None
    if isinstance(value, str) and float in setting.members:
        return UNKNOWN
    if value == 0.0 and isinstance(value, float) and _is_factor(setting):
        return UNKNOWN
    return value if isinstance(value, float) and value > 0.0 else None


def float_settings(observed: Observed) -> list[tuple[Setting, float]]:
    """Return every float setting that is not 0, with its value."""
    found = [(setting, _level(setting)) for setting in settings_of(observed.agent.config)]
    return [(setting, level) for setting, level in found if level is not None]


def weights_on(subject: Subject) -> dict[str, float]:
    """Return a value above 0 for every weight of a term that is off by default, such as `ent_coef` = 0."""
    found = [(setting, _level(setting)) for setting in settings_of(subject.agent().config)]
    return {setting.name: level for setting, level in found if level == UNKNOWN and _is_factor(setting)}


def _effect(observed: Observed, progress: float = 0.5) -> Effect:
    """Return the effect of one update, and the candidates that are proposed before it."""
    return {**observed.proposal(progress), **observed.effect(observed.batch, progress)}


@clause(
    "dose.learning-rate",
    "Every step of an optimizer has the learning rate of the settings: twice the setting is twice the rate, a constant is the"
    " same at all times, and a schedule has its value for that point of the training.",
    "update(): call the schedule once with 1 - progress, give the result to the optimizer, and multiply it by nothing else.",
)
def learning_rate(subject: Subject) -> None:
    observed = Observed(subject)
    usual = _rates(observed, 0.5)
    checked = 0
    for setting, level in float_settings(observed):
        double = observed.variant(**{setting.name: 2.0 * level})
        if double is None or not (own := _changed(usual, _rates(double, 0.5))):
            continue
        checked += 1
        for path, (before, after) in own.items():
            require(
                abs(after / before - 2.0) < FACTOR,
                f"{setting.name} = {level:g} and {2 * level:g}: steps of {path} have the rates {before:.4g} and {after:.4g}",
            )
        _require_rate_follows(observed, setting, level, {path: before for path, (before, _) in own.items()})
    if not checked:
        raise NotApplicable("no setting changes the learning rate of an optimizer")


def _rates(observed: Observed, progress: float) -> dict[str, float]:
    """Return path of an optimizer -> the rate of its last step in an update."""
    return {step.optimizer: step.rate for step in observed.update(observed.batch, progress)}


def _changed(one: Mapping[str, float], two: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    return {path: (one[path], two[path]) for path in one.keys() & two.keys() if one[path] != two[path] and one[path]}


def _require_rate_follows(observed: Observed, setting: Setting, level: float, usual: Mapping[str, float]) -> None:
    """Check the rates at several points of the training, with a constant and with a schedule."""
    if not isinstance(setting.value, Constant):
        return
    line = Piecewise(((0.0, level / 4), (1.0, level)))
    falling = observed.variant(**{setting.name: line})
    for progress in PLACES:
        rates = _rates(observed, progress)
        for path, rate in usual.items():
            require(
                abs(rates[path] / rate - 1.0) < FACTOR,
                f"{setting.name} is the constant {level:g}, and at {progress:.0%} of the training the rate of {path} is"
                f" {rates[path] / rate:.3g} times that in the middle",
            )
        if falling is not None:
            wanted, rates = line(1.0 - progress) / level, _rates(falling, progress)
            for path, rate in usual.items():
                require(
                    abs(rates[path] / rate - wanted) < FACTOR,
                    f"{setting.name} = {shown(line)} is {line(1.0 - progress):.4g} at {progress:.0%} of the training, and the"
                    f" rate of {path} is as with the constant {rates[path] / rate * level:.4g}",
                )


@clause(
    "dose.schedules",
    "At every point of the training an update with a schedule equals one with a constant of the schedule's value there.",
    "update(), propose(): call the schedule with 1 - progress each time, and use nothing else of the progress for it.",
)
def schedules(subject: Subject) -> None:
    observed = Observed(subject)
    checked = 0
    for setting, level in float_settings(observed):
        if not isinstance(setting.value, Constant):
            continue
        line = Piecewise(((0.0, level / 4), (1.0, level)))
        falling = observed.variant(**{setting.name: line})
        for progress in PLACES[1:4]:
            constant = observed.variant(**{setting.name: line(1.0 - progress)})
            if falling is None or constant is None:
                break
            checked += 1
            difference, name = apart(_effect(falling, progress), _effect(constant, progress))
            require(
                difference < EQUAL,
                f"at {progress:.0%} of the training {setting.name} = {shown(line)} and the constant"
                f" {line(1.0 - progress):g} give updates that differ by {difference:.1%} in {name}",
            )
    if not checked:
        raise NotApplicable("no setting is a schedule")


@clause(
    "dose.weights",
    "A setting that is described as a weight, coefficient or standard deviation is a factor: twice the value is twice its term,"
    " and the other terms stay. No float setting acts by rounding errors only.",
    "update(): multiply the term by the setting once, and only this term. Look for squares, roots, and brackets in the wrong"
    " place.",
)
def weights(subject: Subject) -> None:
    observed = Observed(subject)
    for setting, level in float_settings(observed):
        for value in (level, *LARGER) if _is_factor(setting) else (level,):
            if _is_felt(observed, setting, value):
                break


LARGER = (1.0, 10.0)
"""Further values of weights, for those whose term is too small with the usual value."""


def _is_felt(observed: Observed, setting: Setting, level: float) -> bool:
    """Check one, two and three times the value `level` of a setting; return whether the effect was large enough to measure."""
    variants = [observed.variant(**{setting.name: factor * level}) for factor in (1.0, 2.0, 3.0)]
    known = [each for each in variants if each is not None]
    effects = [_effect(each) for each in known]
    if len(effects) < 2:
        return True
    difference, name = apart(effects[0], effects[1])
    _require_more_than_rounding(setting, level, difference, name)
    if len(effects) < 3 or not _is_factor(setting):
        return True
    learned = {step.optimizer for each in known for step in each.steps}
    felt = _require_factor(setting, level, [of_weights(effect, learned) for effect in effects])
    _require_others_stay(observed, setting, effects)
    return felt


def _is_factor(setting: Setting) -> bool:
    text = setting.doc.help
    return any(word in text for word in WEIGHTS) or setting.name.endswith("_coef")


def _require_more_than_rounding(setting: Setting, level: float, difference: float, name: str) -> None:
    require(
        difference == 0.0 or difference > ROUNDING,
        f"{setting.name} = {level:g} and {2 * level:g} give updates that differ by {difference:.1e} of {name}: rounding,"
        " so the setting cancels out",
    )


ROUNDING = 1e-5
"""Differences of float32 gradients up to this share of them come from rounding."""


def _require_factor(setting: Setting, level: float, effects: list[Effect]) -> bool:
    """Check that effects with the values 1, 2 and 3 lie on a line at equal distances, if they lie on a line.

    Returns:
        whether they differ by enough.
    """
    one, two, three = effects
    felt = False
    for name in one.keys() & two.keys() & three.keys():
        if not one[name].shape == two[name].shape == three[name].shape:
            continue
        near, far = two[name] - one[name], three[name] - one[name]
        if float(near.norm()) < FELT * float(one[name].norm()) + TINY:
            continue  # it has no effect here
        felt = True
        factor = float(near @ far / (near @ near))
        if float((far - factor * near).norm()) > EQUAL * float(far.norm()):
            continue  # the changes have different directions: it takes part in a normalization
        require(
            abs(factor - 2.0) < 5 * FACTOR,
            f"{setting.name} = {level:g}, {2 * level:g} and {3 * level:g}: from the first to the third value {name} changes"
            f" {factor:.3g} times as much as from the first to the second, and a factor changes it 2 times as much",
        )
    return felt


FELT = 1e-2
"""A change of this share of the effect is large enough to measure its direction."""


def _require_others_stay(observed: Observed, setting: Setting, effects: list[Effect]) -> None:
    """Check that an update with the weight 0 still has gradients, if a loss has other terms."""
    nothing = observed.variant(**{setting.name: 0.0})
    if nothing is None or (not observed.steps and not effects[0]):
        return
    paths = {step.optimizer for step in nothing.update(nothing.batch)}
    effect = nothing.effect(nothing.batch)
    left = [path for path in paths if float(effect[path].norm()) > TINY]
    used = [path for path in paths if path in effects[0] and float(effects[0][path].norm()) > TINY]
    require(
        bool(left) or not used or bool(effect.keys() - paths),
        f"with {setting.name} = 0 every gradient is 0: it multiplies the whole loss, not one term",
    )


@clause(
    "dose.gradient-norm",
    "With the setting `max_grad_norm`, larger gradients are scaled to this norm. It applies to all gradients of an optimizer"
    " together, and to those of one optimizer at least.",
    "update(): pass config.max_grad_norm to every optimizer.step(...), unchanged.",
)
def gradient_norm(subject: Subject) -> None:
    if not any(setting.name == "max_grad_norm" for setting in settings_of(subject.agent().config)):
        raise NotApplicable("it has no setting max_grad_norm")
    free, bounded = Observed(subject), Observed(subject, max_grad_norm=NORM)
    large = {step.optimizer: float(step.gradient.norm()) for step in free.update(free.batch)}
    found = {step.optimizer: float(step.gradient.norm()) for step in bounded.update(bounded.batch)}
    what = f"with max_grad_norm = {NORM:g}"
    scaled = {path: norm for path, norm in found.items() if norm < large[path] / 2}
    require(
        bool(scaled) or max(large.values(), default=0.0) < 2 * NORM,
        f"{what} the gradients have the norms {list(found.values())}",
    )
    for path, norm in scaled.items():
        require(NORM / 2 <= norm <= NORM * (1.0 + EQUAL), f"{what} a step of {path} has a gradient of norm {norm:.4g}")


NORM = 1e-4
"""A bound of the norm of gradients that is smaller than usual gradients."""


@clause(
    "dose.tau",
    "With the setting `tau`, a target network moves by the share tau of its distance to the trained network each time.",
    "update() or collected(): target += tau * (online - target), as `TargetNetwork.update(tau)` does. Move it once each time.",
)
def tau(subject: Subject) -> None:
    share = 0.3
    names = {setting.name for setting in settings_of(subject.agent().config)}
    if "tau" not in names:
        raise NotApplicable("it has no setting tau")
    with kernels_off():
        agent = small_agent(subject, tau=share, learning_rate=1e-2)
    copies = Found(agent).copies()
    if not copies:
        raise NotApplicable("it has no target network")
    moves: list[tuple[str, float, int]] = []
    seen: list[Batch] = []
    with kernels_off(), moves_of_copies(agent, copies, moves), recording(agent.parts.algorithm, seen.append):
        steps = 24
        while len(moves) < 12 and steps < 2000:
            agent.learn(steps, reset_num_timesteps=False)
            steps *= 2
        for progress in PLACES if seen else ():  # of a training without steps, all of this may be its first round
            agent.parts.algorithm.update(seen[-1], progress=progress)
    for path, moved, most in moves:
        accepted = [1.0 - (1.0 - share) ** count for count in range(1, most + 1)]
        require(
            any(abs(moved - each) < FACTOR for each in accepted),
            f"with tau = {share} {path} moved by {moved:.3g} of its distance to the trained network at once",
        )


@contextmanager
def moves_of_copies(
    agent: Agent, copies: Mapping[str, tuple[torch.nn.Module, ...]], moves: list[tuple[str, float, int]]
) -> Iterator[None]:
    """Inside the `with` statement, note (path, share of the distance, most moves) for each move of a copy in `update` or
    `collected`. A copy moves at most once with every step of an optimizer; without a step, the number is not known."""

    def called(method: Callable[..., object], *args: object, **kwargs: object) -> object:
        before = {path: tuple(map(_flat, pair)) for path, pair in copies.items()}
        steps = Counter[str]()
        with watched(agent, lambda step: steps.update([step.optimizer]), hold=False):
            found = method(*args, **kwargs)
        for path, (copy, source) in copies.items():
            moved = _share(before[path], (_flat(copy), _flat(source)))
            moves.extend([] if moved is None else [(path, moved, max(steps.values(), default=MOST_MOVES))])
        return found

    with wrapping(agent.parts.algorithm, called, "update", "collected"):
        yield


def _flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().double().flatten() for p in module.parameters()])


def _share(before: tuple[Tensor, ...], after: tuple[Tensor, Tensor]) -> float | None:
    """Return the share of the way to its source that a copy [..] moved; None if it did not move or there was no way."""
    moved = after[0] - before[0]
    if not bool(moved.any()):
        return None
    ways = [source - before[0] for source in (after[1], before[1])]
    ways = [way for way in ways if float(way.norm()) > 1e-4]
    if not ways:
        return None
    shares = [float(moved @ way / (way @ way)) for way in ways]
    errors = [float((moved - share * way).norm()) for share, way in zip(shares, ways, strict=True)]
    return shares[errors.index(min(errors))]


INITIAL, FINAL, FRACTION = 0.9, 0.2, 0.5
"""The settings of epsilon-greedy exploration that are tried."""
SEEN = 3000
CHANCE = 0.05
"""The largest error of a measured share of random actions."""


@clause(
    "dose.exploration",
    "With `exploration_fraction`, random actions begin at their initial share, and reach `exploration_final_eps` after that"
    " fraction of the training, not before and not later.",
    "collected(env_steps, progress): epsilon = initial + min(1, progress / exploration_fraction) * (final - initial).",
)
def exploration(subject: Subject) -> None:
    names = {setting.name for setting in settings_of(subject.agent().config)}
    if not {"exploration_fraction", "exploration_final_eps"} <= names:
        raise NotApplicable("it has no setting exploration_fraction")
    first = INITIAL if "exploration_initial_eps" in names else 1.0
    agent = subject.agent(
        exploration_fraction=FRACTION, exploration_final_eps=FINAL, exploration_initial_eps=first, learning_starts=0
    )
    if ability(agent.parts.algorithm, AlgorithmAbilities, "collected") is None:
        raise NotApplicable("its exploration does not follow `collected`")
    begins, nearly, done, end = (_random_share(agent, progress) for progress in (0.0, 0.8 * FRACTION, FRACTION, 1.0))
    what = f"with exploration_fraction = {FRACTION} and exploration_final_eps = {FINAL}"
    for progress, share, wanted in ((0.0, begins, first), (FRACTION, done, FINAL), (1.0, end, FINAL)):
        require(
            abs(share - wanted) < CHANCE,
            f"{what} {share:.0%} of the actions are random at {progress:.0%} of the training, not {wanted:.0%}",
        )
    require(
        nearly > FINAL + CHANCE / 2, f"{what} {nearly:.0%} are random at {0.8 * FRACTION:.0%} of the training already"
    )


def _random_share(agent: Agent, progress: float) -> float:
    """Return the share of random actions of the behavior policy after the share `progress` of the training."""
    scheduled, policy = ability(agent.parts.algorithm, AlgorithmAbilities, "collected"), agent.parts.behavior_policy
    assert scheduled is not None
    scheduled.collected(1000 + int(1000 * progress), progress)
    seen, space = observations(agent, SEEN, seed=2), agent.context.action_space
    answers = [
        act_on(policy, seen, policy.initial_carry(SEEN), seed=3, deterministic=deterministic).action
        for deterministic in (False, True)
    ]
    sampled, greedy = (chosen(space, answer) for answer in answers)
    sizes = [int(max(sampled[:, i].max(), greedy[:, i].max())) + 1 for i in range(sampled.shape[1])]
    differs = (sampled != greedy).any(1).double().mean()
    same_by_luck = 1.0
    for size in sizes:
        same_by_luck /= size
    return float(differs) / (1.0 - same_by_luck)
