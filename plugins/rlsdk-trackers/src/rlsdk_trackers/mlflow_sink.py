"""The logger for MLflow (extra `mlflow`)."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rlsdk_trackers.tracked_run import TrackedRun
from rlsdk_trackers.tracker import PROJECT, Scalar, Tracker, group_of

T = TypeVar("T")
FOREIGN = re.compile(r"[^\w\-. :/]", re.ASCII)
"""Matches a character that MLflow refuses in names."""
MOST_PARAMETERS = 100
"""The largest number of parameters in one request."""
MOST_TEXT = 6000
TRIES = 5
IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""Variables of MLflow, while a run begins; seconds."""


class MLflowSink(Tracker):
    """Writes to a run of MLflow, on the server that MLFLOW_TRACKING_URI names, else in a database in the current folder.

    That is the default of MLflow, so `mlflow ui` there shows the runs of all folders. A line names the place.
    """

    title = "MLflow"
    name = "mlflow"
    hint = "see that the server of MLFLOW_TRACKING_URI answers"
    _client: Any = None

    def default_project(self) -> str:
        """The name in MLFLOW_EXPERIMENT_NAME, else "rlsdk"."""
        return os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT

    def start(self, run: TrackedRun, details: dict[str, Scalar], *, known: bool) -> None:
        """Begin or continue a run with a separate client. The active run of the program does not change."""
        self._client = _repeated(self.library.MlflowClient)
        with _impatient():
            if known:
                self._client.update_run(run.id, status="RUNNING")
            else:
                experiment = _repeated(lambda: self._experiment(run.project))
                tags = {"group": group} if (group := group_of(details)) else {}
                run.id = self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
                place = str(self._client.tracking_uri)
                if "MLFLOW_TRACKING_URI" not in os.environ and place.startswith("sqlite:"):
                    print(f"MLflow writes to {place}; set MLFLOW_TRACKING_URI to write elsewhere")
        self._id = run.id
        self.show_settings(details)

    def _experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if it does not exist."""
        known = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if known is None else known.experiment_id)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers under the environment step `step`."""
        now, metric = int(time.time() * 1000), self.library.entities.Metric
        self._client.log_batch(self._id, metrics=[metric(_named(n), float(v), now, step) for n, v in values.items()])

    def show_settings(self, values: dict[str, Scalar]) -> None:
        """Store settings as parameters. They never change in MLflow: a value that differs in a resumed run becomes a tag."""
        known = self._client.get_run(self._id).data.params
        texts = {_named(name): str(value)[:MOST_TEXT] for name, value in values.items()}
        new = [self.library.entities.Param(name, text) for name, text in texts.items() if name not in known]
        for first in range(0, len(new), MOST_PARAMETERS):
            self._client.log_batch(self._id, params=new[first : first + MOST_PARAMETERS])
        for name, text in texts.items():
            if name in known and known[name] != text:
                self._client.set_tag(self._id, f"resumed.{name}", text)

    def show_text(self, step: int, name: str, text: str) -> bool:
        """Store a text as an artifact."""
        self._client.log_text(self._id, text, f"{_place(name, step)}.txt")
        return True

    def show_picture(self, step: int, name: str, path: Path) -> bool:
        """Store a picture as an artifact."""
        return self._store_as(path, _place(name, step))

    def show_video(self, step: int, name: str, path: Path, fps: float) -> bool:
        """Store a video as an artifact."""
        return self._store_as(path, _place(name, step))

    def _store_as(self, path: Path, place: str) -> bool:
        folder, _, name = place.rpartition("/")
        self._client.log_artifact(self._id, str(path.rename(path.with_stem(name))), folder)
        return True

    def show_histogram(self, step: int, name: str, values: object) -> bool:
        """Return False: MLflow draws no histograms."""
        return False

    def store(self, paths: list[Path]) -> None:
        """Store files as artifacts."""
        for path in paths:
            self._client.log_artifact(self._id, str(path), "agent")

    def finish(self, *, failed: bool) -> None:
        """Set the status of the run."""
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


def _named(name: str) -> str:
    return FOREIGN.sub("_", name)


def _place(name: str, step: int) -> str:
    return f"media/{_named(name).strip('/. ') or 'value'}/step_{step:09d}"


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    """Inside the block MLflow asks a server that does not answer twice, not for four minutes. What the user has set stays."""
    ours = {name: value for name, value in IMPATIENT.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


def _repeated(work: Callable[[], T]) -> T:
    """Call `work` and return its result. Retry with a local database: several runs may create it at the same time."""
    for tried in range(TRIES - 1):
        try:
            return work()
        except Exception:
            if (os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:").partition(":")[0] != "sqlite":
                raise
            time.sleep(0.5 * 2**tried)
    return work()
