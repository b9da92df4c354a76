"""Import, export and recording of agents and data. Public names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk.interchange.minari import export_minari as export_minari
    from rlsdk.interchange.minari import import_minari as import_minari
    from rlsdk.interchange.recorded_data import remember as remember
    from rlsdk.interchange.recording import record_episodes as record_episodes
    from rlsdk.interchange.recording_callback import RecordEpisodes as RecordEpisodes

__all__ = ["RecordEpisodes", "export_minari", "import_minari", "record_episodes", "remember"]

HOMES = {
    **dict.fromkeys(("export_minari", "import_minari"), "rlsdk.interchange.minari"),
    "record_episodes": "rlsdk.interchange.recording",
    "RecordEpisodes": "rlsdk.interchange.recording_callback",
    "remember": "rlsdk.interchange.recorded_data",
}
__getattr__, __dir__ = attach(__name__, HOMES)
