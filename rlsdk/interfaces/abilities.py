"""The checks of parts when an agent is assembled, and the look-up of what a part may do in addition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, NoReturn, TypeVar, cast, get_origin, get_type_hints

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer
from typing_extensions import get_protocol_members, is_protocol

from rlsdk.errors import PluginError, SettingsError, UsageError
from rlsdk.interfaces.parts import Parts, Plan, PlanAbilities
from rlsdk.interfaces.policy import (
    Absent,
    Algorithm,
    AlgorithmAbilities,
    Buffer,
    BufferAbilities,
    Policy,
    PolicyAbilities,
    State,
    Stateful,
)
from rlsdk.records import Features
from rlsdk.runtime.lazy import elsewhere
from rlsdk.runtime.process import put_back
from rlsdk.spaces import Space, integer_bounds, map_leaves

AbilityT = TypeVar("AbilityT")
T = TypeVar("T", bound=type)

ROLES: dict[str, tuple[type, type]] = {
    "policy": (Policy, PolicyAbilities),
    "behavior": (Policy, PolicyAbilities),
    "algorithm": (Algorithm, AlgorithmAbilities),
    "buffer": (Buffer, BufferAbilities),
    "plan": (Plan, PlanAbilities),
}
"""Field of `Parts` -> the Protocol that the part must implement, the class that names its optional members."""
METHODS = {
    "begin_rollout": ("carry",),
    "action_played": ("carry", "action"),
    "act_in_place": ("observation", "carry", "generator"),
}
"""Members that may be None instead of a method -> the arguments of the method."""
SIMILAR = 0.9
"""The `difflib` ratio from which on a name counts as a misspelling; "prioritise" for "prioritize" has 0.9."""


def ability(part: object, kind: type[AbilityT], name: str) -> AbilityT | None:
    """Return the part if it has the member `name`, which `kind` declares (`AlgorithmAbilities`, ...); else None.

    Of the other members of `kind`, the result may have none. Members that a part provides through `__getattr__` count;
    `isinstance` ignores them since Python 3.12. Call this function once, outside of loops.

    Two kinds of members are read in another way. `plays_episodes(plan)` returns the value of a flag. A member of `METHODS` may
    be None, which means the same as a missing one: read it with `getattr(part, name, None)`.
    """
    vars(kind)[name]  # a name that nothing declares is a mistake of the caller, not an absent member
    return cast("AbilityT", part) if hasattr(part, name) else None


def plays_episodes(plan: object) -> bool:
    """Whether a plan plays whole episodes (`PlanAbilities.plays_episodes`); one without this member does not."""
    return bool(getattr(plan, "plays_episodes", False))


def shortcut(part: object, kind: type[AbilityT], name: str, method: str) -> AbilityT | None:
    """Return the part if it has the member `name` of `kind`, which replaces several calls of `method`; else None.

    Also None if a subclass or the object itself overrides `method` without `name`: the shortcut would skip the override.
    """
    found = ability(part, kind, name)
    # an instance attribute is an override too: tests and users patch single objects
    if found is None or method in getattr(part, "__dict__", ()):
        return None
    # the first class that defines either: a subclass that overrides `method` alone wants its own to run
    owners = [owner for owner in type(part).__mro__ if name in vars(owner) or method in vars(owner)]
    return found if owners and name in vars(owners[0]) else None


def check_part(part: object, role: str, algorithm: str) -> None:
    """Check that a part has the members its role requires, and that the names and arguments of its optional members are
    right.

    Args:
        part: a field of `rlsdk.interfaces.Parts`.
        role: the name of that field, a key of `ROLES`.
        algorithm: the id of the algorithm, for messages.

    Raises:
        PluginError: names the algorithm, the part, the member, and what to do.
    """
    owner: type = type(part)
    what = f"{algorithm!r}: its {'training loop' if role == 'plan' else role}, {owner.__name__},"
    required, optional = ROLES[role]
    if missing := [name for name in _calls(required) if not hasattr(part, name)]:
        raise PluginError(
            f"{what} has no {', '.join(missing)}; see rlsdk.interfaces.{required.__name__} for what each part does"
        )
    for kind in (required, optional):
        for name, call in _calls(kind).items():
            if call is not None and hasattr(part, name):
                _check_call(part, kind, call, what)
    for name, similar in _misspelt(owner, frozenset(getattr(part, "__dict__", ())), role):
        if not hasattr(part, name):
            raise PluginError(
                f"{what} has {similar}, which nothing calls; rename it to {name}, the optional member of that name, or give"
                " it a name less like it"
            )


@dataclass(frozen=True, slots=True)
class _Call:
    """How rlsdk calls a method of a part."""

    name: str
    positional: int
    keywords: tuple[str, ...]
    """The names of the required keyword arguments."""
    text: str
    """Such as `update(batch, progress=)`."""


# every agent that is made checks five parts: without the cache this takes a tenth of the constructor's time
@cache
def _calls(kind: type) -> dict[str, _Call | None]:
    """Name -> call of each member of a Protocol, or of a class of abilities; None for a value. In the order of declaration:
    its own, then those of its bases."""
    if is_protocol(kind):
        members = get_protocol_members(kind)
        names = [name for owner in kind.__mro__ for name in vars(owner) if name in members]
    else:
        names = [name for name, member in vars(kind).items() if isinstance(member, Absent)]
    return {name: _call(name, getattr(kind, name)) for name in names}


def _call(name: str, declared: object) -> _Call | None:
    if (given := METHODS.get(name)) is not None:  # a property: its signature is that of the method it returns
        return _Call(name, len(given), (), f"{name}({', '.join(given)})")
    if not inspect.isfunction(declared):
        return None
    _, *found = inspect.signature(declared).parameters.values()
    keywords = tuple(p.name for p in found if p.kind is p.KEYWORD_ONLY and p.default is p.empty)
    positional = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found)
    text = ", ".join(p.name + ("=" if p.kind is p.KEYWORD_ONLY else "") for p in found)
    return _Call(name, positional, keywords, f"{name}({text})")


def _check_call(part: object, kind: type[object], call: _Call, what: str) -> None:
    """Check that a member that must be a method is callable, with the arguments that rlsdk passes to it."""
    found = getattr(part, call.name)
    if found is None and call.name in METHODS:
        return
    if not callable(found):
        raise PluginError(
            f"{what} has {call.name} = {found!r}, which is not a method; it is called as {call.text}: give it one"
        )
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(*[None] * call.positional, **dict.fromkeys(call.keywords))
    except TypeError as error:
        raise PluginError(
            f"{what} has {call.name}{signature}, but it is called as {call.text} ({error}); see"
            f" rlsdk.interfaces.{kind.__name__}"
        ) from None


# comparing all names takes a millisecond, and agents of a process are of few classes
@lru_cache(256)
def _misspelt(kind: type[Any], own: frozenset[str], role: str) -> tuple[tuple[str, str], ...]:
    """(optional member of the role, similar name) for names of a class and the attributes `own` of its object."""
    # one object may play several roles, whose names are not misspellings of one another
    known = {name for kinds in ROLES.values() for each in kinds for name in _calls(each)}
    names = sorted({*dir(kind), *own} - known)
    found = []
    for name in _calls(ROLES[role][1]):
        # misspellings rarely change the first letter; other names of authors are near by chance
        similar = get_close_matches(name, [other for other in names if other[0] == name[0]], n=1, cutoff=SIMILAR)
        found += [(name, each) for each in similar]
    return tuple(found)


PLANS = "accepted: OnPolicyPlan, OffPolicyPlan of rlsdk.training, or any object like rlsdk.interfaces.Plan"
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
            f"build of {algorithm!r} gave the training loop {plan!r}, which has no rounds(training, cursor); {PLANS}"
        )
    # the plan first: it decides which members of the others are used
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
                f"{algorithm!r}: its training loop, {type(plan).__name__}, has {name} = {value!r}; accepted: {one_of}"
            )
    if (checker := ability(plan, PlanAbilities, "check_parts")) is not None:
        try:
            checker.check_parts(built)
        except (PluginError, SettingsError) as error:
            raise type(error)(f"{algorithm!r}: {error}") from None


def unlike_metrics(metrics: object) -> PluginError:
    """The error for a result of `update` that is not a mapping of metrics."""
    wanted = "update() must return metrics: a mapping from names to 0-d tensors, such as {'train/loss': loss.detach()}"
    if not isinstance(metrics, Mapping):
        return PluginError(f"{wanted}; it returned {type(metrics).__name__}")
    if not metrics:
        return PluginError(f"{wanted}; it returned none, so divergence would go unnoticed")
    wrong = {n: v for n, v in metrics.items() if not isinstance(v, Tensor) or v.dim()}
    kinds = [
        f"{n} is a {type(v).__name__}" + (f" {list(v.shape)}" if isinstance(v, Tensor) else "")
        for n, v in wrong.items()
    ]
    return PluginError(f"{wanted}; {', '.join(kinds) or 'they lie on several devices or have several dtypes'}")


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
    # annotations may be missing or generic; only two known classes can contradict each other
    if given is None or taken is None or issubclass(given, taken):
        return
    buffer, learner = type(parts.buffer).__name__, type(parts.algorithm).__name__
    raise SettingsError(
        f"its buffer, {buffer}, samples {given.__name__}, but its algorithm, {learner}, learns from {taken.__name__}; give"
        f" Parts(buffer=...), or the setting replay_buffer_class, a buffer that samples {taken.__name__}"
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
            "drop them, or use a training loop that needs an environment",
        )
    elif plays_episodes(built.plan):
        cause = "plays whole episodes, of which it learns from other numbers than info"
        instead = (
            "put them into the environment's reward, or use a training loop that collects steps, such as OnPolicyPlan"
        )
    else:
        return
    raise PluginError(
        f"{algorithm!r} declares info = {list(declared)}, and its training loop, {kind}, {cause}; {instead}"
    )


def _check_states(built: Parts, algorithm: str) -> None:
    for name, state in built.states.items():
        # a slash separates the names of nested entries in files
        if not isinstance(state, Stateful) or isinstance(state, type) or "/" in name:
            raise PluginError(
                f"{algorithm!r}: states[{name!r}] is a {type(state).__name__}; names have no '/', and what they name has"
                " state_dict() and load_state_dict(state)"
            )


def require_inside(space: Space, value: Features, what: str) -> None:
    """Check that Discrete, MultiDiscrete and MultiBinary leaves of `value` [.., *leaf], nested like `space`, lie inside
    it.

    Encoders and losses use these values as indices.

    Raises:
        ValueError: a value lies outside; the message begins with `what`.
    """

    def check(path: str, leaf: Space, rows: Tensor) -> Tensor:
        if (bounds := integer_bounds(leaf)) is not None:
            low, high = (torch.as_tensor(bound, device=rows.device) for bound in bounds)
            if bool(((rows < low) | (rows > high)).any()):
                raise ValueError(f"{what} lie outside {leaf}")
        return rows

    map_leaves(space, check, value)


def state_of(owner: object, *, without: Collection[str] = ()) -> dict[str, object]:
    """Return the state of an algorithm, plan or buffer: the states of its attributes, by name.

    Included are attributes that are a `torch.nn.Module`, an optimizer, a `torch.Generator` or a tensor, or that have
    `state_dict` and `load_state_dict`. Other attributes, also numbers, count as settings. Store a counter that must be
    saved as an int64 tensor.

    >>> class Mine:
    ...     def state_dict(self):
    ...         return state_of(self, without=["policy"])
    ...     def load_state_dict(self, state):
    ...         load_state_of(self, state, without=["policy"])

    Args:
        owner: the object.
        without: attributes that are saved elsewhere, such as the policy, which files store separately.
    """
    return {name: stored_state(value) for name, value in _parts_of(owner, without).items()}


def load_state_of(owner: object, state: Mapping[str, object], *, without: Collection[str] = ()) -> None:
    """Restore in place the state that `state_of` returned.

    Raises:
        ValueError: names, shapes or dtypes differ.
    """
    parts = _parts_of(owner, without)
    if set(parts) != set(state):
        raise ValueError(f"the state has {sorted(state)}, {type(owner).__name__} has {sorted(parts)}")
    for name, part in parts.items():  # in place: optimizers and target networks hold these tensors
        restore_state(part, state[name])


def stored_state(part: object) -> Any:
    """Return the state of one attribute in the form that files store: nested mappings of tensors and numbers."""
    if isinstance(part, Tensor):
        return part
    if isinstance(part, Generator):
        return part.get_state()
    if isinstance(part, Optimizer):
        return {str(index): dict(values) for index, values in part.state_dict()["state"].items()}
    assert isinstance(part, Stateful)
    return dict(part.state_dict())


def restore_state(part: object, state: Any) -> None:
    """Restore the state of one attribute. Raises ValueError, KeyError or RuntimeError if the state does not fit it."""
    if isinstance(part, Tensor):
        if not isinstance(state, Tensor) or (state.shape, state.dtype) != (part.shape, part.dtype):
            raise ValueError(f"a stored tensor is not {part.dtype} of shape {tuple(part.shape)}")
        with torch.no_grad():
            part.copy_(state)
    elif isinstance(part, Generator):
        put_back(part, state)
    elif isinstance(part, Optimizer):
        _restore_optimizer(part, state)
    else:
        assert isinstance(part, Stateful)
        part.load_state_dict(state)


def _restore_optimizer(optimizer: Optimizer, state: State) -> None:
    """Load the state of each parameter, tensors of the parameter's shape or single numbers. The optimizer's settings stay."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    known = {str(index): parameter for index, parameter in enumerate(parameters)}
    for index, values in state.items():
        if index not in known:
            raise ValueError(f"the optimizer has {len(parameters)} parameters, the state has one of number {index}")
        for name, value in values.items():
            if isinstance(value, Tensor) and value.dim() and value.shape != known[index].shape:
                raise ValueError(f"{name} of parameter {index} has shape {tuple(value.shape)}")
    # keys of files are texts, those of torch numbers; the settings are the agent's own, not the file's
    numbered = {int(index): dict(state[index]) for index in known if index in state}
    optimizer.load_state_dict({"state": numbered, "param_groups": optimizer.state_dict()["param_groups"]})


