"""Strict conversion between plain data and config objects, and the text of a config.

Values are not coerced, except that a float such as 1e6 is accepted as a whole number. Unknown names raise an error that
suggests the closest known name.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Callable as CallableOrigin
from collections.abc import Mapping as TableOrigin
from textwrap import fill
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

from rlsdk.errors import RlsdkError, SettingsError, known_as, suggest
from rlsdk.settings.glossary import meaning_of
from rlsdk.settings.load import DataReference

ConfigT = TypeVar("ConfigT")


SCALAR_NAMES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _fits(value: object, kind: type) -> bool:
    if kind is float:
        # In Python True is an int.
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return (isinstance(value, int) and not isinstance(value, bool)) or _is_whole(value)
    return isinstance(value, kind)


def _is_whole(value: object) -> bool:
    """Whether the value is a float such as 1e6, which is accepted as a whole number."""
    return isinstance(value, float) and value.is_integer()


def _scalar(kind: type) -> Callable[[object, object], object]:
    def structure_scalar(value: object, _: object) -> object:
        # Numbers of numpy, such as those of `np.linspace`. By name, because numpy need not be loaded.
        if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
            value = getattr(value, "item", lambda: value)()
        if not _fits(value, kind):
            raise TypeError(f"{value!r} is not {SCALAR_NAMES[kind]}")
        return kind(value)

    return structure_scalar


def _origin(kind: object) -> object:
    return get_origin(kind)  # its declared types exclude what it returns


def _is_union(kind: object) -> bool:
    return _origin(kind) in (Union, types.UnionType)


def _structure_union(value: object, kind: object) -> object:
    """Convert the value to the first type of a union that accepts it. A float stays a float if the union has float."""
    members = get_args(kind)
    # Otherwise 1e6 would become a whole number in a union that lists int first.
    if isinstance(value, float) and float in members:
        return value
    if value is None and type(None) in members:
        return None
    problems = []
    for member in members:
        if member is type(None):
            continue
        try:
            return _converter.structure(value, member)
        except (TypeError, ValueError, AttributeError, RlsdkError) as error:
            problems.append(str(error))
    raise TypeError(problems[0] if len(problems) == 1 else f"{value!r} is not {_name(kind)}")


def _structure_table(value: object, _: object) -> object:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not a table of names and values")
    return dict(value)


def _structure_callable(value: object, _: object) -> object:
    if not callable(value):
        raise TypeError(f"{value!r} is not a class or function")
    return value


def _name(kind: Any) -> str:
    if _is_union(kind):
        return " or ".join(_name(member) for member in get_args(kind))
    return "none" if kind is type(None) else SCALAR_NAMES.get(kind, getattr(kind, "__name__", str(kind)))


# cattrs alone would convert 3.7 to 3 and "no" to True; the hooks below accept neither.
_converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True, prefer_attrib_converters=True)
for _kind in SCALAR_NAMES:
    _converter.register_structure_hook(_kind, _scalar(_kind))
_converter.register_structure_hook(DataReference, lambda value, kind: kind.of(value))
_converter.register_structure_hook_func(_is_union, _structure_union)
_converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
_converter.register_structure_hook_func(lambda kind: _origin(kind) in (dict, TableOrigin), _structure_table)
_converter.register_structure_hook_func(lambda kind: _origin(kind) is CallableOrigin, _structure_callable)


@_converter.register_structure_hook_factory(attrs.has)
def _structure_class(kind: type[object]) -> Callable[[Any, object], object]:
    """Return the function that converts tables, or None for all defaults, to `kind` field by field."""
    from_table = make_dict_structure_fn(
        kind,
        _converter,
        _cattrs_forbid_extra_keys=True,
        _cattrs_detailed_validation=True,
        _cattrs_prefer_attrib_converters=True,
    )

    def structure_class(value: object, _: object) -> object:
        # Objects come from Python code, and were checked when they were made.
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping | None):
            raise SettingsError(f"{value!r} is not a table of settings; its names are {_names(kind)}")
        return from_table(dict(value or {}), kind)

    return structure_class


def _names(kind: type[object]) -> list[str]:
    return [field.name for field in parameters(kind)]


def structure(values: Mapping[str, object] | attrs.AttrsInstance, kind: type[ConfigT]) -> ConfigT:
    """Return an object of the attrs class `kind`, made from plain values. Every field is checked, also in nested tables.

    An object of this class is returned unchanged.

    Raises:
        SettingsError: a field is unknown, mistyped or out of range. The message names each such field and what it accepts.
    """
    try:
        return _converter.structure(values, kind)
    except ClassValidationError as group:
        # only tables have fields that are wrong
        raise SettingsError("\n".join(_explain(group, cast("Mapping[str, object]", values)))) from None


def _explain(group: ClassValidationError, values: Mapping[str, object]) -> list[str]:
    """A line for each field of a table that is wrong. `values`: the table."""
    lines, kind = [], cast("type[object]", group.cl)
    with_notes, without = group.group_exceptions()
    for error, note in with_notes:
        if isinstance(error, KeyError):
            lines.append(f"setting {note.name!r} is missing and has no default")
            continue
        text = str(error)
        if isinstance(error, ClassValidationError):
            text = "; ".join(_explain(error, cast("Mapping[str, object]", values[note.name])))
        # Validators begin with the name of the field; converters do not know it.
        lines.append(text if note.name in text.split(" = ")[0] else f"{note.name}: {text}")
    for error in without:
        if isinstance(error, ForbiddenExtraKeysError):
            lines += [
                f"unknown setting {name!r}; {_instead(name, _names(kind))}" for name in sorted(error.extra_fields)
            ]
        else:
            name = _converted_wrongly(kind, values, str(error))
            lines.append(f"{name}: {error}" if name and name not in str(error) else str(error))
    return lines


def _instead(name: str, known: Sequence[str]) -> str:
    meant = known_as(name, [*known, *NO_SETTINGS]) or name
    advice, table = NO_SETTINGS.get(meant, ("", ""))
    return advice if meant not in known and advice and (not table or table in known) else suggest(name, known)


NO_SETTINGS = {
    "n_envs": ("env=make_vec_env(env, n_envs=N) makes several environments, on the command line --n-envs N", ""),
    "net_arch": ("layers are settings of the networks: policy_kwargs={'net_arch': [64, 64]}", "policy_kwargs"),
    "activation_fn": ("it is a setting of the networks: policy_kwargs={'activation_fn': 'relu'}", "policy_kwargs"),
    "beta": ("it is one of the buffer: replay_buffer_kwargs={'beta': 0.4}", "replay_buffer_kwargs"),
    "steps": ("learn(total_timesteps) takes the number of steps, on the command line --steps", ""),
}
"""What is given elsewhere than in the settings of an algorithm -> (where, the setting that holds it)."""


def _converted_wrongly(kind: type[object], values: Mapping[str, object], problem: str) -> str | None:
    """Return the name of the field whose converter raised `problem`. The message `problem` does not contain it."""
    for field in parameters(kind):
        convert = cast("object", field.converter)
        if field.name in values and callable(convert):
            try:
                convert(values[field.name])
            except Exception as error:  # any error of a plugin's converter
                if str(error) == problem:
                    return str(field.name)
    return None


def unstructure(value: object) -> Any:
    """Return plain data (JSON or TOML) for a config value; `structure` reads it.

    Objects with `to_setting()` become what it returns. Classes, functions and tables with keys that are not text cannot be
    stored. They become `{"object": "module:name"}`, and loading replaces this entry through `custom_objects`.
    """
    # A class has the method as well, but files store its name.
    if hasattr(value, "to_setting") and not isinstance(value, type):
        return value.to_setting()  # pyright: ignore[reportAttributeAccessIssue]  # `hasattr` found it
    if attrs.has(type(value)):
        fields = attrs.fields(cast("type[attrs.AttrsInstance]", type(value)))
        return {field.name: unstructure(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: unstructure(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unstructure(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return {"object": f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', type(value).__name__)}"}


def flat_scalars(config: object) -> dict[str, bool | int | float | str]:
    """Return every setting under its dotted name, as bool, number or text, for tables of runs. None is left out."""
    flat: dict[str, bool | int | float | str] = {}
    pending = list(unstructure(config).items())
    while pending:
        name, value = pending.pop(0)
        # A table with `object` stands for a class or function; it holds no settings.
        if isinstance(value, Mapping) and "object" not in value:
            pending += [(f"{name}.{key}", item) for key, item in value.items()]
        elif value is not None:
            flat[name] = value if isinstance(value, bool | int | float | str) else str(value)
    return flat


def evolve(config: ConfigT, changes: Mapping[str, object]) -> ConfigT:
    """Return a copy of `config` with some fields replaced. All fields are checked again.

    Raises:
        SettingsError: as `structure`.
    """
    kind = type(config)
    current = {name: getattr(config, name) for name in _names(kind)}
    return structure({**current, **changes}, kind)


@attrs.frozen
class FieldDoc:
    """The description of one hyper-parameter for users. `children` are the fields of a nested table."""

    name: str
    type: str
    default: object
    required: bool
    help: str
    unit: str
    source: str
    tune: tuple[float, float] | None = None
    """The range in which a search varies it; None: a search leaves it as it is."""
    affects: str = "training"
    """What the setting changes, see `described`."""
    examples: tuple[object, ...] = ()
    """Values other than the default that change it."""
    needs: str = ""
    """The setting, or "memory", without which it has no effect, see `needs`."""
    children: tuple[FieldDoc, ...] = ()


def describe(kind: type[object]) -> tuple[FieldDoc, ...]:
    """Return the description of every hyper-parameter of a config class, in constructor order."""
    hints = get_type_hints(kind)
    return tuple(_describe(field, hints[field.name]) for field in parameters(kind))


def parameters(kind: type[object]) -> list[attrs.Attribute[object]]:
    """Return the fields in constructor order: positional ones first, then keyword-only ones."""
    fields = list(attrs.fields(cast("Any", kind)))
    return [f for f in fields if not f.kw_only] + [f for f in fields if f.kw_only]


def _describe(field: attrs.Attribute[object], hint: type[object]) -> FieldDoc:
    required = field.default is attrs.NOTHING
    default = None if required else default_of(field)
    nested, meaning = attrs.has(hint) and not hasattr(hint, "to_setting"), meaning_of(field)
    return FieldDoc(
        name=field.name,
        type=_type_name(hint),
        default=unstructure(default),
        required=required,
        help=meaning.get("help", ""),
        unit=meaning.get("unit", ""),
        source=meaning.get("source", ""),
        tune=meaning.get("tune"),
        affects=meaning.get("affects", "training"),
        examples=meaning.get("examples", ()),
        needs=meaning.get("needs", ""),
        children=describe(hint) if nested else (),
    )


def default_of(field: attrs.Attribute[object]) -> object:
    """Return the default of a field after its factory and its converter."""
    default: Any = field.default
    value = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
    converter = cast("object", field.converter)
    return converter(value) if callable(converter) else value


def _type_name(hint: object) -> str:
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", inspect.formatannotation(hint))


def signature(kind: type[object]) -> inspect.Signature:
    """Return the signature of `__init__` of an agent class whose config class is `kind`."""
    hints = get_type_hints(kind)
    values = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for field in parameters(kind):
        default = inspect.Parameter.empty if field.default is attrs.NOTHING else unstructure(default_of(field))
        how = inspect.Parameter.KEYWORD_ONLY if field.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        values.append(inspect.Parameter(field.name, how, default=default, annotation=hints[field.name]))
    return inspect.Signature(values)


def docstring(kind: type[object]) -> str:
    """Return the docstring of a constructor: an `Args:` section that documents every hyper-parameter."""
    lines = ["Make an agent.", "", "Args:"]  # `help` removes all indentation unless a later line has none
    for doc in describe(kind):
        lines.append(fill(f"{doc.name}: {_sentence(doc)}", 100, initial_indent="    ", subsequent_indent="        "))
        for child in doc.children:
            text = f"{child.name}: {_sentence(child)}"
            lines.append(fill(text, 100, initial_indent="        ", subsequent_indent="            "))
    return "\n".join(lines)


def _sentence(doc: FieldDoc) -> str:
    unit = f" [{doc.unit}]" if doc.unit else ""
    source = f" ({doc.source})" if doc.source else ""
    default = "" if doc.required or doc.children else f" Default: {toml_value(doc.default)}."
    return f"{doc.help}{unit}{source}.{default}"


def commented_toml(kind: type[object], values: Mapping[str, object], *, header: str = "") -> str:
    """Return a settings file with comments: every field with its description, set to its entry in `values` or its default."""
    lines = [f"# {line}" for line in header.splitlines()] + [""]
    tables: list[tuple[FieldDoc, Mapping[str, object]]] = []
    for doc in describe(kind):
        if doc.children:
            table = values.get(doc.name)
            tables.append((doc, table if isinstance(table, Mapping) else {}))
        else:
            lines += _toml_field(doc, values.get(doc.name, doc.default))
    for doc, table in tables:
        lines += [f"[{doc.name}]  # {doc.help}"]
        for child in doc.children:
            lines += _toml_field(child, table.get(child.name, child.default))
    return "\n".join(lines).rstrip() + "\n"


def _toml_field(doc: FieldDoc, value: object) -> list[str]:
    comment = f"# {_sentence(doc)} Type: {doc.type}."
    text = fill(comment, 110, subsequent_indent="#   ")
    assignment = f"# {doc.name} =  (none)" if value is None else f"{doc.name} = {toml_value(value)}"
    return [text, assignment, ""]


def toml_value(value: object) -> str:
    """Return a value in TOML syntax. None, which TOML does not have, becomes `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items() if v is not None) + " }"
    return json.dumps(value) if isinstance(value, str) else str(value)
