"""Pushing and pulling agents with huggingface_hub, against a small local server that implements its protocol."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlsdk
from rlsdk.errors import SettingsError

huggingface_hub = pytest.importorskip("huggingface_hub")
COMMIT = "0" * 40


class Hub(BaseHTTPRequestHandler):
    """A server with repositories in memory; it accepts every file as a regular (not LFS) file."""

    files: dict[str, dict[str, bytes]]

    def log_message(self, *args: Any) -> None:
        """Write no log."""

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any, code: int = 200) -> None:
        self._answer(code, json.dumps(value).encode(), Content_Type="application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        address = f"http://{self.headers['Host']}"
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked.get('organization') or 'me'}/{asked['name']}"
            if repo.startswith("forbidden/"):
                self._json({"error": "you may not write here"}, 403)
                return
            self.files.setdefault(repo, {})
            self._json({"url": f"{address}/{repo}", "name": repo, "id": repo})
        elif self.path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            self._json({"files": files, "commitOid": COMMIT})
        elif "/commit/" in self.path:
            repo = "/".join(self.path.split("/")[3:5])
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[repo][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._json({"success": True, "commitOid": COMMIT, "commitUrl": f"{address}/{repo}/commit/{COMMIT}"})
        else:
            self._json({"error": f"what is {self.path}"}, 404)

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        repo = "/".join(parts[:2])
        data = self.files.get(repo, {}).get("/".join(parts[4:])) if parts[2:3] == ["resolve"] else None
        if data is None:
            kind = "EntryNotFound" if repo in self.files else "RepoNotFound"
            self._answer(404, b"{}", X_Error_Code=kind, X_Error_Message="there is no such thing")
            return
        digest = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        self._answer(200, data, ETag=f'"{digest}"', X_Repo_Commit=digest, Accept_Ranges="bytes")

    do_HEAD = do_GET


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Any]:
    """(files on the server, environment variables of processes that use the server)."""
    kind = type("OneHub", (Hub,), {"files": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "cache"),
        "HF_TOKEN": "hf_secret",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    yield kind.files, {**os.environ, **settings}
    server.shutdown()
    server.server_close()


SCRIPT = """
import contextlib, io, json, sys
from rlsdk.cli.main import main
answers = []
for arguments in json.loads(sys.argv[1]):
    sys.argv, out, err, code = ["rlsdk", *arguments], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


def commands(hub: Any, lines: list[list[str]], cwd: Path) -> list[tuple[int, str, str]]:
    """(exit code, standard output, standard error) of each `rlsdk` command, in a process that uses the local server only."""
    line = [sys.executable, "-c", SCRIPT, json.dumps(lines)]
    done = subprocess.run(line, cwd=cwd, env=hub[1], capture_output=True, text=True, check=True, timeout=120)
    return [tuple(answer) for answer in json.loads(done.stdout.splitlines()[-1])]


def test_an_agent_goes_there_and_back(hub: Any, tmp_path: Path) -> None:
    agent = rlsdk.make("trpo", env="Pendulum-v1", seed=0, n_steps=32).learn(32)
    agent.save(tmp_path / "mine")
    agent.save(tmp_path / "small", exclude=["training"])  # without the training state, as in a zoo
    lines = [["push", "mine.rlsdk", "me/pendulum", "--no-video"], ["pull", "me/pendulum", "--out", "back.rlsdk"]]
    lines += [["push", "small", "me/small", "--no-video"], ["pull", "me/small", "--out", "small-back.rlsdk"]]
    lines += [["pull", "me/small", "--out", "small-back"], ["pull", "me/small", "--out", "back"]]
    answers = commands(hub, lines, tmp_path)
    assert [code for code, _, _ in answers] == [0, 0, 0, 0, 0, 1], answers
    assert "back.rlsdk exists; choose another --out, or add --overwrite" in answers[-1][2]
    pushed = answers[0]
    assert (tmp_path / "small-back.rlsdk").read_bytes() == (tmp_path / "small.rlsdk").read_bytes()
    assert "me/pendulum" in pushed[1]
    assert set(hub[0]["me/pendulum"]) == {"agent.rlsdk", "README.md"}
    assert "# trpo on Pendulum-v1" in hub[0]["me/pendulum"]["README.md"].decode()
    assert (tmp_path / "back.rlsdk").read_bytes() == (tmp_path / "mine.rlsdk").read_bytes()
    seen = np.zeros(3, np.float32)
    back = rlsdk.load(tmp_path / "back").predict(seen, deterministic=True)[0]
    np.testing.assert_array_equal(back, agent.predict(seen, deterministic=True)[0])


