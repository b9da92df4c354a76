"""An adapter for gymnasium vector environments with same-step or next-step autoreset."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.environments.adapters.checks import (
    STEP,
    Environment,
    Indices,
    call_of,
    hint_for,
    name_of,
    success,
    wrappers_of,
)
from rlsdk.environments.adapters.masks import INFO, METHOD, MaskRule
from rlsdk.environments.adapters.observations import ObservationBatcher, Tensors
from rlsdk.environments.states import capture, masks_in, restore
from rlsdk.environments.vector.connected import SPACES_OF_VECTORS, Options, SteppedVector, fingerprint, seed_spaces
from rlsdk.environments.vector.faults import LATE, Faults, InfoEntries
from rlsdk.errors import ArtifactError, EnvironmentFault, MaskError, ObservationError, UsageError, raise_fault, shown
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space
from rlsdk.tree import map_tensors

ResultT = TypeVar("ResultT")


GymVector: TypeAlias = "gymnasium.vector.VectorEnv[object, object, object]"


def _final_info(infos: Mapping[str, object]) -> Mapping[str, object]:
    """The infos of episodes that ended, with same-step autoreset; empty if no episode ended."""
    final = infos.get("final_info")
    return final if isinstance(final, Mapping) else {}


class NativeVectorEnv(SteppedVector):
    """Makes a `gymnasium.vector.VectorEnv` a vector environment of rlsdk.

    With next-step autoreset, the first step of each new episode ignores the action. Its row in the records is a padding row,
    which is marked by `valid = False`.
    """

    def __init__(self, env: GymVector, observation_space: Space, action_space: Space) -> None:
        super().__init__(observation_space, action_space, name_of(env))
        self.env, self.num_envs = env, int(env.num_envs)
        self.mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self.mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise EnvironmentFault(f"{self.name!r} has autoreset mode {self.mode}; rlsdk needs NEXT_STEP or SAME_STEP")
        self._stack_rows, self._rule = ObservationBatcher(observation_space), MaskRule(action_space)
        self._reset_infos: dict[str, object] = {}
        self._moves = 0
        self._start()

    def _start(self) -> None:
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.int64)
        self._resetting = np.zeros(self.num_envs, dtype=bool)

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment."""
        own = self.seeds.of(seed, self.num_envs)
        # only gymnasium's own vector environments accept a seed for each environment; others get one seed
        separate = isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seeds: Any = own if separate else own[0]
        self.reset_seeds = own if separate else ()
        options = self.reset_options.take()
        given: object = self._ask(lambda: self._reset(own, None if None in own else seeds, options))
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], dict):
            raise EnvironmentFault(
                f"environment {self.name!r} reset must return (observations, infos), infos a dict; it returned {shown(given)}"
            )
        values, infos = given
        self._reset_infos, self._moves = infos, self._moves + 1
        self._start()
        self.has_masks = bool(self._rule.size) and INFO in infos
        if self._rule.size and not self.has_masks and self._moves == 1:
            self._warn_of_masks()
        return Observation(self._stack(values), torch.ones(self.num_envs, dtype=torch.bool), self._mask(infos))

    def _reset(self, own: Sequence[int | None], seeds: Any, options: Sequence[Options]) -> object:
        """The answer of the vector environment to `reset`. `own` are the seeds of the spaces of its environments."""
        seed_spaces(self.env, own[0], SPACES_OF_VECTORS)
        for environment, seed in zip(self._inside(), own, strict=False):
            seed_spaces(environment, seed)
        return self.env.reset(seed=seeds, **({"options": options[0]} if options else {}))

    def set_options(self, options: object = None) -> None:
        """Set the options of the next reset. Raises UsageError for a list: the vector environment takes one dict for all."""
        if isinstance(options, list | tuple):
            raise UsageError(
                f"{self.name!r} is a vector environment: its reset takes one dict of options for all environments, not a list"
            )
        super().set_options(options)

    def _warn_of_masks(self) -> None:
        """Warn where the environments have masks that their vector environment does not pass on."""
        if isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv) and any(
            self.env_method("has_wrapper_attr", METHOD)
        ):
            warnings.warn(
                f"the environments in {self.name!r} have a method {METHOD}, which a vector environment of gymnasium does not"
                f" call: their masks are not used; put {INFO!r} into their info, or use rlsdk.environments.make_vec_env",
                stacklevel=2,
            )

    def step(self, action: Tensor) -> EnvStep:
        actions = self.decode.batched(action)
        given: object = self._ask(lambda: self.env.step(actions))
        if not isinstance(given, tuple) or len(given) != 5:
            raise EnvironmentFault(f"environment {self.name!r} {STEP}; it returned {shown(given)}")
        values, *rest, infos = given
        rewards, terminations, truncations = self._checked(rest, infos)
        self._moves += 1
        padding = self._resetting.copy()
        reward = np.where(padding, 0.0, rewards)
        terminated, truncated = terminations & ~padding, truncations & ~padding
        ended = terminated | truncated
        self._returns += reward
        self._lengths += ~padding
        same_step = self.mode == AutoresetMode.SAME_STEP
        mask = self._mask(infos, unchecked=None if same_step else ended)
        features = self._stack(values)
        final = self._final(features, infos, ended, mask) if ended.any() else None
        is_first = torch.from_numpy(ended.copy() if same_step else padding)
        self._resetting = ended & (not same_step)
        return EnvStep(
            Observation(features, is_first, mask),
            torch.from_numpy(reward.astype(np.float32)),
            torch.from_numpy(terminated),
            torch.from_numpy(truncated),
            torch.from_numpy(~padding),
            final,
            self._finish(ended, infos),
            infos_of(infos, self.num_envs, ended if same_step else None) if self.keeps_infos else None,
            info=self._entries(infos, ended if same_step else None, padding) if self.info_names else {},
        )

    def _checked(
        self, given: Sequence[object], infos: object
    ) -> tuple[NDArray[np.floating], NDArray[np.bool_], NDArray[np.bool_]]:
        """(rewards, terminations, truncations) of a step, [B] each.

        Raises:
            EnvironmentFault: the rewards are not B finite numbers, a flag is not bool [B], or the infos are not a dict.
        """
        shape, (rewards, terminations, truncations) = (self.num_envs,), given
        reward, *flags = map(np.asarray, given)
        if reward.shape != shape or reward.dtype.kind not in "biuf" or not np.isfinite(reward).all():
            wrong = f"rewards {shown(rewards)}; they must be {self.num_envs} finite numbers"
        elif flags[0].shape != shape or flags[0].dtype != np.bool_:
            wrong = f"terminations {shown(terminations)}; they must be bool [{self.num_envs}]"
        elif flags[1].shape != shape or flags[1].dtype != np.bool_:
            wrong = f"truncations {shown(truncations)}; they must be bool [{self.num_envs}]"
        elif not isinstance(infos, dict):
            wrong = f"infos {shown(infos)}; they must be a dict"
        else:
            return reward, flags[0], flags[1]
        raise EnvironmentFault(f"environment {self.name!r}, step {int(self._lengths.max()) + 1}, gave the {wrong}")

    def _entries(
        self, infos: Mapping[str, object], ended: NDArray[np.bool_] | None, padding: NDArray[np.bool_]
    ) -> dict[str, Tensor]:
        """The declared entries, float32 [B] each; 0 in the rows of `padding` bool [B]. `ended`: see `infos_of`."""
        entries, rows = InfoEntries(self.info_names, self.num_envs), infos_of(infos, self.num_envs, ended)
        for i in np.flatnonzero(~padding).tolist():
            self._named(i, entries.write, i, rows[i])
        return entries.tensors()

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return infos_of(self._reset_infos, self.num_envs)

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The class names of the wrappers of each environment; empty if the environments cannot be accessed."""
        inside = self._inside()
        return [wrappers_of(inside[i]) if inside else [] for i in self.chosen(indices)]

    def _inside(self) -> Sequence[Environment]:
        """The gymnasium environments inside the vector environment; empty if they cannot be accessed."""
        return getattr(self.env.unwrapped, "envs", ())

    def _ask(self, call: Callable[[], ResultT]) -> ResultT:
        """The result of `call`, a function that calls the environment. Errors become an EnvironmentFault with its name."""
        try:
            return call()
        except BaseException as error:
            raise_fault(error, f"environment {self.name!r}", ending=hint_for(error))

    def _mask(self, infos: Mapping[str, object], unchecked: NDArray[np.bool_] | None = None) -> Tensor | None:
        """The masks [B, A] in `infos`.

        Rows marked in `unchecked` bool [B] may allow no action, because their episode is over. They then allow all actions.
        """
        if not self.has_masks:
            return None
        if INFO not in infos:
            raise EnvironmentFault(f"environment {self.name!r} gave an {INFO!r} at its reset, but not now")
        rows = self._each(infos, INFO)
        try:
            masks = np.stack([self._rule.row(rows[i]) for i in range(self.num_envs)])
            if unchecked is not None:
                over = self._rule.without_choice(masks)
                masks[over[unchecked[over]]] = True
            self._rule.require_choice(masks)
        except MaskError as error:
            raise MaskError(f"environment {self.name!r}: {error}") from None
        return torch.from_numpy(masks)

    def _final(
        self, features: Tensors, infos: Mapping[str, object], ended: NDArray[np.bool_], mask: Tensor | None
    ) -> Observation:
        """The last observations [F, ..] of episodes that ended. `features` [B, ..] and `mask` [B, A] are those of the step."""
        rows = np.flatnonzero(ended)
        if self.mode == AutoresetMode.SAME_STEP:
            last = self._each(infos, "final_obs")
            ended_features = self._stack_rows([last[i] for i in rows.tolist()])
            mask = self._final_masks(_final_info(infos), rows) if self.has_masks else None
        else:
            index = torch.from_numpy(rows)
            ended_features = map_tensors(lambda leaf: leaf[index], features)
            mask = None if mask is None else mask[index]
        return Observation(ended_features, torch.zeros(len(rows), dtype=torch.bool), mask)

    def _final_masks(self, info: Mapping[str, object], rows: NDArray[np.int64]) -> Tensor:
        """The masks of the last observations of episodes, bool [rows, A]. A mask that allows no action is set to allow all."""
        masks = np.ones((len(rows), self._rule.size), np.bool_)
        if INFO in info:
            own = self._each(info, INFO)
            masks = np.stack([self._rule.row(own[i]) for i in rows.tolist()])
            masks[self._rule.without_choice(masks)] = True
        return torch.from_numpy(masks)

    def _finish(self, ended: NDArray[np.bool_], infos: Mapping[str, object]) -> tuple[Episode, ...]:
        if self._rule.size and not self.has_masks and INFO in infos and ended.any():
            raise EnvironmentFault(f"environment {self.name!r} {LATE}")
        source = _final_info(infos) if "final_info" in infos else infos
        values = self._each(source, "is_success") if "is_success" in source else None
        rows = np.flatnonzero(ended)
        numbers = rows.tolist()
        successes = [None if values is None else self._named(i, success, {"is_success": values[i]}) for i in numbers]
        columns = numbers, self._returns[rows].tolist(), self._lengths[rows].tolist(), successes
        self._returns[rows], self._lengths[rows] = 0.0, 0
        return tuple(map(Episode, *columns))

    def _each(self, infos: Mapping[str, object], name: str) -> Entries:
        """The values of the entry `name` of `infos`, one for each environment.

        Raises:
            EnvironmentFault: the entry is missing, or it has another number of values.
        """
        values = entries_in(infos.get(name), self.num_envs)
        if values is None:
            given = f"info[{name!r}] = {shown(infos[name])}" if name in infos else f"no info[{name!r}]"
            raise EnvironmentFault(
                f"environment {self.name!r} gave {given}; give one value for each of its {self.num_envs} environments"
            )
        return values

    def _named(self, i: int, check: Callable[..., ResultT], *arguments: object) -> ResultT:
        """The result of `check(*arguments)`. Its errors name environment `i` and the step of its episode."""
        return Faults(self.name, range(self.num_envs)).named(i, int(self._lengths[i]), check, *arguments)

    def _stack(self, values: object) -> Tensors:
        """Observations [B, ..] as tensors; raises EnvironmentFault where they are not B, or not those of the space."""
        try:
            return self._stack_rows.of_batch(values, self.num_envs)
        except ObservationError as error:
            raise EnvironmentFault(f"environment {self.name!r}: {error}") from None

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset."""
        return self._moves, *map(fingerprint, self._inside())

    def get_state(self) -> dict[str, object]:
        """The state of the environments, as tensors and JSON scalars.

        Raises:
            OpaqueValue: the vector environment has a value whose state cannot be read.
        """
        counts = {"returns": self._returns, "lengths": self._lengths, "resetting": self._resetting}
        own = {name: torch.from_numpy(value.copy()) for name, value in counts.items()}
        return {"environment": capture(self.env), "counts": own, "has_masks": self.has_masks}

    def set_state(self, state: Any) -> None:
        """Restore a state from `get_state`.

        Raises:
            ArtifactError: the state is damaged, or belongs to another environment.
        """
        self.reset(0)
        restore(self.env, state["environment"])
        own = {"returns": self._returns, "lengths": self._lengths, "resetting": self._resetting}
        counts = {name: state["counts"][name].numpy().copy() for name in own}
        if any((counts[name].shape, counts[name].dtype) != (value.shape, value.dtype) for name, value in own.items()):
            raise ArtifactError(f"the file's running episodes are not those of {self.num_envs} environments")
        self._returns, self._lengths, self._resetting = counts["returns"], counts["lengths"], counts["resetting"]
        self.has_masks = masks_in(state)

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The attribute `name` of the environments. Raises UsageError if they cannot be accessed."""
        vector = self._separate()
        values = self._ask(lambda: vector.get_attr(name))
        return [values[i] for i in self.chosen(indices)]

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the environments in `indices`. Raises UsageError if they cannot be accessed."""
        values, wanted = self.get_attr(name), self.chosen(indices)
        changed = [value if i in wanted else own for i, own in enumerate(values)]
        vector = self._separate()
        self._ask(lambda: vector.set_attr(name, changed))

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the environments in `indices`; gymnasium's AsyncVectorEnv calls that of the others too."""
        vector, inside = self._separate(), self._inside()
        if inside:
            return [call_of(inside[i], name, args, kwargs) for i in self.chosen(indices)]
        answers = self._ask(lambda: vector.call(name, *args, **kwargs))
        return [answers[i] for i in self.chosen(indices)]

    def _separate(self) -> SyncVectorEnv | AsyncVectorEnv:
        if not isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            raise UsageError(f"{self.name!r} is a vector environment: it has no separate environments")
        return self.env.unwrapped

    def close(self) -> None:
        self._ask(self.env.close)


