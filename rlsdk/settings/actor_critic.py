"""Hyper-parameters of on-policy algorithms: their networks (`policy_kwargs`) and the clipped update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from rlsdk.errors import NetArchError, SettingsError, suggest
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.fields import MEMORY, choice, described, finite_schedule, in_range, needs
from rlsdk.settings.schedules import Constant, Schedule, as_schedule
from rlsdk.settings.strict import structure

ValueT = TypeVar("ValueT")


ACTIVATIONS = ("elu", "gelu", "identity", "leaky_relu", "relu", "selu", "silu", "tanh")
EXTRACTORS = ("CombinedExtractor", "FlattenExtractor", "NatureCNN")
KERNELS = ("auto", "autograd", "numpy", "torch")
MEMBERS = in_range(1, 512)
"""The number of networks that an ensemble may have."""
OPTIMIZERS = ("adadelta", "adagrad", "adam", "adamax", "adamw", "nadam", "radam", "rmsprop", "sgd")
"""Names of element-wise optimizers. They get all parameters as one flat vector, which has the same result."""
MAX_LAYERS, MAX_WIDTH = 256, 2**20


def _named(value: object, options: tuple[str, ...], what: str, package: str = "torch") -> str | Callable[..., object]:
    """Return the registered name for a name or for a class of `package`; other callables unchanged."""
    text = value if isinstance(value, str) else getattr(value, "__name__", "")
    known = {option.replace("_", "").lower(): option for option in options}
    key = text.lower().replace("_", "")
    if key in known and (isinstance(value, str) or getattr(value, "__module__", "").startswith(f"{package}.")):
        return known[key]
    if callable(value):
        return value
    raise SettingsError(f"{what} {value!r} is neither a class nor a known name; {suggest(str(value), options)}")


def as_activation(value: str | Callable[..., object]) -> str | Callable[..., object]:
    """Return `"relu"` for `torch.nn.ReLU` or `"relu"`. Other callables are returned unchanged; files do not store them."""
    return _named(value, ACTIVATIONS, "activation")


def as_optimizer(value: str | Callable[..., object] | None) -> str | Callable[..., object] | None:
    """Return `"adam"` for `torch.optim.Adam` or `"adam"`. Other callables are returned unchanged; files do not store them."""
    return _named(value, OPTIMIZERS, "optimizer")


def as_features_extractor(value: object) -> object:
    """Return the name of an extractor of rlsdk_sb3. Other classes are returned unchanged; files do not store them."""
    if value is None or isinstance(value, Mapping):  # a table: see `as_module_class`
        return value
    return _named(value, EXTRACTORS, "features_extractor_class", "rlsdk_sb3")


def as_module_class(value: ValueT) -> ValueT:
    """Check a class or function that makes a torch module, the name of one that a package offers, or None.

    Files store only the name of a class, so it must be given again when the agent is loaded. Names need not be.
    """
    # A table is what a file stores of a class; loading asks for the class itself.
    if value is None or callable(value) or isinstance(value, Mapping | str):
        return value
    raise SettingsError(
        f"{value!r} is not a class; give a class derived from torch.nn.Module, a function that makes one, or a name"
        " such as 'mlp' of rlsdk-networks"
    )


def arguments_of_class(instance: object, attribute: attrs.Attribute[Any], value: Mapping[str, object]) -> None:
    """Validate `<name>_kwargs`: arguments need the class `<name>_class` that receives them.

    Raises:
        ValueError: there are arguments, but no class.
    """
    name = attribute.name.replace("_kwargs", "_class")
    if value and getattr(instance, name) is None:
        raise ValueError(f"{attribute.name} = {value!r} are arguments of {name}, which is not set; set it too")


def as_net_arch(value: object) -> dict[str, tuple[int, ...]] | None:
    """Return the hidden layer widths by network.

    `[256, 256]` applies to all networks (key `""`). A table gives each network its own widths. A list that ends with a table,
    `[128, {"vf": [256]}]`, begins with layers that all networks share (key `shared`).
    """
    if value is None:
        return None
    table = value if isinstance(value, Mapping) else {"": value}
    if isinstance(value, list | tuple) and value and isinstance(value[-1], Mapping):
        table = {**({"shared": value[:-1]} if value[:-1] else {}), **value[-1]}
    result: dict[str, tuple[int, ...]] = {}
    for name, widths in table.items():
        if isinstance(widths, str) or not hasattr(widths, "__iter__"):
            raise SettingsError(f"net_arch {value!r} must be a list of layer widths, or a table of such lists")
        result[str(name)] = as_widths(widths)
    return result


def as_widths(value: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers as a tuple.

    Raises:
        SettingsError: there are more than `MAX_LAYERS`, or one is not a whole number from 1 to `MAX_WIDTH`.
    """
    layers = tuple(value)
    if len(layers) > MAX_LAYERS:
        raise SettingsError(f"net_arch of {len(layers)} layers; at most {MAX_LAYERS} are possible")
    if not all(isinstance(w, int) and not isinstance(w, bool) and 0 < w <= MAX_WIDTH for w in layers):
        raise SettingsError(
            f"net_arch {value!r}: layer widths must be positive whole numbers up to {MAX_WIDTH}{_of_kinds(layers)}"
        )
    return layers


