"""The hyper-parameters."""

from __future__ import annotations

import attrs

from rlsdk.settings import AgentConfig, described, in_range


@attrs.frozen
class CrossEntropyConfig(AgentConfig):
    """The constructor parameters of the cross-entropy method, in order."""

    candidates: int = attrs.field(
        default=32, validator=in_range(2), metadata=described("number of candidates (parameter vectors) per round")
    )
    elites: int = attrs.field(
        default=8,
        validator=in_range(1),
        metadata=described("number of best candidates to which the Gaussian is fitted"),
    )
    first_std: float = attrs.field(
        default=1.0,
        validator=in_range(0, open_low=True),
        metadata=described("initial standard deviation of the Gaussian"),
    )
    extra_std: float = attrs.field(
        default=0.1,
        validator=in_range(0),
        metadata=described(
            "number added to standard deviations against an early end of the search; decreases linearly to 0"
        ),
    )
    n_eval_episodes: int = attrs.field(
        default=1, validator=in_range(1), metadata=described("episodes played with each candidate")
    )
