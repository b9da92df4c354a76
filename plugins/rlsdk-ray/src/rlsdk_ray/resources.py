"""The resources of a cluster that a piece of work or a collector takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rlsdk.errors import SettingsError


def _not_negative(instance: Resources, attribute: attrs.Attribute[float], value: object) -> None:
    _require_amount(attribute.name, value)


def _amounts(instance: Resources, attribute: attrs.Attribute[Mapping[str, float]], value: object) -> None:
    if not isinstance(value, Mapping):
        raise SettingsError(f"custom = {value!r} must be a table, such as {{'big_memory': 1}}")
    for name, amount in value.items():
        _require_amount(f"custom[{name!r}]", amount)


def _require_amount(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise SettingsError(f"{name} = {value!r} must be a number of 0 or more")


@attrs.frozen(kw_only=True)
class Resources:
    """The resources that Ray reserves for one piece of work, or for one collector.

    Args:
        num_cpus: number of CPUs, which may be a fraction; 0 for work that only waits.
        num_gpus: number of GPUs, which may be a fraction.
        custom: further resources of the cluster, as name -> amount.

    Raises:
        SettingsError: a number is negative, or none.
    """

    num_cpus: float = attrs.field(default=1.0, validator=_not_negative)
    num_gpus: float = attrs.field(default=0.0, validator=_not_negative)
    custom: Mapping[str, float] = attrs.field(factory=dict, validator=_amounts)

    def options(self) -> dict[str, Any]:
        """Return the resources as options of a task or an actor of Ray."""
        return {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus, "resources": dict(self.custom)}

    def wanted(self) -> dict[str, float]:
        """Ray's name of each resource -> the amount of one piece, without amounts of 0."""
        every = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.custom}
        return {name: amount for name, amount in every.items() if amount}

    def fit(self, there: Mapping[str, float], most: int) -> int:
        """The number of such pieces that fit into a cluster with the resources `there`, but not more than `most`."""
        return min([most, *(int(there.get(name, 0.0) / amount + 1e-9) for name, amount in self.wanted().items())])
