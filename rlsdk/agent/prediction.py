"""`predict` and acting sessions: observations of users (numpy or torch, one or a batch) become the records that policies
take.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.environments.adapters.observations import ActionDecoder, ObservationBatcher, batch_of
from rlsdk.errors import ObservationError, shown
from rlsdk.interfaces import Policy
from rlsdk.networks.action_heads import NoiseMatrices
from rlsdk.preprocessing import Preprocessing
from rlsdk.preprocessing.preprocessing import FramesCarry
from rlsdk.records import Act, Features, Observation
from rlsdk.runtime.process import checked_seed
from rlsdk.spaces import Actions, Dict, Space, Tuple, dtype_of
from rlsdk.tree import layout, leaves, map_tensors

NodeT = TypeVar("NodeT")


def predict(  # the arguments of `Agent.predict`
    agent: AssembledAgent,
    observation: object,
    state: object,
    episode_start: object,
    deterministic: bool,
    action_masks: object,
) -> tuple[Actions, object]:
    """See `Agent.predict`."""
    rows, single = batch_of(agent.context.observation_space, observation)
    is_first = _firsts(state is None if episode_start is None else episode_start, len(rows))
    seen = Observation(agent.stack(rows), is_first, agent.masks.of(action_masks, len(rows)))
    policy, preprocessing = agent.parts.policy, agent.preprocessing
    carry = _carry_of(state, preprocessing.initial_carry(policy, len(rows)), len(rows))
    if state is None and episode_start is None and leaves(carry) and not (deterministic and _is_noise(carry)):
        _warn_the_second_time(agent)
    moved = map_tensors(lambda leaf: leaf.to(agent.context.device), seen)
    act = preprocessing.act(policy, moved, carry, deterministic=deterministic, generator=agent.streams["predict"])
    actions = agent.decode_action(act.action)
    chosen = actions[0] if single else actions
    nested = isinstance(agent.context.action_space, Dict | Tuple)
    return chosen if nested else np.asarray(chosen), act.carry if leaves(act.carry) else None


def _is_noise(carry: object) -> bool:
    """Whether a carry consists only of the noise of gSDE, which deterministic actions do not use."""
    if isinstance(carry, NoiseMatrices):
        return True
    if dataclasses.is_dataclass(carry):
        return all(_is_noise(getattr(carry, field.name)) for field in dataclasses.fields(carry))
    return not leaves(carry)


def _warn_the_second_time(agent: AssembledAgent) -> None:
    """Warn at the second call of `predict` without state: a single call may be for the first observation of an episode."""
    agent.calls_without_state += 1
    if agent.calls_without_state == 2:
        warnings.warn(
            "predict was called twice without state, but this policy has a memory, so both calls began a new episode; give the"
            " state that predict returned last, or use model.session(). episode_start=True begins an episode without this"
            " warning",
            stacklevel=4,
        )


def _firsts(starts: object, count: int, name: str = "episode_start") -> Tensor:
    """`starts` as bool [count], True at the first observation of an episode. Raises ObservationError for a wrong shape."""
    values = _numpy(starts)
    shape = values.shape if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" else None
    if shape not in ((), (1,), (count,)):
        what = "no array of bools" if shape is None else f"the shape {shape}"
        raise ObservationError(f"{name} has {what} for {count} observations; give one value each, shape ({count},)")
    found = np.empty(count, np.bool_)
    # faster than `np.broadcast_to`
    found[:] = np.asarray(values)
    return torch.from_numpy(found)


def _carry_of(state: object, fresh: object, count: int) -> object:
    """The carry to act with: `state` of an earlier call, or `fresh` if it is None or the policy is not recurrent.

    Raises:
        ObservationError: `state` is of another policy, or of another number of observations than `count`.
    """
    if state is None or not leaves(fresh):
        return fresh
    try:
        fits = layout(state) == layout(fresh)
    except TypeError:
        fits = False
    if not fits:
        raise ObservationError(
            f"state is {shown(state)}, not the memory of this policy; give what predict returned last, or None to begin new"
            " episodes"
        )
    if any(leaf.shape != own.shape for leaf, own in zip(leaves(state), leaves(fresh), strict=True)):
        raise ObservationError(
            f"state is of another number of observations than {count}, or of other layers; give what predict returned last for"
            " as many, or None to begin new episodes"
        )
    return state


class InputReader:
    """Converts observations and actions of users to the form that policies take; `Observation` records are unchanged."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        context = preprocessing.context
        observation_space, action_space = context.observation_space, context.action_space
        self.preprocessing, self.device = preprocessing, context.device
        self.space, self.action_space = observation_space, action_space
        self._stack = ObservationBatcher(observation_space)
        self._stack_actions = ObservationBatcher(action_space, "action")
        self._masks = MaskValidator(action_space, context.algorithm, used=True, required=False)

    def read(
        self, given: object, memory: object = None, action_masks: object = None, episode_starts: object = None
    ) -> tuple[Observation, object]:
        """(observation in the form that the policy takes, carry of the policy). The observation has stacked frames, is
        normalized, and is on the policy's device.

        Args:
            given: an element of the observation space in numpy or torch, several stacked along a new first dimension, or an
                `Observation`, which is returned unchanged.
            memory: the state that `predict` returned; None begins episodes. An array is used as `action_masks`.
            action_masks: bool [A] or [N, A], True where an action is allowed; None allows all actions.
            episode_starts: bool [N], True at the first observation of an episode; None: all True without `memory`, else False.

        Raises:
            ObservationError: an observation is outside the space. MaskError: a mask is not usable.
        """
        if isinstance(memory, np.ndarray | Tensor | list):
            memory, action_masks = None, memory
        inner = memory.inner if isinstance(memory, FramesCarry) else memory
        if isinstance(given, Observation):
            return given, inner
        if memory is not None and episode_starts is None:
            episode_starts = False
        rows, _ = batch_of(self.space, _in_numpy(self.space, given))
        first = _firsts(True if episode_starts is None else episode_starts, len(rows))
        masks = None if action_masks is None else self._masks.of(_numpy(action_masks), len(rows))
        seen = self._moved(Observation(self._stack(rows), first, masks))
        return self.preprocessing.observed(seen, memory)[0], inner

    def action(self, given: object) -> Features:
        """Actions as tensors [N, ..] in environment units, nested like the space. Raises ObservationError if invalid."""
        rows, _ = batch_of(self.action_space, _in_numpy(self.action_space, given), "action")
        return self._moved(self._stack_actions(rows))

    def _moved(self, value: NodeT) -> NodeT:
        return map_tensors(lambda leaf: leaf.to(self.device), value)


