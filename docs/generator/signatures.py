"""Signatures as people call them: types by their short names, defaults of factories as values."""

from __future__ import annotations

import inspect
import re
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
    if what == "class" and attrs.has(obj):
        return _of_record(obj), None
    if signature and "<" in signature:  # the address of an object
        signature = re.sub(r"<([\w.]+)(?: object)? at 0x[0-9a-f]+>", r"\1", signature)
        return signature, returned
    return None


def _of_record(kind: type[Any]) -> str | None:
    """The constructor of a record, with the values that factories make."""
    try:
        found = inspect.signature(kind)
    except (TypeError, ValueError):
        return None
    fields = {field.alias: field for field in attrs.fields(kind)}
    parameters = [_with_default(each, fields.get(each.name)) for each in found.parameters.values()]
    shown = found.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return stringify_signature(shown, unqualified_typehints=True)


class _Written:
    """A default that is shown as a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _with_default(parameter: inspect.Parameter, field: attrs.Attribute[Any] | None) -> inspect.Parameter:
    default = field.default if field is not None else attrs.NOTHING
    if not isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return parameter
    try:
        text = repr(default.factory())
    except TypeError:  # it takes the record
        text = "..."
    return parameter.replace(default=_Written(text if len(text) < 40 else f"{text.partition('(')[0]}(...)"))
