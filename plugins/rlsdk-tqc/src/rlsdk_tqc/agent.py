"""The user-facing class."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_tqc.config import TQCConfig
from rlsdk_tqc.plugin import SPEC


class TQC(Agent):
    """Truncated quantile critics (arXiv:2005.04269): soft actor-critic with quantile critics, the top quantiles dropped."""

    spec = SPEC

    @configured_by(TQCConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
