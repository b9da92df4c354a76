"""Reads and restores the state of environments, so that a training can continue in the middle of an episode."""

from rlsdk.environments.states.capture import (
    capture,
    masks_in,
    read_state,
    restore,
    running_episode,
    state_of,
    states_in,
)
from rlsdk.environments.states.values import OpaqueValue

__all__ = [
    "OpaqueValue",
    "capture",
    "masks_in",
    "restore",
    "running_episode",
    "state_of",
    "read_state",
    "states_in",
]
