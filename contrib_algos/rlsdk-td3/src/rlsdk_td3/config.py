"""The hyper-parameters of TD3. Constructor, help, CLI, settings files and docs are derived from this class."""

from __future__ import annotations

import attrs

from rlsdk.settings import DeterministicActorCriticConfig, described, in_range, positional_after

PAPER = "arXiv:1802.09477"


@attrs.frozen(field_transformer=positional_after(n_steps="optimize_memory_usage"))
class TD3Config(DeterministicActorCriticConfig):
    """The constructor parameters of TD3, in order."""

    policy_delay: int = attrs.field(
        default=2,
        validator=in_range(1),
        metadata=described("updates of the critics per update of the actor and the target networks", source=PAPER),
    )
    target_policy_noise: float = attrs.field(
        default=0.2,
        validator=in_range(0),
        metadata=described(
            "standard deviation of the noise on the target actor's actions, which are scaled to [-1, 1]", source=PAPER
        ),
    )
    target_noise_clip: float = attrs.field(
        default=0.5,
        validator=in_range(0),
        metadata=described(
            "bound of the noise on the target actor's actions, which are scaled to [-1, 1]", source=PAPER
        ),
    )
