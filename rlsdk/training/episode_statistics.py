"""Statistics for logs: finished episodes, and metrics of the updates since the last log."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from urllib.parse import quote, unquote

import torch
from torch import Tensor

from rlsdk.records import Episode, Report
from rlsdk.runtime.stored import count_in
from rlsdk.tree import flatten

COUNTS = ("finished_episodes", "reports", "logged", "updates")


class EpisodeStatistics:
    """Counts and sums for logs. Their state is saved in files, so a continued training logs as if it had not stopped."""

    def __init__(self, window: int) -> None:
        self.window: deque[Episode] = deque(maxlen=min(window, sys.maxsize))
        self.finished_episodes = self.reports = self.logged = self.updates = 0
        self.sums: dict[str, float] = {}

    def add(self, report: Report, metrics: Mapping[str, float]) -> None:
        """Add the report of one round, with its metrics as numbers; empty if it has none."""
        self.window.extend(report.episodes)
        self.finished_episodes += len(report.episodes)
        self.reports += 1
        self.updates += report.metrics is not None
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def clear(self) -> None:
        """Reset the metrics. Episodes stay in the window until newer ones replace them."""
        self.sums, self.updates = {}, 0

    @property
    def mean_return(self) -> float | None:
        """Mean return of the episodes in the window; None before the first has finished."""
        return sum(e.episode_return for e in self.window) / len(self.window) if self.window else None

    def episodes(self) -> dict[str, float]:
        """The means over the window of episodes, with the names in docs/metrics.md."""
        if self.mean_return is None:
            return {}
        length = sum(e.length for e in self.window) / len(self.window)
        values = {"rollout/ep_rew_mean": self.mean_return, "rollout/ep_len_mean": length}
        successes = [e.success for e in self.window if e.success is not None]
        return {**values, "rollout/success_rate": sum(successes) / len(successes)} if successes else values

    def metrics(self) -> dict[str, float]:
        """The mean of each metric over the rounds with updates since the last log."""
        return {name: value / self.updates for name, value in self.sums.items()} if self.updates else {}

    def state_dict(self) -> dict[str, object]:
        rows = [(e.env, e.episode_return, e.length, -1 if e.success is None else int(e.success)) for e in self.window]
        window = torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)
        # a file takes '/' for a table, and no name may be a table and a value: `loss` and `loss/actor` are both metrics
        sums = {quote(name, safe=""): torch.tensor(value, dtype=torch.float64) for name, value in self.sums.items()}
        return {
            "window": window,
            "sums": sums,
            "counts": {name: getattr(self, name) for name in COUNTS},
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore the state. Raises KeyError or ValueError if `state` is not the result of `state_dict`."""
        rows, nested, stored = state["window"], state["sums"], state["counts"]
        if not isinstance(rows, Tensor) or not isinstance(nested, Mapping) or not isinstance(stored, Mapping):
            raise ValueError("the log is not a table of episodes, sums and counts")
        sums = flatten(nested)
        if rows.dim() != 2 or rows.shape[1] != 4 or not bool(rows.isfinite().all()) or bool((rows[:, 2] < 0).any()):
            raise ValueError(f"the log's episodes of shape {tuple(rows.shape)} are none")
        if not all(
            isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point() for value in sums.values()
        ):
            raise ValueError("the log's sums are not numbers")
        counts = {name: count_in(stored, name) for name in COUNTS}
        if counts["updates"] and not sums:
            raise ValueError("the log counts updates without metrics")
        for env, total, length, success in rows.tolist():
            self.window.append(Episode(int(env), total, int(length), None if success < 0 else bool(success)))
        self.sums = {unquote(name): value.item() for name, value in sums.items() if isinstance(value, Tensor)}
        for name, count in counts.items():
            setattr(self, name, count)
