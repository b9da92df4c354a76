"""The user-facing class."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from rlsdk.agent import Agent
from rlsdk.errors import SettingsError
from rlsdk.settings.constructor import configured_by
from rlsdk_qrdqn.config import QRDQNConfig

if TYPE_CHECKING:
    from rlsdk.networks import DiscreteValuePolicy
    from rlsdk.updates import QLearning


class QRDQN(Agent[QRDQNConfig]):
    """Quantile-regression DQN (arXiv:1710.10044): Q-learning with a distribution of returns, by quantiles."""

    @configured_by(QRDQNConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    @property
    def quantile_net(self) -> DiscreteValuePolicy:
        """The network that predicts quantiles of returns."""
        return cast("DiscreteValuePolicy", self.parts.policy)

    @property
    def quantile_net_target(self) -> DiscreteValuePolicy:
        """The target network."""
        return cast("QLearning[QRDQNConfig]", self.parts.algorithm).target.network

    @property
    def exploration_rate(self) -> float:
        """Probability of a random action; `learn` sets it by its schedule after each round."""
        return float(self.quantile_net.epsilon)

    @exploration_rate.setter
    def exploration_rate(self, value: float) -> None:
        if not 0.0 <= value <= 1.0:
            raise SettingsError(f"exploration_rate = {value!r} is outside [0, 1]")
        self.quantile_net.epsilon.fill_(value)
