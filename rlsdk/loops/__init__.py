"""Training loops, one per family. Each is a short generator that knows nothing of logs, files or callbacks."""

from rlsdk.loops.cursor import Cursor
from rlsdk.loops.off_policy import learn_from_buffer, off_policy

__all__ = ["Cursor", "learn_from_buffer", "off_policy"]
