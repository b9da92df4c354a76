"""Hyper-parameters that off-policy algorithms share. The config classes of plugins derive from these classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import attrs

from rlsdk.errors import SettingsError
from rlsdk.settings.action_noise import ActionNoise, as_action_noise
from rlsdk.settings.actor_critic import (
    ActorAndCriticsConfig,
    NetworkConfig,
    arguments_of_class,
    as_module_class,
    as_net_arch,
    as_widths,
)
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.fields import (
    LARGEST,
    Default,
    defaults,
    described,
    finite_schedule,
    in_range,
    needs,
    positional_after,
)
from rlsdk.settings.schedules import Constant, Schedule, TrainFrequency, as_schedule, as_train_frequency
from rlsdk.settings.strict import structure

UNIT = in_range(0.0, 1.0)


@attrs.frozen
class OffPolicyConfig(AgentConfig):
    """The constructor parameters of algorithms that learn from a replay buffer, in order."""

    LIVE: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "learning_starts",
        "batch_size",
        "tau",
        "gamma",
        "train_freq",
        "gradient_steps",
        "n_steps",
    )

    learning_rate: Schedule = attrs.field(
        default=Constant(3e-4),
        converter=as_schedule,
        validator=finite_schedule(),
    )
    buffer_size: int = attrs.field(default=1_000_000, validator=in_range(1))
    learning_starts: int = attrs.field(default=100, validator=in_range(0))
    batch_size: int = attrs.field(default=256, validator=in_range(1))
    tau: float = attrs.field(default=0.005, validator=UNIT)
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    train_freq: TrainFrequency = attrs.field(default=TrainFrequency(1, "step"), converter=as_train_frequency)
    gradient_steps: int = attrs.field(default=1, validator=in_range(-1))
    replay_buffer_class: str | Callable[..., Any] | None = None
    replay_buffer_kwargs: Mapping[str, object] | None = None
    optimize_memory_usage: bool = False
    n_steps: int = attrs.field(
        default=1,
        kw_only=True,
        validator=in_range(1),
        metadata=described("n of n-step returns: rewards summed in a target before it bootstraps", tune=(1, 5)),
    )


@attrs.frozen(field_transformer=positional_after(action_noise="gradient_steps"))
class ContinuousOffPolicyConfig(OffPolicyConfig):
    """The constructor parameters of off-policy algorithms for Box actions, in order."""

    action_noise: ActionNoise | None = attrs.field(
        default=None,
        kw_only=True,
        converter=as_action_noise,
        metadata=described(
            "noise added to actions during training, where actions are scaled to [-1, 1]",
            examples=({"kind": "normal", "mean": 0.0, "sigma": 0.3},),
        ),
    )


@attrs.frozen(kw_only=True)
class DiscreteValueConfig(NetworkConfig):
    """`policy_kwargs` of value methods for discrete actions."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata=described("hidden layer widths", source="none = [64, 64], [] after NatureCNN"),
    )
    dueling: bool = attrs.field(
        default=False,
        metadata=described(
            "dueling network: a value of the observation plus an advantage of each action", source="arXiv:1511.06581"
        ),
    )
    network_class: Any = attrs.field(default=None, converter=as_module_class)
    network_kwargs: Mapping[str, object] = attrs.field(factory=dict, validator=arguments_of_class)


# a named function per class: type checkers accept a dict in the constructor only where one converts it
def _networks(value: Mapping[str, object] | DiscreteValueConfig | None) -> DiscreteValueConfig:
    return structure(value or {}, DiscreteValueConfig)


