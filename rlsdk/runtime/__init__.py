"""Services of the process that training runs in: device, threads, memory, seeds, output and files.

`__init__.pyi` lists the names for packages outside the core. They are imported on first use, because some need torch.
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
