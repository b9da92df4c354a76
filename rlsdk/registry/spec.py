"""`AlgorithmSpec`, the description of an algorithm that a plugin gives to the SDK. Importing this module imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, get_args

import attrs

from rlsdk.errors import shown

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


def _known_settings(spec: AlgorithmSpec, _: object, value: tuple[str, ...]) -> None:
    """The validator of `live`."""
    known = [field.name for field in attrs.fields(spec.config_type)] if attrs.has(spec.config_type) else []
    if unknown := sorted(set(value) - set(known)):
        raise TypeError(f"live of {spec.id!r} names {unknown}; the settings are {', '.join(known)}")


def _known_testing_settings(spec: AlgorithmSpec, _: object, value: Mapping[str, object]) -> None:
    """The validator of `testing_settings`."""
    known = [field.name for field in attrs.fields(spec.config_type)] if attrs.has(spec.config_type) else []
    if unknown := sorted(set(value) - set(known)):
        raise TypeError(f"testing_settings of {spec.id!r} names {unknown}; the settings are {', '.join(known)}")


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
    """A label for lists, such as on-policy or off-policy. No behaviour depends on it."""
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

    testing_settings: Mapping[str, object] = attrs.field(factory=dict, validator=_known_testing_settings)
    """Settings with which the contract kit makes its small agents. They replace the kit's own settings. Examples: a data set
    that the package contains, a network that trains in a second."""
    testing_bounds: Mapping[str, float] = attrs.field(factory=dict)
    """Bounds that the clauses `learns.*` check instead of the kit's own: name of the toy task -> return or value to reach."""
    testing_exceptions: Mapping[str, str] = attrs.field(factory=dict)
    """Clauses `batch.*`, `rollout.*` and `learns.*` that a correct implementation of this algorithm breaks: id -> reason. The
    kit prints the reason if such a clause fails."""

    default_envs: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """How many copies of the environment are made if it is given by its id and no number is given."""
