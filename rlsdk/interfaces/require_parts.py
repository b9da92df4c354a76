"""Checks of the `Parts` that a plugin's `build` returned."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import get_origin, get_type_hints

from typing_extensions import is_protocol

from rlsdk.errors import PluginError, SettingsError
from rlsdk.interfaces.abilities import ability, check_part
from rlsdk.interfaces.parts import Parts
from rlsdk.interfaces.plans import ChecksParts, NormalizesEpisodes
from rlsdk.interfaces.state import Stateful

PLANS = (
    "accepted: OnPolicyPlan, OffPolicyPlan, PopulationPlan, OfflinePlan of rlsdk.training, or any object like"
    " rlsdk.interfaces.Plan"
)
ACCEPTED: dict[str, tuple[object, ...]] = {
    "needs_environment": (True, False),
    "unit": ("steps", "updates"),
    "log_every": ("episodes", "rounds"),
}
"""Member of a plan -> its accepted values."""


def require_parts(built: object, algorithm: str, info: tuple[str, ...] = ()) -> Parts:
    """Check the value that a plugin's `build` returned, and return it. `info`: the entries of `info` in the plugin's
    manifest.

    Raises:
        PluginError: it is not `Parts`, has no plan, or a part lacks a method, misspells one or takes other arguments.
        SettingsError: the settings chose parts that do not fit each other.
    """
    if not isinstance(built, Parts):
        kind = type(built).__name__
        raise PluginError(
            f"build of {algorithm!r} returned {kind}, not rlsdk.interfaces.Parts; end it with `return Parts(...)`"
        )
    plan: object = built.plan
    if not callable(getattr(plan, "rounds", None)):
        raise PluginError(
            f"build of {algorithm!r} gave the plan {plan!r}, which has no rounds(training, cursor); {PLANS}"
        )
    for name in ("plan", "policy", "behavior", "algorithm", "buffer"):
        part = getattr(built, name)
        if part is not None or name not in ("buffer", "behavior"):
            check_part(part, name, algorithm)
    _check_plan(built, algorithm)
    _check_states(built, algorithm)
    _check_info(built, algorithm, (*info, *built.info))
    return built


def _check_plan(built: Parts, algorithm: str) -> None:
    """Check the values of a plan's members, and the members of the other parts that the plan uses."""
    plan: object = built.plan
    for name, accepted in ACCEPTED.items():
        if (value := getattr(plan, name)) not in accepted:
            one_of = ", ".join(map(repr, accepted))
            raise PluginError(
                f"{algorithm!r}: its plan, {type(plan).__name__}, has {name} = {value!r}; accepted: {one_of}"
            )
    if (checker := ability(plan, ChecksParts)) is not None:
        try:
            checker.check_parts(built)
        except (PluginError, SettingsError) as error:
            raise type(error)(f"{algorithm!r}: {error}") from None


def require_batches(parts: Parts) -> None:
    """Check that the buffer samples the type that the algorithm learns from, as far as annotations name records or
    classes.

    Raises:
        SettingsError: names the buffer, the algorithm, both types, and what to do.
    """
    if parts.buffer is None:
        return
    update = parts.algorithm.update
    given = _class_in(parts.buffer.sample, "return")
    taken = _class_in(update, next(iter(inspect.signature(update).parameters), ""))
    if given is None or taken is None or issubclass(given, taken):
        return
    memory, learner = type(parts.buffer).__name__, type(parts.algorithm).__name__
    raise SettingsError(
        f"its buffer, {memory}, samples {given.__name__}, but its algorithm, {learner}, learns from {taken.__name__}; give"
        f" Parts(buffer=...), or the setting replay_buffer_class, a memory that samples {taken.__name__}"
    )


@lru_cache(256)
def _annotations(function: Callable[..., object]) -> Mapping[str, object]:
    """The annotations of a function; empty if they cannot be evaluated, for example if they use imports for type checkers."""
    try:
        return get_type_hints(function)
    except Exception:  # evaluating annotations runs code of the plugin
        return {}


def _class_in(method: Callable[..., object], name: str) -> type[object] | None:
    """The class in the annotation of a parameter, or of `return`; None if there is no such annotation."""
    hint = _annotations(getattr(method, "__func__", method)).get(name)
    kind = get_origin(hint) or hint
    if not isinstance(kind, type) or kind is object or kind.__module__ == "typing" or is_protocol(kind):
        return None
    return kind


def _check_info(built: Parts, algorithm: str, declared: tuple[str, ...]) -> None:
    """Refuse entries of `info` that the algorithm would never receive."""
    if not declared:
        return
    kind = type(built.plan).__name__
    if not built.plan.needs_environment:
        cause, instead = (
            "learns from recordings, which hold no info",
            "drop them, or use a plan that needs an environment",
        )
    elif ability(built.plan, NormalizesEpisodes):
        cause = "plays whole episodes, of which candidates' returns alone are learnt from"
        instead = "put them into the environment's reward, or use a plan that collects steps, such as OnPolicyPlan"
    else:
        return
    raise PluginError(f"{algorithm!r} declares info = {list(declared)}, and its plan, {kind}, {cause}; {instead}")


def _check_states(built: Parts, algorithm: str) -> None:
    for name, state in built.states.items():
        if not isinstance(state, Stateful) or isinstance(state, type) or "/" in name:
            raise PluginError(
                f"{algorithm!r}: states[{name!r}] is a {type(state).__name__}; names have no '/', and what they name has"
                " state_dict() and load_state_dict(state)"
            )
