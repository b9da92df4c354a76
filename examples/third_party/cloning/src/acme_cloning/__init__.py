"""Behavior cloning for rlsdk: a tutorial. See README.md."""
