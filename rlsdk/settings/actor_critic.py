"""Hyper-parameters of actor-critic networks: `policy_kwargs` of on-policy algorithms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.settings import glossary
from rlsdk.settings.fields import MEMORY, described, in_range, needs
from rlsdk.settings.networks import NetworkConfig, arguments_of_class, as_activation, as_module_class, as_net_arch


@attrs.frozen(kw_only=True)
class ActorCriticConfig(NetworkConfig):
    """The network settings of every actor-critic policy."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata=glossary.NET_ARCH | {"source": "none = [64, 64] for pi and vf, [] after NatureCNN"},
    )
    activation_fn: str | Callable[..., Any] = attrs.field(
        default="tanh",
        converter=as_activation,
        metadata=described("activation function between hidden layers", examples=("elu",)),
    )
    ortho_init: bool = attrs.field(default=True, metadata=described("orthogonal initialisation of weights"))
    log_std_init: float = attrs.field(
        default=0.0, validator=in_range(-20, 10), metadata=described("initial log standard deviation of Box actions")
    )
    full_std: bool = attrs.field(
        default=True,
        metadata=described(
            "gSDE: a standard deviation for each pair of feature and action; false = one for each feature"
        ),
    )
    use_expln: bool = attrs.field(
        default=False,
        metadata=described(
            "gSDE: standard deviations above 1 grow with the logarithm of their parameter, not exponentially"
        ),
    )
    squash_output: bool = attrs.field(
        default=False, metadata=described("gSDE: squash actions into their bounds by tanh instead of clipping them")
    )
    share_features_extractor: bool = attrs.field(
        default=True, metadata=described("actor and critic share one features extractor")
    )
    actor_class: Any = attrs.field(default=None, converter=as_module_class, metadata=glossary.ACTOR_CLASS)
    actor_kwargs: Mapping[str, object] = attrs.field(
        factory=dict, validator=arguments_of_class, metadata=glossary.OWN_KWARGS
    )
    critic_class: Any = attrs.field(default=None, converter=as_module_class, metadata=glossary.CRITIC_CLASS)
    critic_kwargs: Mapping[str, object] = attrs.field(
        factory=dict, validator=arguments_of_class, metadata=glossary.OWN_KWARGS
    )


def memory_of(policy: str) -> str | None:
    """Return the kind of recurrent network that a policy's name contains: `lstm`, `gru`, or None."""
    return next((kind for kind in ("lstm", "gru") if kind.capitalize() in policy), None)


@attrs.frozen(kw_only=True)
class RecurrentConfig(ActorCriticConfig):
    """The network settings of recurrent policies."""

    lstm_hidden_size: int = attrs.field(default=256, validator=in_range(1), metadata=glossary.LSTM_HIDDEN_SIZE)
    n_lstm_layers: int = attrs.field(default=1, validator=in_range(1, 16), metadata=glossary.N_LSTM_LAYERS)
    shared_lstm: bool = attrs.field(
        default=False,
        metadata=described(
            "the critic uses the output of the actor's recurrent layers, which only the actor's loss trains"
        )
        | needs(MEMORY),
    )
    enable_critic_lstm: bool = attrs.field(
        default=True,
        metadata=described("the critic has separate recurrent layers; false = a linear layer instead") | needs(MEMORY),
    )
    lstm_kwargs: Mapping[str, object] | None = attrs.field(default=None, metadata=glossary.LSTM_KWARGS)
    memory_class: Any = attrs.field(
        default=None,
        converter=as_module_class,
        metadata=described(
            "class of a recurrent module, see rlsdk.networks.Memory; called with (features_dim, **memory_kwargs); none"
            " = LSTM or GRU, by the policy's name"
        )
        | needs(MEMORY),
    )
    memory_kwargs: Mapping[str, object] = attrs.field(
        factory=dict, validator=arguments_of_class, metadata=glossary.OWN_KWARGS
    )

    def __attrs_post_init__(self) -> None:
        if self.shared_lstm and self.enable_critic_lstm:
            raise ValueError("shared_lstm = true needs enable_critic_lstm = false: the critic reads the actor's memory")
        if self.shared_lstm and not self.share_features_extractor:
            raise ValueError(
                "shared_lstm = true needs share_features_extractor = true: the critic reads the actor's memory, and has no"
                " other features"
            )
