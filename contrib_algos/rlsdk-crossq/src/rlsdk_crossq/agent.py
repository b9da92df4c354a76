"""The class `CrossQ`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_crossq.config import CrossQConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, OwnCritics, SquashedActor


class CrossQ(Agent[CrossQConfig]):
    """CrossQ (arXiv:1902.05605): soft actor-critic with batch normalization, without target networks."""

    actor: SquashedActor = part("policy", "The policy's network.")
    critic: ContinuousCritics | OwnCritics = part("algorithm.critics", "The networks that predict values of actions.")

    @configured_by(CrossQConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
