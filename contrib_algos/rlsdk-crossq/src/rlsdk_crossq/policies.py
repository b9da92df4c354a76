"""The documented policy classes, which the parameter `policy` accepts. `rlsdk.toml` lists them."""

from rlsdk.registry import public_names

__getattr__, __dir__ = public_names(__name__)
