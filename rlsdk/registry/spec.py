"""What a plugin hands to the SDK: its `AlgorithmSpec`. Torch-free; the parts are built on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import attrs

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.parts import Facts, Parts

Family = Literal["on-policy", "off-policy", "population"]
MaskUse = Literal["ignored", "optional", "required"]
FAMILIES: tuple[Family, ...] = ("on-policy", "off-policy", "population")


SIDE_BY_SIDE = 16
"""Measured, microseconds per step of ARS with 1, 4, 8 and 16: CartPole 17, 15, 14, 13; Pendulum 47, 27, 24, 22; HalfCheetah 60,
49, 49, 50. Sixteen leave two processes eight each."""


def _known_settings(spec: AlgorithmSpec, _: object, value: tuple[str, ...]) -> None:
    """The validator of `live`."""
    known = [field.name for field in attrs.fields(spec.config_type)] if attrs.has(spec.config_type) else []
    if unknown := sorted(set(value) - set(known)):
        raise TypeError(f"live of {spec.id!r} names {unknown}; the settings are {', '.join(known)}")


@attrs.frozen(kw_only=True)
class AlgorithmSpec:
    """An algorithm, ready to be built.

    `build(facts, config)` chooses and assembles the parts; it is the only function of a plugin that does. `agent`
    returns the plugin's user-facing class (imported when first asked for); None gives a plain `rlsdk.Agent`.
    `action_masks` says what becomes of action masks: `ignored`, used where the environment has them (`optional`), or
    `required`: an environment without them is refused, unless the settings have a field `use_masking` that is false.
    """

    id: str
    family: Family = attrs.field(validator=attrs.validators.in_(FAMILIES))
    config_type: type[Any] = attrs.field()
    build: Callable[[Facts, Any], Parts]
    policies: tuple[str, ...] = attrs.field(validator=attrs.validators.min_len(1))
    agent: Callable[[], type[Agent]] | None = None
    from_sb3: Callable[[Any, Any], Any] | None = None
    """Makes an `rlsdk.interchange.Translated` of the weights (name -> tensor) in a file of sb3-contrib and the action space;
    None where there is no counterpart."""
    action_masks: MaskUse = attrs.field(default="ignored", validator=attrs.validators.in_(get_args(MaskUse)))
    upgrade: Callable[[dict[str, Any], dict[str, Any], str], tuple[dict[str, Any], dict[str, Any]]] | None = None
    """`upgrade(settings, state, from_version)` of an agent file, before they are used: returns both as this version of the
    plugin writes them. `settings` are plain data, `state` has the sections `policy`, `training` and `replay`, as far as they
    are read, and `from_version` is the plugin's version that made the file, or `unknown`. None: nothing was ever renamed."""
    live: tuple[str, ...] = attrs.field(default=(), validator=_known_settings)
    """Settings that can be assigned while an agent lives (`model.gamma = 0.9`): the parts read them when they use them, or take
    them over in a method `reconfigure(config)`. Others are refused; `load(path, name=value)` changes those."""

    @property
    def default_envs(self) -> int:
        """Copies of an environment given by its id, where no number is given: candidates are played side by side."""
        return SIDE_BY_SIDE if self.family == "population" else 1

    @config_type.validator
    def _check_config_type(self, _: object, value: type[Any]) -> None:
        if not attrs.has(value):
            raise TypeError(f"config_type of {self.id!r} must be an attrs class, not {value!r}")