def _of_kinds(layers: Iterable[object]) -> str:
    """Advice for lists of stable-baselines 2, such as [8, "lstm"], which name a kind of layer; "" for others."""
    kinds = {str(layer).lower() for layer in layers if isinstance(layer, str)}
    if kinds & {"lstm", "lnlstm", "gru"}:
        return "; a memory is chosen by the policy, such as 'MlpLstmPolicy' or 'MlpGruPolicy'"
    return "; a network for images is chosen by the policy, 'CnnPolicy'" if kinds & {"cnn", "conv"} else ""


def widths(
    net_arch: Mapping[str, tuple[int, ...]] | None,
    name: str,
    default: tuple[int, ...],
    *,
    names: tuple[str, ...] = (),
    absent: tuple[int, ...] | None = None,
) -> tuple[int, ...]:
    """Return the layer widths of the network `name`.

    Args:
        net_arch: widths by network, as `as_net_arch` returns them.
        name: the name of the network, such as `pi`.
        default: the widths if `net_arch` is None.
        names: the names that `net_arch` may contain; () allows any.
        absent: the widths if `net_arch` is a table without `name`; None raises an error instead.

    Raises:
        NetArchError: `net_arch` is a table without this network, or with a network that the policy does not have.
    """
    if net_arch is None:
        return default
    if names and (unknown := sorted(set(net_arch) - {"", *names})):
        raise NetArchError(f"net_arch names {unknown}, which this policy has not; it has {', '.join(names)}")
    if "" in net_arch:
        return net_arch[""]
    if name not in net_arch and absent is not None:
        return absent
    if name not in net_arch:
        raise NetArchError(f"net_arch names {sorted(net_arch)}, but this policy also needs {name!r}")
    return net_arch[name]


@attrs.frozen(kw_only=True)
class NetworkConfig:
    """The part of `policy_kwargs` that all policies share. The network settings of a plugin derive from it."""

    activation_fn: str | Callable[..., Any] = attrs.field(
        default="relu",
        converter=as_activation,
        metadata=described("activation function between hidden layers", examples=("elu",)),
    )
    features_extractor_class: Any = attrs.field(
        default=None,
        converter=as_features_extractor,
        metadata=described(
            "class of a module that encodes observations, with the attribute `features_dim`; called with (gymnasium"
            " space, **features_extractor_kwargs); none = the policy's default"
        ),
    )
    features_extractor_kwargs: Mapping[str, object] = attrs.field(
        factory=dict,
        metadata=described("further arguments of the features extractor", examples=({"features_dim": 8},)),
    )
    normalize_images: bool = attrs.field(default=True, metadata=described("divide images by 255"))
    optimizer_class: str | Callable[..., Any] | None = attrs.field(
        default="adam",
        converter=as_optimizer,
        metadata=described(
            "torch optimizer: a name, a class, or a function (parameters, lr, **optimizer_kwargs) that returns one",
            examples=("sgd",),
        ),
    )
    optimizer_kwargs: Mapping[str, object] | None = attrs.field(
        default=None,
        metadata=described(
            "further arguments of the optimizer, without the learning rate; none = the algorithm's defaults; in a"
            " table, missing arguments have torch's defaults",
            examples=({"eps": 0.1},),
        ),
    )
    kernel: str = attrs.field(
        default="auto",
        validator=choice(*KERNELS),
        metadata=described(
            "implementation of dense layers: numpy, torch or plain autograd; auto = the fastest",
            affects="speed",
            examples=("autograd", "torch", "numpy"),
        ),
    )


