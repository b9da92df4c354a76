"""The class `PPO`, which users construct."""

from __future__ import annotations

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_ppo.config import PPOConfig


class PPO(Agent[PPOConfig]):
    """Proximal policy optimization (arXiv:1707.06347): several epochs on each rollout, with a clipped objective."""

    @configured_by(PPOConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
