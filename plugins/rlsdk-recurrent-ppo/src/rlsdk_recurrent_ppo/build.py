"""Puts RecurrentPPO together; the only place that chooses its parts."""

from __future__ import annotations

from rlsdk.errors import SettingsError
from rlsdk.networks import build_actor_critic
from rlsdk.parts import Facts, OnPolicyPlan, Parts, require_spaces
from rlsdk.updates import ClippedPolicy
from rlsdk_recurrent_ppo.config import RecurrentPPOConfig

SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def build(facts: Facts, config: RecurrentPPOConfig) -> Parts:
    """The parts of one RecurrentPPO agent; the name of its policy says which memory.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations. SettingsError: gSDE without a Box action, or a
            `burn_in` that leaves nothing to learn from.
    """
    require_spaces(facts, "RecurrentPPO", actions=SPACES, observations=SPACES)
    memory = "gru" if "Gru" in config.policy else "lstm"
    network = build_actor_critic(facts, config, memory=memory, use_sde=config.use_sde, sde_every=config.sde_sample_freq)
    _require_steps_left(config)
    update = ClippedPolicy(
        network, config, facts.streams["update"], cut_every=config.sequence_length, burn_in=config.burn_in
    )
    return Parts(policy=network, algorithm=update, plan=OnPolicyPlan.of(config, facts))


def _require_steps_left(config: RecurrentPPOConfig) -> None:
    """A sequence is never longer than these."""
    lengths = {"n_steps": config.n_steps, "batch_size": config.batch_size, "sequence_length": config.sequence_length}
    for name, length in lengths.items():
        if length is not None and config.burn_in >= length:
            raise SettingsError(
                f"burn_in = {config.burn_in} leaves nothing to learn from: {name} is {length}; give less than {length}"
            )