@attrs.frozen(kw_only=True)
class ActorAndCriticsConfig(NetworkConfig):
    """The network settings of an actor and several critics, for Box actions. Those of an algorithm derive from it."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(default=None, converter=as_net_arch)
    n_critics: int = attrs.field(default=2, validator=MEMBERS, metadata=described("number of critics", tune=(1, 5)))
    subset_size: int | None = attrs.field(
        default=None,
        validator=in_range(1),
        metadata=described(
            "number of random critics that make the target (REDQ); an actor of SAC and CrossQ maximizes the mean"
            " value then, not the smallest; none = every critic",
            source="arXiv:2101.05982",
        ),
    )
    share_features_extractor: bool = attrs.field(
        default=False,
        metadata=described("critics use the actor's features extractor, which then only the actor's loss trains"),
    )
    actor_class: Any = attrs.field(default=None, converter=as_module_class)
    actor_kwargs: Mapping[str, object] = attrs.field(factory=dict, validator=arguments_of_class)
    critic_class: Any = attrs.field(
        default=None,
        converter=as_module_class,
        metadata=described(
            "torch module that replaces each whole critic, called n_critics times with (gymnasium space, action_dim,"
            " output_dim, **critic_kwargs); maps preprocessed observations and actions in [-1, 1] to [N, output_dim];"
            " none = features extractor and net_arch"
        ),
    )
    critic_kwargs: Mapping[str, object] = attrs.field(factory=dict, validator=arguments_of_class)


@attrs.frozen(kw_only=True)
class ActorCriticConfig(NetworkConfig):
    """The network settings of every actor-critic policy."""

    net_arch: dict[str, tuple[int, ...]] | None = attrs.field(
        default=None,
        converter=as_net_arch,
        metadata={"source": "none = [64, 64] for pi and vf, [] after NatureCNN"},
    )
    activation_fn: str | Callable[..., Any] = attrs.field(
        default="tanh",
        converter=as_activation,
        metadata=described("activation function between hidden layers", examples=("elu",)),
    )
    ortho_init: bool = attrs.field(default=True, metadata=described("orthogonal initialization of weights"))
    log_std_init: float = attrs.field(
        default=0.0, validator=in_range(-20, 10), metadata=described("initial log standard deviation of Box actions")
    )
    full_std: bool = attrs.field(
        default=True,
        metadata=described(
            "gSDE: a standard deviation for each pair of feature and action; false = one for each feature"
        ),
    )
    use_expln: bool = attrs.field(
        default=False,
        metadata=described(
            "gSDE: standard deviations above 1 grow with the logarithm of their parameter, not exponentially"
        ),
    )
    squash_output: bool = attrs.field(
        default=False, metadata=described("gSDE: squash actions into their bounds by tanh instead of clipping them")
    )
    share_features_extractor: bool = attrs.field(
        default=True, metadata=described("actor and critic share one features extractor")
    )
    action_distribution: str | Callable[..., object] | None = attrs.field(
        default=None,
        converter=as_module_class,
        metadata=described(
            "distribution of actions: a name of a package, such as 'beta' of rlsdk-networks, or a function (action space,"
            " width) that makes an action head; none = that of the action space"
        ),
    )
    actor_class: Any = attrs.field(default=None, converter=as_module_class)
    actor_kwargs: Mapping[str, object] = attrs.field(factory=dict, validator=arguments_of_class)
    critic_class: Any = attrs.field(default=None, converter=as_module_class)
    critic_kwargs: Mapping[str, object] = attrs.field(factory=dict, validator=arguments_of_class)


def memory_of(policy: str) -> str | None:
    """Return the kind of recurrent network that a policy's name contains: `lstm`, `gru`, or None."""
    return next((kind for kind in ("lstm", "gru") if kind.capitalize() in policy), None)


