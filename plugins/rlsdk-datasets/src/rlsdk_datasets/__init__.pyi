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

__version__: str
