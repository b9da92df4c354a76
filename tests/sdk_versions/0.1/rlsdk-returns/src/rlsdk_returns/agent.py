"""The class users import; `rlsdk.toml` names it, and gives its spec."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.settings.constructor import configured_by

from rlsdk_returns.config import ReturnsConfig


class Returns(Agent[ReturnsConfig]):
    """Returns."""

    @configured_by(ReturnsConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
