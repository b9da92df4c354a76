"""What a plugin hands to the SDK: its `AlgorithmSpec`. Torch-free; the parts are built on demand."""

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
else:  # importing typing_extensions takes 3 ms of a listing
    from typing import TypeVar

    ConfigT = TypeVar("ConfigT")
Json = dict[str, object]
"""Plain data of a file, by name."""

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
    """An algorithm, ready to be built.

    `build(context, config)` chooses and assembles the parts; it is the only function of a plugin that does. `agent`
    returns the plugin's user-facing class (imported at first use); None gives a plain `rlsdk.Agent`.
    `action_masks` is how action masks are used: `ignored`, used where the environment has them (`optional`), or
    `required`: an environment without them is refused, unless the settings have a field `use_masking` that is false.
    """

    id: str
    family: str = attrs.field(validator=_is_label)
    """A label for listing; nothing depends on it."""
    config_type: type[ConfigT] = attrs.field(validator=_attrs_class)
    build: Callable[[BuildContext, ConfigT], Parts] = attrs.field(validator=_function)
    policies: tuple[str, ...] = attrs.field(validator=attrs.validators.min_len(1))
    agent: Callable[[], type] | None = None
    from_sb3: Callable[[Mapping[str, object], Space], object] | None = None
    """Makes an `rlsdk.interchange.sb3.Translated` of the weights (name -> tensor) in a file of sb3-contrib and the action
    space; None where there is no counterpart."""
    action_masks: MaskUse = attrs.field(default="ignored", validator=attrs.validators.in_(get_args(MaskUse)))
    upgrade: Callable[[Json, Json, str], tuple[Json, Json]] | None = None
    """`upgrade(settings, state, from_version)` of an agent file, before they are used: returns both as this version of the
    plugin writes them. `settings` are plain data, `state` has the sections `policy`, `training` and `replay`, as far as they
    are read, and `from_version` is the plugin's version that made the file, or `unknown`. None: nothing was ever renamed."""
    info: tuple[str, ...] = ()
    """Entries of environments' `info` that the algorithm reads from `StepData.info`, float32; as in the manifest. An
    environment that does not give one of them at every step is refused, by an error that names it."""
    live: tuple[str, ...] = attrs.field(default=(), validator=_known_settings)
    """Settings that can be assigned while an agent lives (`model.gamma = 0.9`): the parts read them when they use them, or take
    them over in a method `reconfigure(config)`. Others are refused; `load(path, name=value)` changes those."""

    testing_settings: Mapping[str, object] = attrs.field(factory=dict, validator=_known_testing_settings)
    """Settings with which the contract kit makes its small agents, such as a data set that the package ships or a network that
    trains in a second. They replace the kit's own."""
    testing_bounds: Mapping[str, float] = attrs.field(factory=dict)
    """Bounds of the clauses `learns.*` that the kit checks instead of its own: name of the toy -> return or value to reach."""
    testing_exceptions: Mapping[str, str] = attrs.field(factory=dict)
    """Clauses `batch.*`, `rollout.*` and `learns.*` that do not hold for this method, though it is correct: id -> why. The kit
    prints the reason where such a clause fails."""

    default_envs: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """Copies of an environment given by its id, where no number is given."""
