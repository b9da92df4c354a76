"""Assembles the parts of IQL. No other module chooses them."""

from __future__ import annotations

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.training import OffPolicyPlan
from rlsdk_datasets import OfflinePlan, RecordedTransitions
from rlsdk_iql.algorithm import ImplicitQLearning
from rlsdk_iql.buffer import RecordedAndCollected
from rlsdk_iql.config import IQLConfig
from rlsdk_iql.networks import ActionInput, build_critics, build_policy

ACTIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


def build(context: BuildContext, config: IQLConfig) -> Parts:
    """Build the parts of one IQL agent.

    Raises:
        UnsupportedSpaceError: the action space is a Box without bounds, a Dict or a Tuple, or the policy does not fit the
            observations.
        SettingsError: there is no data set, or the buffer of fine-tuning is smaller than one step.
    """
    require_spaces(context, "IQL", actions=ACTIONS)
    if config.dataset is None:
        raise SettingsError("iql learns from recorded episodes: give dataset=PATH, or --dataset FILE")
    action_input = ActionInput(context.action_space).to(context.device)
    policy = build_policy(context, config)
    update = ImplicitQLearning(policy, build_critics(context, config, action_input.width), action_input, config)
    if not config.fine_tuning:
        recorded = RecordedTransitions(config.dataset, context, gamma=config.gamma)
        return Parts(policy=policy, algorithm=update, plan=OfflinePlan(config.batch_size), buffer=recorded)
    if config.buffer_size < context.num_envs:
        raise SettingsError(
            f"buffer_size = {config.buffer_size} has no room for one step of {context.num_envs} environments; enlarge it"
        )
    both = RecordedAndCollected(config.dataset, context, gamma=config.gamma, capacity=config.buffer_size)
    # from the first step on, because the recorded steps suffice for updates
    plan = OffPolicyPlan(1, config.gradient_steps, config.batch_size, learning_starts=0)
    return Parts(policy=policy, algorithm=update, plan=plan, buffer=both)
