"""The local page of runs: what it lists, and what it refuses to send."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlsdk.cli.main import app
from rlsdk.errors import SettingsError
from rlsdk_lab.run_page import MOST_POINTS, RunServer, made_server

HOSTILE = "<img src=x onerror=alert(1)>"


def fake_run(folder: Path, *, algorithm: str = "tqc", points: int = 3) -> Path:
    folder.mkdir(parents=True)
    record = {"algorithm": algorithm, "env": "Pendulum-v1", "steps": 1000, "n_envs": 1, "seed": 0, "status": "running"}
    (folder / "run.json").write_text(json.dumps(record))
    rows = [f"{i},{i}.5,{-i}" for i in range(1, points + 1)]
    (folder / "metrics.csv").write_text("\n".join(["step,rollout/ep_rew_mean,eval/mean_reward", *rows]) + "\n")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunServer]:
    folder = tmp_path / "runs"
    fake_run(folder / "first")
    (folder / "first" / "agent.gif").write_bytes(b"GIF89a")
    (tmp_path / "secret.gif").write_bytes(b"GIF89a secret")
    with made_server(folder, 0) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def answer(server: RunServer, place: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, place, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def runs(server: RunServer) -> list[dict[str, Any]]:
    status, content = answer(server, "/runs.json")
    assert status == 200
    return json.loads(content)


def test_it_follows_runs(server: RunServer) -> None:
    [row] = runs(server)
    assert (row["name"], row["algorithm"], row["status"], row["steps"]) == ("first", "tqc", "running", 3)
    assert row["curves"]["evaluation"] == [[1.0, -1.0], [2.0, -2.0], [3.0, -3.0]]
    assert answer(server, f"/{row['videos'][0]}") == (200, b"GIF89a")
    folder = server.runs.folder
    with (folder / "first" / "metrics.csv").open("a") as stream:
        stream.write("900,7.5,8\n")
    fake_run(folder / "later" / "second", points=1000)
    by_name = {row["name"]: row for row in runs(server)}
    assert set(by_name) == {"first", "later/second"}
    assert by_name["first"]["curves"]["training"][-1] == [900.0, 7.5]
    long = by_name["later/second"]["curves"]["training"]
    assert len(long) <= MOST_POINTS + MOST_POINTS // 3
    assert long[-1] == [1000.0, 1000.5]


def test_a_damaged_run_is_listed_with_its_problem(server: RunServer) -> None:
    folder = server.runs.folder
    (fake_run(folder / "broken") / "run.json").write_text("{")
    fake_run(folder / "nan")
    (folder / "nan" / "metrics.csv").write_text("step,eval/mean_reward\n1,nan\n2,inf\n3,4\n")
    rows = {row["name"]: row for row in runs(server)}
    assert "run.json" in rows["broken"]["problem"]
    assert rows["nan"]["curves"]["evaluation"] == [[1.0, None], [2.0, None], [3.0, 4.0]]
    assert "problem" not in rows["first"]
    # a run that is repaired loses its problem
    (folder / "broken" / "run.json").write_text((folder / "nan" / "run.json").read_text())
    assert "problem" not in {row["name"]: row for row in runs(server)}["broken"]


@pytest.mark.parametrize(
    "place",
    [
        "/video/../../secret.gif",
        "/video/%2e%2e/%2e%2e/secret.gif",
        "/video/first/run.json",
        "/video/first/link.gif",
        "/video//etc/passwd",
        "/first/agent.gif",
        "/run.json",
    ],
)
def test_it_sends_no_other_files(server: RunServer, place: str) -> None:
    link = server.runs.folder / "first" / "link.gif"
    link.symlink_to(server.runs.folder.parent / "secret.gif")
    runs(server)
    assert answer(server, place) == (404, b"not here")


def test_it_answers_its_own_page_alone(server: RunServer) -> None:
    for host in ("example.com", f"example.com:{server.server_port}", "127.0.0.1", "127.0.0.1:1"):
        assert answer(server, "/runs.json", Host=host)[0] == 403
    assert answer(server, "/", Host=f"localhost:{server.server_port}")[0] == 200
    assert answer(server, "/", "POST")[0] == 501
    assert server.server_address[0] == "127.0.0.1"


def test_bad_arguments(tmp_path: Path, server: RunServer) -> None:
    done = CliRunner().invoke(app, ["ui", str(tmp_path / "nothing"), "--no-browser"])
    assert isinstance(done.exception, SettingsError)
    assert "there is no folder" in str(done.exception)
    with pytest.raises(SettingsError, match="cannot be used"):
        made_server(tmp_path, server.server_port)
    assert CliRunner().invoke(app, ["ui", str(tmp_path), "--port", "99999"]).exit_code == 2


@pytest.mark.parametrize("width", [420, 1280])
def test_the_page_in_a_browser(server: RunServer, width: int) -> None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
    browser = next((found for name in names if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on PATH")
    fake_run(server.runs.folder / HOSTILE.replace("/", ""), algorithm=HOSTILE)
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [browser, *words, "--dump-dom", server.address], capture_output=True, text=True, check=True, timeout=120
    )
    page = done.stdout
    assert "2 runs, the newest first" in page
    assert page.count("<path") == 4  # two curves of each run
    assert "mean return of evaluations" in page
    assert '<img src="video/first/agent.gif"' in page
    assert "<img src=x" not in page  # texts of files are escaped
    assert "&lt;img src=x" in page
