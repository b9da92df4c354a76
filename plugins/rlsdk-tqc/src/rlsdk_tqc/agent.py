"""The user-facing class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rlsdk.agent import Agent
from rlsdk.settings.constructor import configured_by
from rlsdk_tqc.config import TQCConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, OwnCritics, SquashedActor
    from rlsdk.updates import SoftActorCritic


class TQC(Agent[TQCConfig]):
    """Truncated quantile critics (arXiv:2005.04269): soft actor-critic with quantile critics, the top quantiles dropped."""

    @configured_by(TQCConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    @property
    def actor(self) -> SquashedActor:
        """The policy's network."""
        return cast("SquashedActor", self.parts.policy)

    @property
    def critic(self) -> ContinuousCritics | OwnCritics:
        """The networks that predict quantiles of returns."""
        return self._algorithm.critics

    @property
    def critic_target(self) -> ContinuousCritics | OwnCritics:
        """The target network of the critics."""
        return self._algorithm.target.network

    @property
    def _algorithm(self) -> SoftActorCritic[Any]:
        return cast("SoftActorCritic[Any]", self.parts.algorithm)
