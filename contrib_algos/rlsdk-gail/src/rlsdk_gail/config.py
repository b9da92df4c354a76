"""The hyper-parameters of GAIL. Constructor, help, CLI, settings files and docs are derived from these classes."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rlsdk.errors import SettingsError
from rlsdk.settings import (
    ClippedPolicyConfig,
    Normalization,
    RecurrentConfig,
    choice,
    described,
    in_range,
    positional_after,
    structure,
)
from rlsdk_datasets import Dataset

REWARDS = ("positive", "negative", "logit", "constant")
DOCUMENTED = {
    "dataset": "env",
    "hidden_size_adversary": "dataset",
    "adversary_entcoeff": "hidden_size_adversary",
    "g_step": "adversary_entcoeff",
    "d_step": "g_step",
    "d_stepsize": "d_step",
}
"""The parameters of GAIL in stable-baselines 2: name -> the one that it follows. The parameters of PPO come after them."""


def _networks(value: Mapping[str, object] | RecurrentConfig | None) -> RecurrentConfig:
    return structure(value or {}, RecurrentConfig)


def _without_rewards(value: object) -> Normalization | None:
    """Convert the setting `normalize`. `norm_reward` becomes false: the true rewards are never read and have no statistics."""
    if value is None or value is False:
        return None
    table = {} if value is True else value
    if not isinstance(table, Normalization | Mapping):
        raise SettingsError(f"normalize = {value!r} must be true, false, or a table such as {{ clip_obs = 5.0 }}")
    found = table if isinstance(table, Normalization) else structure(table, Normalization)
    if found.sign_reward:
        raise SettingsError("normalize: GAIL never reads the true rewards, so sign_reward has no meaning; leave it out")
    return attrs.evolve(found, norm_reward=False)


@attrs.frozen(field_transformer=positional_after(**DOCUMENTED))
class GAILConfig(ClippedPolicyConfig):
    """The constructor parameters of GAIL: the documented ones in order, then those of PPO, which trains the policy."""

    dataset: Dataset | None = attrs.field(
        default=None, kw_only=True, metadata=described("data set of recorded episodes to imitate: a path")
    )
    hidden_size_adversary: int = attrs.field(
        default=100,
        kw_only=True,
        validator=in_range(1, 2**20),
        metadata=described("units of each of the discriminator's two hidden layers", unit="units"),
    )
    adversary_entcoeff: float = attrs.field(
        default=1e-3,
        kw_only=True,
        validator=in_range(0),
        metadata=described("weight of the discriminator's entropy in its loss", tune=(0, 0.1)),
    )
    g_step: int = attrs.field(
        default=3,
        kw_only=True,
        validator=in_range(1),
        metadata=described(
            "rollouts that the policy learns from between two rounds of discriminator steps", tune=(1, 5)
        ),
    )
    d_step: int = attrs.field(
        default=1,
        kw_only=True,
        validator=in_range(1),
        metadata=described("gradient steps of the discriminator in each round of discriminator steps", tune=(1, 20)),
    )
    d_stepsize: float = attrs.field(
        default=3e-4,
        kw_only=True,
        validator=in_range(0, open_low=True),
        metadata=described("learning rate of the discriminator", tune=(1e-5, 1e-2)),
    )
    demo_batch_size: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=in_range(1),
        metadata=described(
            "batch size of a discriminator step: expert rows, and equally many policy rows; none = rows of the rollout"
            " / d_step"
        ),
    )
    gradient_penalty: float = attrs.field(
        default=0.0,
        kw_only=True,
        validator=in_range(0),
        metadata=described(
            "weight of the gradient penalty, which keeps the norm of the discriminator's gradient near 1",
            source="arXiv:1704.00028",
            tune=(0, 10),
        ),
    )
    reward: str = attrs.field(
        default="positive",
        kw_only=True,
        validator=choice(*REWARDS),
        metadata=described(
            "reward of a step, from the discriminator's probability D that the step is the expert's; positive = -log(1"
            " - D), negative = log D, logit = log D - log(1 - D), constant = 1 (control run)"
        ),
    )
    normalize: Normalization | None = attrs.field(
        default=None,
        converter=_without_rewards,
        kw_only=True,
        metadata=described(
            "normalize observations by running statistics: true, or a table of settings; norm_reward is always false",
            examples=(True,),
        ),
    )
    policy_kwargs: RecurrentConfig = attrs.field(factory=RecurrentConfig, converter=_networks, kw_only=True)
