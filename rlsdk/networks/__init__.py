"""Network parts: encoders of observations, multi-layer perceptrons, critics, actors, flat parameter storage."""

from rlsdk.networks.action_heads import build_action_head
from rlsdk.networks.action_scale import ActionScale
from rlsdk.networks.actor_critic import ActorCritic, Estimates
from rlsdk.networks.build_actor_critic import build_actor_critic
from rlsdk.networks.build_encoder import build_encoder, uses_nature_cnn
from rlsdk.networks.build_squashed_actor import build_squashed_actor
from rlsdk.networks.combined_encoder import CombinedEncoder
from rlsdk.networks.critics import ContinuousCritics, EnsembleMLP
from rlsdk.networks.documented_methods import explains_documented_methods
from rlsdk.networks.encoders import FlattenEncoder, features_dim
from rlsdk.networks.features_extractors import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from rlsdk.networks.flat import FlatParameters, backward, flatten_parameters
from rlsdk.networks.mlp import activation, mlp
from rlsdk.networks.modes import mode_matters
from rlsdk.networks.nature_encoder import NatureEncoder
from rlsdk.networks.search_policy import NumpyPolicy, SearchPolicy, build_search_policy
from rlsdk.networks.squashed_actor import SquashedActor

__all__ = [
    "ActionScale",
    "ActorCritic",
    "BaseFeaturesExtractor",
    "CombinedEncoder",
    "CombinedExtractor",
    "ContinuousCritics",
    "EnsembleMLP",
    "Estimates",
    "FlatParameters",
    "FlattenEncoder",
    "FlattenExtractor",
    "NatureCNN",
    "NatureEncoder",
    "NumpyPolicy",
    "SearchPolicy",
    "SquashedActor",
    "activation",
    "backward",
    "build_action_head",
    "build_actor_critic",
    "build_encoder",
    "build_search_policy",
    "build_squashed_actor",
    "features_dim",
    "flatten_parameters",
    "mlp",
    "mode_matters",
    "uses_nature_cnn",
]

for policy in (ActorCritic, SearchPolicy, SquashedActor):
    explains_documented_methods(policy)
