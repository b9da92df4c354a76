"""Entry point of the plugin: its spec. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk_qrdqn.config import QRDQNConfig

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.parts import Facts, Parts


def _build(facts: Facts, config: QRDQNConfig) -> Parts:
    from rlsdk_qrdqn.build import build

    return build(facts, config)


def _agent() -> type[Agent]:
    from rlsdk_qrdqn.agent import QRDQN

    return QRDQN


def _from_sb3(weights: Any, actions: Any) -> Any:
    from rlsdk_qrdqn.interchange import from_sb3

    return from_sb3(weights, actions)


LIVE = (
    "learning_rate",
    "learning_starts",
    "batch_size",
    "tau",
    "gamma",
    "train_freq",
    "gradient_steps",
    "target_update_interval",
    "exploration_fraction",
    "exploration_initial_eps",
    "exploration_final_eps",
    "max_grad_norm",
    "n_steps",
    "double_q",
)

SPEC = AlgorithmSpec(
    id="qrdqn",
    family="off-policy",
    config_type=QRDQNConfig,
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
