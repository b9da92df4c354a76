"""Settings of the preprocessing of observations and rewards. They are the same for every algorithm."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.errors import SettingsError
from rlsdk.settings.fields import described, in_range
from rlsdk.settings.strict import structure


@attrs.frozen(kw_only=True)
class Normalization:
    """Settings of the normalisation of observations and rewards by running statistics."""

    norm_obs: bool = attrs.field(default=True, metadata=described("normalise the float parts of observations"))
    norm_reward: bool = attrs.field(
        default=True, metadata=described("divide rewards by the running standard deviation of the discounted return")
    )
    sign_reward: bool = attrs.field(
        default=False,
        metadata=described(
            "learn from the signs of rewards instead of rewards, as is usual on Atari games; needs norm_reward = false"
        ),
    )
    clip_obs: float = attrs.field(
        default=10.0,
        validator=in_range(0, open_low=True),
        metadata=described("normalised observations are clipped to [-clip_obs, clip_obs]"),
    )
    clip_reward: float = attrs.field(
        default=10.0,
        validator=in_range(0, open_low=True),
        metadata=described("normalised rewards are clipped to [-clip_reward, clip_reward]"),
    )
    gamma: float | None = attrs.field(
        default=None,
        validator=in_range(0, 1),
        metadata=described("discount factor of the return that norm_reward uses; none = the algorithm's gamma"),
    )
    epsilon: float = attrs.field(
        default=1e-8,
        validator=in_range(0, open_low=True),
        metadata=described("number added to variances before their square root divides"),
    )
    norm_obs_keys: tuple[str, ...] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(tuple),
        metadata=described("entries of a Dict observation to normalise; none = all float entries"),
    )
    where_possible: bool = attrs.field(
        default=False,
        metadata=described(
            "do not raise an error if observations have no float parts; leave them unchanged", affects="refusals"
        ),
    )


def as_normalization(value: bool | Mapping[str, object] | Normalization | None) -> Normalization | None:
    """Return the settings, given a table of them, True (all defaults), False or None (both: no normalisation).

    Raises:
        SettingsError: the value is something else, or a setting is unknown or mistyped.
    """
    if value is None or value is False:
        return None
    if isinstance(value, Normalization):
        return value
    if value is True or isinstance(value, Mapping):
        return structure({} if value is True else value, Normalization)
    raise SettingsError(f"normalize = {value!r} must be true, false, or a table such as {{ norm_reward = false }}")
