"""V-trace for rlsdk: an example with its own training loop and sequence replay."""
