"""The training frequency: updates after every n vector steps, or after every n episodes."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rlsdk.errors import SettingsError

UNITS = ("step", "episode")


@attrs.frozen
class TrainFrequency:
    """Number of vector steps or finished episodes (`unit`: step or episode) between two rounds of updates."""

    count: int
    unit: str

    def to_setting(self) -> object:
        return self.count if self.unit == "step" else [self.count, self.unit]


def as_train_frequency(value: int | Sequence[object] | TrainFrequency) -> TrainFrequency:
    """Return a training frequency: 4 means every 4 vector steps, (1, "episode") means after each episode.

    Raises:
        SettingsError: the count is not positive, or the unit is unknown.
    """
    if isinstance(value, TrainFrequency):
        return value
    pair = (value, "step") if isinstance(value, int) else tuple(value) if isinstance(value, Sequence) else ()
    if len(pair) == 2 and not isinstance(value, str):
        count, unit = pair
        if (
            isinstance(count, int)
            and not isinstance(count, bool)
            and count >= 1
            and isinstance(unit, str)
            and unit in UNITS
        ):
            return TrainFrequency(count, unit)
    raise SettingsError(f'train_freq {value!r} must be a positive whole number or a pair such as (1, "episode")')
