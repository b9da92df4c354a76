"""The hyper-parameters: those of Q-learning, and those of the model."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import (
    Constant,
    DiscreteValueConfig,
    QLearningConfig,
    defaults,
    described,
    in_range,
    structure,
)


def _networks(given: Mapping[str, object] | DiscreteValueConfig | None) -> DiscreteValueConfig:
    return given if isinstance(given, DiscreteValueConfig) else structure(given or {}, DiscreteValueConfig)


@attrs.frozen(field_transformer=defaults(learning_rate=Constant(1e-3)))
class DynaConfig(QLearningConfig):
    """The constructor parameters of Dyna, in order."""

    model_learning_rate: float = attrs.field(
        default=1e-3,
        validator=in_range(0, open_low=True),
        metadata=described("learning rate of the model's Adam optimizer"),
    )
    planning_steps: int = attrs.field(
        default=5,
        validator=in_range(0),
        metadata=described("updates from steps of the model (imagined steps) for each update from real steps"),
    )
    model_width: int = attrs.field(
        default=64, validator=in_range(1), metadata=described("units of each of the model's two hidden layers")
    )
    policy_kwargs: DiscreteValueConfig = attrs.field(factory=DiscreteValueConfig, converter=_networks, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse settings of rlsdk's replay buffers: Dyna has its own memory, which stores single steps."""
        if self.n_steps != 1:
            raise ValueError(f"n_steps = {self.n_steps} has no effect: Dyna's memory holds single steps; leave it out")
        for name in ("replay_buffer_class", "replay_buffer_kwargs", "optimize_memory_usage"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} has no effect: Dyna has a memory of its own; leave it out"
                )
