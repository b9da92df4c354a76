"""The manifest of a plugin: the file `rlsdk.toml` next to its code, and the `AlgorithmSpec` in it. Reading runs no code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, get_args

import attrs

from rlsdk.errors import one_line, shown
from rlsdk.runtime.files import PlainFileError, read_toml

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from rlsdk.interfaces import BuildContext, Parts
    from rlsdk.spaces import Space

    ConfigT = TypeVar("ConfigT", default=Any)
else:  # importing typing_extensions would add 3 ms to `rlsdk list`
    from typing import TypeVar

    ConfigT = TypeVar("ConfigT")


Json = dict[str, object]
"""Plain data of a file: name -> value."""
MaskUse = Literal["ignored", "optional", "required"]


def _known_settings(spec: AlgorithmSpec, field: attrs.Attribute[Any], value: Iterable[str]) -> None:
    """The validator of `live` and `testing_settings`."""
    known = [each.name for each in attrs.fields(spec.config_type)] if attrs.has(spec.config_type) else []
    if unknown := sorted(set(value) - set(known)):
        raise TypeError(f"{field.name} of {spec.id!r} names {unknown}; the settings are {', '.join(known)}")


def _is_label(spec: AlgorithmSpec, _: object, value: str) -> None:
    """The validator of `family`."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"family of {spec.id!r} is {value!r}; give it a label, such as on-policy or off-policy")


def _attrs_class(spec: AlgorithmSpec, _: object, value: type[ConfigT]) -> None:
    """The validator of `config_type`."""
    if not isinstance(value, type) or not attrs.has(value):
        raise TypeError(f"config_type of {spec.id!r} must be an attrs class, not {shown(value, 60)}")


def _function(spec: AlgorithmSpec, _: object, value: Callable[[BuildContext, ConfigT], Parts]) -> None:
    """The validator of `build`."""
    if not callable(value):
        raise TypeError(f"build of {spec.id!r} must be a function of (context, config), not {shown(value, 60)}")


@attrs.frozen(kw_only=True)
class AlgorithmSpec(Generic[ConfigT]):
    """The description of an algorithm, from which agents are built.

    `build(context, config)` chooses and creates the parts of an agent. `agent` returns the agent class that users import; if
    it is None, agents are of the class `rlsdk.Agent`. `action_masks` states how the algorithm uses action masks: `ignored`,
    `optional` (used if the environment has them) or `required`. With `required` an environment without masks is refused,
    unless the settings have a field `use_masking` that is false.
    """

    id: str
    family: str = attrs.field(validator=_is_label)
    """A label for lists, such as on-policy or off-policy. No behavior depends on it."""
    config_type: type[ConfigT] = attrs.field(validator=_attrs_class)
    build: Callable[[BuildContext, ConfigT], Parts] = attrs.field(validator=_function)
    policies: tuple[str, ...] = attrs.field(validator=attrs.validators.min_len(1))
    agent: Callable[[], type] | None = None
    from_sb3: Callable[[Mapping[str, object], Space], object] | None = None
    """A function that makes an `rlsdk_interchange.sb3.Translated` from the weights (name -> tensor) in a file of sb3-contrib
    and the action space. None if sb3-contrib does not have this algorithm."""
    action_masks: MaskUse = attrs.field(default="ignored", validator=attrs.validators.in_(get_args(MaskUse)))
    upgrade: Callable[[Json, Json, str], tuple[Json, Json]] | None = None
    """A function `upgrade(settings, state, from_version)` that converts the content of an older agent file. It returns settings
    and state in the form that this version of the plugin writes. `settings` are plain data. `state` has the sections `policy`,
    `training` and `replay`, as far as they are read. `from_version` is the version of the plugin that made the file, or
    `unknown`. None: all versions write the same form."""
    info: tuple[str, ...] = ()
    """Entries of the environment's `info` that the algorithm reads from `StepData.info`, float32. They are the same as in the
    manifest. An environment that does not return one of them at every step is refused; the error names the entry."""
    live: tuple[str, ...] = attrs.field(default=(), validator=_known_settings)
    """Settings that can be assigned on an existing agent (`model.gamma = 0.9`). The parts read them at each use, or have a
    method `reconfigure(config)` that adopts them. Other settings cannot be assigned; `load(path, name=value)` changes them."""

    testing_settings: Mapping[str, object] = attrs.field(factory=dict, validator=_known_settings)
    """Settings with which the contract kit makes its small agents. They replace the kit's own settings. Examples: a data set
    that the package contains, a network that trains in a second."""
    testing_bounds: Mapping[str, float] = attrs.field(factory=dict)
    """Bounds that the clauses `learns.*` check instead of the kit's own: name of the toy task -> return or value to reach."""
    testing_exceptions: Mapping[str, str] = attrs.field(factory=dict)
    """Clauses `batch.*`, `rollout.*` and `learns.*` that a correct implementation of this algorithm breaks: id -> reason. The
    kit prints the reason if such a clause fails."""

    default_envs: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """How many copies of the environment are made if it is given by its id and no number is given."""


