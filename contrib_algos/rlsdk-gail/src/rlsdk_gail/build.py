"""Assembles the parts of GAIL. No other module chooses them."""

from __future__ import annotations

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, Parts, require_spaces
from rlsdk.networks import build_actor_critic, memory_of
from rlsdk.training import OnPolicyPlan
from rlsdk.updates import ClippedPolicy
from rlsdk_gail.algorithm import AdversarialImitation
from rlsdk_gail.config import GAILConfig
from rlsdk_gail.discriminator import Discriminator
from rlsdk_gail.expert import ExpertSteps
from rlsdk_gail.plan import ImitationPlan


def build(context: BuildContext, config: GAILConfig) -> Parts:
    """Build the parts of one GAIL agent.

    Raises:
        UnsupportedSpaceError: the policy does not fit the observations. SettingsError: there is no data set, or
        gSDE is used without a Box action.
    """
    require_spaces(context, "GAIL")
    if config.dataset is None:
        raise SettingsError(
            "GAIL imitates recorded episodes: give dataset = the path of a file that rlsdk_interchange.record_episodes wrote"
        )
    memory, every = memory_of(config.policy), config.sde_sample_freq
    network = build_actor_critic(context, config, memory=memory, use_sde=config.use_sde, sde_every=every)
    hidden = config.hidden_size_adversary
    discriminator = Discriminator(context, config.policy, config.policy_kwargs, hidden).to(context.device)
    expert = ExpertSteps(config.dataset, context, context.streams["expert"])
    update = ClippedPolicy(network, config, context.streams["update"], num_envs=context.num_envs)
    algorithm = AdversarialImitation(update, discriminator, expert, config, context.streams["discriminator"])
    plan = ImitationPlan(OnPolicyPlan.of(config, context), expert)
    return Parts(policy=network, algorithm=algorithm, plan=plan)
