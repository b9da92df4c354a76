"""Every hyper-parameter of QRDQN, once. Constructor, help, CLI, settings files and docs derive from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rlsdk.math.schedules import Constant, Schedule, as_schedule
from rlsdk.settings import AgentConfig, described, finite_schedule, glossary, in_range, structure
from rlsdk.settings.frequency import TrainFrequency, as_train_frequency
from rlsdk.settings.networks import NetworkConfig, as_net_arch, as_optimizer

PAPER = "arXiv:1710.10044"
UNIT = in_range(0.0, 1.0)


@attrs.frozen(kw_only=True)
class QRDQNPolicyConfig(NetworkConfig):
    """`policy_kwargs` of QRDQN."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata=described("hidden layer widths", source="none = [64, 64], [] after NatureCNN"),
    )
    n_quantiles: int = attrs.field(
        default=200, validator=in_range(1), metadata=described("quantiles per action", source=PAPER, tune=(10, 200))
    )
    optimizer_class: str | Callable[..., Any] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_optimizer),
        metadata=described("element-wise torch optimiser; none = Adam with the paper's epsilon, 0.01 / batch_size"),
    )


def _policy_settings(value: Mapping[str, Any] | QRDQNPolicyConfig | None) -> QRDQNPolicyConfig:
    return value if isinstance(value, QRDQNPolicyConfig) else structure(value or {}, QRDQNPolicyConfig)


@attrs.frozen
class QRDQNConfig(AgentConfig):
    """The constructor parameters of QRDQN, in order."""

    learning_rate: Schedule = attrs.field(
        default=Constant(5e-5),
        converter=as_schedule,
        validator=finite_schedule(),
        metadata=glossary.LEARNING_RATE | {"source": PAPER},
    )
    buffer_size: int = attrs.field(default=1_000_000, validator=in_range(1), metadata=glossary.BUFFER_SIZE)
    learning_starts: int = attrs.field(default=50_000, validator=in_range(0), metadata=glossary.LEARNING_STARTS)
    batch_size: int = attrs.field(default=32, validator=in_range(1), metadata=glossary.BATCH_SIZE | {"source": PAPER})
    tau: float = attrs.field(default=1.0, validator=UNIT, metadata=glossary.TAU)
    gamma: float = attrs.field(default=0.99, validator=UNIT, metadata=glossary.GAMMA)
    train_freq: TrainFrequency = attrs.field(
        default=TrainFrequency(4, "step"), converter=as_train_frequency, metadata=glossary.TRAIN_FREQ
    )
    gradient_steps: int = attrs.field(default=1, validator=in_range(-1), metadata=glossary.GRADIENT_STEPS)
    replay_buffer_class: str | Callable[..., Any] | None = attrs.field(
        default=None, metadata=glossary.REPLAY_BUFFER_CLASS
    )
    replay_buffer_kwargs: dict[str, Any] | None = attrs.field(default=None, metadata=glossary.REPLAY_BUFFER_KWARGS)
    optimize_memory_usage: bool = attrs.field(default=False, metadata=glossary.OPTIMIZE_MEMORY_USAGE)
    target_update_interval: int = attrs.field(
        default=10_000, validator=in_range(1), metadata=described("steps between target updates", unit="env steps")
    )
    exploration_fraction: float = attrs.field(
        default=0.005, validator=UNIT, metadata=described("share of the training over which exploration falls")
    )
    exploration_initial_eps: float = attrs.field(
        default=1.0, validator=UNIT, metadata=described("probability of a random action at the start")
    )
    exploration_final_eps: float = attrs.field(
        default=0.01, validator=UNIT, metadata=described("probability of a random action in the end")
    )
    max_grad_norm: float | None = attrs.field(
        default=None, validator=in_range(0, open_low=True), metadata=glossary.MAX_GRAD_NORM
    )
    n_steps: int = attrs.field(default=1, kw_only=True, validator=in_range(1), metadata=glossary.N_STEP_TARGETS)
    policy_kwargs: QRDQNPolicyConfig = attrs.field(
        factory=QRDQNPolicyConfig, converter=_policy_settings, kw_only=True, metadata=glossary.POLICY_KWARGS
    )
    double_q: bool = attrs.field(
        default=False,
        kw_only=True,
        metadata=described(
            "the online network chooses the next action, the target judges it", source="arXiv:1509.06461"
        ),
    )

    def exploration_rate(self, progress: float) -> float:
        """Epsilon after this share of the training: a line from the first to the last value, then constant."""
        done = 1.0 if self.exploration_fraction == 0.0 else min(1.0, progress / self.exploration_fraction)
        return self.exploration_initial_eps + done * (self.exploration_final_eps - self.exploration_initial_eps)
