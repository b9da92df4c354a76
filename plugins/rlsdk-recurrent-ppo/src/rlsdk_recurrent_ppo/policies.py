"""The documented policy classes, which the parameter `policy` accepts. `rlsdk.toml` lists them."""

from rlsdk.registry import policy_names

__getattr__, __dir__ = policy_names(__name__)
