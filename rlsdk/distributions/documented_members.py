"""Members of documented distributions that those here do not have: each raises an error that names the replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rlsdk.runtime.absent_members import ExplainsAbsentMembers

SCALE = "log_std.exp() is the standard deviation of a Gaussian"


class ExplainsDocumentedMembers(ExplainsAbsentMembers):
    """Raises UnknownAttributeError for the names in `instead`, and for other unknown ones without advice."""

    __slots__ = ()
    instead: ClassVar[Mapping[str, str]] = {
        "distribution": "it is the distribution itself: probs, or mean and log_std, are its own",
        "get_actions": "mode() is the deterministic action, sample(generator) draws one",
        "logits": "log_probs are the normalised logits of a Categorical, probs their exponentials",
        "scale": SCALE,
        "stddev": SCALE,
        "variance": SCALE,
    }
