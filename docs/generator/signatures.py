"""Signatures as people call them: types by their short names, defaults of factories as values."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import attrs
from sphinx.util.inspect import stringify_signature


def skipped_member(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Called by autodoc for each member: fields and constants without a text of their own are left out."""
    if what == "class" and not callable(obj) and not isinstance(obj, property | classmethod | staticmethod):
        documented = bool(options and getattr(obj, "__doc__", None)) and not isinstance(obj, int | float | str | tuple)
        return None if documented else skip
    return None


def shown_signature(app: Any, what: str, name: str, obj: Any, *rest: Any) -> tuple[str | None, str | None] | None:
    """Called by autodoc for everything that has a signature."""
    _, signature, returned = rest
    if what == "class" and signature is not None and (found := _constructor(obj)) is not None:
        return found, None
    if signature and "<" in signature:  # a function or another object: its name, without its address
        return re.sub(
            r"<(?:function |class ')?([\w.]+?)'?(?: object)?(?: at 0x[0-9a-f]+)?>", r"\1", signature
        ), returned
    return None


def python_value(value: object, longest: int = 60) -> str:
    """A default as it is written in Python; long ones without their contents."""
    if type(value).__name__ == "Constant":
        return repr(value.value)  # type: ignore[attr-defined]  # a schedule that is a number
    if isinstance(value, PurePath):
        return f"Path({str(value)!r})"
    if inspect.isroutine(value) or inspect.isclass(value):
        return value.__name__
    text = repr(dict(value) if isinstance(value, Mapping) else value)
    if " object at 0x" in text:
        return type(value).__name__
    opening = re.match(r"\w*.", text)
    return text if len(text) <= longest or opening is None else f"{opening[0]}...{text[-1]}"


def _constructor(kind: type[Any]) -> str | None:
    """The constructor of a class, with the values that factories make; None for one without constructor."""
    if getattr(kind, "_is_protocol", False):
        return ""  # it is not called: `inspect` finds the arguments of `object`
    try:
        found = inspect.signature(kind)
    except (TypeError, ValueError):
        return None
    made: dict[str, Any] = {}
    if attrs.has(kind):
        # a factory that takes the record has no value here
        factories = {f.alias: f.default for f in attrs.fields(kind) if isinstance(f.default, attrs.Factory)}  # type: ignore[arg-type]
        made = {name: ... if each.takes_self else each.factory() for name, each in factories.items()}
    elif dataclasses.is_dataclass(kind):
        fields = {f.name: f.default_factory for f in dataclasses.fields(kind)}
        made = {name: each() for name, each in fields.items() if each is not dataclasses.MISSING}
    parameters = [_with_default(each, made.get(each.name, each.default)) for each in found.parameters.values()]
    shown = found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return stringify_signature(shown, unqualified_typehints=True)


class _Written:
    """A default that is shown as a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _with_default(parameter: inspect.Parameter, value: object) -> inspect.Parameter:
    if value is inspect.Parameter.empty:
        return parameter
    return parameter.replace(default=_Written("..." if value is ... else python_value(value)))
