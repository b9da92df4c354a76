"""Training loops (plans) and the collectors they use. A plan has no access to logs, files or callbacks."""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
