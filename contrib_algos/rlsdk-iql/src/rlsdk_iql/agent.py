"""The class `IQL`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_iql.config import IQLConfig

if TYPE_CHECKING:
    from rlsdk.networks import ActorCritic, ContinuousCritics


class IQL(Agent[IQLConfig]):
    """Implicit Q-learning: learns from a data set, and evaluates no action outside of it (arXiv:2110.06169)."""

    actor: ActorCritic = part("policy", "The network of the policy and of the values V of observations.")
    critic: ContinuousCritics = part("algorithm.critics", "The networks that predict values of actions.")
    critic_target: ContinuousCritics = part("algorithm.target.network", "The target network of the critics.")

    @configured_by(IQLConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
