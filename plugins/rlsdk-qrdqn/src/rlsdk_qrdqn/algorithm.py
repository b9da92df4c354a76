"""Quantile-regression DQN. Source: Dabney et al. 2017, arXiv:1710.10044, algorithm 1.

Algorithm 1 is Q-learning with K quantiles theta_1 ... theta_K of the return for each action:

    a*  = argmax_a' mean_j theta_j(s', a')                                  `rlsdk.math.values.greedy_action`
    y_j = r + gamma theta_j(s', a*)                                         `rlsdk.math.values.q_target`
    L   = sum_i mean_j rho^kappa_tau_i(y_j - theta_i(s, a)), kappa = 1      `rlsdk.math.values.quantile_huber`, equation 10

with tau_i = (i - 1/2) / K, the midpoints of equal intervals (lemma 2).
"""

from __future__ import annotations

from functools import partial

from rlsdk.math import quantile_huber
from rlsdk.networks import DiscreteValuePolicy
from rlsdk.updates import QLearning
from rlsdk_qrdqn.config import QRDQNConfig


def quantile_regression(policy: DiscreteValuePolicy, config: QRDQNConfig, num_envs: int) -> QLearning[QRDQNConfig]:
    """Build the update of QR-DQN for a policy that predicts K quantiles for each of A actions, [N, A, K]."""
    loss = partial(quantile_huber, sum_over_quantiles=True)
    return QLearning(policy, config, loss, num_envs=num_envs, arguments=optimizer_arguments)


def optimizer_arguments(config: QRDQNConfig) -> dict[str, object]:
    """Return the arguments of the optimizer: `optimizer_kwargs`. Without `optimizer_class`, Adam's `eps` is 0.01 / batch_size
    unless it is given. The paper uses this value with a batch size of 32."""
    networks = config.policy_kwargs
    own = {"eps": 0.01 / config.batch_size} if networks.optimizer_class is None else {}
    return {**own, **(networks.optimizer_kwargs or {})}
