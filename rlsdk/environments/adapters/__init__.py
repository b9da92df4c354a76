"""Adapters between gymnasium and the records: observations, actions, masks, goals and spaces of one environment."""