def _parts_of(owner: object, without: Collection[str]) -> dict[str, object]:
    """The attributes that have a state."""
    kinds = (nn.Module, Optimizer, Generator, Tensor)
    # attributes of the instance: those of the class are constants
    own = {name: value for name, value in vars(owner).items() if name not in without}
    return {name: value for name, value in own.items() if isinstance(value, kinds) or _stateful(value)}


def _stateful(value: object) -> bool:
    return not isinstance(value, type) and isinstance(value, Stateful)


def explain_names(kind: T) -> T:
    """Class decorator: attributes that an object lacks are looked up in rlsdk-sb3, which has them or names a replacement.

    Raises UnknownAttributeError for the others, and UsageError for calls of a policy without `forward`.
    """
    found = _of_module if issubclass(kind, nn.Module) else _of_object
    setattr(kind, "__getattr__", found)  # noqa: B010  # set this way so that type checkers still report unknown names
    if getattr(kind, "forward", None) is nn.Module.forward:
        setattr(kind, "forward", _no_forward)  # noqa: B010
    return kind


def _of_object(self: object, name: str) -> object:
    # rlsdk itself looks for optional members when parts are assembled; nothing is imported for these
    if name in _optional():
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
    return elsewhere(self, name)


def _of_module(self: nn.Module, name: str) -> object:
    """Replaces the `__getattr__` of torch, which is called for every layer: looks among the layers first and costs no more."""
    here = self.__dict__
    layers = here.get("_modules")
    if layers and name in layers:
        return layers[name]
    if layers and name in here["_buffers"]:  # such as the epsilon of DQN, which is read at every step
        return here["_buffers"][name]
    try:
        return nn.Module.__getattr__(self, name)
    except AttributeError:
        if name.startswith("_") or not layers or name in _optional():
            raise
    return elsewhere(self, name)


@cache
def _optional() -> frozenset[str]:
    """The optional members of parts, which rlsdk looks for."""
    return frozenset(name for kinds in ROLES.values() for name in _calls(kinds[1]))


def _no_forward(self: nn.Module, *_: object) -> NoReturn:
    raise UsageError(f"{type(self).__name__} has no method 'forward'; model.predict(observation) acts")
