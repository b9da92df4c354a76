"""Deep Q-learning. Source: Mnih et al. 2015, doi:10.1038/nature14236, algorithm 1."""

from __future__ import annotations

from rlsdk.buffers import build_replay
from rlsdk.exploration import UniformWarmUp
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.math.value_losses import smooth_l1
from rlsdk.networks import build_discrete_value_policy
from rlsdk.registry import AlgorithmSpec, Manifest
from rlsdk.settings.q_learning import QLearningConfig
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import QLearning

OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")


def build(context: BuildContext, config: QLearningConfig) -> Parts:
    """The parts of one DQN agent: one value per action, the Huber loss."""
    require_spaces(context, "DQN", actions=("Discrete", "MultiDiscrete"), observations=OBSERVATIONS)
    policy = build_discrete_value_policy(context, config)
    return Parts(
        policy=policy,
        algorithm=QLearning(policy, config, smooth_l1, num_envs=context.num_envs),
        plan=OffPolicyPlan.of(config),
        buffer=build_replay(context, config),
        behavior=UniformWarmUp(policy, context.action_space, config.learning_starts, context.num_envs),
    )


SPEC = AlgorithmSpec(
    id="dqn",
    family="off-policy",
    config_type=QLearningConfig,
    build=build,
    policies=POLICIES,
    action_masks="optional",
    live=QLearningConfig.LIVE,
)
MANIFEST = Manifest(
    id="dqn",
    title="Deep Q-learning",
    summary="off-policy, discrete actions: one value per action",
    family="off-policy",
    sdk=">=0.1",
    actions=("Discrete", "MultiDiscrete"),
    observations=OBSERVATIONS,
    policies=POLICIES,
    traits=("replay", "action_mask"),
)
