from rlsdk_interchange.cards import Results as Results
from rlsdk_interchange.exporting import Exported as Exported
from rlsdk_interchange.exporting import export as export
from rlsdk_interchange.hub import pull as pull
from rlsdk_interchange.hub import push as push
from rlsdk_interchange.minari import export_minari as export_minari
from rlsdk_interchange.minari import import_minari as import_minari
from rlsdk_interchange.recorded_data import remember as remember
from rlsdk_interchange.recording import record_episodes as record_episodes
from rlsdk_interchange.recording_callback import RecordEpisodes as RecordEpisodes
from rlsdk_interchange.sb3 import import_sb3 as import_sb3
from rlsdk_interchange.sb3_encoders import image_encoder as image_encoder
from rlsdk_interchange.sb3_encoders import require_plain as require_plain
from rlsdk_interchange.sb3_networks import Translated as Translated
from rlsdk_interchange.sb3_networks import actor_critic as actor_critic
from rlsdk_interchange.sb3_networks import deterministic_actor_critic as deterministic_actor_critic
from rlsdk_interchange.sb3_networks import hidden as hidden
from rlsdk_interchange.sb3_networks import layers_of as layers_of
from rlsdk_interchange.sb3_networks import network_of as network_of
from rlsdk_interchange.sb3_networks import renamed as renamed
from rlsdk_interchange.sb3_networks import require_names as require_names
from rlsdk_interchange.sb3_networks import soft_actor_critic as soft_actor_critic

__version__: str
