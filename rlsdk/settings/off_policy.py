"""Hyper-parameters that off-policy algorithms share. The config classes of plugins derive from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs

from rlsdk.settings import glossary
from rlsdk.settings.action_noise import ActionNoise, as_action_noise
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.fields import described, finite_schedule, in_range
from rlsdk.settings.frequency import TrainFrequency, as_train_frequency
from rlsdk.settings.schedules import Constant, Schedule, as_schedule

UNIT = in_range(0.0, 1.0)


@attrs.frozen
class OffPolicyConfig(AgentConfig):
    """The constructor parameters of algorithms that learn from a replay buffer, in order."""

    LIVE: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "learning_starts",
        "batch_size",
        "tau",
        "gamma",
        "train_freq",
        "gradient_steps",
        "n_steps",
    )

    learning_rate: Schedule = attrs.field(
        default=Constant(3e-4),
        converter=as_schedule,
        validator=finite_schedule(),
        metadata=glossary.LEARNING_RATE,
    )
    buffer_size: int = attrs.field(default=1_000_000, validator=in_range(1), metadata=glossary.BUFFER_SIZE)
    learning_starts: int = attrs.field(default=100, validator=in_range(0), metadata=glossary.LEARNING_STARTS)
    batch_size: int = attrs.field(default=256, validator=in_range(1), metadata=glossary.BATCH_SIZE)
    tau: float = attrs.field(default=0.005, validator=UNIT, metadata=glossary.TAU)
    gamma: float = attrs.field(default=0.99, validator=UNIT, metadata=glossary.GAMMA)
    train_freq: TrainFrequency = attrs.field(
        default=TrainFrequency(1, "step"), converter=as_train_frequency, metadata=glossary.TRAIN_FREQ
    )
    gradient_steps: int = attrs.field(default=1, validator=in_range(-1), metadata=glossary.GRADIENT_STEPS)
    replay_buffer_class: str | Callable[..., Any] | None = attrs.field(
        default=None, metadata=glossary.REPLAY_BUFFER_CLASS
    )
    replay_buffer_kwargs: Mapping[str, object] | None = attrs.field(
        default=None, metadata=glossary.REPLAY_BUFFER_KWARGS
    )
    optimize_memory_usage: bool = attrs.field(default=False, metadata=glossary.OPTIMIZE_MEMORY_USAGE)
    n_steps: int = attrs.field(default=1, kw_only=True, validator=in_range(1), metadata=glossary.N_STEP_TARGETS)


@attrs.frozen
class ContinuousOffPolicyConfig(OffPolicyConfig):
    """The constructor parameters of off-policy algorithms for Box actions, in order."""

    action_noise: ActionNoise | None = attrs.field(
        default=None,
        converter=as_action_noise,
        metadata=described(
            "noise added to actions during training, where actions are scaled to [-1, 1]",
            examples=({"kind": "normal", "mean": 0.0, "sigma": 0.3},),
        ),
    )
    # declared again, so that they come after `action_noise`
    replay_buffer_class: str | Callable[..., Any] | None = attrs.field(
        default=None, metadata=glossary.REPLAY_BUFFER_CLASS
    )
    replay_buffer_kwargs: Mapping[str, object] | None = attrs.field(
        default=None, metadata=glossary.REPLAY_BUFFER_KWARGS
    )
    optimize_memory_usage: bool = attrs.field(default=False, metadata=glossary.OPTIMIZE_MEMORY_USAGE)
