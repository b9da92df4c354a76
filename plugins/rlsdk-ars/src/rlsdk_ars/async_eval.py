"""The documented class for playing candidates in other processes, which needs no class here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self


class AsyncEval:
    """Accepted by `learn(async_eval=...)`, without effect: candidates are played side by side, in other processes where the
    environment is made by `make_vec_env(..., vectorization="async")`."""

    def __init__(
        self,
        envs_fn: Sequence[Callable[[], object]],
        train_policy: object,
        start_method: str | None = None,
        n_eval_episodes: int = 1,
    ) -> None:
        """Nothing is started; the arguments are those documented."""
        self.n_envs = len(envs_fn)

    def close(self) -> None:
        """Does nothing, as nothing was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