CALLED = ("commands", "importers", "inspectors")
"""Fields that are tables: name = [`module:function`, what it does, an example]. A use of the name imports the function."""
HOOKS = (
    "sinks",
    "environments",
    "serializers",
    "executors",
    "preset_files",
    "profilers",
    "reports",
    "vectorizers",
    "wrappers",
    "kernels",
    "networks",
    "distributions",
)
"""Fields that list names. The hook of the same name returns what they name, see `rlsdk.registry.hooks`."""
EXTENSIONS = (*HOOKS, *CALLED)
SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
RESERVED = {
    "serializers": (".rlsdk",),
    "executors": ("in-process", "auto", "sync", "async", "native"),
    "vectorizers": ("in-process", "processes", "auto", "sync", "async"),
    "sinks": ("console", "csv", "jsonl", "tensorboard"),
    "commands": ("list", "info", "config", "run", "eval", "inspect"),
}
"""Field of the manifest -> names that the SDK uses itself and that plugins may not use."""
_WORD = (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), "letters, digits, '-', '_' and '.'")
_NAMES = {
    **dict.fromkeys(("id", "policies", "traits", *EXTENSIONS), _WORD),
    "zoo": (re.compile(r"[A-Za-z0-9_-]{0,60}"), "the name of a folder: letters, digits, '-' and '_'"),
    **dict.fromkeys(
        ("serializers", "preset_files", "inspectors"),
        (re.compile(r"\.[A-Za-z0-9_-]{1,30}"), "a file suffix such as '.npz'"),
    ),
}
_PLACE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*):([A-Za-z_][A-Za-z0-9_]*)")
OF_SPEC = ("build", "config", "agent", "from_sb3", "upgrade")
REFERENCES = (*OF_SPEC, "testing_settings", "testing_bounds", "testing_exceptions")
"""Fields that name a function, a class or a dictionary as `module:name`."""
COUNT, MOST_ENVS = "default_envs", 10_000
TABLES = ("policy_classes", *CALLED)
MASK_USES = get_args(MaskUse)
MOST_TEXT, MOST_ITEMS = 1000, 100


class ManifestError(Exception):
    """A manifest cannot be used; the message is the reason. `discovery` stores it as `problem` of the plugin."""


class NoManifestError(ManifestError):
    """The package does not exist, or it contains no manifest."""


