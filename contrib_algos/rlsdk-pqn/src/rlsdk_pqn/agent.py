"""The class `PQN`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.errors import SettingsError
from rlsdk.settings import configured_by
from rlsdk_pqn.config import PQNConfig

if TYPE_CHECKING:
    from rlsdk.networks import DiscreteValuePolicy


class PQN(Agent[PQNConfig]):
    """PQN (arXiv:2407.04811): Q-learning on rollouts of many environments, without a replay buffer and a target network."""

    q_net: DiscreteValuePolicy = part("policy", "The network that predicts values of actions.")

    @configured_by(PQNConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    @property
    def exploration_rate(self) -> float:
        """The probability of a random action. `learn` sets it after each rollout, from the exploration schedule."""
        return float(self.q_net.epsilon)

    @exploration_rate.setter
    def exploration_rate(self, value: float) -> None:
        if not 0.0 <= value <= 1.0:
            raise SettingsError(f"exploration_rate = {value!r} is outside [0, 1]; give a probability")
        self.q_net.epsilon.fill_(value)
