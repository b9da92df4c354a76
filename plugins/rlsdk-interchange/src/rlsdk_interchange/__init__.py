"""Import, export and recording of agents and data. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_interchange.minari import export_minari as export_minari
    from rlsdk_interchange.minari import import_minari as import_minari
    from rlsdk_interchange.recorded_data import remember as remember
    from rlsdk_interchange.recording import record_episodes as record_episodes
    from rlsdk_interchange.recording_callback import RecordEpisodes as RecordEpisodes

__version__ = "0.1.0"
__all__ = ["RecordEpisodes", "export_minari", "import_minari", "record_episodes", "remember"]

HOMES = {
    **dict.fromkeys(("export_minari", "import_minari"), "rlsdk_interchange.minari"),
    "record_episodes": "rlsdk_interchange.recording",
    "RecordEpisodes": "rlsdk_interchange.recording_callback",
    "remember": "rlsdk_interchange.recorded_data",
}
__getattr__, __dir__ = attach(__name__, HOMES)