@attrs.frozen(kw_only=True)
class Manifest:
    """The content of the file rlsdk.toml of a plugin, which offers an algorithm, extensions or trained agents."""

    id: str
    title: str
    summary: str
    sdk: str
    """The range of SDK versions that the plugin works with, such as `>=0.1,<0.2`."""
    family: str | None = None
    """A label for lists, such as on-policy, off-policy or population; None for a plugin that offers no algorithm."""
    actions: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    """Capabilities: names from the list of `rlsdk_testing`, which `rlsdk check` tests, or other names that begin with `x-`."""
    info: tuple[str, ...] = ()
    """Entries of the environment's `info` that the algorithm needs, such as `cost`: numbers that every step must return."""
    policy_classes: tuple[tuple[str, str], ...] = ()
    """(name of a policy class in sb3-contrib, policy of this plugin); in the file a table, `TQCPolicy = "MlpPolicy"`."""
    action_masks: MaskUse = "ignored"
    """See `AlgorithmSpec`, also for `live`, `build`, `agent`, `from_sb3` and `upgrade`."""
    live: tuple[str, ...] = ()
    default_envs: int = 1
    """How many copies of the environment are made if it is given by its id and no number is given."""
    build: str = ""
    """`package.build:build`, the function that builds the parts; empty if the hook `algorithm` returns the spec."""
    config: str = ""
    """`package.config:Config`, the class of the settings."""
    agent: str = ""
    """`package.agent:Class`, the agent class that users import; if empty, the SDK makes one."""
    from_sb3: str = ""
    upgrade: str = ""
    testing_settings: str = ""
    """`package.testing:SETTINGS`, a dictionary (see `AlgorithmSpec`). Only the contract kit imports this and the next two."""
    testing_bounds: str = ""
    testing_exceptions: str = ""
    paper: str = ""
    sinks: tuple[str, ...] = ()
    """Names of the metric sinks that the plugin's hook `sinks` returns."""
    environments: tuple[str, ...] = ()
    """Namespaces of environment ids for which the plugin's hook `environments` returns functions."""
    serializers: tuple[str, ...] = ()
    """File suffixes, such as `.npz`, that the serializers of the plugin's hook `serializers` write and read."""
    executors: tuple[str, ...] = ()
    """Names of the executors that the plugin's hook `executors` returns."""
    kernels: tuple[str, ...] = ()
    """Names of the functions that the plugin's hook `kernels` returns: faster ones than those of `rlsdk.kernels`."""
    preset_files: tuple[str, ...] = ()
    """File suffixes, such as `.yml`, of settings files that the plugin's hook `preset_files` reads."""
    profilers: tuple[str, ...] = ()
    """Names of the profilers that the plugin's hook `profilers` returns."""
    reports: tuple[str, ...] = ()
    """Names of the reports that the plugin's hook `reports` returns."""
    vectorizers: tuple[str, ...] = ()
    """Names of the functions for `make_vec_env(vectorization=NAME)` that the plugin's hook `vectorizers` returns."""
    wrappers: tuple[str, ...] = ()
    """Names of the wrappers of environments that the plugin's hook `wrappers` returns."""
    networks: tuple[str, ...] = ()
    """Names of the modules that the plugin's hook `networks` returns, for settings such as `critic_class`."""
    distributions: tuple[str, ...] = ()
    """Names of the action heads that the plugin's hook `distributions` returns, for `action_distribution`."""
    commands: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, (`package.module:function`, summary, example)) of commands for `rlsdk NAME`. In the file a table of lists. The
    function is one that Typer accepts, or a `typer.Typer` with commands of its own. A call of the command imports it."""
    importers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The same for formats of `rlsdk import --format NAME`. The function gets (path, algorithm, env, **settings), and returns
    an `Agent`."""
    inspectors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The same for files that `rlsdk inspect FILE` shows: suffix, such as `.safetensors`, instead of a name. The function gets
    (path, whether to write JSON), and returns the text to print."""
    zoo: str = ""
    """The folder in the package that contains trained agents, such as `agents`; see `rlsdk_zoo`."""


def read_manifest(module: str) -> Manifest:
    """Read the manifest of the package that contains `module`, from wheels and from editable installs.

    Raises:
        ManifestError: the package, the file or a field is missing, a field breaks a rule, or it names something outside the
            package.
    """
    path = package_folder(module) / "rlsdk.toml"
    try:
        data = read_toml(path)
    except PlainFileError as error:
        raise ManifestError(f"its manifest {one_line(path, 300)} {error}") from None
    if data is None:
        raise NoManifestError(f"it has no manifest: {one_line(path, 300)} does not exist")
    manifest = parse_manifest(data)
    _check_package(manifest, module.partition(".")[0])
    return manifest


def package_folder(module: str) -> Path:
    """Return the folder of the top-level package that contains `module`. The package is not imported.

    Raises:
        NoManifestError: there is no such package.
    """
    package = module.partition(".")[0]
    try:
        spec = find_spec(package)
    except Exception:  # a script, a notebook, or an import hook of another distribution that fails
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise NoManifestError(f"its package {package!r} cannot be found")
    return Path(next(iter(spec.submodule_search_locations)))


def parse_manifest(data: Mapping[str, object]) -> Manifest:
    """Check the content of a parsed manifest file and return the manifest.

    This does not use cattrs: listing plugins reads manifests and would import it for them alone. cattrs also takes any value
    for a text, and its errors do not name what is accepted, so that its hooks and translations are as long as these checks.

    Raises:
        ManifestError: the content breaks a rule.
    """
    fields = {f.name: f for f in attrs.fields(Manifest)}
    if unknown := sorted(set(data) - set(fields)):
        raise ManifestError(f"its manifest has unknown fields {shown(unknown)}; known are {sorted(fields)}")
    if missing := [name for name, field in fields.items() if field.default is attrs.NOTHING and name not in data]:
        raise ManifestError(f"its manifest lacks {missing}")
    return checked_manifest(Manifest(**{name: _frozen(value) for name, value in data.items()}))


def checked_manifest(manifest: Manifest) -> Manifest:
    """Check a manifest, from a file or made in Python, and return it.

    Raises:
        ManifestError: the manifest breaks a rule.
    """
    for field in attrs.fields(Manifest):
        _check_kind(field.name, getattr(manifest, field.name), field.default)
    _check_names(manifest)
    _check_purpose(manifest)
    _check_places(manifest)
    return manifest


def _frozen(value: object) -> Any:
    """Convert a value of a file for `Manifest`: lists and tables become tuples."""
    # Manifests and plugins are keys of caches, so their values must be hashable.
    if isinstance(value, dict):
        return tuple((name, _frozen(inner)) for name, inner in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _texts(value: object) -> list[Any]:
    """Return what is in nested tuples; any other value as a list of one."""
    return [text for inner in value for text in _texts(inner)] if isinstance(value, tuple) else [value]


def _wrong(field: str, what: str) -> ManifestError:
    return ManifestError(f"its manifest field {field!r} {what}")


def _check_kind(name: str, value: Any, default: object) -> None:
    """Check that a field is a number, a text, or a list or table of texts, by its default value.

    Terminals and tables show texts, so they must be short and have one line without control characters.
    """
    if name == COUNT:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ENVS:
            raise _wrong(name, f"must be a whole number from 1 to {MOST_ENVS}")
    elif value is not None or default is not None:
        texts, is_list = _texts(value), isinstance(value, tuple)
        pairs = isinstance(value, tuple) and all(isinstance(each, tuple) and len(each) == 2 for each in value)
        if name in CALLED and isinstance(value, tuple) and pairs:
            _check_called(name, value)
        wanted = "table of strings" if name in TABLES else "list of strings" if default == () else "string"
        # lists in a list are flattened in `texts`, so that they are looked for here
        nested = name not in TABLES and isinstance(value, tuple) and any(isinstance(each, tuple) for each in value)
        fits = pairs if name in TABLES else is_list is (default == ())
        if nested or not fits or not all(isinstance(text, str) for text in texts):
            raise _wrong(name, f"must be a {wanted}")
        if len(texts) > MOST_ITEMS or any(len(text) > MOST_TEXT for text in texts):
            raise _wrong(name, f"is too long: {MOST_ITEMS} items of {MOST_TEXT} characters")
        if not all(text.isprintable() for text in texts):
            raise _wrong(name, "holds control characters or more than one line")


def _check_called(field: str, value: tuple[tuple[Any, Any], ...]) -> None:
    """Check that each command, importer or inspector has a place, a summary and an example."""
    for name, texts in value:
        if not isinstance(texts, tuple) or len(texts) != 3 or not all(isinstance(text, str) and text for text in texts):
            accepted = "['module:function', 'what it does', 'an example without rlsdk']"
            raise _wrong(field, f"has {shown(name, 60)} = {shown(_texts(texts), 60)}; write {accepted}")
        if not _PLACE.fullmatch(texts[0]):
            raise _wrong(
                field, f"has {shown(texts[0], 60)}; write module:name, such as 'my_package.{field}:{name[:60]}'"
            )


def _check_names(manifest: Manifest) -> None:
    for name, (pattern, accepted) in _NAMES.items():
        value = getattr(manifest, name)
        for text in [each[0] if name in CALLED else each for each in value] if isinstance(value, tuple) else [value]:
            if not pattern.fullmatch(text):
                raise _wrong(name, f"has {shown(text, 60)}; accepted: {accepted}")
            if text.lower() in RESERVED.get(name, ()):
                raise _wrong(name, f"has {text!r}, which is the SDK's own; choose another name")


def _check_purpose(manifest: Manifest) -> None:
    """Check that an algorithm names its spaces and policies, and that a plugin without an algorithm offers something else."""
    if manifest.family is None:
        offers = (*EXTENSIONS, "zoo")
        if not any(getattr(manifest, name) for name in offers):
            raise ManifestError(f"its manifest provides nothing: neither a family (an algorithm) nor any of {offers}")
        return
    if not manifest.family:
        labels = "on-policy, off-policy or population"
        raise ManifestError(f"its manifest has an empty family; give it a label, such as {labels}")
    if missing := [name for name in ("actions", "observations", "policies") if not getattr(manifest, name)]:
        raise ManifestError(f"its manifest lacks {missing}, which an algorithm needs")
    for name in ("actions", "observations"):
        if wrong := sorted(set(getattr(manifest, name)) - set(SPACES)):
            raise ManifestError(f"its manifest lists unknown {name} {shown(wrong)}; accepted: {', '.join(SPACES)}")


def _check_places(manifest: Manifest) -> None:
    """Check the fields that name functions and classes as `module:name`, and that `family`, `build` and `config` are given
    together."""
    for field in REFERENCES:
        if (place := getattr(manifest, field)) and not _PLACE.fullmatch(place):
            raise _wrong(field, f"has {shown(place, 60)}; write module:name, such as 'my_package.{field}:{field}'")
    if given := [field for field in OF_SPEC if getattr(manifest, field)]:
        if missing := [field for field in ("family", "build", "config") if not getattr(manifest, field)]:
            raise ManifestError(f"its manifest has {given[0]} but lacks {missing}; give them too")
    elif manifest.live or manifest.action_masks != MASK_USES[0]:
        raise ManifestError("its manifest has live or action_masks, which go with build and config; give those too")
    if manifest.action_masks not in MASK_USES:
        raise _wrong("action_masks", f"has {shown(manifest.action_masks, 60)}; accepted: {', '.join(MASK_USES)}")
    for name, policy in manifest.policy_classes:
        if not name.isidentifier() or policy not in manifest.policies:
            found = f"{shown(name, 60)} = {shown(policy, 60)}"
            raise _wrong("policy_classes", f"has {found}; give a Python name, and one of its policies")


def _check_package(manifest: Manifest, package: str) -> None:
    """Check that the manifest names only functions and classes of its own package."""
    places = [(field, getattr(manifest, field)) for field in REFERENCES]
    places += [(field, texts[0]) for field in CALLED for _, texts in getattr(manifest, field)]
    for field, place in places:
        if place and place.partition(":")[0].partition(".")[0] != package:
            raise _wrong(field, f"has {shown(place, 60)}; name something in its package, {package}")
