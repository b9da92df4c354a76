"""The user-facing class `Agent`, and its functions: sessions, files, resuming, changing the environment.

Who is who:

| name | what it is |
|---|---|
| `Agent` | what users hold; settings are attributes of it. Functions that also get the next one call it `user_facing` |
| `AssembledAgent` | its state, `Agent._assembled`: spec, parts, environment, counts. Functions of this folder call it `agent` |
| `DrivenAgent` | the part of `AssembledAgent` that the layer `training` knows: what the driver reads and stores |
| `TrainedAgent` | the Protocol of `Agent` in the layer `training`, which may not import `Agent`: what callbacks may use |
| `run.agent`, `run.driven` | the `Agent` and the `AssembledAgent` of a running training |
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
