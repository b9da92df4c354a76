"""A gymnasium vector environment in rlsdk's terms, for its same-step and next-step autoreset modes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlsdk.environments.adapters.actions import ActionDecoder
from rlsdk.environments.adapters.attributes import Indices, chosen, wrappers_of
from rlsdk.environments.adapters.masks import INFO, MaskRule
from rlsdk.environments.adapters.observations import ObservationBatcher, batch_of
from rlsdk.environments.adapters.step_checks import success
from rlsdk.environments.states import capture, masks_in, restore
from rlsdk.environments.vector.fingerprints import fingerprint
from rlsdk.environments.vector.info_entries import InfoEntries
from rlsdk.environments.vector.seeds import Seeds
from rlsdk.environments.vector.vector_infos import infos_of
from rlsdk.errors import ArtifactError, EnvironmentFault, MaskError, ObservationError, UsageError, raised, shown
from rlsdk.records import EnvStep, Episode, Observation
from rlsdk.spaces import Space

ResultT = TypeVar("ResultT")


class NativeVectorEnv:
    """Wraps a `gymnasium.vector.VectorEnv`.

    Next-step autoreset gives one filler row per episode, in which the action is ignored: it is marked `valid = False`.
    """

    def __init__(
        self, env: gymnasium.vector.VectorEnv[Any, Any, Any], observation_space: Space, action_space: Space
    ) -> None:
        self.env, self.observation_space, self.action_space = env, observation_space, action_space
        self.name = env.spec.id if env.spec is not None else type(env).__name__
        self.mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self.mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise EnvironmentFault(f"{self.name!r} has autoreset mode {self.mode}; rlsdk needs NEXT_STEP or SAME_STEP")
        self._decode, self._stack_rows = ActionDecoder(action_space), ObservationBatcher(observation_space)
        self.seeds, self._rule = Seeds(), MaskRule(action_space)
        self.has_masks = self._keep_infos = False
        self._names: tuple[str, ...] = ()
        self.env_id: str | None = None
        self._reset_infos: dict[str, object] = {}
        self._moves = self.restarts = 0
        self._start()

    def _start(self) -> None:
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.int64)
        self._resetting = np.zeros(self.num_envs, dtype=bool)

    @property
    def num_envs(self) -> int:
        return int(self.env.num_envs)

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode everywhere."""
        seeds: Any = self.seeds.of(seed, self.num_envs)
        if None in seeds:
            seeds = None
        elif not isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            seeds = seeds[0]  # environments that are vectors by themselves take one seed
        values, infos = self._ask(lambda: self.env.reset(seed=seeds))
        self._reset_infos, self._moves = infos, self._moves + 1
        self._start()
        self.has_masks = bool(self._rule.size) and INFO in infos
        return Observation(self._stack(values), torch.ones(self.num_envs, dtype=torch.bool), self._mask(infos))

    def step(self, action: Tensor) -> EnvStep:
        actions = self._decode.batched(action)
        values, rewards, terminations, truncations, infos = self._ask(lambda: self.env.step(actions))
        self._check(rewards, terminations, truncations, infos)
        self._moves += 1
        filler = self._resetting.copy()
        reward = np.where(filler, 0.0, rewards)
        terminated, truncated = terminations & ~filler, truncations & ~filler
        ended = terminated | truncated
        self._returns += reward
        self._lengths += ~filler
        same_step = self.mode == AutoresetMode.SAME_STEP
        mask = self._mask(infos, unchecked=None if same_step else ended)
        final = self._final(values, infos, ended, mask) if ended.any() else None
        is_first = torch.from_numpy(ended.copy() if same_step else filler)
        self._resetting = ended & (not same_step)
        return EnvStep(
            Observation(self._stack(values), is_first, mask),
            torch.from_numpy(reward.astype(np.float32)),
            torch.from_numpy(terminated),
            torch.from_numpy(truncated),
            torch.from_numpy(~filler),
            final,
            self._finish(ended, infos),
            infos_of(infos, self.num_envs, ended if same_step else None) if self._keep_infos else None,
            info=self._entries(infos, ended if same_step else None, filler) if self._names else {},
        )

    def _check(self, rewards: ArrayLike, terminations: ArrayLike, truncations: ArrayLike, infos: object) -> None:
        """Raises EnvironmentFault when a step did not give B finite rewards, B flags twice and an info."""
        shape = (self.num_envs,)
        if np.shape(rewards) != shape or np.asarray(rewards).dtype.kind not in "biuf" or not np.isfinite(rewards).all():
            wrong = f"rewards {shown(rewards)}; they must be {self.num_envs} finite numbers"
        elif np.shape(terminations) != shape or np.asarray(terminations).dtype != np.bool_:
            wrong = f"terminations {shown(terminations)}; they must be bool [{self.num_envs}]"
        elif np.shape(truncations) != shape or np.asarray(truncations).dtype != np.bool_:
            wrong = f"truncations {shown(truncations)}; they must be bool [{self.num_envs}]"
        elif not isinstance(infos, dict):
            wrong = f"infos {shown(infos)}; they must be a dict"
        else:
            return
        raise EnvironmentFault(f"environment {self.name!r}, step {int(self._lengths.max()) + 1}, gave the {wrong}")

    @property
    def environments(self) -> tuple[()]:
        """They are gymnasium's to step."""
        return ()

    def require_steps(self) -> None:
        """They can be stepped."""

    def keep_infos(self, keep: bool) -> None:
        """Whether steps carry `infos` from now on."""
        self._keep_infos = keep

    def select_info(self, names: Sequence[str]) -> None:
        """Which entries of infos steps carry from now on, as tensors."""
        self._names = tuple(names)

    def _entries(
        self, infos: Mapping[str, object], ended: NDArray[np.bool_] | None, filler: NDArray[np.bool_]
    ) -> dict[str, Tensor]:
        """The declared entries, float32 [B] each; 0 in the rows of `filler` bool [B]. `ended`: as `infos_of` takes it."""
        entries, rows = InfoEntries(self._names, self.num_envs), infos_of(infos, self.num_envs, ended)
        for i in np.flatnonzero(~filler):
            try:
                entries.write(int(i), rows[i])
            except EnvironmentFault as error:
                raise EnvironmentFault(f"environment {self.name!r} (number {i}) {error}") from None
        return entries.tensors()

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return infos_of(self._reset_infos, self.num_envs)

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The classes of the wrappers of each environment; none where the vector environment gives no access to them."""
        inside = getattr(self.env.unwrapped, "envs", None)
        return [[] if inside is None else wrappers_of(inside[i]) for i in chosen(indices, self.num_envs)]

    def _ask(self, call: Callable[[], ResultT]) -> ResultT:
        """The answer of the environment; whatever goes wrong on the way names the environment."""
        try:
            return call()
        except Exception as error:
            raise EnvironmentFault(f"environment {self.name!r} {raised(error)}") from error

    def _mask(self, infos: dict[str, Any], unchecked: NDArray[np.bool_] | None = None) -> Tensor | None:
        """The masks [B, A] in `infos`; rows marked in `unchecked` may allow nothing, their episode is over."""
        if not self.has_masks:
            return None
        try:
            rows = infos[INFO]
            masks = np.stack([self._rule.row(rows[i]) for i in range(self.num_envs)])
            if unchecked is not None:
                masks[unchecked] |= ~masks[unchecked].any(axis=1, keepdims=True)
            self._rule.require_choice(masks)
        except KeyError:
            raise EnvironmentFault(f"environment {self.name!r} gave an {INFO!r} at its reset, but not now") from None
        except MaskError as error:
            raise MaskError(f"environment {self.name!r}: {error}") from None
        return torch.from_numpy(masks)

    def _final(
        self, values: object, infos: dict[str, Any], ended: NDArray[np.bool_], mask: Tensor | None
    ) -> Observation:
        rows = np.flatnonzero(ended)
        if self.mode == AutoresetMode.SAME_STEP:
            features = self._stack_rows([infos["final_obs"][i] for i in rows])
            own = infos.get("final_info", {}).get(INFO) if mask is not None else None
            mask = self._final_masks(own, rows) if self.has_masks else None
        else:
            batch, _ = batch_of(self.observation_space, values)
            features = self._stack_rows([batch[i] for i in rows])
            mask = None if mask is None else mask[torch.from_numpy(rows)]
        return Observation(features, torch.zeros(len(rows), dtype=torch.bool), mask)

    def _final_masks(self, own: Any, rows: NDArray[np.int64]) -> Tensor:
        """The masks episodes ended with, bool [rows, A]; a mask without an allowed action allows all."""
        masks = np.ones((len(rows), self._rule.size), np.bool_)
        if own is not None:
            masks = np.stack([self._rule.row(own[i]) for i in rows])
            masks[self._rule.without_choice(masks)] = True
        return torch.from_numpy(masks)

    def _finish(self, ended: NDArray[np.bool_], infos: dict[str, Any]) -> tuple[Episode, ...]:
        source = infos.get("final_info", infos) if self.mode == AutoresetMode.SAME_STEP else infos
        values = source.get("is_success")
        if values is not None and np.shape(values)[:1] != (self.num_envs,):
            raise EnvironmentFault(
                f"environment {self.name!r} gave info['is_success'] = {shown(values)}; give one of each"
            )
        episodes = []
        for i in np.flatnonzero(ended):
            value = None if values is None else self._success(values[i])
            episodes.append(Episode(int(i), float(self._returns[i]), int(self._lengths[i]), value))
            self._returns[i], self._lengths[i] = 0.0, 0
        return tuple(episodes)

    def _success(self, value: object) -> bool | None:
        try:
            return success({"is_success": value})
        except EnvironmentFault as error:
            raise EnvironmentFault(f"environment {self.name!r} {error}") from None

    def _stack(self, values: object) -> Any:
        try:
            rows, _ = batch_of(self.observation_space, values)
            return self._stack_rows(rows)
        except ObservationError as error:
            raise EnvironmentFault(f"environment {self.name!r}: {error}") from None

    def fingerprint(self) -> Hashable:
        """What changes when the environments are moved; see `fingerprint_of`."""
        return self._moves, *map(fingerprint, getattr(self.env.unwrapped, "envs", ()))

    def get_state(self) -> dict[str, object]:
        """Where the environments stand, as tensors and JSON scalars.

        Raises:
            OpaqueValue: the environments do not declare their state.
        """
        counts = {"returns": self._returns, "lengths": self._lengths, "resetting": self._resetting}
        own = {name: torch.from_numpy(value.copy()) for name, value in counts.items()}
        return {"environment": capture(self.env), "counts": own, "has_masks": self.has_masks}

    def set_state(self, state: Any) -> None:
        """Put back what `get_state` gave.

        Raises:
            ArtifactError: the state is damaged, or of another environment.
        """
        self.reset(0)
        restore(self.env, state["environment"])
        own = {"returns": self._returns, "lengths": self._lengths, "resetting": self._resetting}
        counts = {name: state["counts"][name].numpy().copy() for name in own}
        if any((counts[name].shape, counts[name].dtype) != (value.shape, value.dtype) for name, value in own.items()):
            raise ArtifactError(f"the file's running episodes are not those of {self.num_envs} environments")
        self._returns, self._lengths, self._resetting = counts["returns"], counts["lengths"], counts["resetting"]
        self.has_masks = masks_in(state)

    def get_attr(self, name: str, indices: Indices = None) -> list[Any]:
        """The attribute `name` of the environments, where the vector environment gives access to them."""
        return [self._per_environment("get_attr", name)[i] for i in chosen(indices, self.num_envs)]

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the environments."""
        values, wanted = self._per_environment("get_attr", name), chosen(indices, self.num_envs)
        self._per_environment("set_attr", name, [value if i in wanted else own for i, own in enumerate(values)])

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[Any]:
        """Call a method of all environments; the answers of those in `indices`."""
        answers = self._per_environment("call", name, *args, **kwargs)
        return [answers[i] for i in chosen(indices, self.num_envs)]

    def _per_environment(self, request: str, *args: object, **kwargs: object) -> Any:
        if not isinstance(self.env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            raise UsageError(f"{self.name!r} is a vector by itself: it has no separate environments")
        return self._ask(lambda: getattr(self.env.unwrapped, request)(*args, **kwargs))

    def map(self, work: object, items: object) -> NoReturn:
        """Not possible: a vector environment steps all its copies together, so it cannot play single episodes."""
        raise UsageError(
            f"{self.name!r} is a vector by itself and plays no single episodes; use make_vec_env(id, n,"
            " vectorization='sync' or 'async')"
        )

    def close(self) -> None:
        self._ask(self.env.close)