@attrs.frozen(
    field_transformer=defaults(
        learning_rate=Constant(1e-4), batch_size=32, tau=1.0, train_freq=TrainFrequency(4, "step")
    )
)
class QLearningConfig(OffPolicyConfig):
    """The constructor parameters of Q-learning with a target network, in order, with the defaults of DQN."""

    LIVE: ClassVar[tuple[str, ...]] = (
        *OffPolicyConfig.LIVE,
        "target_update_interval",
        "exploration_fraction",
        "exploration_initial_eps",
        "exploration_final_eps",
        "max_grad_norm",
        "double_q",
    )

    target_update_interval: int = attrs.field(
        default=10_000,
        validator=in_range(1),
        metadata=described("environment steps between updates of the target network", unit="env steps"),
    )
    exploration_fraction: float = attrs.field(
        default=0.1,
        validator=UNIT,
        metadata=described(
            "share of the training in which epsilon falls from exploration_initial_eps to exploration_final_eps"
        ),
    )
    exploration_initial_eps: float = attrs.field(
        default=1.0, validator=UNIT, metadata=described("initial epsilon, the probability of a random action")
    )
    exploration_final_eps: float = attrs.field(
        default=0.05, validator=UNIT, metadata=described("final epsilon, the probability of a random action")
    )
    max_grad_norm: float | None = attrs.field(default=10.0, validator=in_range(0, open_low=True))
    double_q: bool = attrs.field(
        default=False,
        kw_only=True,
        metadata=described(
            "double Q-learning: the online network selects the next action, the target network gives its value",
            source="arXiv:1509.06461",
        ),
    )

    policy_kwargs: DiscreteValueConfig = attrs.field(factory=DiscreteValueConfig, converter=_networks, kw_only=True)

    def exploration_rate(self, progress: float) -> float:
        """Return epsilon after the share `progress` of the training: linear from the first to the last value, then constant."""
        # Without the check, a fraction of 0 would divide by zero.
        done = 1.0 if self.exploration_fraction == 0.0 else min(1.0, progress / self.exploration_fraction)
        return self.exploration_initial_eps + done * (self.exploration_final_eps - self.exploration_initial_eps)


@attrs.frozen(
    kw_only=True, field_transformer=defaults(net_arch=Default(None, source="none = [256, 256] for pi and qf"))
)
class SoftActorCriticNetworkConfig(ActorAndCriticsConfig):
    """`policy_kwargs` of the soft actor-critic family."""

    log_std_init: float = attrs.field(
        default=-3.0,
        validator=in_range(-20, 2),
        metadata=described("gSDE: initial log standard deviation") | needs("use_sde"),
    )
    initial_std: float | None = attrs.field(
        default=None,
        validator=in_range(0, 7, open_low=True),
        metadata=described(
            "initial standard deviation of actions before tanh, without gSDE; none = about 1", examples=(0.3,)
        ),
    )
    sde_net_arch: tuple[int, ...] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_widths),
        metadata=described(
            "gSDE: hidden layer widths of a separate network for the noise's features; none = features of the actor's"
            " last hidden layer, [] = the encoded observation"
        )
        | needs("use_sde"),
    )
    use_expln: bool = attrs.field(
        default=False,
        metadata=described(
            "gSDE: standard deviations above 1 grow with the logarithm of their parameter, not exponentially"
        )
        | needs("use_sde"),
    )
    clip_mean: float = attrs.field(
        default=2.0,
        validator=in_range(0),
        metadata=described("gSDE: bound of the absolute mean of actions before tanh; 0 = no bound") | needs("use_sde"),
    )


def parse_entropy_coefficient(value: str | float) -> tuple[float, bool]:
    """Return (initial value, whether it is learned) for `"auto"`, `"auto_0.1"` or a number.

    Raises:
        SettingsError: the value has another form, is not finite, or is not positive (a fixed coefficient may be 0).
    """
    try:
        learned = isinstance(value, str) and value.startswith("auto")
        initial = float(str(value)[5:] or 1.0) if learned else float(value)
        if isinstance(value, str) and learned and value != "auto" and not value.startswith("auto_"):
            raise ValueError
    except ValueError:
        raise SettingsError(
            f'ent_coef {value!r} must be "auto", "auto_" with a first value (auto_0.1), or a number'
        ) from None
    if not initial <= LARGEST or initial < 0.0 or (learned and initial == 0.0):
        raise SettingsError(f"ent_coef {value!r} must be {'positive' if learned else 'not negative'}, at most 1e18")
    return initial, learned


def _soft_networks(value: Mapping[str, object] | SoftActorCriticNetworkConfig | None) -> SoftActorCriticNetworkConfig:
    return structure(value or {}, SoftActorCriticNetworkConfig)


def as_bounds(value: object) -> tuple[float, float] | None:
    """Return two finite numbers, the lower one first, or None.

    Raises:
        ValueError: the value is something else.
    """
    if value is None:
        return None
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    numbers = tuple(float(each) for each in given if isinstance(each, int | float) and abs(each) <= LARGEST)
    if len(given) != 2 or len(numbers) != 2 or numbers[0] >= numbers[1]:
        raise ValueError(f"action_bounds = {value!r} must be two numbers, the lower one first, such as [-0.5, 0.5]")
    return numbers[0], numbers[1]


