"""The class `CQL`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.agent import Agent, part
from rlsdk.settings import configured_by
from rlsdk_cql.config import CQLConfig

if TYPE_CHECKING:
    from rlsdk.networks import ContinuousCritics, DiscreteValuePolicy, SquashedActor


class CQL(Agent[CQLConfig]):
    """Conservative Q-learning: learns from a data set values that do not overestimate other actions (arXiv:2006.04779)."""

    actor: SquashedActor | DiscreteValuePolicy = part(
        "policy", "The policy; for choices, the network of values itself."
    )
    critic: ContinuousCritics | DiscreteValuePolicy = part(
        "algorithm.critics", "The networks that predict values of actions."
    )
    critic_target: ContinuousCritics | DiscreteValuePolicy = part(
        "algorithm.target.network", "The target network of the critics."
    )

    @configured_by(CQLConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
