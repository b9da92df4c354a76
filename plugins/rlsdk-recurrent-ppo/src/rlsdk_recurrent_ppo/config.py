"""The hyper-parameters of RecurrentPPO. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.settings import ClippedPolicyConfig, RecurrentConfig, defaults, described, in_range, structure


def _policy_settings(value: Mapping[str, object] | RecurrentConfig | None) -> RecurrentConfig:
    return structure(value or {}, RecurrentConfig)


@attrs.frozen(field_transformer=defaults(n_steps=128, batch_size=128))
class RecurrentPPOConfig(ClippedPolicyConfig):
    """The constructor parameters of RecurrentPPO, in order."""

    policy_kwargs: RecurrentConfig = attrs.field(factory=RecurrentConfig, converter=_policy_settings, kw_only=True)
    sequence_length: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=in_range(1),
        metadata=described(
            "steps of truncated backpropagation through time; none = back to the start of the episode or minibatch",
            unit="steps",
        ),
    )
    burn_in: int = attrs.field(
        default=0,
        kw_only=True,
        validator=in_range(0),
        metadata=described(
            "first steps of each sequence that starts inside an episode; they only update the recurrent state, without"
            " a loss",
            unit="steps",
        ),
    )

    def __attrs_post_init__(self) -> None:
        """Refuse a `burn_in` that would cover whole sequences. No sequence is longer than the three settings below."""
        lengths = {"n_steps": self.n_steps, "batch_size": self.batch_size, "sequence_length": self.sequence_length}
        for name, length in lengths.items():
            if length is not None and self.burn_in >= length:
                raise ValueError(
                    f"burn_in = {self.burn_in} leaves nothing to learn from: {name} is {length}; give less than {length}"
                )
