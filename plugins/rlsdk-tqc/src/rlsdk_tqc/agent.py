"""The class `TQC`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_tqc.config import TQCConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, OwnCritics, SquashedActor


class TQC(Agent[TQCConfig]):
    """Truncated quantile critics (arXiv:2005.04269): soft actor-critic with quantile critics, without their top quantiles."""

    actor: SquashedActor = part("policy", "The policy's network.")
    critic: ContinuousCritics | OwnCritics = part(
        "algorithm.critics", "The networks that predict quantiles of returns."
    )
    critic_target: ContinuousCritics | OwnCritics = part(
        "algorithm.trained.target.network", "The target network of the critics."
    )

    @configured_by(TQCConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