FINAL = ("final_obs", "final_info")
"""The keys under which same-step autoreset stores the last observations and infos of episodes that ended."""


@runtime_checkable
class Entries(Protocol):
    """Values that are read by position: a list, tuple, array or tensor."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


def infos_of(
    infos: Mapping[str, object], count: int, ended: NDArray[np.bool_] | None = None
) -> list[dict[str, object]]:
    """The infos of a vector environment as one mapping per environment.

    Args:
        infos: key -> array [B], and `_key` -> bool [B], True for the environments that have the key.
        count: B, the number of environments.
        ended: bool [B], with same-step autoreset: True for the environments whose info is in `final_info`.
    """
    rows = _rows({name: value for name, value in infos.items() if name.removeprefix("_") not in FINAL}, count)
    if ended is not None and ended.any():
        final = infos.get("final_info")
        last = _rows(final, count) if isinstance(final, Mapping) else entries_in(final, count) or rows
        for i in np.flatnonzero(ended).tolist():
            own = last[i]
            rows[i] = dict(own) if isinstance(own, Mapping) else {}
    return rows


def _rows(infos: Mapping[str, object], count: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{} for _ in range(count)]
    for name, values in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue  # a mask of the environments that have the key without the underscore
        present = entries_in(infos.get(f"_{name}"), count)
        entries = _rows(values, count) if isinstance(values, Mapping) else entries_in(values, count)
        entries = [values] * count if entries is None else entries  # one value for all environments
        for i in range(count):
            if present is None or present[i]:
                rows[i][name] = entries[i]
    return rows


def entries_in(values: object, count: int) -> Entries | None:
    """`values`, if it has one value for each of `count` environments; else None."""
    if isinstance(values, str | bytes) or not isinstance(values, Entries) or len(values) != count:
        return None
    return values
