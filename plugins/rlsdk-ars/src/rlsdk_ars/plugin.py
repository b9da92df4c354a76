"""Entry point of the plugin: its spec. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


def _from_sb3(weights: Any, actions: Any) -> Any:
    from rlsdk_ars.interchange import from_sb3

    return from_sb3(weights, actions)


LIVE = (
    "n_delta",
    "n_top",
    "learning_rate",
    "delta_std",
    "alive_bonus_offset",
    "n_eval_episodes",
)

SPEC = AlgorithmSpec(
    id="ars",
    family="population",
    config_type=ARSConfig,
    build=_build,
    policies=("LinearPolicy", "MlpPolicy"),
    agent=_agent,
    from_sb3=_from_sb3,
    live=LIVE,
)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin"s spec."""
    return SPEC
