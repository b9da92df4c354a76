"""The hyper-parameters."""

from __future__ import annotations

import attrs

from rlsdk.settings import AgentConfig, described, in_range


@attrs.frozen
class CrossEntropyConfig(AgentConfig):
    """The constructor parameters of the cross-entropy method, in order."""

    candidates: int = attrs.field(default=32, validator=in_range(2), metadata=described("candidates per round"))
    elites: int = attrs.field(
        default=8, validator=in_range(1), metadata=described("best candidates the Gaussian is fitted to")
    )
    first_std: float = attrs.field(
        default=1.0, validator=in_range(0, open_low=True), metadata=described("deviation of the first round")
    )
    extra_std: float = attrs.field(
        default=0.1,
        validator=in_range(0),
        metadata=described("added to deviations, so that the search never stops early"),
    )
    n_eval_episodes: int = attrs.field(default=1, validator=in_range(1), metadata=described("episodes per candidate"))
