"""`AsyncEval`, the documented class for playing candidates in other processes. rlsdk accepts it and ignores it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, Self

from rlsdk.errors import UnknownAttributeError

ELSEWHERE = {
    **dict.fromkeys(("send_jobs", "get_results"), "model.evaluate_candidates(weights) plays candidates"),
    **dict.fromkeys(
        ("get_obs_rms", "sync_obs_rms"), "the statistics of observations are the agent's, model.normalizer"
    ),
    "set_options": "candidates are reset with a seed only; give options as arguments of the environment, env_kwargs",
}
"""Method of the documented class -> what does the same here."""


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

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Warn that the seed has no effect: the seeds of episodes follow from the agent's. Return an empty list."""
        if seed is not None:
            warnings.warn(
                "AsyncEval.seed has no effect: the seeds of candidates follow from the agent's, ARS(..., seed=...)",
                stacklevel=2,
            )
        return []

    if not TYPE_CHECKING:  # with a `__getattr__`, type checkers would accept unknown names

        def __getattr__(self, name: str) -> NoReturn:
            hint = f"; {ELSEWHERE[name]}" if name in ELSEWHERE else ""
            raise UnknownAttributeError(f"AsyncEval has no attribute {name!r}{hint}")

    def close(self) -> None:
        """Do nothing, because no process was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
