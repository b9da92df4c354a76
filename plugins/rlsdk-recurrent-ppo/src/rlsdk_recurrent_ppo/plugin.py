"""Entry point of the plugin: its spec. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk_recurrent_ppo.config import RecurrentPPOConfig

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.parts import Facts, Parts


def _build(facts: Facts, config: RecurrentPPOConfig) -> Parts:
    from rlsdk_recurrent_ppo.build import build

    return build(facts, config)


def _agent() -> type[Agent]:
    from rlsdk_recurrent_ppo.agent import RecurrentPPO

    return RecurrentPPO


def _from_sb3(weights: Any, actions: Any) -> Any:
    from rlsdk_recurrent_ppo.interchange import from_sb3

    return from_sb3(weights, actions)


LIVE = (
    "learning_rate",
    "n_steps",
    "batch_size",
    "n_epochs",
    "gamma",
    "gae_lambda",
    "clip_range",
    "clip_range_vf",
    "normalize_advantage",
    "ent_coef",
    "vf_coef",
    "max_grad_norm",
    "target_kl",
    "sde_sample_freq",
    "sequence_length",
    "burn_in",
)

SPEC = AlgorithmSpec(
    id="recurrent-ppo",
    family="on-policy",
    config_type=RecurrentPPOConfig,
    build=_build,
    policies=(
        "MlpLstmPolicy",
        "CnnLstmPolicy",
        "MultiInputLstmPolicy",
        "MlpGruPolicy",
        "CnnGruPolicy",
        "MultiInputGruPolicy",
    ),
    agent=_agent,
    from_sb3=_from_sb3,
    action_masks="optional",
    live=LIVE,
)


@hookimpl
def algorithm() -> AlgorithmSpec:
    """The plugin"s spec."""
    return SPEC
