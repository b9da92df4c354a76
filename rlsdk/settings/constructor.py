"""The constructor of an agent class, made from a config class: its signature, its docstring and its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from rlsdk.errors import SettingsError, UsageError
from rlsdk.settings import structure
from rlsdk.settings.strict import docstring, parameters, signature

P = ParamSpec("P")
ConfigT = TypeVar("ConfigT")
Init = Callable[..., None]


def configured_by(kind: Callable[P, object]) -> Callable[[Init], Callable[Concatenate[object, P], None]]:
    """Return a decorator that gives a constructor the parameters, types and documentation of the config class `kind`."""

    def decorate(init: Init) -> Callable[Concatenate[object, P], None]:
        init.__signature__ = signature(kind)  # type: ignore[attr-defined,arg-type]
        init.__doc__ = docstring(kind)  # type: ignore[arg-type]
        return init

    return decorate


if TYPE_CHECKING:
    # Type checkers do not treat a class derived from it as a `classmethod`.
    class_only = classmethod
else:

    class class_only(classmethod):  # noqa: N801  # reads as the decorator it is
        """A class method that raises UsageError when it is called on an instance, because it would not change that instance."""

        def __get__(self, instance: object, owner: type | None = None) -> object:
            if instance is not None:
                kind, name = type(instance).__name__, self.__func__.__name__
                raise UsageError(
                    f"{name} makes a new agent: write agent = {kind}.{name}(path); set_parameters works in place"
                )
            return super().__get__(instance, owner)


def bind(kind: type[ConfigT], args: tuple[object, ...], kwargs: Mapping[str, object]) -> ConfigT:
    """Return the config for the arguments of a constructor call, checked strictly.

    Raises:
        SettingsError: too many, repeated, unknown, mistyped or out-of-range arguments.
    """
    names = [field.name for field in parameters(kind) if not field.kw_only]
    if len(args) > len(names):
        raise SettingsError(
            f"{len(args)} positional arguments, but only {len(names)} may be given by position: {names}"
        )
    values = dict(zip(names, args, strict=False))
    if twice := sorted(set(values) & set(kwargs)):
        raise SettingsError(f"{twice} given by position and by name")
    policy = {**values, **kwargs}.get("policy")
    if isinstance(policy, type) and not issubclass(policy, str):
        raise SettingsError(
            f"policy = {policy.__module__}.{policy.__name__} is a class of another library; give a name such as"
            " 'MlpPolicy', or the class's name imported from the plugin"
        )
    return structure({**values, **kwargs}, kind)
