"""The class users import."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.settings import configured_by

from acme_recall.config import RecallConfig
from acme_recall.plugin import SPEC


class Recall(Agent[RecallConfig]):
    """Q-learning with a memory of its own."""

    spec = SPEC

    @configured_by(RecallConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
