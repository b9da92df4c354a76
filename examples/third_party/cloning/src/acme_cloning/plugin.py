"""The hook that the entry point names. It imports no torch, so that `rlsdk list` and `rlsdk info` are fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_cloning.config import CloningConfig
from rlsdk.registry import AlgorithmSpec, hookimpl

if TYPE_CHECKING:
    from rlsdk.interfaces import BuildContext, Parts


def _build(context: BuildContext, config: CloningConfig) -> Parts:
    from acme_cloning.algorithm import build

    return build(context, config)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin's algorithm."""
    return AlgorithmSpec(
        id="cloning",
        family="offline",
        config_type=CloningConfig,
        build=_build,
        policies=("MlpPolicy",),
        action_masks="optional",
    )
