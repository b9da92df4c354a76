"""Converts the argument `callback` of `learn` to a list of callbacks."""

from __future__ import annotations

from rlsdk.callbacks.callback import Callback, explains_documented_members
from rlsdk.callbacks.documented import DocumentedCallback, FunctionCallback, is_documented
from rlsdk.errors import SettingsError
from rlsdk.training.step_values import require_two_arguments


@explains_documented_members
class CallbackList(list[object]):
    """A list of callbacks that is passed as one callback; a plain list has the same effect."""

    @property
    def callbacks(self) -> list[object]:
        """The callbacks in this list."""
        return list(self)


def as_callbacks(value: object, parent: object = None) -> list[Callback]:
    """Convert an argument `callback` to a list of callbacks.

    Args:
        value: None, a callback, a function `f(locals, globals) -> bool`, or a list of these.
        parent: the callback that calls these callbacks; None if `learn` calls them.

    Raises:
        SettingsError: the value is something else.
    """
    if value is None:
        return []
    if isinstance(value, Callback):
        return [value]
    if isinstance(value, list | tuple):
        return [callback for item in value for callback in as_callbacks(item, parent)]
    if is_documented(value):
        return [DocumentedCallback(value, parent)]
    if isinstance(value, type):
        raise SettingsError(f"callback {value.__name__} is a class; pass an instance: {value.__name__}(...)")
    if callable(value):
        require_two_arguments(value)
        return [DocumentedCallback(FunctionCallback(value), parent)]
    raise SettingsError(
        f"{value!r} is not a callback; pass a Callback, a BaseCallback, a function f(locals, globals) -> bool, or a list of"
        " them"
    )
