"""Settings of the contract kit's small agents."""

SETTINGS: dict[str, object] = {"n_steps": 8, "replay_start": 8, "buffer_size": 96}
