"""`AsyncEval`, the documented class for playing candidates in other processes. rlsdk accepts it and ignores it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self


class AsyncEval:
    """An argument of `learn(async_eval=...)` without effect: candidates are always played in parallel. They are played in other
    processes if the environment is made by `make_vec_env(..., vectorization="async")`."""

    def __init__(
        self,
        envs_fn: Sequence[Callable[[], object]],
        train_policy: object,
        start_method: str | None = None,
        n_eval_episodes: int = 1,
    ) -> None:
        """Accept the documented arguments. No process is started."""
        self.n_envs = len(envs_fn)

    def close(self) -> None:
        """Do nothing, because no process was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
