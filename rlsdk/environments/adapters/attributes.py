"""Access to attributes and methods of environments through their wrappers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import gymnasium
from gymnasium.envs.registration import EnvSpec

from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError, raised, shown

Environment = gymnasium.Env[object, object]
"""Any gymnasium environment."""
Indices = int | Sequence[int] | None
"""Which environments: one, several, or all (None)."""


@runtime_checkable
class HasWrapperAttributes(Protocol):
    """An environment that finds attributes through its wrappers, as gymnasium's environments do."""

    def get_wrapper_attr(self, name: str) -> object:
        """The value of an attribute. Raises AttributeError if neither the environment nor a wrapper has it."""
        ...


def chosen(indices: Indices, count: int) -> list[int]:
    """The numbers of the selected environments, counted from 0. Negative indices count from the end.

    Raises:
        SettingsError: there is no environment of such a number.
    """
    wanted = range(count) if indices is None else [indices] if isinstance(indices, int) else list(indices)
    for index in wanted:
        if not isinstance(index, int) or not -count <= index < count:
            raise SettingsError(f"there is no environment number {index!r}; there are {count}, from 0 to {count - 1}")
    return [index % count for index in wanted]


def attribute_of(environment: object, name: str, default: object = None) -> object:
    """The attribute `name` of an environment; `default` if it has none.

    Raises:
        EnvironmentFault: a property or `__getattr__` of the environment raises another error than AttributeError.
    """
    try:
        return getattr(environment, name, default)
    except Exception as error:
        raise unreadable(environment, name, error) from error


def unreadable(environment: object, name: str, error: Exception) -> EnvironmentFault:
    """The error for an attribute whose reading raised another error than AttributeError."""
    what = raised(error, f"the attribute {name!r}")
    return EnvironmentFault(
        f"environment {type(environment).__name__} {what}; reading an attribute may raise nothing but AttributeError"
    )


def spec_of(environment: object) -> EnvSpec | None:
    """The registered spec of an environment; None if it has none, or something else in its place."""
    spec = attribute_of(environment, "spec")
    return spec if isinstance(spec, EnvSpec) else None


def name_of(environment: object) -> str:
    """The id of an environment, or the name of its class without wrappers."""
    spec = spec_of(environment)
    return type(attribute_of(environment, "unwrapped", environment)).__name__ if spec is None else spec.id


def named(environment: object) -> str:
    """The name of an environment for messages: its wrappers, and its id or class. Its own `__str__` is not used."""
    *wrappers, inner = layers_of(environment)
    names = [*(type(wrapper).__name__ for wrapper in wrappers), name_of(inner)]
    return "<".join(names) + ">" * len(wrappers)


def layers_of(environment: Any) -> Iterator[object]:
    """Yield the outermost wrapper, each wrapper inside it, and the environment itself."""
    layer = environment
    yield layer
    while attribute_of(layer, "env", layer) is not layer and layer is not attribute_of(layer, "unwrapped", layer):
        layer = layer.env
        yield layer


def name_of_class(kind: type[object]) -> str:
    """The module and the qualified name of a class, joined by a dot."""
    return f"{kind.__module__}.{kind.__qualname__}"


def wrappers_of(environment: object) -> list[str]:
    """The names of the classes of the wrappers around an environment, outermost first, and of their base classes."""
    *wrappers, _ = layers_of(environment)
    return [name_of_class(kind) for wrapper in wrappers for kind in type(wrapper).__mro__ if kind is not object]


def read(environment: Environment, name: str) -> object:
    """The value of the attribute `name` of an environment or of a wrapper around it.

    Raises:
        EnvironmentFault: neither the environment nor a wrapper has the attribute.
    """
    try:
        value: object = environment.get_wrapper_attr(name)
    except AttributeError:
        raise EnvironmentFault(f"environment {named(environment)} has no attribute {name!r}") from None
    return value


def write(environment: object, name: str, value: object) -> None:
    """Set an attribute of the outermost wrapper that has it, or of the environment itself if no wrapper has it."""
    *wrappers, inner = layers_of(environment)
    setattr(next((layer for layer in wrappers if name in vars(layer)), inner), name, value)


def time_limit(env: Any) -> int | None:
    """The step at which an environment, or those of a vector environment, truncates episodes; None if it states none."""
    limit, spec = _attribute(env, "_max_episode_steps"), _attribute(env, "spec")
    limit = getattr(spec, "max_episode_steps", None) if limit is None else limit
    return limit if isinstance(limit, int) else None


def _attribute(env: Any, name: str) -> object:
    """The attribute of an environment or its wrappers, or of the first of a vector environment; None if it has none."""
    try:
        return env.get_wrapper_attr(name) if isinstance(env, gymnasium.Env) else env.get_attr(name)[0]
    except Exception:  # environments in other processes, and those of users, raise any error
        return None


def call_of(environment: Environment, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """The result of the method `name` of an environment or of a wrapper around it.

    Raises:
        EnvironmentFault: the method does not exist, is not callable, or raises an error.
    """
    method = read(environment, name)
    if not callable(method):
        raise EnvironmentFault(f"{name!r} of environment {named(environment)} is not a method but {shown(method)}")
    try:
        answer: object = method(*args, **kwargs)
    except RlsdkError:
        raise
    except Exception as error:
        raise EnvironmentFault(f"environment {named(environment)} {raised(error, name)}") from error
    return answer
