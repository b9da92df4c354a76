"""What the entry point names. It imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acme_cross_entropy.config import CrossEntropyConfig
from rlsdk.registry import AlgorithmSpec, hookimpl

if TYPE_CHECKING:
    from rlsdk.parts import Facts, Parts


def _build(facts: Facts, config: CrossEntropyConfig) -> Parts:
    from acme_cross_entropy.algorithm import build

    return build(facts, config)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin's algorithm."""
    return AlgorithmSpec(
        id="cross-entropy",
        family="population",
        config_type=CrossEntropyConfig,
        build=_build,
        policies=("LinearPolicy",),
    )
