"""The class `DQN`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.errors import SettingsError
from rlsdk.settings import configured_by
from rlsdk_dqn.config import DQNConfig

if TYPE_CHECKING:
    from rlsdk.networks import DiscreteValuePolicy


class DQN(Agent[DQNConfig]):
    """Deep Q-learning (doi:10.1038/nature14236), or double Q-learning (arXiv:1509.06461) with `double_q`."""

    q_net: DiscreteValuePolicy = part("policy", "The network that predicts values of actions.")
    q_net_target: DiscreteValuePolicy = part("algorithm.target.network", "The target network.")

    @configured_by(DQNConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    @property
    def exploration_rate(self) -> float:
        """The probability of a random action. `learn` sets it after each round, from the exploration schedule."""
        return float(self.q_net.epsilon)

    @exploration_rate.setter
    def exploration_rate(self, value: float) -> None:
        if not 0.0 <= value <= 1.0:
            raise SettingsError(f"exploration_rate = {value!r} is outside [0, 1]")
        self.q_net.epsilon.fill_(value)
