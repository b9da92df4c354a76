"""The class `SAC`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_sac.config import SACConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, OwnCritics, SquashedActor


class SAC(Agent[SACConfig]):
    """Soft actor-critic (arXiv:1812.05905): maximum-entropy reinforcement learning with two critics."""

    actor: SquashedActor = part("policy", "The policy's network.")
    critic: ContinuousCritics | OwnCritics = part("algorithm.critics", "The networks that predict values of actions.")
    critic_target: ContinuousCritics | OwnCritics = part(
        "algorithm.trained.target.network", "The target network of the critics."
    )

    @configured_by(SACConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
