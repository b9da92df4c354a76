"""Makes new plugin packages: complete, installable and tested, with two functions left to fill in. Imports no torch."""

from rlsdk_testing.scaffold.families import families
from rlsdk_testing.scaffold.package import first_steps, new_package, rendered

__all__ = ["families", "first_steps", "new_package", "rendered"]
