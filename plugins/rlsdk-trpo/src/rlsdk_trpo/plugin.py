"""Entry point of the plugin: its spec. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk_trpo.config import TRPOConfig

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.parts import Facts, Parts


def _build(facts: Facts, config: TRPOConfig) -> Parts:
    from rlsdk_trpo.build import build

    return build(facts, config)


def _agent() -> type[Agent]:
    from rlsdk_trpo.agent import TRPO

    return TRPO


def _from_sb3(weights: Any, actions: Any) -> Any:
    from rlsdk_trpo.interchange import from_sb3

    return from_sb3(weights, actions)


SPEC = AlgorithmSpec(
    id="trpo",
    family="on-policy",
    config_type=TRPOConfig,
    build=_build,
    policies=("MlpPolicy", "CnnPolicy", "MultiInputPolicy"),
    agent=_agent,
    from_sb3=_from_sb3,
    action_masks="optional",
)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin"s spec."""
    return SPEC
