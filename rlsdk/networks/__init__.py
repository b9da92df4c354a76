"""Parts of networks: encoders of observations, multi-layer perceptrons, critics, actors, flat parameter storage."""

from typing import TYPE_CHECKING

from rlsdk.networks.action_heads import ActionScale, build_action_head, within_action_bounds
from rlsdk.networks.actor_critic import ActorCritic, ActorCriticCarry, Estimates
from rlsdk.networks.build_actor_critic import build_actor_critic
from rlsdk.networks.continuous import (
    DeterministicActor,
    SquashedActor,
    build_deterministic_actor_critic,
    build_soft_actor_critic,
    build_squashed_actor,
    smoothed,
)
from rlsdk.networks.critics import (
    ContinuousCritics,
    OwnCritics,
    OwnNetwork,
    auxiliary_losses_refused,
    with_auxiliary_loss,
)
from rlsdk.networks.discrete_values import DiscreteValuePolicy, build_discrete_value_policy
from rlsdk.networks.encoders import (
    CombinedEncoder,
    FlattenEncoder,
    build_encoder,
    features_dim,
    nature_layers,
    uses_nature_cnn,
)
from rlsdk.networks.layers import (
    EnsembleMLP,
    FlatParameters,
    Layers,
    activation,
    flatten_parameters,
    has_train_mode,
    mlp,
    orthogonal,
)
from rlsdk.networks.recurrent import Memory, NoMemory, build_memory, forgotten, sequence_by_steps
from rlsdk.networks.search_policy import SearchPolicy, build_search_policy
from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.settings.actor_critic import memory_of

__all__ = [
    "ActionScale",
    "ActorCritic",
    "ActorCriticCarry",
    "CombinedEncoder",
    "ContinuousCritics",
    "DeterministicActor",
    "DiscreteValuePolicy",
    "EnsembleMLP",
    "Estimates",
    "FlatParameters",
    "FlattenEncoder",
    "Layers",
    "Memory",
    "NoMemory",
    "OwnCritics",
    "OwnNetwork",
    "SearchPolicy",
    "SquashedActor",
    "activation",
    "auxiliary_losses_refused",
    "build_action_head",
    "build_actor_critic",
    "build_deterministic_actor_critic",
    "build_discrete_value_policy",
    "build_encoder",
    "build_memory",
    "build_search_policy",
    "build_soft_actor_critic",
    "build_squashed_actor",
    "features_dim",
    "flatten_parameters",
    "forgotten",
    "memory_of",
    "mlp",
    "has_train_mode",
    "nature_layers",
    "orthogonal",
    "sequence_by_steps",
    "smoothed",
    "uses_nature_cnn",
    "within_action_bounds",
    "with_auxiliary_loss",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
