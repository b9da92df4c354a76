"""The user-facing class."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_maskable_ppo.config import MaskablePPOConfig
from rlsdk_maskable_ppo.plugin import SPEC


class MaskablePPO(Agent):
    """Proximal policy optimisation (arXiv:1707.06347) that respects action masks (arXiv:2006.14171)."""

    spec = SPEC

    @configured_by(MaskablePPOConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
