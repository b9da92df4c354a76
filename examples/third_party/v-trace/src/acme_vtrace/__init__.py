"""V-trace for rlsdk: a training loop of its own, with sequence replay."""
