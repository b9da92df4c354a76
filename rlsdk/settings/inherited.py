"""Config classes that derive from another one and change defaults, leave out fields or make keyword-only ones positional."""

from __future__ import annotations

from collections.abc import Callable

import attrs

Fields = list["attrs.Attribute[object]"]


@attrs.frozen
class Default:
    """A new default value, and its source."""

    value: object
    source: str = ""


def defaults(**changes: object) -> Callable[[type, Fields], Fields]:
    """Return a `field_transformer` for `attrs.frozen` that changes defaults. Each is a value, or a `Default` with its source.

    The order of the parameters does not change.

    Raises:
        TypeError: there is no such field. The error occurs when the class is created.
    """

    def changed(kind: type, fields: Fields) -> Fields:
        if unknown := sorted(set(changes) - {field.name for field in fields}):
            raise TypeError(f"{kind.__name__} has no fields {unknown}, whose defaults are given")
        # marked as not inherited: attrs ignores inherited fields when a class derives from this one
        own = [field.evolve(inherited=False) for field in fields]
        return [_with(field, changes[field.name]) if field.name in changes else field for field in own]

    return changed


def positional(**places: str) -> Callable[[type, Fields], Fields]:
    """Return a `field_transformer` for `attrs.frozen` that makes inherited keyword-only fields positional.

    `positional(n_steps="optimize_memory_usage")` puts `n_steps` after `optimize_memory_usage`.

    Raises:
        TypeError: there is no such field. The error occurs when the class is created.
    """

    def changed(kind: type, fields: Fields) -> Fields:
        known = {field.name: field.evolve(inherited=False) for field in fields}
        if unknown := sorted({*places, *places.values()} - set(known)):
            raise TypeError(f"{kind.__name__} has no fields {unknown}, which are to be positional")
        order = [name for name in known if name not in places]
        for name, before in places.items():
            order.insert(order.index(before) + 1, name)
        return [known[name].evolve(kw_only=False) if name in places else known[name] for name in order]

    return changed


def without(*names: str) -> Callable[[type, Fields], Fields]:
    """Return a `field_transformer` for `attrs.frozen` that leaves out inherited fields, which are then no settings.

    `attrs.frozen(field_transformer=without("tau"))` makes a config class of an off-policy algorithm without a target network.

    Raises:
        TypeError: there is no such field. The error occurs when the class is created.
    """

    def changed(kind: type, fields: Fields) -> Fields:
        if unknown := sorted(set(names) - {field.name for field in fields}):
            raise TypeError(f"{kind.__name__} has no fields {unknown}, which are to be left out")
        kind.LIVE = tuple(name for name in getattr(kind, "LIVE", ()) if name not in names)  # type: ignore[attr-defined]
        return [field.evolve(inherited=False) for field in fields if field.name not in names]

    return changed


def _with(field: attrs.Attribute[object], change: object) -> attrs.Attribute[object]:
    given = change if isinstance(change, Default) else Default(change)
    metadata = {**field.metadata, "source": given.source} if given.source else field.metadata
    return field.evolve(default=given.value, metadata=metadata)
