"""Clauses about settings: each setting affects the training, or is declared to affect something else, such as the speed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs
import torch

from rlsdk.agent import Agent
from rlsdk.errors import RlsdkError
from rlsdk.settings import Constant, Piecewise
from rlsdk.tree import flatten
from rlsdk_testing.alternatives import KEEP, Question, Setting, questions, schedule_question, settings_of
from rlsdk_testing.effects import MidTrainings, Search, search, shown
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import Subject, equal_values
from rlsdk_testing.trials import Left, Refused, Trials, quietly, same, usual

OF_EVERY_AGENT = frozenset({"env", "policy"})
"""Settings that are not checked here, because other clauses try all their values."""
FOLDER = "tensorboard_log"
LATE = 0.6
"""The share of the training after which a schedule changes. It is above 0.5, because a round may pass the middle."""


@clause(
    "settings.have-effect",
    "Every setting, if changed to another accepted value, changes the result of training. Exceptions are"
    " settings declared to affect only speed, memory, logging, the device or refusals.",
    "Use the setting in update(), act() or build(). Or remove it from the config class, or declare"
    " described(..., affects=...) there.",
)
def have_effect(subject: Subject) -> str:
    trials = Trials(subject)
    usual(trials)
    return _require_effects(trials, {setting: questions(setting) for setting in training_settings(trials)})


@clause(
    "settings.schedules-followed",
    "At every point of the training, a setting that is a schedule has the schedule's value for that point.",
    "Call the schedule in each update(), with 1 - progress: config.learning_rate(1.0 - progress).",
)
def schedules_followed(subject: Subject) -> str:
    trials = Trials(subject)
    asked = {setting: [schedule_question(setting)] for setting in training_settings(trials)}
    asked = {setting: found for setting, found in asked.items() if found[0]}
    if not asked:
        raise NotApplicable("no setting is a schedule")
    usual(trials)
    untried = _require_effects(trials, asked)
    for setting in asked:
        _require_order(trials, setting)
    return untried


def _require_order(trials: Trials, setting: Setting) -> None:
    """Check that a schedule that changes only in the second half of the training does not change the first half."""
    if not isinstance(setting.value, Constant):
        return
    level = setting.value.value
    late = Piecewise(((0.0, level), (LATE, level), (LATE, level / 4), (1.0, level / 4)))
    constant, changing = (trials.first_half({setting.name: value}) for value in (setting.value, late))
    if isinstance(constant, Refused) or isinstance(changing, Refused):
        return
    require(
        same(constant, changing),
        f"{setting.name} = {shown(late)} changes in the second half of the training only, and the weights that the first half"
        " leaves are others than with a constant",
    )


@clause(
    "settings.as-declared",
    "A setting declared to affect only memory, logging or refusals does not change the training by a single"
    " bit. A setting declared to affect only speed or the device changes it only by rounding.",
    "update(), act(): make the computation the same for every value, or remove affects=... of that setting from the config"
    " class.",
)
def as_declared(subject: Subject) -> None:
    trials = Trials(subject)
    before = usual(trials)
    home = trials.places[0]
    first = {name: value for name, value in trials.untrained(home).items() if name in before}
    with tempfile.TemporaryDirectory() as folder:
        for setting in settings_of(trials.config):
            if setting.doc.affects == "training":
                continue
            values = [end for question in questions(setting) for _, end in question][:3]
            for value in [folder] if setting.name == FOLDER else values:
                after = trials.left(home, {setting.name: value})
                exact = setting.doc.affects in ("memory", "logging", "refusals")
                if isinstance(after, Refused):
                    continue
                require(
                    same(before, after) if exact else _near(before, after, first),
                    f"{setting.name} = {shown(value)} changes the weights that training leaves, and is declared to affect"
                    f" {setting.doc.affects}",
                )


@clause(
    "settings.live-take-over",
    "Assigning a setting that `live` lists on an agent has the same effect on the further training as loading"
    " the agent with that value, bit for bit. Assigning another value and then the old one changes nothing.",
    "Apply the new value in reconfigure(config) of the part that uses the setting, or remove the setting from"
    " the list `live` in rlsdk.toml. reconfigure() and with_settings() change no other state, such as target"
    " networks and counts.",
)
def live_take_over(subject: Subject) -> None:
    trials = Trials(subject)
    chosen = training_settings(trials)
    live = [setting for setting in chosen if setting.name in subject.spec.live]
    if not live:
        raise NotApplicable("no setting is live")
    _require_state_stays(subject, live)
    usual(trials)
    failures: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = MidTrainings(trials, Path(folder))
        for setting in live:
            for question in questions(setting)[:1]:
                found = search(trials, setting, question, chosen)
                for text, what in _not_taken_over(files, setting, found):
                    failures.setdefault(what, []).append(text)
    require(not failures, "\n".join(_one_cause(texts, what) for what, texts in failures.items()))


def _require_state_stays(subject: Subject, live: list[Setting]) -> None:
    """Check that settings that are assigned, and then get their old values again, leave all state as it was."""
    with quietly():
        agent = subject.trained()
    before = _state_of(agent)
    for setting in live:
        if not isinstance(setting.value, int | float | Constant):
            continue  # a text such as "auto_0.1" may be a start value
        value = next((value for value in _others(setting) if _assigned(agent, setting.name, value)), None)
        if value is not None:
            setattr(agent, setting.name, setting.value)
            after = _state_of(agent)
            wrong = [name for name in before if not equal_values(before[name], after.get(name))]
            text = f"agent.{setting.name} = {shown(value)}, and then = {shown(setting.value)} again"
            require(not wrong, f"{text}, changes {', '.join(wrong[:3])}; state must stay when a setting is assigned")


def _others(setting: Setting) -> list[object]:
    return [end for question in questions(setting) for start, end in question if start is KEEP]


def _assigned(agent: Agent, name: str, value: object) -> bool:
    """Assign a setting; return whether the agent accepts the value."""
    try:
        setattr(agent, name, value)
    except Exception:  # a plugin may refuse a value with any error
        return False
    return True


def _state_of(agent: Agent) -> dict[str, object]:
    """Return name -> copy of every tensor and number of the agent, and of the training loop."""
    plan: dict[str, object] = getattr(agent.parts.plan, "state_dict", dict)()
    found = flatten({"agent": agent.get_parameters(), "plan": plan})
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in found.items()}


def _one_cause(texts: list[str], what: str) -> str:
    """Return one sentence about all settings that fail in the same way, because they mostly have one cause."""
    if len(texts) == 1:
        return f"{texts[0]} {what}"
    return f"{what.capitalize()}: {'; '.join(texts)}. As there are {len(texts)}, look first whether reconfigure() runs at all"


def _not_taken_over(files: MidTrainings, setting: Setting, found: Search) -> list[tuple[str, str]]:
    """Return (the assignment, what is wrong with it), or nothing if the setting is taken over."""
    if found.effective is None:  # settings.have-effect is about that
        return []
    start, end = found.effective
    situation = found.situations[-1]
    if start is not KEEP:
        situation = attrs.evolve(situation, changes={**situation.changes, setting.name: start})
    unchanged = files.unchanged(situation)
    loaded = files.continued(situation, load={setting.name: end})
    if same(loaded, unchanged):  # this setting has its effect only before this point of the training
        return []
    try:
        assigned = files.continued(situation, assign={setting.name: end})
    except RlsdkError:  # the value cannot be assigned to this agent, only given when an agent is made
        return []
    if same(assigned, loaded):
        return []
    text = f"agent.{setting.name} = {shown(end)} after {shown(setting.value)}"
    if same(assigned, unchanged):
        return [(text, "changes nothing in the training that follows")]
    return [(text, "gives another training than load(path, ...) with that value")]


def training_settings(trials: Trials) -> list[Setting]:
    """Return the settings that affect the training, that is, are not declared to affect only something else."""
    found = [setting for setting in settings_of(trials.config) if setting.name not in OF_EVERY_AGENT]
    return [setting for setting in found if setting.doc.affects == "training"]


def _require_effects(trials: Trials, asked: dict[Setting, list[Question]]) -> str:
    """Check that every setting has an effect; return a text that lists the settings for which no value could be tried.

    Raises:
        ContractViolation: a setting was tried and has no effect.
    """
    chosen, failures, untried = training_settings(trials), [], []
    for setting, wanted in asked.items():
        found = [search(trials, setting, question, chosen) for question in wanted]
        ignored = [each for each in found if each.effective is None and each.tried]
        if ignored:
            failures.append(_failure(setting, ignored[0]))
        elif not any(each.effective for each in found):
            why = found[0].refused if found else "give described(..., examples=...) other values"
            untried.append(f"{setting.name} ({why})")
    require(not failures, "\n".join(failures))
    return f"not tried: {', '.join(untried)}" if untried else ""


def _failure(setting: Setting, found: Search) -> str:
    values = list(dict.fromkeys(shown(value) for value in found.tried))
    where = [str(each) for each in found.situations]
    rest = f" and {len(where) - 8} more" if len(where) > 8 else ""
    return (
        f"{setting.name} = {shown(setting.value)} has no effect: with {', '.join(values[:6])} training leaves the same weights"
        f" and actions to the bit; tried with {'; '.join(where[:8])}{rest}"
    )


def _near(one: Left, other: Left, first: Left) -> bool:
    """Return whether the weights of two trainings differ much less than training moved them from `first`."""
    names = [name for name in first if first[name].is_floating_point() and first[name].shape == one[name].shape]
    if not all(name in other and other[name].shape == one[name].shape for name in names):
        return False
    moved = sum(float((one[name] - first[name]).pow(2).sum()) for name in names)
    apart = sum(float((one[name] - other[name]).pow(2).sum()) for name in names)
    return apart <= 0.01 * moved and bool(torch.isfinite(torch.tensor(apart)))