def test_the_hubs_library_reads_results_and_replay_of_a_run(hub: Any, tmp_path: Path) -> None:
    options = ["--steps", "200", "--eval-every", "100", "--eval-episodes", "2", "--out", "run", "-q"]
    script = "from rlsdk_interchange import push; push('run', 'me/python')"
    train = ["run", "ars", "--env", "CartPole-v1?max_episode_steps=9", *options]
    for code, _, error in commands(hub, [train, ["push", "run", "me/run"]], tmp_path):
        assert (code, error) == (0, "")
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=hub[1], check=True, timeout=120)
    assert hub[0]["me/run"]["replay.mp4"][4:8] == b"ftyp"  # how an .mp4 file starts
    text = hub[0]["me/run"]["README.md"].decode()
    card, _, seal = text.partition("<!-- unedited")
    assert seal
    python = hub[0]["me/python"]["README.md"].decode().partition("<!-- unedited")[0]
    assert python == card.replace("me/run", "me/python")
    data = huggingface_hub.ModelCard(text).data
    (result,) = data.eval_results
    found = (result.task_type, result.dataset_name, result.dataset_type, result.metric_type)
    env = "CartPole-v1?max_episode_steps=9"
    assert found == ("reinforcement-learning", env, "CartPole-v1-max_episode_steps-9", "mean_reward")
    assert re.fullmatch(r"[\d.]+ \+/- [\d.]+", result.metric_value)
    assert (data.library_name, data.pipeline_tag, data.model_name) == ("rlsdk", "reinforcement-learning", "ars")
    assert {"rlsdk", "ars", "reinforcement-learning"} <= set(data.tags)
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("rlsdk ")]
    assert [line[0] for line in lines] == ["pull", "eval", "watch"]
    for code, _, error in commands(hub, lines, tmp_path):
        assert (code, error) == (0, "")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "needs the packages rlsdk, rlsdk-ars, rlsdk-interchange" in text
    script = "import numpy\nobservation = numpy.zeros(4, numpy.float32)\n" + code
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=hub[1], check=True, timeout=120)


def test_without_a_video(hub: Any, tmp_path: Path) -> None:
    from gymnasium.envs.classic_control import PendulumEnv

    rlsdk.make("trpo", env=PendulumEnv(), seed=0).save(tmp_path / "mine")
    lines = [["push", "mine", "me/plain", "--no-video"], ["push", "mine", "me/odd"]]
    plain, odd = commands(hub, lines, tmp_path)
    assert (plain[0], plain[2], odd[0]) == (0, "", 0)
    assert odd[2].startswith("warning: the repository gets no video: mine.rlsdk names no environment")
    assert set(hub[0]["me/plain"]) == set(hub[0]["me/odd"]) == {"agent.rlsdk", "README.md"}


@pytest.mark.full
def test_an_edited_page_stays(hub: Any, tmp_path: Path) -> None:
    rlsdk.make("trpo", env="Pendulum-v1", seed=0).save(tmp_path / "mine")
    hub[0]["me/own"] = {"README.md": b"my own words"}
    push = [["push", "mine", name, "--no-video"] for name in ("me/own", "me/new", "me/new")]
    own, first, second = commands(hub, push, tmp_path)
    assert (own[0], first[0], second[0]) == (0, 0, 0)
    assert hub[0]["me/own"]["README.md"] == b"my own words"
    assert "agent.rlsdk" in hub[0]["me/own"]
    assert "README.md of me/own was edited and stays as it is" in own[2]
    assert "edited" not in first[2] + second[2]  # what `push` wrote is replaced
    hub[0]["me/new"]["README.md"] += b"and mine"
    (third,) = commands(hub, push[1:2], tmp_path)
    assert "was edited" in third[2]
    assert hub[0]["me/new"]["README.md"].endswith(b"and mine")


WRONG = (
    (["push", "text.rlsdk", "me/x"], "is not a whole"),
    (["push", "mine.rlsdk", "forbidden/x"], "was not uploaded to 'forbidden/x'"),
    (["push", "mine.rlsdk", "a/b/c"], "'a/b/c' does not name a repository; write OWNER/NAME"),
    (["pull", "nothing"], "'nothing' does not name a repository; write OWNER/NAME"),
    (["pull", "me/nothing"], "no agent file came from 'me/nothing'"),
    (["pull", "me/other"], "no agent file came from 'me/other'"),
    (["pull", "me/damaged"], "is not a whole"),
)


def test_what_goes_wrong_is_said(hub: Any, tmp_path: Path) -> None:
    rlsdk.make("trpo", env="Pendulum-v1", seed=0).save(tmp_path / "mine")
    (tmp_path / "text.rlsdk").write_text("no agent")
    hub[0]["me/other"] = {"weights.bin": b"x"}
    hub[0]["me/damaged"] = {"agent.rlsdk": b"x" * 100}
    answers = commands(hub, [line for line, _ in WRONG], tmp_path)
    for (line, words), (code, out, err) in zip(WRONG, answers, strict=True):
        assert (code, words in err) == (1, True), f"{line}: {err}"
        assert "Traceback" not in err
        assert "hf_secret" not in err + out
    assert not (tmp_path / "agent.rlsdk").exists()


@pytest.mark.full
def test_a_hub_that_cannot_be_reached_is_asked_once(hub: Any, tmp_path: Path) -> None:
    """The hub's own library asks six times, for half a minute."""
    rlsdk.make("trpo", env="Pendulum-v1", seed=0).save(tmp_path / "mine")
    assert [
        code for code, _, _ in commands(hub, [["push", "mine", "me/mine", "--no-video"], ["pull", "me/mine"]], tmp_path)
    ] == [
        0,
        0,
    ]
    away = (hub[0], {**hub[1], "HF_ENDPOINT": "http://127.0.0.1:9"})
    lines = [["pull", "me/other"], ["push", "mine", "me/mine"], ["pull", "me/mine", "--out", "again"]]
    *answers, stored = commands(away, lines, tmp_path)
    for code, _, err in answers:
        assert (code, err.count("\n"), "Retrying" in err) == (1, 1, False), err
        assert "the hub http://127.0.0.1:9 cannot be reached; check the network, or HF_ENDPOINT: " in err
    assert stored[0] == 0  # from the copy of before
    assert (tmp_path / "again.rlsdk").read_bytes() == (tmp_path / "mine.rlsdk").read_bytes()


@pytest.mark.usefixtures("from_an_index")
def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlsdk_interchange.hub import pull

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SettingsError, match=r"pip install \"rlsdk-interchange\[hub\]\""):
        pull("me/x")
