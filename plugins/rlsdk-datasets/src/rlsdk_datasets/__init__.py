"""Data sets of recorded episodes: files, and what algorithms learn from them with. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import attach

if TYPE_CHECKING:
    from rlsdk_datasets.dataset import Dataset as Dataset
    from rlsdk_datasets.episode_file import RecordedEpisode as RecordedEpisode
    from rlsdk_datasets.episode_file import checked_episode as checked_episode
    from rlsdk_datasets.episode_file import require_place as require_place
    from rlsdk_datasets.episode_file import write_episodes as write_episodes
    from rlsdk_datasets.episodes import Episodes as Episodes
    from rlsdk_datasets.episodes import open_episodes as open_episodes
    from rlsdk_datasets.episodes import summary_of as summary_of
    from rlsdk_datasets.pretraining import pretrain as pretrain
    from rlsdk_datasets.recorded import OfflinePlan as OfflinePlan
    from rlsdk_datasets.recorded import RecordedOnly as RecordedOnly
    from rlsdk_datasets.recorded import RecordedSequences as RecordedSequences
    from rlsdk_datasets.recorded import RecordedTransitions as RecordedTransitions

__version__ = "0.1.0"
__all__ = [
    "Dataset",
    "Episodes",
    "OfflinePlan",
    "RecordedEpisode",
    "RecordedOnly",
    "RecordedSequences",
    "RecordedTransitions",
    "checked_episode",
    "open_episodes",
    "pretrain",
    "require_place",
    "summary_of",
    "write_episodes",
]

HOMES = {
    "Dataset": "rlsdk_datasets.dataset",
    **dict.fromkeys(
        ("RecordedEpisode", "checked_episode", "require_place", "write_episodes"), "rlsdk_datasets.episode_file"
    ),
    **dict.fromkeys(("Episodes", "open_episodes", "summary_of"), "rlsdk_datasets.episodes"),
    "pretrain": "rlsdk_datasets.pretraining",
    **dict.fromkeys(
        ("OfflinePlan", "RecordedOnly", "RecordedSequences", "RecordedTransitions"), "rlsdk_datasets.recorded"
    ),
}
__getattr__, __dir__ = attach(__name__, HOMES)
