"""The user-facing class."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_ars.config import ARSConfig
from rlsdk_ars.plugin import SPEC


class ARS(Agent):
    """Augmented random search (arXiv:1803.07055): random directions in parameter space, the best of them followed."""

    spec = SPEC

    @configured_by(ARSConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
