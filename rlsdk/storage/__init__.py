"""Files of agents and checkpoints: archives of tensors and JSON. Reading a file runs no code from it."""

from rlsdk.storage.archive import Section, inspect_archive, read_archive, write_archive
from rlsdk.storage.safetensors_serializer import SafetensorsSerializer

__all__ = ["SafetensorsSerializer", "Section", "inspect_archive", "read_archive", "write_archive"]
