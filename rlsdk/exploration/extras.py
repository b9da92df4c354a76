"""Extras of a policy whose action was replaced by another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

from torch import Tensor

from rlsdk.errors import PluginError

LOG_PROB = "log_prob"


def extras_of_other_action(extras: object, log_prob: Tensor | None) -> object:
    """`extras` with `log_prob` [B] of the action that is played, under this name, instead of that of the policy's own action.

    Extras are a dataclass or a mapping; without an entry `log_prob` they stay as they are, and so does one that is None.
    `log_prob` is None where the probability of the action is not known.

    Raises:
        PluginError: the extras hold a probability, and that of the action played is not known.
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
