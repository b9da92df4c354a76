"""The class `DiscreteSAC`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_discrete_sac.config import DiscreteSACConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics
    from rlsdk_discrete_sac.networks import CategoricalActor


class DiscreteSAC(Agent[DiscreteSACConfig]):
    """Discrete soft actor-critic (arXiv:1910.07207): soft actor-critic whose expectations over actions are exact sums."""

    actor: CategoricalActor = part("policy", "The policy's network.")
    critic: ContinuousCritics = part("algorithm.critics", "The networks that predict the values of all actions.")
    critic_target: ContinuousCritics = part("algorithm.trained.target.network", "The target network of the critics.")

    @configured_by(DiscreteSACConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
