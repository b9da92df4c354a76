"""Names and shapes of stable-baselines3 for rlsdk. Public names are imported on first use.

    from rlsdk_sb3 import BaseCallback

The core asks this package for attributes, callbacks and environments that only stable-baselines3 has; see
`rlsdk.runtime.lazy.of_sb3`. `_FOR_THE_CORE` has what it calls.
"""

from rlsdk.runtime import attach

_FOR_THE_CORE = {
    **dict.fromkeys(("ATTRIBUTES", "advice", "known"), "rlsdk_sb3.names"),
    "adapted_callback": "rlsdk_sb3.callbacks",
    "called_back": "rlsdk_sb3.steps",
    "without_effect": "rlsdk_sb3.agents",
}
__version__ = "0.1.0"
__getattr__, __dir__ = attach(__name__, __file__, _FOR_THE_CORE)
