"""Data sets of LeRobot as recorded episodes of rlsdk, and back. Public names are imported on first use."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_lerobot.exporting import export_lerobot as export_lerobot
    from rlsdk_lerobot.importing import import_lerobot as import_lerobot

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(
    __name__, export_lerobot="rlsdk_lerobot.exporting", import_lerobot="rlsdk_lerobot.importing"
)
