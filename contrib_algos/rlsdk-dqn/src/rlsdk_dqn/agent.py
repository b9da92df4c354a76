"""The user-facing class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings.constructor import configured_by
from rlsdk_dqn.config import DQNConfig

if TYPE_CHECKING:
    from rlsdk.networks import DiscreteValuePolicy


class DQN(Agent[DQNConfig]):
    """Deep Q-learning (doi:10.1038/nature14236): one value per action; `double_q` for arXiv:1509.06461."""

    q_net: DiscreteValuePolicy = part("policy", "The network that predicts values of actions.")
    q_net_target: DiscreteValuePolicy = part("algorithm.target.network", "The target network.")

    @configured_by(DQNConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    @property
    def exploration_rate(self) -> float:
        """Probability of a random action; `learn` sets it by its schedule after each round."""
        return float(self.q_net.epsilon)
