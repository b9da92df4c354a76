"""The network: an encoder of observations, one body and head for actions, one for values.

`build_actor_critic` makes it for every space and takes `memory="lstm"` or `"gru"`. A network of your own is a `torch.nn.Module` with
the methods of `rlsdk.interfaces.Policy`: `initial_carry(batch)` and `act(observation, carry, deterministic=..., generator=...)`.
"""

from __future__ import annotations

from rlsdk.interfaces import BuildContext
from rlsdk.networks import ActorCritic, build_actor_critic

from rlsdk_returns.config import ReturnsConfig


def build_policy(context: BuildContext, config: ReturnsConfig) -> ActorCritic:
    """The policy for an environment."""
    return build_actor_critic(context, config)
