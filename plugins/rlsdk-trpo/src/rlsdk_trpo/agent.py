"""The user-facing class."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_trpo.config import TRPOConfig
from rlsdk_trpo.plugin import SPEC


class TRPO(Agent):
    """Trust region policy optimisation (arXiv:1502.05477): natural gradient steps under a KL bound."""

    spec = SPEC

    @configured_by(TRPOConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
