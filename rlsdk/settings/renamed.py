"""Former names of settings, which agent files of earlier versions contain."""

from __future__ import annotations

from collections.abc import Mapping

NETWORK_SETTINGS = {"engine": "kernel"}


def with_current_names(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the stored settings with the current names in `policy_kwargs`."""
    networks = settings.get("policy_kwargs")
    if not isinstance(networks, Mapping):
        return dict(settings)
    return {**settings, "policy_kwargs": {NETWORK_SETTINGS.get(name, name): value for name, value in networks.items()}}
