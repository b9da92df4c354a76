"""Action masks: finding them in an environment, and checks of their length and values.

A mask is bool [A], True where a value is allowed. A Discrete action has one entry per value. A MultiDiscrete action has one
entry per value of each component, one component after the other. A MultiBinary action has two entries per bit: may it be 0, may
it be 1. A Box has no entries. The entries of a Dict or Tuple are in the order of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.checks import Indices, attribute_of, unreadable
from rlsdk.errors import EnvironmentFault, MaskError, UsageError, shown
from rlsdk.interfaces import VectorEnv, VectorEnvAbilities, ability
from rlsdk.spaces import Space, choice_places, choices_of, leaf_spaces

METHOD, INFO = "action_masks", "action_mask"


class MaskRule:
    """Checks masks of an action space. It is made once and used at every step. `size` is the length A of a mask."""

    def __init__(self, action_space: Space, first: int = 0) -> None:
        """`first`: the number of the environment in row 0, for messages."""
        sizes = choices_of(action_space)
        self.size, self.first = sum(sizes), first
        self._starts = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, np.int64)

    def row(self, mask: object) -> NDArray[np.bool_]:
        """One mask as bool [A], after a check of its length and values.

        Raises:
            MaskError: the mask has another length, or values that are neither true nor false.
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
        """The numbers of the rows of `masks` [B, A] in which a choice has no allowed value."""
        # One call for all choices of all rows: this runs in every step.
        return np.flatnonzero(~np.logical_or.reduceat(masks, self._starts, axis=1).all(axis=1))

    def require_choice(self, masks: NDArray[np.bool_]) -> None:
        """Raises MaskError when a choice in a row of `masks` [B, A] has no allowed value."""
        if not np.logical_or.reduceat(masks, self._starts, axis=1).all():
            row = int(self.without_choice(masks)[0])
            raise MaskError(
                f"the action mask of environment {self.first + row} allows no action: {masks[row].astype(int).tolist()};"
                " at least one value of every choice must be allowed"
            )


def mask_methods(environments: Sequence[object]) -> list[Callable[[], object]] | None:
    """The method `action_masks` of each environment or of its wrappers; None if an environment has no such method.

    Raises:
        MaskError: an environment has an attribute of this name that cannot be called, such as an array.
        EnvironmentFault: reading the attribute raised an error.
    """
    found: list[Callable[[], object]] = []
    for environment in environments:
        try:
            method = environment.get_wrapper_attr(METHOD) if hasattr(environment, "get_wrapper_attr") else None
        except AttributeError:
            return None
        except Exception as error:
            raise unreadable(environment, METHOD, error) from error
        if method is None:
            return None
        if not callable(method):
            kind = type(attribute_of(environment, "unwrapped", environment)).__name__
            raise MaskError(
                f"{kind}.{METHOD} is {shown(method, 60)}, which would be read once; write a method that returns the current"
                f" mask: def {METHOD}(self)"
            )
        found.append(method)
    return found


class MaskValidator:
    """Checks the masks that callers pass to an agent, and whether required masks are missing."""

    def __init__(self, action_space: Space, algorithm: str, *, used: bool, required: bool) -> None:
        self.rule, self.algorithm, self.used, self.required = MaskRule(action_space), algorithm, used, required
        self._space = action_space

    def of(self, given: object, count: int) -> Tensor | None:
        """The masks [count, A] for a policy; None if all actions are allowed.

        `given` is one mask, a sequence of `count` masks, None, or "none" to allow every action.

        Raises:
            MaskError: a required mask is missing, the agent uses no masks, or a mask is invalid.
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
        except ValueError:
            # rows of different lengths
            array = self.rule.row(given)
        rows = [given] if array.ndim <= 1 else list(array)
        if len(rows) != count:
            raise MaskError(f"{len(rows)} action masks for {count} observations; give one for each")
        masks = np.stack([self.rule.row(row) for row in rows])
        self.rule.require_choice(masks)
        return torch.from_numpy(masks)

    def check_environment(self, env: VectorEnv) -> None:
        """Check that the agent can use the masks of `env`. The check may reset `env`.

        Raises:
            MaskError: masks are required and `env` gives none, or its masks belong to other choices than the agent's, because
            the Dicts of its action space have their keys in another order.
        """
        reordered = self.used and choice_places(self._space, env.action_space) is not None
        masked = ability(env, VectorEnvAbilities, "has_masks")
        if not (self.required or reordered) or masked is None:
            return
        # Masks in `info` show only after a reset.
        if (given := masked.has_masks or env.reset(0).action_mask is not None) and reordered:
            orders = [", ".join(path for path, _ in leaf_spaces(each, "")) for each in (self._space, env.action_space)]
            raise MaskError(
                f"the entries of action masks go by position: the agent has the actions {orders[0]}, in this order, and the"
                f" environment {orders[1]}; declare its Dict as collections.OrderedDict in the agent's order"
            )
        if self.required and not given:
            raise MaskError(
                f"{self.algorithm} needs action masks and the environment offers none; give it a method `action_masks`"
                " (rlsdk_envs.ActionMasker adds one), put `action_mask` into its info at reset and step,"
                " or set use_masking=False"
            )


class GoalEnv(Protocol):
    """The members of an agent's environment that `GoalRules` needs."""

    name: str

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> Sequence[object]:
        """See `rlsdk.interfaces.VectorEnvAbilities`."""
        ...


class GoalRules:
    """Calls `compute_reward` and, if it exists, `compute_terminated` of the agent's current environment."""

    def __init__(self, environment: Callable[[], GoalEnv | None]) -> None:
        self._environment = environment

    def compute_reward(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """(reward float32 [M], terminated bool [M]) of M transitions with replaced goals.

        `terminated` is None if the environment has no method `compute_terminated`.

        Args:
            achieved: the goals that were achieved, [M, ..].
            goal: the goals that replace the original ones, [M, ..].

        Raises:
            UsageError: there is no environment.
            EnvironmentFault: `compute_reward` is missing, does not accept batches, or gives a number that is not finite.
        """
        env = self._environment()
        if env is None:
            raise UsageError("hindsight replay needs the environment for rewards; give the agent an environment")
        # `compute_reward` of gymnasium's goal environments takes an info for each row.
        arguments: tuple[object, ...] = achieved.numpy(force=True), goal.numpy(force=True), [{} for _ in goal]
        reward = self._call(env, "compute_reward", arguments)
        numbers = reward.dtype.kind in "biuf"
        if reward.shape != (len(goal),) or not numbers or not np.isfinite(reward).all():
            given = f"shape {reward.shape}" if reward.shape != (len(goal),) else shown(reward, 100)
            raise EnvironmentFault(
                f"environment {env.name!r}: compute_reward must give one finite number per row for goals stacked on the"
                f" first axis; for {len(goal)} it gave {given}"
            )
        terminated = None
        if self._call(env, "has_wrapper_attr", ("compute_terminated",)):
            over = self._call(env, "compute_terminated", arguments)
            if over.shape != (len(goal),):
                # the method does not accept batches
                over = np.array([self._call(env, "compute_terminated", row) for row in zip(*arguments, strict=True)])
            terminated = torch.from_numpy(over.astype(bool)).to(goal.device)
        return torch.as_tensor(reward, dtype=torch.float32), terminated

    def _call(self, env: GoalEnv, name: str, arguments: tuple[object, ...]) -> NDArray[np.generic]:
        # All copies give the same rewards, so one of them is enough.
        return np.asarray(env.env_method(name, *arguments, indices=[0])[0])
