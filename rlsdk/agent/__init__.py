"""The user-facing class `Agent`, and its functions: sessions, files, resuming, changing the environment.

Who is who:

- `Agent`: what users hold. Settings are attributes of it. A function that also gets its state calls it `user_facing`.
- `AssembledAgent`: the state of an `Agent`, in its attribute `_assembled`. Functions of this folder call it `agent`.
- `DrivenAgent`: the base of `AssembledAgent` in the layer `training`, with the members that the driver reads and stores.
- `TrainedAgent`: the Protocol of `Agent` in the layer `training`, which may not import `Agent`. Callbacks use its members.
- `run.agent` and `run.driven`: the `Agent` and the `AssembledAgent` of a running training.
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
