"""The hyper-parameters of MaskablePPO. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

import attrs

from rlsdk.settings import ClippedPolicyConfig, described, without


@attrs.frozen(field_transformer=without("use_sde", "sde_sample_freq"))
class MaskablePPOConfig(ClippedPolicyConfig):
    """The constructor parameters of MaskablePPO, in order: those of PPO without gSDE, and `use_masking`."""

    use_masking: bool = attrs.field(
        default=True,
        kw_only=True,
        metadata=described(
            "sample only actions that the action mask allows; false = plain PPO, for environments without masks"
        ),
    )
