"""Config classes that derive from another one and change defaults, without changing the order of parameters."""

from __future__ import annotations

from collections.abc import Callable

import attrs

Fields = list["attrs.Attribute[object]"]


@attrs.frozen
class Default:
    """Another default value, and where it comes from."""

    value: object
    source: str = ""


def defaults(**changes: object) -> Callable[[type, Fields], Fields]:
    """A `field_transformer` for `attrs.frozen`: fields with other defaults, each a value or a `Default` with its source.

    Raises:
        TypeError: when the class is made: there is no such field.
    """

    def changed(kind: type, fields: Fields) -> Fields:
        if unknown := sorted(set(changes) - {field.name for field in fields}):
            raise TypeError(f"{kind.__name__} has no fields {unknown}, whose defaults are given")
        # as the class's own: attrs passes over inherited fields when it makes classes that derive from this one
        own = [field.evolve(inherited=False) for field in fields]
        return [_with(field, changes[field.name]) if field.name in changes else field for field in own]

    return changed


def positional(**places: str) -> Callable[[type, Fields], Fields]:
    """A `field_transformer` for `attrs.frozen`: inherited keyword-only fields become positional, each after another field.

    `positional(n_steps="optimize_memory_usage")` puts `n_steps` after `optimize_memory_usage`.

    Raises:
        TypeError: when the class is made: there is no such field.
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


def _with(field: attrs.Attribute[object], change: object) -> attrs.Attribute[object]:
    given = change if isinstance(change, Default) else Default(change)
    metadata = {**field.metadata, "source": given.source} if given.source else field.metadata
    return field.evolve(default=given.value, metadata=metadata)