@attrs.frozen
class SoftActorCriticConfig(ContinuousOffPolicyConfig):
    """The constructor parameters of the soft actor-critic family, in order, with the defaults of SAC."""

    LIVE: ClassVar[tuple[str, ...]] = (
        *ContinuousOffPolicyConfig.LIVE,
        "action_noise",
        "ent_coef",
        "target_update_interval",
        "target_entropy",
        "sde_sample_freq",
        "policy_delay",
    )

    ent_coef: str | float = attrs.field(
        default="auto",
        metadata=described(
            'weight of the entropy bonus: "auto" = learned, starting at 1; "auto_0.1" = learned, starting at 0.1; a'
            " number = constant",
            examples=("auto_0.1", 0.3),
        ),
    )
    target_update_interval: int = attrs.field(
        default=1,
        validator=in_range(1),
        metadata=described("gradient steps between updates of the target networks", unit="updates"),
    )
    target_entropy: str | float = attrs.field(
        default="auto",
        metadata=described(
            'entropy that a learned ent_coef aims for; "auto" = minus the number of action dimensions', examples=(-0.5,)
        ),
    )
    use_sde: bool = False
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1))
    use_sde_at_warmup: bool = False
    action_bounds: tuple[float, float] | None = attrs.field(
        default=None,
        converter=as_bounds,
        kw_only=True,
        metadata=described(
            "lowest and highest action of the policy, inside the action space and in its units; none = the bounds of"
            " the action space",
            examples=((-0.5, 0.5), (0.25, 0.75)),
        ),
    )
    policy_delay: int = attrs.field(
        default=1,
        kw_only=True,
        validator=in_range(1),
        metadata=described("updates of the critics per update of actor and ent_coef"),
    )
    policy_kwargs: SoftActorCriticNetworkConfig = attrs.field(
        factory=SoftActorCriticNetworkConfig, converter=_soft_networks, kw_only=True
    )

    def __attrs_post_init__(self) -> None:
        if self.sde_sample_freq == 0:
            raise ValueError(
                "sde_sample_freq = 0 is not a period; use -1 (at rollout starts) or a positive number of steps"
            )
        target = self.target_entropy
        if target != "auto" and (isinstance(target, str) or not abs(target) <= LARGEST):
            raise ValueError(f'target_entropy = {target!r} must be "auto" or a finite number up to {LARGEST:g}')

    @property
    def sde_period(self) -> int | None:
        """Number of steps between noise matrices within a rollout. None: one noise matrix per rollout."""
        return self.sde_sample_freq if self.sde_sample_freq > 0 else None

    @property
    def warms_up_uniformly(self) -> bool:
        """Whether the first `learning_starts` actions are uniformly random."""
        return not (self.use_sde and self.use_sde_at_warmup)

    def target_entropy_for(self, dimensions: int) -> float:
        """Return the target entropy for actions with this number of dimensions."""
        return -float(dimensions) if self.target_entropy == "auto" else float(self.target_entropy)


@attrs.frozen(
    kw_only=True, field_transformer=defaults(net_arch=Default(None, source="none = [400, 300] for pi and qf"))
)
class DeterministicActorCriticNetworkConfig(ActorAndCriticsConfig):
    """`policy_kwargs` of deterministic actor-critic methods."""


def as_networks(
    value: Mapping[str, object] | DeterministicActorCriticNetworkConfig | None,
) -> DeterministicActorCriticNetworkConfig:
    """Return the network settings, given a table of them, the settings object or None."""
    return structure(value or {}, DeterministicActorCriticNetworkConfig)


@attrs.frozen(field_transformer=defaults(learning_rate=Constant(1e-3)))
class DeterministicActorCriticConfig(ContinuousOffPolicyConfig):
    """The constructor parameters that TD3 and DDPG share, in order."""

    LIVE: ClassVar[tuple[str, ...]] = (*ContinuousOffPolicyConfig.LIVE, "action_noise")

    policy_kwargs: DeterministicActorCriticNetworkConfig = attrs.field(
        factory=DeterministicActorCriticNetworkConfig,
        converter=as_networks,
        kw_only=True,
    )


class DeterministicSettings(Protocol):
    """The settings that the networks and the update of TD3, DDPG and TD3+BC read.

    For DDPG, `policy_delay` is 1, both noises are 0 and there is one critic.
    """

    @property
    def policy(self) -> str: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def learning_rate(self) -> Schedule: ...
    @property
    def tau(self) -> float: ...
    @property
    def action_noise(self) -> ActionNoise | None: ...
    @property
    def policy_kwargs(self) -> DeterministicActorCriticNetworkConfig: ...
    @property
    def policy_delay(self) -> int:
        """Updates of the critics per update of the actor and of the target networks."""
        ...

    @property
    def target_policy_noise(self) -> float:
        """Standard deviation of the noise added to the target actor's actions, in the scaled action range [-1, 1]."""
        ...

    @property
    def target_noise_clip(self) -> float:
        """Largest absolute value of that noise."""
        ...
