"""Entry point of the plugin: its spec. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk_ars.config import ARSConfig

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.parts import Facts, Parts


def _build(facts: Facts, config: ARSConfig) -> Parts:
    from rlsdk_ars.build import build

    return build(facts, config)


def _agent() -> type[Agent]:
    from rlsdk_ars.agent import ARS

    return ARS


SPEC = AlgorithmSpec(
    id="ars",
    family="population",
    config_type=ARSConfig,
    build=_build,
    policies=("LinearPolicy", "MlpPolicy"),
    agent=_agent,
)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin"s spec."""
    return SPEC
