"""REINFORCE for rlsdk: a tutorial. See README.md."""
