"""The constructor parameters that all agents have, with preprocessing and names of policies."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import ClassVar, Self

import attrs

from rlsdk.errors import SettingsError, UsageError
from rlsdk.settings.fields import choice, described, in_range
from rlsdk.settings.strict import structure


@attrs.frozen(kw_only=True)
class Normalization:
    """Settings of the normalization of observations and rewards by running statistics."""

    norm_obs: bool = attrs.field(default=True, metadata=described("normalize the float parts of observations"))
    norm_reward: bool = attrs.field(
        default=True, metadata=described("divide rewards by the running standard deviation of the discounted return")
    )
    sign_reward: bool = attrs.field(
        default=False,
        metadata=described(
            "learn from the signs of rewards instead of rewards, as is usual on Atari games; needs norm_reward = false"
        ),
    )
    clip_obs: float = attrs.field(
        default=10.0,
        validator=in_range(0, open_low=True),
        metadata=described("normalized observations are clipped to [-clip_obs, clip_obs]"),
    )
    clip_reward: float = attrs.field(
        default=10.0,
        validator=in_range(0, open_low=True),
        metadata=described("normalized rewards are clipped to [-clip_reward, clip_reward]"),
    )
    gamma: float | None = attrs.field(
        default=None,
        validator=in_range(0, 1),
        metadata=described("discount factor of the return that norm_reward uses; none = the algorithm's gamma"),
    )
    epsilon: float = attrs.field(
        default=1e-8,
        validator=in_range(0, open_low=True),
        metadata=described("number added to variances before their square root divides"),
    )
    norm_obs_keys: tuple[str, ...] | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(tuple),
        metadata=described("entries of a Dict observation to normalize; none = all float entries"),
    )
    where_possible: bool = attrs.field(
        default=False,
        metadata=described(
            "do not raise an error if observations have no float parts; leave them unchanged", affects="refusals"
        ),
    )


def as_normalization(value: bool | Mapping[str, object] | Normalization | None) -> Normalization | None:
    """Return the settings, given a table of them, True (all defaults), False or None (both: no normalization).

    Raises:
        SettingsError: the value is something else, or a setting is unknown or mistyped.
    """
    if value is None or value is False:
        return None
    if isinstance(value, Normalization):
        return value
    if value is True or isinstance(value, Mapping):
        return structure({} if value is True else value, Normalization)
    raise SettingsError(f"normalize = {value!r} must be true, false, or a table such as {{ norm_reward = false }}")


def as_folder(value: object) -> str | None:
    """Return a folder as text, given text, a path or None."""
    if value is None:
        return None
    if not isinstance(value, str | PathLike) or not isinstance(path := fspath(value), str):
        raise SettingsError(f"tensorboard_log = {value!r} is not a folder; give a text or a path")
    return path


def as_device(value: object) -> str:
    """Return a device as text, given text or a `torch.device`."""
    # By name, because this module imports no torch.
    if not isinstance(value, str) and type(value).__name__ != "device":
        raise SettingsError(f"device = {value!r} is not a device; give a text such as 'cpu', or a torch.device")
    return str(value)


@attrs.frozen
class AgentConfig:
    """The constructor parameters that every algorithm has. The config class of an algorithm derives from it and adds others.

    The order of the fields is the order of the constructor's parameters: `policy` and `env`, then the algorithm's own
    parameters, then the keyword-only ones below.
    """

    LIVE: ClassVar[tuple[str, ...]] = ()
    """Names of the settings that can be assigned on an existing agent. `live` of a plugin's manifest adds names."""

    policy: str = attrs.field(metadata=described("name of the policy, e.g. MlpPolicy"))
    env: object = attrs.field(
        default=None,
        metadata=described(
            "gymnasium id, environment or vector environment; None for loading an agent that predicts, and for"
            " algorithms that learn from a data set"
        ),
    )
    tensorboard_log: str | None = attrs.field(
        default=None,
        kw_only=True,
        converter=as_folder,
        metadata=described(
            "folder in which `learn` writes metrics for TensorBoard; None = no files", affects="logging"
        ),
    )
    verbose: int = attrs.field(
        default=0,
        kw_only=True,
        validator=choice(0, 1, 2),
        metadata=described("0 = no output, 1 or 2 = table of metrics during training", affects="logging"),
    )
    seed: int | None = attrs.field(
        default=None,
        kw_only=True,
        validator=in_range(0, 2**32 - 1),
        metadata=described(
            "seed of all random number generators of the agent; None = a seed from the operating system"
        ),
    )
    device: str = attrs.field(
        default="auto",
        kw_only=True,
        converter=as_device,
        metadata=described(
            "torch device; auto = cuda, if available, for image policies (Cnn...) and environments on a GPU; otherwise cpu",
            affects="device",
            examples=("cpu",),
        ),
    )
    stats_window_size: int = attrs.field(
        default=100,
        kw_only=True,
        validator=in_range(1),
        metadata=described(
            "number of finished episodes over which logged returns, lengths and successes are averaged",
            unit="episodes",
            affects="logging",
        ),
    )
    normalize: Normalization | None = attrs.field(
        default=None,
        converter=as_normalization,
        kw_only=True,
        metadata=described(
            "normalize observations and rewards by running statistics: true, or a table of settings", examples=(True,)
        ),
    )
    frame_stack: int = attrs.field(
        default=1,
        kw_only=True,
        validator=in_range(1, 64),
        metadata=described(
            "number of consecutive observations that networks receive together, the newest last", unit="observations"
        ),
    )
    env_groups: int = attrs.field(
        default=1,
        kw_only=True,
        validator=in_range(1),
        metadata=described(
            "number of equal groups into which the environments are split; each group samples actions separately",
            unit="groups",
        ),
    )


class PolicyName(str):
    """The name of a policy as an object that can be imported. `PolicyName("MlpPolicy")` and "MlpPolicy" are equivalent.

    Raises:
        UsageError: a class statement uses the name as its base class.
    """

    __slots__ = ()

    def __new__(cls, name: str, *class_statement: object) -> Self:
        if class_statement:  # Python calls type(base)(name, bases, namespace)
            bases = class_statement[0]
            base = str.__str__(bases[0]) if isinstance(bases, tuple) else cls.__name__
            raise UsageError(
                f"class {name}: {base!r} names a policy and cannot be a base class; change networks with policy_kwargs"
                " (net_arch, features_extractor_class, actor_class, critic_class, network_class), or write a plugin (rlsdk new)"
            )
        return super().__new__(cls, name)
