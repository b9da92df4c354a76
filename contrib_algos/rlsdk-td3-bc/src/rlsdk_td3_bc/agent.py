"""The class `TD3BC`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_td3_bc.config import TD3BCConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, DeterministicActor, OwnCritics


class TD3BC(Agent[TD3BCConfig]):
    """TD3 with behavior cloning, which learns from a data set without an environment (arXiv:2106.06860)."""

    actor: DeterministicActor = part("policy", "The policy's network.")
    actor_target: DeterministicActor = part("algorithm.actor_target.network", "The target network of the actor.")
    critic: ContinuousCritics | OwnCritics = part("algorithm.critics", "The networks that predict values of actions.")
    critic_target: ContinuousCritics | OwnCritics = part(
        "algorithm.trained.target.network", "The target network of the critics."
    )

    @configured_by(TD3BCConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
