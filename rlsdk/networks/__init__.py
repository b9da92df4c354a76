"""Parts of networks: encoders of observations, multi-layer perceptrons, critics, actors, flat parameter storage."""

from typing import TYPE_CHECKING

from rlsdk.networks.action_bounds import within_action_bounds
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.actor_critic import ActorCritic, ActorCriticCarry, Estimates
from rlsdk.networks.auxiliary_loss import auxiliary_losses_refused, with_auxiliary_loss
from rlsdk.networks.build_action_head import build_action_head
from rlsdk.networks.build_actor_critic import build_actor_critic
from rlsdk.networks.build_deterministic_actor_critic import build_deterministic_actor_critic
from rlsdk.networks.build_discrete_value_policy import build_discrete_value_policy
from rlsdk.networks.build_encoder import build_encoder, uses_nature_cnn
from rlsdk.networks.build_soft_actor_critic import build_soft_actor_critic
from rlsdk.networks.build_squashed_actor import build_squashed_actor
from rlsdk.networks.combined_encoder import CombinedEncoder
from rlsdk.networks.critics import ContinuousCritics
from rlsdk.networks.deterministic_actor import DeterministicActor, smoothed
from rlsdk.networks.discrete_value_policy import DiscreteValuePolicy
from rlsdk.networks.documented_methods import explains_documented_methods
from rlsdk.networks.encoders import FlattenEncoder, features_dim
from rlsdk.networks.ensemble import EnsembleMLP
from rlsdk.networks.features_extractors import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from rlsdk.networks.flat import FlatParameters, flatten_parameters
from rlsdk.networks.initialisation import orthogonal
from rlsdk.networks.layers import Layers
from rlsdk.networks.mlp import activation, mlp
from rlsdk.networks.modes import has_train_mode
from rlsdk.networks.nature_encoder import NatureEncoder
from rlsdk.networks.own_memories import forgotten, sequence_by_steps
from rlsdk.networks.own_networks import OwnCritics, OwnNetwork
from rlsdk.networks.recorded_steps import evaluate_recorded
from rlsdk.networks.recurrent import LinearMemory, Memory, NoMemory, RecurrentMemory, build_memory
from rlsdk.networks.search_policy import NumpyPolicy, SearchPolicy, build_search_policy
from rlsdk.networks.squashed_actor import SquashedActor
from rlsdk.runtime.documented_names import names_elsewhere
from rlsdk.settings.actor_critic import memory_of

__all__ = [
    "ActionScale",
    "ActorCritic",
    "ActorCriticCarry",
    "BaseFeaturesExtractor",
    "CombinedEncoder",
    "CombinedExtractor",
    "ContinuousCritics",
    "DeterministicActor",
    "DiscreteValuePolicy",
    "EnsembleMLP",
    "Estimates",
    "FlatParameters",
    "FlattenEncoder",
    "FlattenExtractor",
    "Layers",
    "LinearMemory",
    "Memory",
    "NatureCNN",
    "NatureEncoder",
    "NoMemory",
    "NumpyPolicy",
    "OwnCritics",
    "OwnNetwork",
    "RecurrentMemory",
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
    "evaluate_recorded",
    "explains_documented_methods",
    "features_dim",
    "flatten_parameters",
    "forgotten",
    "memory_of",
    "mlp",
    "has_train_mode",
    "orthogonal",
    "sequence_by_steps",
    "smoothed",
    "uses_nature_cnn",
    "within_action_bounds",
    "with_auxiliary_loss",
]

for policy in (ActorCritic, SearchPolicy, SquashedActor):
    explains_documented_methods(policy)

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
