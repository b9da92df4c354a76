"""Why the kit cannot find some bugs, where that is known."""

from __future__ import annotations

REASONS = {
    "gru-policies-have-an-lstm": "what the name of a policy promises is in words only",
    "explained-variance-of-the-prediction": "what a number of the log means is in words only",
    "the-largest-atoms-stay": "which atoms are dropped is the choice of a paper",
}
"""Id of a bug that the kit does not find -> why. The others: what was seen when they were looked for."""
