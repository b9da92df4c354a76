"""The constructor parameters that all agents have."""

from __future__ import annotations

from os import PathLike, fspath
from typing import ClassVar

import attrs

from rlsdk.errors import SettingsError
from rlsdk.settings.fields import choice, described, in_range
from rlsdk.settings.preprocessing import Normalization, as_normalization


def as_folder(value: object) -> str | None:
    """Return a folder as text, given text, a path or None."""
    if value is None:
        return None
    if not isinstance(value, str | PathLike) or not isinstance(path := fspath(value), str):
        raise SettingsError(f"tensorboard_log = {value!r} is not a folder; give a text or a path")
    return path


def as_device(value: object) -> str:
    """Return a device as text, given text or a `torch.device`."""
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
            "torch device; auto = cuda for image policies (Cnn...) if available, otherwise cpu",
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
            "normalise observations and rewards by running statistics: true, or a table of settings", examples=(True,)
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
