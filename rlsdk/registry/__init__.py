"""Finding plugins without running their code, and loading one plugin at a time. Importing this package imports no torch.

The names of this package are imported when they are first used. Listing algorithms thus skips settings and hooks, whose
import would take a third of its time. `__init__.pyi` lists the public ones; the core imports others from their modules.
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
