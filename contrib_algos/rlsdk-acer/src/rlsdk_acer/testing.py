"""The settings of the small agents that the contract kit makes."""

SETTINGS: dict[str, object] = {"n_steps": 4, "replay_start": 8, "correction_term": 1.5}
"""Importance weights of so short a training are rarely above 10, the default of `correction_term`."""
