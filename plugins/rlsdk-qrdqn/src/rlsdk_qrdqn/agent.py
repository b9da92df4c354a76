"""The class `QRDQN`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.errors import SettingsError
from rlsdk.settings import configured_by
from rlsdk_qrdqn.config import QRDQNConfig

if TYPE_CHECKING:
    from rlsdk.networks import DiscreteValuePolicy


class QRDQN(Agent[QRDQNConfig]):
    """Quantile-regression DQN (arXiv:1710.10044): Q-learning that predicts quantiles of the return's distribution."""

    quantile_net: DiscreteValuePolicy = part("policy", "The network that predicts quantiles of returns.")
    quantile_net_target: DiscreteValuePolicy = part("algorithm.target.network", "The target network.")

    @configured_by(QRDQNConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    @property
    def exploration_rate(self) -> float:
        """The probability of a random action. `learn` sets it after each round, from the exploration schedule."""
        return float(self.quantile_net.epsilon)

    @exploration_rate.setter
    def exploration_rate(self, value: float) -> None:
        if not 0.0 <= value <= 1.0:
            raise SettingsError(f"exploration_rate = {value!r} is outside [0, 1]")
        self.quantile_net.epsilon.fill_(value)
