"""The settings of the small agents that the contract kit makes."""

SETTINGS: dict[str, object] = {"n_steps": 4, "replay_start": 8}
