"""Files of agents and checkpoints: archives of tensors and JSON. Reading a file runs no code from it.

`__all__` has the names for users; the others are for the rest of rlsdk.
"""

from rlsdk.storage.archive import SafetensorsSerializer
from rlsdk.storage.archive import Section as Section
from rlsdk.storage.archive import inspect_archive as inspect_archive
from rlsdk.storage.archive import read_archive as read_archive
from rlsdk.storage.archive import write_archive as write_archive

__all__ = ["SafetensorsSerializer"]
