"""New plugin packages: complete, installable, tested, with two functions left to fill in. Imports no torch."""

from rlsdk.scaffold.package import new_package

__all__ = ["new_package"]
