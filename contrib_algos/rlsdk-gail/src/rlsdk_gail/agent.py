"""The class `GAIL`, which users construct."""

from __future__ import annotations

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_gail.config import GAILConfig


class GAIL(Agent[GAILConfig]):
    """Generative adversarial imitation learning (arXiv:1606.03476): PPO on a reward that a discriminator learns."""

    @configured_by(GAILConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
