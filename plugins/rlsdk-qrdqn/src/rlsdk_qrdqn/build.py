"""Puts QRDQN together; the only place that chooses its parts."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.engines import choose
from rlsdk.exploration import UniformWarmUp
from rlsdk.networks import build_encoder, uses_nature_cnn
from rlsdk.parts import Facts, OffPolicyPlan, Parts, require_spaces
from rlsdk.settings.networks import widths
from rlsdk.spaces import Discrete, MultiDiscrete
from rlsdk_qrdqn.algorithm import QuantileRegression
from rlsdk_qrdqn.config import QRDQNConfig
from rlsdk_qrdqn.policy import QuantilePolicy

HIDDEN = (64, 64)
OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def build(facts: Facts, config: QRDQNConfig) -> Parts:
    """The parts of one QRDQN agent.

    Raises:
        UnsupportedSpaceError: the actions are neither Discrete nor MultiDiscrete, or the policy does not fit the observations.
    """
    require_spaces(facts, "QRDQN", actions=("Discrete", "MultiDiscrete"), observations=OBSERVATIONS)
    assert isinstance(facts.action_space, Discrete | MultiDiscrete)
    networks = config.policy_kwargs
    encoder = build_encoder(facts, config.policy, networks)
    hidden = widths(networks.net_arch, "qf", () if uses_nature_cnn(encoder) else HIDDEN, names=("qf",))
    width, count = max(hidden, default=1), networks.n_quantiles
    library = choose(networks.engine, width=width, rows=config.batch_size, device=facts.device)
    policy = QuantilePolicy(encoder, hidden, networks.activation_fn, facts.action_space, count, library=library)
    policy.epsilon.fill_(config.exploration_initial_eps)
    policy.to(facts.device)
    return Parts(
        policy=policy,
        algorithm=QuantileRegression(policy, config, num_envs=facts.num_envs),
        plan=OffPolicyPlan.of(config),
        buffer=build_replay(facts, config),
        behavior=UniformWarmUp(policy, facts.action_space, config.learning_starts),
    )
