"""Errors for members that the distributions of other libraries have and those of rlsdk lack.

Each error names the replacement.
"""

from __future__ import annotations

from rlsdk.interfaces.unknown_members import explaining

SCALE = "log_std.exp() is the standard deviation of a Gaussian"


explains_documented_members = explaining(
    {
        "distribution": "it is the distribution itself: probs, or mean and log_std, are its own",
        "get_actions": "mode() is the deterministic action, sample(generator) draws one",
        "logits": "log_probs are the normalised logits of a Categorical, probs their exponentials",
        "scale": SCALE,
        "stddev": SCALE,
        "variance": SCALE,
    }
)
"""A class decorator: access to one of these names raises UnknownAttributeError, which names the replacement."""
