"""The extras of a policy whose action is replaced by another action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

from torch import Tensor

from rlsdk.errors import PluginError

LOG_PROB = "log_prob"


def extras_of_other_action(extras: object, log_prob: Tensor | None) -> object:
    """The extras with their entry `log_prob` replaced by the log-probability [B] of the action that is played.

    Extras that have no entry `log_prob`, or None as this entry, are returned unchanged.

    Args:
        extras: a dataclass or a mapping.
        log_prob: the log-probability [B] of the action that is played; None where it is unknown.

    Raises:
        PluginError: the extras have a log-probability, but that of the action played is unknown.
    """
    held = _entries(extras).get(LOG_PROB)
    if held is None:
        return extras
    if log_prob is None:
        raise PluginError(
            "the policy's extras hold log_prob, the log-probability of the policy's action, but action noise changes the"
            " action; leave action_noise out, or let the policy draw its noise itself"
        )
    if isinstance(extras, Mapping):
        return {**extras, LOG_PROB: log_prob}
    assert is_dataclass(extras)
    assert not isinstance(extras, type)
    return replace(extras, **{LOG_PROB: log_prob})


def _entries(extras: object) -> Mapping[str, object]:
    if isinstance(extras, Mapping):
        return extras
    if is_dataclass(extras):
        return {field.name: getattr(extras, field.name) for field in fields(extras)}
    return {}
