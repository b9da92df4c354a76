"""Puts TQC together; the only place that chooses its parts."""

from __future__ import annotations

from typing import Any

from rlsdk.buffers import build_replay
from rlsdk.engines import Library, choose
from rlsdk.exploration import NoisyPolicy, UniformWarmUp
from rlsdk.interfaces import Policy
from rlsdk.networks import (
    ActionScale,
    ContinuousCritics,
    EnsembleMLP,
    SquashedActor,
    build_encoder,
    build_squashed_actor,
    features_dim,
)
from rlsdk.parts import Facts, OffPolicyPlan, Parts, require_spaces
from rlsdk.settings.networks import widths
from rlsdk.spaces import Box
from rlsdk.updates import EntropyCoefficient
from rlsdk_tqc.algorithm import TruncatedQuantileCritics
from rlsdk_tqc.config import TQCConfig

HIDDEN = (256, 256)
OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def build(facts: Facts, config: TQCConfig) -> Parts:
    """The parts of one TQC agent.

    Raises:
        UnsupportedSpaceError: the action space is no bounded Box, or the policy does not fit the observations.
    """
    require_spaces(facts, "TQC", actions=("Box",), observations=OBSERVATIONS)
    assert isinstance(facts.action_space, Box)
    scale = ActionScale(facts.action_space)
    actor = _actor(facts, config, scale).to(facts.device)
    critics = _critics(facts, config, actor).to(facts.device)
    target = config.target_entropy_for(scale.size)
    entropy = EntropyCoefficient(config.ent_coef, target, config.learning_rate(1.0), facts.device)
    return Parts(
        policy=actor,
        algorithm=TruncatedQuantileCritics(actor, critics, entropy, config, facts.streams["update"]),
        plan=OffPolicyPlan.of(config),
        buffer=build_replay(facts, config),
        behavior=_behavior(facts, config, actor),
    )


def _actor(facts: Facts, config: TQCConfig, scale: ActionScale) -> SquashedActor:
    networks = config.policy_kwargs
    encoder = build_encoder(facts, config.policy, networks)
    hidden = widths(networks.net_arch, "pi", HIDDEN, names=("pi", "qf"))
    if not config.use_sde:
        actor = build_squashed_actor(encoder, hidden, networks.activation_fn, scale)
        return actor.run_by_hand(_library(config, facts, hidden))
    every = config.sde_period
    return build_squashed_actor(encoder, hidden, networks.activation_fn, scale, sde=networks, resample_every=every)


def _critics(facts: Facts, config: TQCConfig, actor: SquashedActor) -> ContinuousCritics:
    networks = config.policy_kwargs
    shared = networks.share_features_extractor
    encoder = actor.encoder if shared else build_encoder(facts, config.policy, networks)
    inputs = features_dim(encoder) + actor.scale.size
    hidden = widths(networks.net_arch, "qf", HIDDEN, names=("pi", "qf"))
    ensemble = EnsembleMLP(networks.n_critics, inputs, hidden, networks.n_quantiles, networks.activation_fn)
    return ContinuousCritics(encoder, ensemble, _library(config, facts, hidden))


def _library(config: TQCConfig, facts: Facts, hidden: tuple[int, ...]) -> Library | None:
    """What runs the dense layers of one network."""
    width = max(hidden, default=1)
    return choose(config.policy_kwargs.engine, width=width, rows=config.batch_size, device=facts.device)


def _behavior(facts: Facts, config: TQCConfig, actor: SquashedActor) -> Policy[Any, Any]:
    """Uniform actions first, then the actor; action noise on top of both."""
    behavior: Policy[Any, Any] = actor
    if not (config.use_sde and config.use_sde_at_warmup):
        behavior = UniformWarmUp(behavior, facts.action_space, config.learning_starts)
    if config.action_noise is not None:
        behavior = NoisyPolicy(behavior, config.action_noise, actor.scale)
    return behavior
