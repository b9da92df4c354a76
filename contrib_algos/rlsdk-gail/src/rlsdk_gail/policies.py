"""The documented policy classes, as names for the parameter `policy`; `rlsdk.toml` lists them."""

from rlsdk.registry import policy_names

__getattr__, __dir__ = policy_names(__name__)
