"""The hyper-parameters of TQC. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import (
    Constant,
    Default,
    SoftActorCriticConfig,
    SoftActorCriticNetworkConfig,
    defaults,
    described,
    in_range,
    structure,
)

PAPER = "arXiv:2005.04269, table 3"


@attrs.frozen(kw_only=True)
class TQCPolicyConfig(SoftActorCriticNetworkConfig):
    """The settings of networks, `policy_kwargs`, of TQC."""

    n_quantiles: int = attrs.field(
        default=25,
        validator=in_range(1, 10_000),
        metadata=described("number of quantiles that each critic predicts", source=PAPER),
    )
    n_critics: int = attrs.field(
        default=2, validator=in_range(1, 512), metadata=described("number of critics; the paper uses 5", tune=(1, 5))
    )


def _policy_settings(value: Mapping[str, object] | TQCPolicyConfig | None) -> TQCPolicyConfig:
    return structure(value or {}, TQCPolicyConfig)


@attrs.frozen(
    field_transformer=defaults(
        learning_rate=Default(Constant(3e-4), PAPER),
        batch_size=Default(256, PAPER),
        tau=Default(0.005, PAPER),
        gamma=Default(0.99, PAPER),
    )
)
class TQCConfig(SoftActorCriticConfig):
    """The constructor parameters of TQC, in order."""

    top_quantiles_to_drop_per_net: int = attrs.field(
        default=2,
        validator=in_range(0),
        metadata=described(
            "number of largest quantiles that are dropped from the target, per critic", source=PAPER, tune=(0, 5)
        ),
    )
    # declared again, so that they come after `top_quantiles_to_drop_per_net` in the constructor
    use_sde: bool = False
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1))
    use_sde_at_warmup: bool = False
    policy_kwargs: TQCPolicyConfig = attrs.field(factory=TQCPolicyConfig, converter=_policy_settings, kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        dropped, quantiles = self.top_quantiles_to_drop_per_net, self.policy_kwargs.n_quantiles
        if dropped >= quantiles:
            raise ValueError(
                f"top_quantiles_to_drop_per_net = {dropped} leaves nothing of n_quantiles = {quantiles}; drop fewer"
            )

    @property
    def kept_quantiles(self) -> int:
        """How many atoms of the critics that make the target, together, stay in it."""
        networks = self.policy_kwargs
        return (networks.subset_size or networks.n_critics) * (
            networks.n_quantiles - self.top_quantiles_to_drop_per_net
        )
