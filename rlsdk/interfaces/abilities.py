"""The required and optional Protocols of each part, and the checks of parts when an agent is assembled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import TypeVar, cast

from typing_extensions import get_protocol_members

from rlsdk.errors import PluginError
from rlsdk.interfaces.algorithms import (
    Algorithm,
    AllowsLag,
    Collected,
    CountsUpdates,
    FollowsPolicy,
    HasTdError,
    Proposes,
    Reconfigurable,
    SeesDiscarded,
    UpdatesSeveral,
)
from rlsdk.interfaces.buffers import Buffer, HasEpisodeRewards, Prioritized, SamplesSeveral
from rlsdk.interfaces.plans import (
    ChecksParts,
    FollowsSettings,
    HasRolloutLength,
    LearnsOffline,
    NormalizesEpisodes,
    Plan,
)
from rlsdk.interfaces.policies import (
    ActsForRollouts,
    ActsInPlace,
    BeginsRollouts,
    EstimatesValues,
    FillsExtras,
    Imitates,
    Policy,
    RemembersActions,
)

AbilityT = TypeVar("AbilityT")

OF_POLICIES = (
    ActsForRollouts,
    ActsInPlace,
    BeginsRollouts,
    EstimatesValues,
    FillsExtras,
    Imitates,
    Reconfigurable,
    RemembersActions,
)
REQUIRED: dict[str, type[object]] = {
    "policy": Policy,
    "behavior": Policy,
    "algorithm": Algorithm,
    "buffer": Buffer,
    "plan": Plan,
}
"""Field of `Parts` -> the Protocol that the part must implement."""
OPTIONAL: dict[str, tuple[type[object], ...]] = {
    "policy": OF_POLICIES,
    "behavior": OF_POLICIES,
    "algorithm": (
        AllowsLag,
        Collected,
        CountsUpdates,
        EstimatesValues,
        FollowsPolicy,
        HasTdError,
        Proposes,
        Reconfigurable,
        SeesDiscarded,
        UpdatesSeveral,
    ),
    "buffer": (Collected, HasEpisodeRewards, Prioritized, Reconfigurable, SamplesSeveral),
    "plan": (ChecksParts, FollowsSettings, HasRolloutLength, LearnsOffline, NormalizesEpisodes),
}
"""Field of `Parts` -> the Protocols that the part may implement in addition."""
METHODS = {
    "begin_rollout": ("carry",),
    "action_played": ("carry", "action"),
    "act_in_place": ("observation", "carry", "generator"),
}
"""Members that may be None instead of a method -> the arguments of the method."""
SIMILAR = 0.9
"""The `difflib` ratio from which on a name counts as a misspelling; "prioritise" for "prioritize" has 0.9."""


def ability(part: object, kind: type[AbilityT]) -> AbilityT | None:
    """Return the part if it has all members of the Protocol `kind`; else None.

    Members that a part provides through `__getattr__` count; `isinstance` ignores them since Python 3.12. Call this
    function once, outside of loops.
    """
    return cast("AbilityT", part) if all(hasattr(part, name) for name in get_protocol_members(kind)) else None


def shortcut(part: object, kind: type[AbilityT], method: str) -> AbilityT | None:
    """Return the part if it implements the Protocol `kind`, whose single method replaces several calls of `method`;
    else None.

    Also None if a subclass or the object itself overrides `method` without the method of `kind`: the shortcut would
    skip the override.
    """
    (name,) = get_protocol_members(kind)
    found = ability(part, kind)
    if found is None or method in getattr(part, "__dict__", ()):
        return None
    owners = [owner for owner in type(part).__mro__ if name in vars(owner) or method in vars(owner)]
    return found if owners and name in vars(owners[0]) else None


def check_part(part: object, role: str, algorithm: str) -> None:
    """Check that a part has the members its role requires, and that the names and arguments of its optional members are
    right.

    Args:
        part: a field of `rlsdk.interfaces.Parts`.
        role: the name of that field, a key of `REQUIRED`.
        algorithm: the id of the algorithm, for messages.

    Raises:
        PluginError: names the algorithm, the part, the member, and what to do.
    """
    what = f"{algorithm!r}: its {role}, {type(part).__name__},"
    if missing := [name for name in _members(REQUIRED[role]) if not hasattr(part, name)]:
        raise PluginError(
            f"{what} has no {', '.join(missing)}; see rlsdk.interfaces.{REQUIRED[role].__name__} for what each part does"
        )
    for kind in (REQUIRED[role], *OPTIONAL[role]):
        for name in _members(kind):
            if hasattr(part, name):
                _check_call(part, kind, name, what)
    _check_spelling(part, role, what)


def _members(kind: type[object]) -> list[str]:
    """The members of a Protocol in the order of declaration: those of the Protocol itself, then those of its bases."""
    members = get_protocol_members(kind)
    return [name for owner in kind.__mro__ for name in vars(owner) if name in members]


def _check_call(part: object, kind: type[object], name: str, what: str) -> None:
    """Check that a member that must be a method is callable, with the arguments that rlsdk passes to it."""
    declared, found = inspect.getattr_static(kind, name), getattr(part, name)
    arguments: tuple[int, list[str]]
    if (given := METHODS.get(name)) is not None and found is not None:
        arguments, call = (len(given), []), f"{name}({', '.join(given)})"
    elif inspect.isfunction(declared):
        arguments, call = _arguments(declared), f"{name}{_rendered(declared)}"
    else:
        return
    if not callable(found):
        raise PluginError(f"{what} has {name} = {found!r}, which is not a method; it is called as {call}: give it one")
    try:
        inspect.signature(found).bind(*[None] * arguments[0], **dict.fromkeys(arguments[1]))
    except TypeError as error:
        fix = f"see rlsdk.interfaces.{kind.__name__}"
        raise PluginError(
            f"{what} has {name}{inspect.signature(found)}, but it is called as {call} ({error}); {fix}"
        ) from None
    except ValueError:  # a builtin without a signature
        return


def _arguments(declared: Callable[..., object]) -> tuple[int, list[str]]:
    """(number of positional arguments, names of required keyword arguments) of a Protocol's method, without self."""
    _, *given = inspect.signature(declared).parameters.values()
    names = [p.name for p in given if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in given), names


def _rendered(declared: Callable[..., object]) -> str:
    """The arguments of a Protocol's method as text, without self and types: `(batch, progress=)`."""
    _, *given = inspect.signature(declared).parameters.values()
    return f"({', '.join(p.name + ('=' if p.kind is p.KEYWORD_ONLY else '') for p in given)})"


def _check_spelling(part: object, role: str, what: str) -> None:
    known = {name for kinds in OPTIONAL.values() for kind in kinds for name in get_protocol_members(kind)}
    known |= {name for kind in REQUIRED.values() for name in get_protocol_members(kind)}
    own = sorted({*dir(type(part)), *getattr(part, "__dict__", ())} - known)
    for name in _optional_names(role):
        if hasattr(part, name):
            continue
        similar = [other for other in own if other[0] == name[0]]
        if found := get_close_matches(name, similar, n=1, cutoff=SIMILAR):
            raise PluginError(
                f"{what} has {found[0]}, which nothing calls; rename it to {name}, the optional member of that name, or give"
                " it a name less like it"
            )


def _optional_names(role: str) -> Iterator[str]:
    return (name for kind in OPTIONAL[role] for name in _members(kind))
