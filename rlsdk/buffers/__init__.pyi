from rlsdk.buffers.columns import Columns as Columns
from rlsdk.buffers.factory import build_replay as build_replay
from rlsdk.buffers.replay import ReplayBuffer as ReplayBuffer
from rlsdk.buffers.sequences import SequenceReplay as SequenceReplay
from rlsdk.buffers.sequences import rows_in_order as rows_in_order
from rlsdk.runtime.memory import require_memory as require_memory
