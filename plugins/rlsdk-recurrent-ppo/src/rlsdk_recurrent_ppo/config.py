"""Every hyper-parameter of RecurrentPPO, once. Constructor, help, CLI, settings files and docs derive from these classes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.math.schedules import Constant, Schedule, as_schedule, optional_schedule
from rlsdk.settings import AgentConfig, described, finite_schedule, glossary, in_range, structure
from rlsdk.settings.actor_critic import RecurrentConfig

UNIT = in_range(0.0, 1.0)


def _policy_settings(value: Mapping[str, object] | RecurrentConfig | None) -> RecurrentConfig:
    return value if isinstance(value, RecurrentConfig) else structure(value or {}, RecurrentConfig)


@attrs.frozen
class RecurrentPPOConfig(AgentConfig):
    """The constructor parameters of RecurrentPPO, in order."""

    learning_rate: Schedule = attrs.field(
        default=Constant(3e-4), converter=as_schedule, validator=finite_schedule(), metadata=glossary.LEARNING_RATE
    )
    n_steps: int = attrs.field(default=128, validator=in_range(1), metadata=glossary.N_STEPS)
    batch_size: int | None = attrs.field(default=128, validator=in_range(1), metadata=glossary.MINIBATCH_SIZE)
    n_epochs: int = attrs.field(default=10, validator=in_range(1), metadata=glossary.N_EPOCHS)
    gamma: float = attrs.field(default=0.99, validator=UNIT, metadata=glossary.GAMMA)
    gae_lambda: float = attrs.field(default=0.95, validator=UNIT, metadata=glossary.GAE_LAMBDA)
    clip_range: Schedule = attrs.field(
        default=Constant(0.2), converter=as_schedule, validator=finite_schedule(), metadata=glossary.CLIP_RANGE
    )
    clip_range_vf: Schedule | None = attrs.field(
        default=None,
        converter=optional_schedule,
        validator=attrs.validators.optional(finite_schedule()),
        metadata=glossary.CLIP_RANGE_VF,
    )
    normalize_advantage: bool = attrs.field(default=True, metadata=glossary.NORMALIZE_ADVANTAGE)
    ent_coef: float = attrs.field(default=0.0, validator=in_range(0), metadata=glossary.ENT_COEF)
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0), metadata=glossary.VF_COEF)
    max_grad_norm: float = attrs.field(
        default=0.5, validator=in_range(0, open_low=True), metadata=glossary.MAX_GRAD_NORM
    )
    use_sde: bool = attrs.field(default=False, metadata=glossary.USE_SDE)
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1), metadata=glossary.SDE_SAMPLE_FREQ)
    target_kl: float | None = attrs.field(
        default=None, validator=in_range(0, open_low=True), metadata=glossary.EARLY_STOP_KL
    )
    policy_kwargs: RecurrentConfig = attrs.field(
        factory=RecurrentConfig, converter=_policy_settings, kw_only=True, metadata=glossary.POLICY_KWARGS
    )
    sequence_length: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=in_range(1),
        metadata=described(
            "steps gradients go back in time; none = to the start of the episode or minibatch", unit="steps"
        ),
    )
    burn_in: int = attrs.field(
        default=0,
        kw_only=True,
        validator=in_range(0),
        metadata=described(
            "first steps of a sequence inside an episode that only bring its memory up to date", unit="steps"
        ),
    )

    def __attrs_post_init__(self) -> None:
        """A sequence is never longer than these."""
        lengths = {"n_steps": self.n_steps, "batch_size": self.batch_size, "sequence_length": self.sequence_length}
        for name, length in lengths.items():
            if length is not None and self.burn_in >= length:
                raise ValueError(
                    f"burn_in = {self.burn_in} leaves nothing to learn from: {name} is {length}; give less than {length}"
                )
