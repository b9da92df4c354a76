"""Hyper-parameters of the soft actor-critic family, such as SAC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from rlsdk.errors import SettingsError
from rlsdk.settings import glossary
from rlsdk.settings.fields import described, in_range, is_float32, needs
from rlsdk.settings.inherited import Default, defaults
from rlsdk.settings.networks import ActorAndCriticsConfig, optional_widths
from rlsdk.settings.off_policy import ContinuousOffPolicyConfig
from rlsdk.settings.strict import structure


@attrs.frozen(
    kw_only=True, field_transformer=defaults(net_arch=Default(None, source="none = [256, 256] for pi and qf"))
)
class SoftActorCriticNetworkConfig(ActorAndCriticsConfig):
    """`policy_kwargs` of the soft actor-critic family."""

    log_std_init: float = attrs.field(
        default=-3.0,
        validator=in_range(-20, 2),
        metadata=described("gSDE: initial log standard deviation") | needs("use_sde"),
    )
    initial_std: float | None = attrs.field(
        default=None,
        validator=in_range(0, 7, open_low=True),
        metadata=described(
            "initial standard deviation of actions before tanh, without gSDE; none = about 1", examples=(0.3,)
        ),
    )
    sde_net_arch: tuple[int, ...] | None = attrs.field(
        default=None,
        converter=optional_widths,
        metadata=described(
            "gSDE: hidden layer widths of a separate network for the noise's features; none = features of the actor's"
            " last hidden layer, [] = the encoded observation"
        )
        | needs("use_sde"),
    )
    use_expln: bool = attrs.field(
        default=False,
        metadata=described(
            "gSDE: standard deviations above 1 grow with the logarithm of their parameter, not exponentially"
        )
        | needs("use_sde"),
    )
    clip_mean: float = attrs.field(
        default=2.0,
        validator=in_range(0),
        metadata=described("gSDE: bound of the absolute mean of actions before tanh; 0 = no bound") | needs("use_sde"),
    )


def parse_entropy_coefficient(value: str | float) -> tuple[float, bool]:
    """Return (initial value, whether it is learnt) for `"auto"`, `"auto_0.1"` or a number.

    Raises:
        SettingsError: the value has another form, is not finite, or is not positive (a fixed coefficient may be 0).
    """
    try:
        learnt = isinstance(value, str) and value.startswith("auto")
        initial = float(str(value)[5:] or 1.0) if learnt else float(value)
        if isinstance(value, str) and learnt and value != "auto" and not value.startswith("auto_"):
            raise ValueError
    except ValueError:
        raise SettingsError(
            f'ent_coef {value!r} must be "auto", "auto_" with a first value (auto_0.1), or a number'
        ) from None
    if not is_float32(initial) or initial < 0.0 or (learnt and initial == 0.0):
        raise SettingsError(f"ent_coef {value!r} must be {'positive' if learnt else 'not negative'} and finite")
    return initial, learnt


def _networks(value: Mapping[str, object] | SoftActorCriticNetworkConfig | None) -> SoftActorCriticNetworkConfig:
    return (
        value
        if isinstance(value, SoftActorCriticNetworkConfig)
        else structure(value or {}, SoftActorCriticNetworkConfig)
    )


def as_bounds(value: object) -> tuple[float, float] | None:
    """Return two finite numbers, the lower one first, or None.

    Raises:
        ValueError: the value is something else.
    """
    if value is None:
        return None
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    numbers = tuple(float(each) for each in given if isinstance(each, int | float) and is_float32(each))
    if len(given) != 2 or len(numbers) != 2 or numbers[0] >= numbers[1]:
        raise ValueError(f"action_bounds = {value!r} must be two numbers, the lower one first, such as [-0.5, 0.5]")
    return numbers[0], numbers[1]


@attrs.frozen
class SoftActorCriticConfig(ContinuousOffPolicyConfig):
    """The constructor parameters of the soft actor-critic family, in order, with the defaults of SAC."""

    LIVE: ClassVar[tuple[str, ...]] = (
        *ContinuousOffPolicyConfig.LIVE,
        "action_noise",
        "ent_coef",
        "target_update_interval",
        "target_entropy",
        "sde_sample_freq",
    )

    ent_coef: str | float = attrs.field(
        default="auto",
        metadata=described(
            'weight of the entropy bonus: "auto" = learnt, starting at 1; "auto_0.1" = learnt, starting at 0.1; a'
            " number = constant",
            examples=("auto_0.1", 0.3),
        ),
    )
    target_update_interval: int = attrs.field(
        default=1,
        validator=in_range(1),
        metadata=described("gradient steps between updates of the target networks", unit="updates"),
    )
    target_entropy: str | float = attrs.field(
        default="auto",
        metadata=described(
            'entropy that a learnt ent_coef aims for; "auto" = minus the number of action dimensions', examples=(-0.5,)
        ),
    )
    use_sde: bool = attrs.field(default=False, metadata=glossary.USE_SDE)
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1), metadata=glossary.SDE_SAMPLE_FREQ)
    use_sde_at_warmup: bool = attrs.field(default=False, metadata=glossary.USE_SDE_AT_WARMUP)
    action_bounds: tuple[float, float] | None = attrs.field(
        default=None,
        converter=as_bounds,
        kw_only=True,
        metadata=described(
            "lowest and highest action of the policy, inside the action space and in its units; none = the bounds of"
            " the action space",
            examples=((-0.5, 0.5),),
        ),
    )
    policy_kwargs: SoftActorCriticNetworkConfig = attrs.field(
        factory=SoftActorCriticNetworkConfig, converter=_networks, kw_only=True, metadata=glossary.POLICY_KWARGS
    )

    def __attrs_post_init__(self) -> None:
        if self.sde_sample_freq == 0:
            raise ValueError(
                "sde_sample_freq = 0 is not a period; use -1 (at rollout starts) or a positive number of steps"
            )
        target = self.target_entropy
        if target != "auto" and (isinstance(target, str) or not is_float32(target)):
            raise ValueError(f'target_entropy = {target!r} must be "auto" or a finite number')

    @property
    def sde_period(self) -> int | None:
        """Number of steps between noise matrices within a rollout. None: one noise matrix per rollout."""
        return self.sde_sample_freq if self.sde_sample_freq > 0 else None

    @property
    def warms_up_uniformly(self) -> bool:
        """Whether the first `learning_starts` actions are uniformly random."""
        return not (self.use_sde and self.use_sde_at_warmup)

    def target_entropy_for(self, dimensions: int) -> float:
        """Return the target entropy for actions with this number of dimensions."""
        return -float(dimensions) if self.target_entropy == "auto" else float(self.target_entropy)
