"""The class `DDPG`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_ddpg.config import DDPGConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, DeterministicActor, OwnCritics


class DDPG(Agent[DDPGConfig]):
    """Deep deterministic policy gradient (arXiv:1509.02971): TD3 with one critic, no delay and no target noise."""

    actor: DeterministicActor = part("policy", "The policy's network.")
    actor_target: DeterministicActor = part("algorithm.actor_target.network", "The target network of the actor.")
    critic: ContinuousCritics | OwnCritics = part("algorithm.critics", "The networks that predict values of actions.")
    critic_target: ContinuousCritics | OwnCritics = part(
        "algorithm.trained.target.network", "The target network of the critics."
    )

    @configured_by(DDPGConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
