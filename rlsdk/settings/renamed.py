"""Settings of rlsdk's own that had other names when an agent file was written."""

from __future__ import annotations

from collections.abc import Mapping

NETWORK_SETTINGS = {"engine": "kernel"}


def with_current_names(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings as stored, with those of `policy_kwargs` by their current names."""
    networks = settings.get("policy_kwargs")
    if not isinstance(networks, Mapping):
        return dict(settings)
    return {**settings, "policy_kwargs": {NETWORK_SETTINGS.get(name, name): value for name, value in networks.items()}}
