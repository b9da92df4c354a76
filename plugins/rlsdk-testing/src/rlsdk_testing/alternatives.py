"""Other values for a setting, which are chosen from its type, its current value, its validator and its metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import pairwise
from types import NoneType, UnionType
from typing import Literal, Union, cast, get_args, get_origin, get_type_hints

import attrs

from rlsdk.settings import Constant, FieldDoc, Piecewise, Schedule, TrainFrequency, describe
from rlsdk_testing.own_modules import OF_THE_SDK

KEEP = object()
"""As first value of a `Change`: the current value of the setting."""
Change = tuple[object, object]
"""(value before, value after) of a setting; the first may be `KEEP`."""
Question = tuple[Change, ...]
"""Changes of one setting, of which at least one must have an effect."""
LITTLE_WORDS = frozenset(
    [
        "and",
        "are",
        "for",
        "its",
        "not",
        "the",
        "them",
        "with",
        "that",
        "from",
        "one",
        "own",
        "per",
        "only",
        "where",
        "which",
        "class",
        "none",
    ]
)


@attrs.frozen
class Setting:
    """A field of a config class or of a nested config class."""

    name: str
    """The name of the field, after the names of the fields that contain it: `policy_kwargs.net_arch`."""
    field: attrs.Attribute[object] = attrs.field(eq=False, repr=False)
    members: tuple[object, ...] = attrs.field(eq=False)
    """The types that a value of the setting may have."""
    value: object = attrs.field(eq=False)
    """The value in the small agents of the kit."""
    doc: FieldDoc = attrs.field(eq=False, repr=False)
    """What the setting means."""

    @property
    def options(self) -> tuple[object, ...]:
        """All values of the setting, if its type or validator lists them; else empty."""
        listed = tuple(getattr(self.field.validator, "options", ()))
        for member in self.members:
            listed += get_args(member) if get_origin(member) is Literal else ()
            listed += tuple(member) if isinstance(member, type) and issubclass(member, Enum) else ()
        return listed

    @property
    def words(self) -> frozenset[str]:
        """The words of the setting's name, of its description, and of what it needs (`rlsdk.settings.needs`)."""
        return words(f"{self.field.name} {self.doc.help} {self.doc.needs}")


def words(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, without a plural s and without common words such as "the"."""
    found = (word.rstrip("s") for word in re.findall("[a-z]+", text.lower().replace("_", " ")))
    return frozenset(word for word in found if len(word) > 1 and word not in LITTLE_WORDS)


def settings_of(config: object, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a config object. Instead of a nested config object, its settings are yielded."""
    kind = cast("type[attrs.AttrsInstance]", type(config))
    hints, docs = get_type_hints(kind), {doc.name: doc for doc in describe(kind)}
    for field in attrs.fields(kind):
        value, hint = getattr(config, field.name), hints[field.name]
        if attrs.has(type(value)) and not hasattr(value, "to_setting"):
            yield from settings_of(value, f"{prefix}{field.name}.")
        else:
            union = get_origin(hint) in (Union, UnionType)
            yield Setting(prefix + field.name, field, get_args(hint) if union else (hint,), value, docs[field.name])


def questions(setting: Setting) -> list[Question]:
    """Return the questions about a setting: whether another value, each example, and each unit has an effect."""
    value, examples = setting.value, tuple(each for each in setting.doc.examples if each != setting.value)
    if examples:
        return [((KEEP, example),) for example in examples]
    if classes := OF_THE_SDK.get(setting.field.name):
        return [tuple((KEEP, example) for example in classes)]
    found = [tuple((KEEP, other) for other in others(setting))]
    if isinstance(value, TrainFrequency):
        unit = "episode" if value.unit == "step" else "step"
        found.append(((KEEP, TrainFrequency(1, unit)),))
    numbers = [other for other in others(setting) if other is not None]
    if value is None and len(numbers) > 1:
        found.append(tuple(pairwise(numbers)))
    return [question for question in found if question]


def schedule_question(setting: Setting) -> Question:
    """Return changes from constants to schedules; empty if the setting cannot be a schedule.

    The schedules equal the constants only at the start, in the middle and at the end of training.
    """
    if not any(isinstance(member, type) and issubclass(member, Schedule) for member in setting.members):
        return ()
    levels = [setting.value, *others(setting)]
    return tuple((level, _wave(level.value)) for level in levels if isinstance(level, Constant))


def _wave(level: float) -> Piecewise:
    return Piecewise(((0.0, level), (0.25, level / 4), (0.5, level), (0.75, level * 4), (1.0, level)))


def others(setting: Setting) -> list[object]:
    """Return other values for a setting, the most likely to have an effect first. The setting may refuse some of them."""
    value, found = setting.value, list(setting.options)
    for kind, propose in PROPOSALS:
        if isinstance(value, kind):
            found += propose(value)
            break
    if value is None:
        for member in setting.members:
            found += WITHOUT_DEFAULT.get(member, ()) if isinstance(member, type) else _sizes(member)
    elif any("tuple[int" in str(member) for member in setting.members):
        found += [(3,), ()]
    if NoneType in setting.members:
        found.append(None)
    return [other for number, other in enumerate(found) if other != value and other not in found[:number]]


def _sizes(member: object) -> list[object]:
    return [(3,), (5, 4)] if "tuple[int" in str(member) else []


def _integers(value: int) -> list[object]:
    return [max(1, value // 2), max(1, value // 16), value * 2, value + 1, 0, -1]


def _floats(value: float) -> list[object]:
    near = [value / 2, value / 100, value * 2, value * 100] if value else []
    return [*near, 0.0, 1.0, value + 1.0, value - 1.0, 0.5]


def _schedules(value: Schedule) -> list[object]:
    level = value(1.0)
    return [Constant(level / 4), Constant(level / 1000), Constant(level * 4), Constant(level * 1000)]


PROPOSALS: tuple[tuple[type, Callable[..., list[object]]], ...] = (
    (bool, lambda value: [not value]),
    (int, _integers),
    (float, _floats),
    (Schedule, _schedules),
    (TrainFrequency, lambda value: [TrainFrequency(value.count * 2, value.unit)]),
)
WITHOUT_DEFAULT: dict[object, tuple[object, ...]] = {
    bool: (True, False),
    int: (1, 2, 4),
    float: (1e-3, 0.5, 1e-6, 2.0),
    Schedule: (Constant(1e-3), Constant(0.5), Constant(1e-6)),
}
"""Type -> values to try for a setting of that type whose value is None."""
