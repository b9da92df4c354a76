"""Environments written in C, or in another language that can export C functions. They write into arrays of the caller.

One call steps all environments, and no Python objects are made for single environments. A library exports five functions:

    void vec_sizes(int64_t *observation, int64_t *action);        // bytes of one observation and of one action
    void *vec_init(int64_t count, void *observations, const void *actions,
                   float *rewards, uint8_t *terminated, uint8_t *truncated);     // returns NULL on failure
    void vec_reset(void *environments, int64_t seed);             // seed -1: do not seed the random generators
    void vec_step(void *environments);
    void vec_close(void *environments);

`vec_init` gets the arrays once. They are [count, ..] in C order, in the dtypes of the spaces. Their addresses do not change. A
reset writes observations. A step reads actions and writes everything else, flags as 0 or 1. The observation of a step that ends
an episode is the episode's last one. The next step ignores the action of that environment, begins its next episode, and writes
the first observation, reward 0 and flags 0: gymnasium's next-step autoreset.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlsdk.environments import ConnectedEnv, OpaqueValue, connect, require_copies, to_space
from rlsdk.errors import EnvironmentFault, SettingsError, UnsupportedSpaceError, UsageError, message_of, shown
from rlsdk.runtime import open_library

Array = NDArray[Any]
GymSpace = gymnasium.Space[Any]
_SIZE, _ADDRESS = ctypes.c_int64, ctypes.c_void_p
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "vec_sizes": (None, (ctypes.POINTER(_SIZE), ctypes.POINTER(_SIZE))),
    "vec_init": (_ADDRESS, (_SIZE, *[_ADDRESS] * 5)),
    "vec_reset": (None, (_ADDRESS, _SIZE)),
    "vec_step": (None, (_ADDRESS,)),
    "vec_close": (None, (_ADDRESS,)),
}
"""The functions that a library exports: name -> (type of the result, types of the arguments)."""
GREATEST_SEED = 2**63 - 1


class CVectorEnv(gymnasium.vector.VectorEnv[object, object, object]):
    """B environments of one library. `reset` and `step` return the library's arrays, which the next call overwrites."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # gymnasium's own declaration

    def __init__(self, library: str | Path, num_envs: int, observation_space: GymSpace, action_space: GymSpace) -> None:
        """See `make_c_vec_env`."""
        self.library, self.num_envs = Path(library), num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self._functions = _loaded(self.library)
        self._observations = _rows(observation_space, num_envs, "observation")
        self._actions = _rows(action_space, num_envs, "action")
        self._require_sizes()
        self._rewards = np.zeros(num_envs, np.float32)
        self._terminated, self._truncated = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        arrays = (self._observations, self._actions, self._rewards, self._terminated, self._truncated)
        self._environments = self._functions["vec_init"](num_envs, *(array.ctypes.data for array in arrays))
        if not self._environments:
            raise EnvironmentFault(f"{shown(str(library))}: vec_init returned NULL for {num_envs} environments")

    def _require_sizes(self) -> None:
        """Raises EnvironmentFault when the library has other sizes than the arrays, and would access memory outside them."""
        sizes = _SIZE(), _SIZE()
        self._functions["vec_sizes"](*map(ctypes.byref, sizes))
        for what, size, rows in zip(("observation", "action"), sizes, (self._observations, self._actions), strict=True):
            own = rows.nbytes // self.num_envs
            if size.value != own:
                raise EnvironmentFault(
                    f"{shown(str(self.library))} has {what}s of {size.value} bytes, but those of {what}_space are"
                    f" {rows.dtype} {rows.shape[1:]}, {own} bytes; give the space that the library was written for"
                )

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[Array, dict[str, object]]:
        if seed is not None and not 0 <= seed <= GREATEST_SEED:
            raise SettingsError(f"seed = {seed} must be from 0 to {GREATEST_SEED}")
        self._functions["vec_reset"](self._opened(), -1 if seed is None else seed)
        return self._observations, {}

    def step(self, actions: object) -> tuple[Array, Array, Array, Array, dict[str, object]]:
        given = np.asarray(actions)
        if given.shape != self._actions.shape:
            raise UsageError(f"actions have shape {given.shape}; these environments take {self._actions.shape}")
        self._actions[...] = given
        self._functions["vec_step"](self._opened())
        return self._observations, self._rewards, self._terminated, self._truncated, {}

    def _opened(self) -> int:
        if self.closed:
            raise UsageError(f"the environments of {shown(str(self.library))} are closed; make new ones")
        return int(self._environments)

    def close_extras(self, **kwargs: object) -> None:
        """Close the environments of the library. `close` calls this once."""
        self._functions["vec_close"](self._environments)

    def get_state(self) -> NoReturn:
        """Raises OpaqueValue, because the state is inside the library. A resumed training begins new episodes."""
        raise OpaqueValue(f"the state of {self.library.name}")

    def set_state(self, state: object) -> NoReturn:
        """Raises OpaqueValue, because the state is inside the library."""
        self.get_state()


def make_c_vec_env(
    library: str | Path,
    n_envs: int,
    seed: int | None = None,
    *,
    observation_space: GymSpace,
    action_space: GymSpace,
) -> ConnectedEnv:
    """A vector environment of a shared library. `rlsdk_envs.c_vector` describes the functions it must export.

    Args:
        library: path of the shared library (`.so`, `.dylib`, `.dll`).
        n_envs: number of environments.
        seed: seed of the first reset that gets no seed.
        observation_space: the space of one environment: a Box, Discrete, MultiDiscrete or MultiBinary of gymnasium.
        action_space: the action space of one environment, of the same kinds.

    Raises:
        EnvironmentFault: the library cannot be loaded, is cut off, lacks a function, or was written for other spaces.
        SettingsError: `n_envs` is not positive. UnsupportedSpaceError: a space is a Dict or Tuple, or of another kind.
    """
    require_copies(n_envs)
    for what, space in (("observation", observation_space), ("action", action_space)):
        to_space(space, what)  # before the library is loaded
    made = connect(CVectorEnv(library, n_envs, observation_space, action_space), seed=seed)
    made.name = Path(library).stem
    return made


def _loaded(library: Path) -> dict[str, Callable[..., Any]]:
    """Load a library, and return the functions that `FUNCTIONS` lists."""
    try:
        found = open_library(library.resolve())  # by its path: a bare name would be searched for in other folders
    except OSError as error:
        raise EnvironmentFault(
            f"library {shown(str(library))} cannot be loaded: {message_of(error)}; compile it, for example with"
            " cc -O2 -shared -fPIC -o NAME.so NAME.c"
        ) from None
    if missing := [name for name in FUNCTIONS if not hasattr(found, name)]:
        raise EnvironmentFault(
            f"library {shown(str(library))} exports no {', '.join(missing)}; it needs {', '.join(FUNCTIONS)}"
            " (rlsdk_envs.c_vector describes them)"
        )
    functions = {name: getattr(found, name) for name in FUNCTIONS}
    for name, (result, arguments) in FUNCTIONS.items():
        functions[name].restype, functions[name].argtypes = result, arguments
    return functions


def _rows(space: GymSpace, count: int, what: str) -> Array:
    """An array of zeros [count, ..] for observations or actions of `count` environments."""
    to_space(space, what)
    if space.shape is None or space.dtype is None:  # a Dict or Tuple
        raise UnsupportedSpaceError(
            f"{what}_space is a {type(space).__name__}; C environments have one array: use a Box"
        )
    return np.zeros((count, *space.shape), space.dtype)
