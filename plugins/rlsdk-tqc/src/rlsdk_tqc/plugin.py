"""Entry point of the plugin: its spec. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk_tqc.config import TQCConfig

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.parts import Facts, Parts


def _build(facts: Facts, config: TQCConfig) -> Parts:
    from rlsdk_tqc.build import build

    return build(facts, config)


def _agent() -> type[Agent]:
    from rlsdk_tqc.agent import TQC

    return TQC


def _from_sb3(weights: Any, actions: Any) -> Any:
    from rlsdk_tqc.interchange import from_sb3

    return from_sb3(weights, actions)


LIVE = (
    "learning_rate",
    "learning_starts",
    "batch_size",
    "tau",
    "gamma",
    "train_freq",
    "gradient_steps",
    "action_noise",
    "ent_coef",
    "target_update_interval",
    "target_entropy",
    "top_quantiles_to_drop_per_net",
    "sde_sample_freq",
    "n_steps",
)

SPEC = AlgorithmSpec(
    id="tqc",
    family="off-policy",
    config_type=TQCConfig,
    build=_build,
    policies=("MlpPolicy", "CnnPolicy", "MultiInputPolicy"),
    agent=_agent,
    from_sb3=_from_sb3,
    live=LIVE,
)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin's spec."""
    return SPEC
