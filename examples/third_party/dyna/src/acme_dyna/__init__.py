"""Dyna for rlsdk: a model of the environment, a memory and a training step of its own."""
