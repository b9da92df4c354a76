"""Every hyper-parameter of TQC, once. Constructor, help, CLI, settings files and docs derive from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.exploration.action_noise import ActionNoise, as_action_noise
from rlsdk.math.schedules import Constant, Schedule, as_schedule
from rlsdk.settings import AgentConfig, described, finite_schedule, glossary, in_range, structure
from rlsdk.settings.frequency import TrainFrequency, as_train_frequency
from rlsdk.settings.networks import NetworkConfig, as_net_arch, optional_widths

PAPER = "arXiv:2005.04269, table 3"
UNIT = in_range(0.0, 1.0)


@attrs.frozen(kw_only=True)
class TQCPolicyConfig(NetworkConfig):
    """`policy_kwargs` of TQC."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None, converter=as_net_arch, metadata=glossary.NET_ARCH | {"source": "none = [256, 256] for pi and qf"}
    )
    n_quantiles: int = attrs.field(
        default=25, validator=in_range(1), metadata=described("quantiles each critic predicts", source=PAPER)
    )
    n_critics: int = attrs.field(
        default=2, validator=in_range(1), metadata=described("critics; the paper uses 5", tune=(1, 5))
    )
    share_features_extractor: bool = attrs.field(
        default=False, metadata=described("critics read the actor's features, which only the actor's loss then trains")
    )
    log_std_init: float = attrs.field(
        default=-3.0, validator=in_range(-20, 2), metadata=described("gSDE: first log standard deviation")
    )
    sde_net_arch: tuple[int, ...] | None = attrs.field(
        default=None,
        converter=optional_widths,
        metadata=described("gSDE: own feature layers; none = the policy's latent, [] = the encoded observation"),
    )
    use_expln: bool = attrs.field(
        default=False,
        metadata=described("gSDE: standard deviations grow like a logarithm above 1 instead of exponentially"),
    )
    clip_mean: float = attrs.field(
        default=2.0, validator=in_range(0), metadata=described("gSDE: bound of the mean before tanh; 0 = none")
    )


def _policy_settings(value: Mapping[str, Any] | TQCPolicyConfig | None) -> TQCPolicyConfig:
    return value if isinstance(value, TQCPolicyConfig) else structure(value or {}, TQCPolicyConfig)


@attrs.frozen
class TQCConfig(AgentConfig):
    """The constructor parameters of TQC, in order."""

    learning_rate: Schedule = attrs.field(
        default=Constant(3e-4),
        converter=as_schedule,
        validator=finite_schedule(),
        metadata=glossary.LEARNING_RATE | {"source": PAPER},
    )
    buffer_size: int = attrs.field(default=1_000_000, validator=in_range(1), metadata=glossary.BUFFER_SIZE)
    learning_starts: int = attrs.field(default=100, validator=in_range(0), metadata=glossary.LEARNING_STARTS)
    batch_size: int = attrs.field(default=256, validator=in_range(1), metadata=glossary.BATCH_SIZE | {"source": PAPER})
    tau: float = attrs.field(default=0.005, validator=UNIT, metadata=glossary.TAU | {"source": PAPER})
    gamma: float = attrs.field(default=0.99, validator=UNIT, metadata=glossary.GAMMA | {"source": PAPER})
    train_freq: TrainFrequency = attrs.field(
        default=TrainFrequency(1, "step"), converter=as_train_frequency, metadata=glossary.TRAIN_FREQ
    )
    gradient_steps: int = attrs.field(default=1, validator=in_range(-1), metadata=glossary.GRADIENT_STEPS)
    action_noise: ActionNoise | None = attrs.field(
        default=None, converter=as_action_noise, metadata=described("noise added to actions in training (unit actions)")
    )
    replay_buffer_class: str | Callable[..., Any] | None = attrs.field(
        default=None, metadata=glossary.REPLAY_BUFFER_CLASS
    )
    replay_buffer_kwargs: dict[str, Any] | None = attrs.field(default=None, metadata=glossary.REPLAY_BUFFER_KWARGS)
    optimize_memory_usage: bool = attrs.field(default=False, metadata=glossary.OPTIMIZE_MEMORY_USAGE)
    ent_coef: str | float = attrs.field(
        default="auto",
        metadata=described('weight of the entropy bonus: "auto" learns it, "auto_0.1" from 0.1, or a number'),
    )
    target_update_interval: int = attrs.field(
        default=1, validator=in_range(1), metadata=described("updates between target updates", unit="updates")
    )
    target_entropy: str | float = attrs.field(
        default="auto", metadata=described('entropy the learnt ent_coef aims for; "auto" = minus the action dimensions')
    )
    top_quantiles_to_drop_per_net: int = attrs.field(
        default=2,
        validator=in_range(0),
        metadata=described("largest quantiles dropped from the target, per critic", source=PAPER, tune=(0, 5)),
    )
    use_sde: bool = attrs.field(default=False, metadata=glossary.USE_SDE)
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1), metadata=glossary.SDE_SAMPLE_FREQ)
    use_sde_at_warmup: bool = attrs.field(
        default=False, metadata=described("warm up with gSDE instead of uniformly random actions")
    )
    n_steps: int = attrs.field(default=1, kw_only=True, validator=in_range(1), metadata=glossary.N_STEP_TARGETS)
    policy_kwargs: TQCPolicyConfig = attrs.field(
        factory=TQCPolicyConfig,
        converter=_policy_settings,
        kw_only=True,
        metadata=described("settings of the networks"),
    )

    def __attrs_post_init__(self) -> None:
        dropped, quantiles = self.top_quantiles_to_drop_per_net, self.policy_kwargs.n_quantiles
        if dropped >= quantiles:
            raise ValueError(
                f"top_quantiles_to_drop_per_net = {dropped} leaves nothing of n_quantiles = {quantiles}; drop fewer"
            )
        if self.sde_sample_freq == 0:
            raise ValueError(
                "sde_sample_freq = 0 is no period; use -1 (at rollout starts) or a positive number of steps"
            )
        if isinstance(self.target_entropy, str) and self.target_entropy != "auto":
            raise ValueError(f'target_entropy = {self.target_entropy!r} must be "auto" or a number')

    @property
    def sde_period(self) -> int | None:
        """Steps between noise matrices within a rollout; None: one per rollout."""
        return self.sde_sample_freq if self.sde_sample_freq > 0 else None

    @property
    def kept_quantiles(self) -> int:
        """Atoms of all critics that the target is made of."""
        networks = self.policy_kwargs
        return networks.n_critics * (networks.n_quantiles - self.top_quantiles_to_drop_per_net)

    def target_entropy_for(self, dimensions: int) -> float:
        """The target entropy for actions of so many dimensions."""
        return -float(dimensions) if self.target_entropy == "auto" else float(self.target_entropy)
