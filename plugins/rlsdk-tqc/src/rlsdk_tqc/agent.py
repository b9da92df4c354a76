"""The user-facing class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_tqc.config import TQCConfig
from rlsdk_tqc.plugin import SPEC

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, SquashedActor
    from rlsdk_tqc.algorithm import TruncatedQuantileCritics


class TQC(Agent):
    """Truncated quantile critics (arXiv:2005.04269): soft actor-critic with quantile critics, the top quantiles dropped."""

    spec = SPEC

    @configured_by(TQCConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    @property
    def actor(self) -> SquashedActor:
        """The policy's network."""
        return cast("SquashedActor", self.built.policy)

    @property
    def critic(self) -> ContinuousCritics:
        """The networks that predict quantiles of returns."""
        return self._algorithm.critics

    @property
    def critic_target(self) -> ContinuousCritics:
        """The target network of the critics."""
        return self._algorithm.target.network

    @property
    def _algorithm(self) -> TruncatedQuantileCritics:
        return cast("TruncatedQuantileCritics", self.built.algorithm)
