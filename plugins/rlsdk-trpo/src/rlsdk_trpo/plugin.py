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


LIVE = (
    "learning_rate",
    "n_steps",
    "batch_size",
    "gamma",
    "cg_max_steps",
    "cg_damping",
    "line_search_shrinking_factor",
    "line_search_max_iter",
    "n_critic_updates",
    "gae_lambda",
    "sde_sample_freq",
    "normalize_advantage",
    "target_kl",
    "sub_sampling_factor",
)

SPEC = AlgorithmSpec(
    id="trpo",
    family="on-policy",
    config_type=TRPOConfig,
    build=_build,
    policies=("MlpPolicy", "CnnPolicy", "MultiInputPolicy"),
    agent=_agent,
    from_sb3=_from_sb3,
    action_masks="optional",
    live=LIVE,
)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin"s spec."""
    return SPEC
