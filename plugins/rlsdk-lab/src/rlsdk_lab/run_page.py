"""A local page with the runs of a folder, which follows runs while they train (`rlsdk ui`).

The page can only read: the server answers GET, for its own address on the loopback device, and sends no file that is not the
video of a run. What files contain is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import attrs

from rlsdk.errors import RlsdkError, SettingsError, one_line
from rlsdk.runs import RunDirectory, read_metric
from rlsdk_lab.curves import EVALUATION, TRAINING, settings_as_text

HOST = "127.0.0.1"
MOST_RUNS, MOST_POINTS = 200, 300
"""The newest runs that the page lists, and the points of a curve."""
VIDEOS = {".gif": "image/gif", ".mp4": "video/mp4"}
HEADERS = {
    # No script, picture or connection from elsewhere, and no other page may show this one.
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; media-src 'self'; connect-src 'self';"
    " style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@attrs.define(eq=False)
class RunList:
    """The runs below a folder, as the page shows them. A run is read again when its files change."""

    folder: Path
    known: dict[Path, tuple[object, dict[str, object]]] = attrs.field(factory=dict)

    def rows(self) -> list[dict[str, object]]:
        """Return the newest runs, the newest first."""
        # one walk, as the page asks every few seconds
        found = [path for path in self.folder.rglob("*") if path.name == "run.json" or path.suffix in VIDEOS]
        records = sorted(((_time(path), path) for path in found if path.name == "run.json"), reverse=True)
        videos = sorted(path for path in found if path.suffix in VIDEOS and _is_below(path, self.folder))
        return [
            self._row(path.parent, [video for video in videos if video.is_relative_to(path.parent)])
            for _, path in records[:MOST_RUNS]
        ]

    def video(self, place: str) -> Path | None:
        """Return the file of a video that the page lists; None for all other places."""
        listed = {str(video) for _, row in self.known.values() for video in _texts(row.get("videos"))}
        return self.folder / place if place in listed else None

    def _row(self, folder: Path, videos: Sequence[Path]) -> dict[str, object]:
        run = RunDirectory(folder)
        name = folder.relative_to(self.folder).as_posix()
        stamp: object = (_time(run.record), _time(run.csv), tuple(videos))
        before = self.known.get(folder)
        if before is None or before[0] != stamp:
            places = [path.relative_to(self.folder).as_posix() for path in videos]
            try:
                row = {"name": name, "videos": places, **_content(run)}
            except (RlsdkError, OSError) as error:
                # A file may be read while a run writes it: the next request reads it again.
                row = {**(before[1] if before else {}), "name": name, "videos": places, "problem": one_line(str(error))}
                stamp = None
            self.known[folder] = (stamp, row)
        return self.known[folder][1]


def _content(run: RunDirectory) -> dict[str, object]:
    """Return what the page shows of a run: its record, settings and curves.

    Raises:
        SettingsError, OSError: a file is damaged or cannot be read.
    """
    record = run.read_record()
    final = record.final_evaluation
    points = {"evaluation": EVALUATION, "training": TRAINING}
    curves = {name: _points(run.csv, metric) for name, metric in points.items()} if run.csv.exists() else {}
    steps = max([record.env_steps or 0, *(x for curve in curves.values() for x, _ in curve[-1:])])
    return {
        "algorithm": record.algorithm,
        "place": record.place,
        "status": record.status,
        "seed": record.seed,
        "steps": steps,
        "total": record.steps,
        "result": None if final is None else f"{final.mean:.2f} ± {final.std:.2f}",
        "curves": curves,
        "settings": settings_as_text(run.config) if run.config.exists() else {},
    }


def _points(path: Path, metric: str) -> list[tuple[float, float | None]]:
    """Return at most about `MOST_POINTS` points (step, value) of a metric, with the last one. NaN is None, as in JSON."""
    points = list(zip(*read_metric(path, metric), strict=True))
    chosen = points[:: max(1, len(points) // MOST_POINTS)]
    chosen += points[-1:] if chosen[-1:] != points[-1:] else []
    return [(x, value if abs(value) < float("inf") else None) for x, value in chosen]


def _time(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _is_below(path: Path, folder: Path) -> bool:
    """Whether a path leads to a file inside the folder: a link may lead elsewhere."""
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def _texts(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


class RunServer(ThreadingHTTPServer):
    """A server of the page on the loopback device."""

    daemon_threads = True

    def __init__(self, runs: RunList, port: int) -> None:
        """Raises OSError if the port is in use."""
        super().__init__((HOST, port), _Request)
        self.runs = runs

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/"


def made_server(folder: Path, port: int) -> RunServer:
    """Return a server for the runs below `folder`; `serve_forever` starts it.

    Raises:
        SettingsError: there is no such folder, or the port is in use.
    """
    if not folder.is_dir():
        raise SettingsError(f"there is no folder {folder}; name one with runs, or begin with `rlsdk run`")
    try:
        return RunServer(RunList(folder), port)
    except OSError as error:
        raise SettingsError(f"port {port} cannot be used: {error.strerror}; choose another with --port, or 0") from None


class _Request(BaseHTTPRequestHandler):
    server: RunServer

    def do_GET(self) -> None:  # the name that http.server calls
        # A page of another site may let its name lead to this machine, and could then read the answers.
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._answer(403, b"wrong host", "text/plain")
            return
        place = unquote(urlsplit(self.path).path)
        if place == "/":
            page = (files("rlsdk_lab") / "run_page.html").read_bytes()
            self._answer(200, page, "text/html; charset=utf-8")
        elif place == "/runs.json":
            rows = [
                {**row, "videos": [quote(f"video/{video}") for video in _texts(row["videos"])]}
                for row in self.server.runs.rows()
            ]
            self._answer(200, json.dumps(rows, allow_nan=False).encode(), "application/json")
        elif (video := self.server.runs.video(place.removeprefix("/video/"))) is not None:
            self._answer(200, video.read_bytes(), VIDEOS[video.suffix])
        else:
            self._answer(404, b"not here", "text/plain")

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        # the browser may have closed the connection
        with suppress(ConnectionError):
            self.send_response(status)
            for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of http.server
        """Print nothing: the page asks every few seconds."""
