"""Settings of the contract kit's small agents."""

SETTINGS: dict[str, object] = {"n_steps": 4, "replay_start": 8}
