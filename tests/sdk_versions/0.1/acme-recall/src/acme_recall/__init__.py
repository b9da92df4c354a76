"""Q-learning with a memory of its own."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from acme_recall.agent import Recall as Recall

__version__ = "1.1.0"

__getattr__, __dir__ = public_names(__name__, Recall="acme_recall.agent")
