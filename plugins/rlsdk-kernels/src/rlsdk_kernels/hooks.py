"""The hook that the entry point names: the table of faster implementations."""

from __future__ import annotations

from collections.abc import Callable

from rlsdk.registry import hookimpl


@hookimpl
def kernels() -> dict[str, Callable[..., object]]:
    """Name -> function that takes the place of the function of that name in `rlsdk.kernels.SLOTS`."""
    from rlsdk_kernels import choice, functions
    from rlsdk_kernels.layer_products import sequential

    of_networks = (choice.dense_network, choice.dense_acting, choice.greedy_acting, choice.squashed_policy)
    of_policies = (choice.policy_actor, choice.policy_evaluator, choice.policy_loss, choice.policy_steps)
    of_layers = (choice.differentiable_dense, choice.convolutions, sequential)
    of_vectors = (choice.optimizer_step, choice.vector_step, choice.clip_norm, choice.normalization)
    of_values = (functions.pairwise_huber, functions.action_values, functions.discounted_sums)
    of_rounds = (functions.advantages, functions.explained_variance)
    as_graphs = (choice.graphed_acting, choice.graphed_transition, choice.graphed_update)
    every = (*of_networks, *of_policies, *of_layers, *of_vectors, *of_values, *of_rounds, *as_graphs)
    return {function.__name__: function for function in every}
