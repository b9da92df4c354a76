"""Adapters between gymnasium and the records of rlsdk: observations, actions, masks, goals and spaces of environments."""
