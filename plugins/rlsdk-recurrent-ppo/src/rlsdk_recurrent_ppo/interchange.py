"""Translates the weights of sb3-contrib's RecurrentPPO into those of rlsdk."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from torch import Tensor

from rlsdk.spaces import Space
from rlsdk_interchange import Translated, actor_critic


def from_sb3(weights: Mapping[str, Tensor], actions: Space) -> Translated:
    """Translate the policy, its value function and their LSTMs, from weights [out, in].

    Actor and critic have an LSTM each, share one, or only the actor has one.
    """
    found = actor_critic(weights, "Lstm")
    own = any(name.startswith("lstm_critic.") for name in weights)
    memory = {
        "lstm_hidden_size": weights["lstm_actor.weight_hh_l0"].shape[1],
        "n_lstm_layers": sum(name.startswith("lstm_actor.weight_hh") for name in weights),
        "enable_critic_lstm": own,
        "shared_lstm": not own and "critic.weight" not in weights,
    }
    return attrs.evolve(found, networks={**found.networks, **memory})
