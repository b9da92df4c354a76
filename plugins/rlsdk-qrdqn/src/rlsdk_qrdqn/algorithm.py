"""Quantile-regression DQN. Source: Dabney et al. 2017, arXiv:1710.10044, algorithm 1.

Algorithm 1 is Q-learning with K quantiles theta_1 ... theta_K of the return for each action:

    a*  = argmax_a' mean_j theta_j(s', a')                                  `rlsdk.math.discrete_values.greedy_action`
    y_j = r + gamma theta_j(s', a*)                                         `rlsdk.math.discrete_values.q_target`
    L   = sum_i mean_j rho^kappa_tau_i(y_j - theta_i(s, a)), kappa = 1      `rlsdk.math.quantiles.quantile_huber`, equation 10

with tau_i = (i - 1/2) / K, the midpoints of equal intervals (lemma 2).
"""

from __future__ import annotations

from functools import partial

from rlsdk.math.quantiles import quantile_huber
from rlsdk.networks import DiscreteValuePolicy
from rlsdk.updates import QLearning
from rlsdk_qrdqn.config import QRDQNConfig


def quantile_regression(policy: DiscreteValuePolicy, config: QRDQNConfig, num_envs: int) -> QLearning[QRDQNConfig]:
    """The update of QR-DQN for a policy that predicts [N, A, K] quantiles."""
    loss = partial(quantile_huber, sum_over_quantiles=True)
    return QLearning(policy, config, loss, num_envs=num_envs, arguments=optimizer_arguments)


def optimizer_arguments(config: QRDQNConfig) -> dict[str, object]:
    """`optimizer_kwargs`; without a class Adam's epsilon is the paper's, which goes with its batches of 32, unless it is
    given."""
    networks = config.policy_kwargs
    own = {"eps": 0.01 / config.batch_size} if networks.optimizer_class is None else {}
    return {**own, **(networks.optimizer_kwargs or {})}
