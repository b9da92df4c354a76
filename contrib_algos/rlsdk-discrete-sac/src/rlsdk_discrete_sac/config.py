"""The hyper-parameters of discrete SAC. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rlsdk.settings import (
    Constant,
    NetworkConfig,
    OffPolicyConfig,
    Schedule,
    as_net_arch,
    as_schedule,
    described,
    finite_schedule,
    in_range,
    structure,
)

PAPER = "arXiv:1910.07207"


@attrs.frozen(kw_only=True)
class DiscreteSACPolicyConfig(NetworkConfig):
    """The settings of networks, `policy_kwargs`, of discrete SAC."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata=described(
            "hidden layer widths", source="none = [256, 256] for pi and qf, [] for both after NatureCNN"
        ),
    )
    n_critics: int = attrs.field(
        default=2, validator=in_range(1, 512), metadata=described("number of critics", tune=(1, 5))
    )
    share_features_extractor: bool = attrs.field(
        default=False,
        metadata=described("critics use the actor's features extractor, which then only the actor's loss trains"),
    )


def _networks(value: Mapping[str, object] | DiscreteSACPolicyConfig | None) -> DiscreteSACPolicyConfig:
    return structure(value or {}, DiscreteSACPolicyConfig)


LARGEST_SCALE = 1.0
"""The policy that chooses every allowed action equally often has this share of the largest entropy."""
_is_finite = finite_schedule(positive=False)


def _share(instance: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validate a schedule of shares.

    Raises:
        ValueError: a value is outside [0, 1].
    """
    _is_finite(instance, attribute, value)
    assert isinstance(value, Schedule)
    points = getattr(value, "points", ())
    levels = [value(1.0 - done) for done in (0.0, 0.5, 1.0, *(share for share, _ in points))]
    if max(levels) > LARGEST_SCALE:
        raise ValueError(
            f"{attribute.name} reaches {max(levels):g}, and no policy has more than the largest entropy; give a share from 0"
            " to 1, such as 0.5"
        )


@attrs.frozen
class DiscreteSACConfig(OffPolicyConfig):
    """The constructor parameters of discrete SAC, in order."""

    ent_coef: str | float = attrs.field(
        default="auto",
        metadata=described(
            'weight of the entropy bonus: "auto" = learned, starting at 1; "auto_0.1" = learned, starting at 0.1; a'
            " number = constant",
            examples=("auto_0.1", 0.3),
        ),
    )
    target_update_interval: int = attrs.field(
        default=1,
        validator=in_range(1),
        metadata=described("gradient steps between updates of the target networks", unit="updates"),
    )
    target_entropy_scale: Schedule = attrs.field(
        default=Constant(0.5),
        converter=as_schedule,
        validator=_share,
        metadata=described(
            "entropy that a learned ent_coef aims for, as a share of the logarithm of the number of allowed actions; may"
            " be a schedule",
            source=PAPER,
            examples=(0.3, "lin_0.9"),
            tune=(0.1, 0.98),
        ),
    )
    policy_kwargs: DiscreteSACPolicyConfig = attrs.field(
        factory=DiscreteSACPolicyConfig, converter=_networks, kw_only=True
    )
