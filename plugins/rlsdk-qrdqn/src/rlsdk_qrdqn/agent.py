"""The user-facing class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk.errors import SettingsError
from rlsdk_qrdqn.config import QRDQNConfig
from rlsdk_qrdqn.plugin import SPEC

if TYPE_CHECKING:
    from rlsdk_qrdqn.algorithm import QuantileRegression
    from rlsdk_qrdqn.policy import QuantilePolicy


class QRDQN(Agent):
    """Quantile-regression DQN (arXiv:1710.10044): Q-learning with a distribution of returns, by quantiles."""

    spec = SPEC

    @configured_by(QRDQNConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    @property
    def quantile_net(self) -> QuantilePolicy:
        """The network that predicts quantiles of returns."""
        return cast("QuantilePolicy", self.built.policy)

    @property
    def quantile_net_target(self) -> QuantilePolicy:
        """The target network."""
        return cast("QuantileRegression", self.built.algorithm).target.network

    @property
    def exploration_rate(self) -> float:
        """Probability of a random action; `learn` sets it by its schedule after each round."""
        return float(self.quantile_net.epsilon)

    @exploration_rate.setter
    def exploration_rate(self, value: float) -> None:
        if not 0.0 <= value <= 1.0:
            raise SettingsError(f"exploration_rate = {value!r} is outside [0, 1]")
        self.quantile_net.epsilon.fill_(value)