@attrs.frozen(kw_only=True)
class RecurrentConfig(ActorCriticConfig):
    """The network settings of recurrent policies."""

    lstm_hidden_size: int = attrs.field(default=256, validator=in_range(1, 2**20))
    n_lstm_layers: int = attrs.field(default=1, validator=in_range(1, 16))
    shared_lstm: bool = attrs.field(
        default=False,
        metadata=described(
            "the critic uses the output of the actor's recurrent layers, which only the actor's loss trains"
        )
        | needs(MEMORY),
    )
    enable_critic_lstm: bool = attrs.field(
        default=True,
        metadata=described("the critic has separate recurrent layers; false = a linear layer instead") | needs(MEMORY),
    )
    lstm_kwargs: Mapping[str, object] | None = None
    memory_class: Any = attrs.field(
        default=None,
        converter=as_module_class,
        metadata=described(
            "class of a recurrent module, see rlsdk.networks.Memory; called with (features_dim, **memory_kwargs); none"
            " = LSTM or GRU, by the policy's name"
        )
        | needs(MEMORY),
    )
    memory_kwargs: Mapping[str, object] = attrs.field(factory=dict, validator=arguments_of_class)

    def __attrs_post_init__(self) -> None:
        if self.shared_lstm and self.enable_critic_lstm:
            raise ValueError("shared_lstm = true needs enable_critic_lstm = false: the critic reads the actor's memory")
        if self.shared_lstm and not self.share_features_extractor:
            raise ValueError(
                "shared_lstm = true needs share_features_extractor = true: the critic reads the actor's memory, and has no"
                " other features"
            )


UNIT = in_range(0.0, 1.0)


# a named function per class: type checkers accept a dict in the constructor only where one converts it
def _networks(value: Mapping[str, object] | ActorCriticConfig | None) -> ActorCriticConfig:
    return structure(value or {}, ActorCriticConfig)


@attrs.frozen
class ClippedPolicyConfig(AgentConfig):
    """The constructor parameters of PPO, in order, with the defaults of PPO.

    A plugin without state-dependent exploration leaves it out: `without("use_sde", "sde_sample_freq")`.
    """

    learning_rate: Schedule = attrs.field(default=Constant(3e-4), converter=as_schedule, validator=finite_schedule())
    n_steps: int = attrs.field(default=2048, validator=in_range(1))
    batch_size: int | None = attrs.field(
        default=64,
        validator=in_range(1),
        metadata=described("steps per minibatch; none = the whole rollout", unit="steps", tune=(32, 2048)),
    )
    n_epochs: int = attrs.field(default=10, validator=in_range(1))
    gamma: float = attrs.field(default=0.99, validator=UNIT)
    gae_lambda: float = attrs.field(default=0.95, validator=UNIT)
    clip_range: Schedule = attrs.field(default=Constant(0.2), converter=as_schedule, validator=finite_schedule())
    clip_range_vf: Schedule | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(as_schedule),
        validator=attrs.validators.optional(finite_schedule()),
    )
    normalize_advantage: bool = True
    ent_coef: float = attrs.field(default=0.0, validator=in_range(0))
    vf_coef: float = attrs.field(default=0.5, validator=in_range(0))
    max_grad_norm: float = attrs.field(default=0.5, validator=in_range(0, open_low=True))
    use_sde: bool = False
    sde_sample_freq: int = attrs.field(default=-1, validator=in_range(-1))
    target_kl: float | None = attrs.field(default=None, validator=in_range(0, open_low=True))
    policy_kwargs: ActorCriticConfig = attrs.field(factory=ActorCriticConfig, converter=_networks, kw_only=True)
