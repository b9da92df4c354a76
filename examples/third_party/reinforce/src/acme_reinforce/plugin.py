"""What the entry point names. It imports no torch: `rlsdk list` and `rlsdk info` stay instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_reinforce.config import ReinforceConfig
from rlsdk.registry import AlgorithmSpec, hookimpl

if TYPE_CHECKING:
    from rlsdk.parts import Facts, Parts


def _build(facts: Facts, config: ReinforceConfig) -> Parts:
    from acme_reinforce.algorithm import build

    return build(facts, config)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin's algorithm."""
    return AlgorithmSpec(
        id="reinforce",
        family="on-policy",
        config_type=ReinforceConfig,
        build=_build,
        policies=("MlpPolicy",),
        action_masks="optional",
    )