def _numpy(value: object) -> object:
    try:
        return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    except ValueError:
        # a list with parts of several shapes: the checks that follow name it
        return value


def _in_numpy(space: Space, value: object) -> object:
    """`value` as numpy arrays, nested like the space; whole floats become integers if the space has integers."""
    if isinstance(space, Dict) and isinstance(value, Mapping):
        return {key: _in_numpy(space.spaces[key], item) if key in space.spaces else item for key, item in value.items()}
    if isinstance(space, Tuple) and isinstance(value, tuple | list) and len(value) == len(space.spaces):
        return tuple(_in_numpy(child, item) for child, item in zip(space.spaces, value, strict=True))
    array = _numpy(value)
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or isinstance(space, Dict | Tuple):
        return array
    whole = array if np.dtype(dtype_of(space)).kind == "f" else array.astype(dtype_of(space))
    return whole if np.array_equal(whole, array) else array


class Session:
    """Acts for `n` environments at a time. `act` takes numpy observations; call `ended` for episodes that have ended.

    >>> session = agent.session(1)                     # doctest: +SKIP
    >>> action = session.act(observation)              # doctest: +SKIP
    >>> session.ended(terminated or truncated)         # doctest: +SKIP
    """

    def __init__(
        self,
        policy: Policy[object, object],
        preprocessing: Preprocessing,
        n: int,
        *,
        deterministic: bool,
        seed: int,
        masks: MaskValidator,
    ) -> None:
        context = preprocessing.context
        self.policy, self.preprocessing, self.context, self.n, self.masks = policy, preprocessing, context, n, masks
        self.deterministic, self.generator = deterministic, Generator(device=context.device)
        self.generator.manual_seed(checked_seed(seed))
        self.decode, self._stack = ActionDecoder(context.action_space), ObservationBatcher(context.observation_space)
        self.reset()

    def reset(self) -> None:
        """Reset the policy's state: every environment begins a new episode."""
        self.carry = self.preprocessing.initial_carry(self.policy, self.n)
        self.is_first = torch.ones(self.n, dtype=torch.bool)

    def ended(self, done: object) -> None:
        """Mark the environments whose episode has ended, bool [n] or one bool; their next observation begins an episode."""
        self.is_first = self.is_first | _firsts(done, self.n, "done")

    def act(self, observation: object, action_masks: object = None) -> Actions:
        """The actions for `n` observations stacked along the first dimension; with n = 1, a single observation without that
        dimension is accepted too and gives a single action.

        Raises:
            ObservationError: the observations do not fit the space, or are not `n`. MaskError: a required mask is missing, or
            a mask has the wrong length or allows no action.
        """
        rows, single = batch_of(self.context.observation_space, observation)
        if len(rows) != self.n:
            raise ObservationError(f"this session acts for {self.n} environments, got {len(rows)} observations")
        mask = self.masks.of(action_masks, self.n)
        actions = self.decode(self.act_on(Observation(self._stack(rows), self.is_first, mask)).action)
        return actions[0] if single else actions

    def action_on(self, observation: Observation) -> torch.Tensor:
        """The actions of `act_on`, [n] or [n, A], on the CPU."""
        return map_tensors(lambda leaf: leaf.cpu(), self.act_on(observation).action)

    def act_on(self, observation: Observation) -> Act[object, object]:
        """The output of the policy for an `Observation`; the session stores its carry for the next step."""
        device = self.context.device
        there = device == "cpu" and observation.is_first.is_cpu
        moved = observation if there else map_tensors(lambda leaf: leaf.to(device), observation)
        carry = self._begun(moved.is_first)
        act = self.preprocessing.act(
            self.policy, moved, carry, deterministic=self.deterministic, generator=self.generator
        )
        self.carry, self.is_first = act.carry, torch.zeros(self.n, dtype=torch.bool)
        return act

    def _begun(self, first: torch.Tensor) -> object:
        """The carry, after `begin_rollout` in environments where an episode begins (gSDE samples new matrices then).

        `first` bool [n] marks these environments.
        """
        if not bool(first.any()):
            return self.carry
        begun = self.preprocessing.begin_rollout(self.policy, self.carry)
        if begun is self.carry:
            return begun

        def chosen(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
            return torch.where(first.view(-1, *(1,) * (old.dim() - 1)), new, old)

        return map_tensors(chosen, begun, self.carry)
