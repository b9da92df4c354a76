"""Action masks: their width, where an environment has them, and whether they allow an action.

A mask is bool [A], True where allowed. A Discrete action has one entry per value, a MultiDiscrete one per value of each
component, one after the other, a MultiBinary two per bit (may it be 0, may it be 1); a Box has none. Entries of a Dict or
Tuple stand in the order of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.attributes import HasWrapperAttributes
from rlsdk.errors import MaskError, shown
from rlsdk.interfaces import HasMasks, HasSeparateEnvs, VectorEnv
from rlsdk.spaces import Space, choices_of

METHOD, INFO = "action_masks", "action_mask"


class MaskRule:
    """What a mask of an action space looks like; made once, applied at every step."""

    def __init__(self, action_space: Space) -> None:
        sizes = choices_of(action_space)
        self.size = sum(sizes)
        self._starts = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, np.int64)

    def row(self, mask: object) -> NDArray[np.bool_]:
        """One mask, checked for its length and kind.

        Raises:
            MaskError: another length, or values that are neither true nor false.
        """
        try:
            array = np.asarray(mask)
        except Exception:
            raise MaskError(f"an action mask is {shown(mask)}; this action space needs bool ({self.size},)") from None
        if array.shape != (self.size,):
            raise MaskError(f"an action mask has shape {array.shape}; this action space needs ({self.size},)")
        if array.dtype != np.bool_ and (array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all()):
            raise MaskError(
                f"an action mask holds {shown([v for v in array.tolist() if v not in (0, 1)][:3])};"
                " accepted: true and false, or 1 and 0"
            )
        return array.astype(np.bool_, copy=False)

    def without_choice(self, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The rows of `masks` [B, A] in which some choice has no allowed value."""
        return np.flatnonzero(~np.logical_or.reduceat(masks, self._starts, axis=1).all(axis=1))

    def require_choice(self, masks: NDArray[np.bool_]) -> None:
        """Raises MaskError when a row of `masks` [B, A] allows nothing."""
        if not np.logical_or.reduceat(masks, self._starts, axis=1).all():
            row = int(self.without_choice(masks)[0])
            raise MaskError(
                f"the action mask of environment {row} allows no action: {masks[row].astype(int).tolist()};"
                " at least one value of every choice must be allowed"
            )


def mask_methods(environments: Sequence[object]) -> list[Callable[[], object]] | None:
    """The method `action_masks` of each environment, found through its wrappers; None if they have none."""
    found: list[Callable[[], object]] = []
    for environment in environments:
        try:
            method = environment.get_wrapper_attr(METHOD) if isinstance(environment, HasWrapperAttributes) else None
        except AttributeError:
            return None
        if not callable(method):
            return None
        found.append(method)
    return found


def is_masking_supported(env: object) -> bool:
    """Whether an environment has a method `action_masks`: a gymnasium environment (through its wrappers), a vector
    environment (all of it), or what `model.get_env()` returns."""
    if isinstance(env, HasSeparateEnvs):
        return (isinstance(env, HasMasks) and env.has_masks) or all(env.env_method("has_wrapper_attr", METHOD))
    return mask_methods([env]) is not None


def get_action_masks(env: object) -> NDArray[np.bool_]:
    """The current action masks: bool [A] of a gymnasium environment, bool [B, A] of a vector environment.

    Raises:
        MaskError: the environment has no method `action_masks`.
    """
    if isinstance(env, HasSeparateEnvs):
        if not all(env.env_method("has_wrapper_attr", METHOD)):
            raise MaskError(f"environments have no method {METHOD!r}; rlsdk.environments.ActionMasker adds one")
        return np.stack([np.asarray(mask, dtype=bool) for mask in env.env_method(METHOD)])
    methods = mask_methods([env])
    if methods is None:
        raise MaskError(f"{type(env).__name__} has no method {METHOD!r}; rlsdk.environments.ActionMasker adds one")
    return np.asarray(methods[0](), dtype=bool)


class MaskValidator:
    """What an agent does with masks that callers hand in, or forget to."""

    def __init__(self, action_space: Space, algorithm: str, *, used: bool, required: bool) -> None:
        self.rule, self.algorithm, self.used, self.required = MaskRule(action_space), algorithm, used, required

    def of(self, given: object, count: int) -> Tensor | None:
        """The mask [count, A] for a policy. `given` is one mask, `count` of them, None, or "none" for no restriction.

        Raises:
            MaskError: a mask is required and missing, not usable, of the wrong length, or allows nothing.
        """
        if given is None and self.required:
            raise MaskError(
                f"{self.algorithm} needs the current action masks: predict(observation, action_masks=env.action_masks());"
                ' pass action_masks="none" to allow every action'
            )
        if given is None or (isinstance(given, str) and given == "none"):
            return None
        if not (self.used and self.rule.size):
            raise MaskError(f"{self.algorithm} does not use action masks here; leave action_masks out")
        try:
            array = np.asarray(given)
        except ValueError:  # rows of different lengths
            array = self.rule.row(given)
        rows = [given] if array.ndim <= 1 else list(array)
        if len(rows) != count:
            raise MaskError(f"{len(rows)} action masks for {count} observations; give one for each")
        masks = np.stack([self.rule.row(row) for row in rows])
        self.rule.require_choice(masks)
        return torch.from_numpy(masks)

    def check_environment(self, env: VectorEnv) -> None:
        """Raises MaskError when masks are required and `env` has none; it is reset to find out, if need be."""
        if not self.required or not isinstance(env, HasMasks) or env.has_masks:
            return
        if env.reset(0).action_mask is None:
            raise MaskError(
                f"{self.algorithm} needs action masks and the environment offers none; give it a method `action_masks`"
                " (rlsdk.environments.ActionMasker adds one), put `action_mask` into its info at reset and step,"
                " or set use_masking=False"
            )
