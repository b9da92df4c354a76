"""Dyna for rlsdk: an example with its own model of the environment, memory and update."""
