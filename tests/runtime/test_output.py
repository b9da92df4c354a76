"""Output: control characters in foreign text are escaped, and errors of output streams do not stop a training."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlsdk
from rlsdk.callbacks import ProgressBar
from rlsdk.callbacks.periodic import StopOnInterrupt
from rlsdk.environments import make_vec_env
from rlsdk.errors import RlsdkError, SettingsError, one_line, printable
from rlsdk.registry import find, load
from rlsdk.registry.discovery import register
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk.runtime.files import append_whole
from rlsdk.runtime.output import LossyStream, counted, print_line
from rlsdk.sinks import ConsoleSink
from rlsdk_envs.toy import IdentityEnv
from rlsdk_lab.plotting import literal
from tests.runs.test_resumed_options import BASE, SMALL

EVIL = "a\x1b]0;title\x07\x1b[2Jb\rc\u202ed\ud800e\nf"


def clean(text: str) -> bool:
    return all(c in "\n\t" or c.isprintable() for c in text)


def test_text_is_made_printable() -> None:
    assert printable("plain, ünï, 図\n\t") == "plain, ünï, 図\n\t"
    assert printable(EVIL) == "a\\x1b]0;title\\x07\\x1b[2Jb\\rc\\u202ed\\ud800e\nf"
    assert one_line(EVIL).endswith("e\\nf")
    assert clean(str(RlsdkError(EVIL)))
    assert clean(str(SettingsError(EVIL)))
    assert literal("$\\frac$\x1b") == r"\$\frac\$\x1b"


def test_commands_print_no_control_characters(cli: Any) -> None:
    agent = rlsdk.make("trpo", env=IdentityEnv(), seed=0, **SMALL)
    agent.env_name = EVIL
    agent.save("evil.rlsdk")
    run(attrs.evolve(BASE, out=Path("run")))
    record = json.loads(Path("run/run.json").read_text())
    Path("run/run.json").write_text(json.dumps({**record, "env": EVIL + "$x_$"}))
    for command in (
        ("inspect", "evil.rlsdk"),
        ("eval", "evil.rlsdk"),
        ("record", "evil.rlsdk"),
        ("export", "evil.rlsdk", "--format", EVIL.replace("\ud800", "")),
        ("plot", "run"),
        ("compare", "run", "run"),
        ("run", "trpo", "--resume", "--out", "run", "--trust"),
        ("run", "trpo", "--env", EVIL, "--steps", "5"),
        ("run", EVIL, "--env", EVIL, "--steps", "5"),
    ):
        _, out, err = cli(*command)
        assert clean(out), command
        assert clean(err), command
        assert out + err


def test_manifests_hold_no_control_characters() -> None:
    spec, manifest = load("trpo"), find("trpo").manifest
    assert manifest is not None
    with pytest.raises(RlsdkError) as caught:
        register(attrs.evolve(spec, id="evil"), attrs.evolve(manifest, id="evil", title=EVIL))
    assert clean(str(caught.value))


class Broken(io.StringIO):
    """A stream whose `write` and `flush` raise `error`."""

    def __init__(self, error: Exception, *, tty: bool) -> None:
        super().__init__()
        self.error, self.tty = error, tty

    def isatty(self) -> bool:
        return self.tty

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(28, "full"), ValueError("closed"), RuntimeError("reentrant")]
)
@pytest.mark.parametrize("tty", [False, True])
def test_training_outlives_what_it_prints_to(error: Exception, tty: bool) -> None:
    stream = Broken(error, tty=tty)
    agent = rlsdk.make("trpo", env=IdentityEnv(), seed=0, **SMALL)
    agent.set_logger(ConsoleSink(stream))
    agent.learn(16, ProgressBar(stream, seconds=0.0))
    assert agent.num_timesteps == 16
    print_line("x", stream)


def test_no_streams_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python sets `sys.stdout` and `sys.stderr` to None if it starts with closed standard streams."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    rlsdk.make("trpo", env=IdentityEnv(), seed=0, verbose=1, **SMALL).learn(16, progress_bar=True)
    assert not LossyStream(None).isatty()


SHORT = "run trpo --env rlsdk/IdentityEnv-v0 --no-preset --steps 16 --set n_steps=8 --set batch_size=8 --set verbose=1"


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = command.replace("rlsdk ", f"{sys.executable} -m rlsdk ", 1)
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.full
@pytest.mark.parametrize("where", [">/dev/full 2>/dev/full", ">&- 2>&- <&-"])
def test_a_run_finishes_without_its_output(where: str, tmp_path: Path) -> None:
    done = shell(f"rlsdk {SHORT} --out run {where}", tmp_path)
    assert done.returncode == 0
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "finished"


@pytest.mark.full
def test_a_listing_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    done = shell("rlsdk list >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: [Errno 28] No space left on device: 'standard output'; ")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    done = shell("rlsdk list | true; exit ${PIPESTATUS[0]}", tmp_path)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_ignored_hang_up_stays_ignored() -> None:
    """With `nohup`, a run ignores SIGHUP and continues when its terminal closes; callbacks must not change that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = StopOnInterrupt()
    try:
        interrupt.on_training_start(None)  # type: ignore[arg-type]
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == interrupt._stop
    finally:
        interrupt.on_training_end(None)  # type: ignore[arg-type]
        signal.signal(signal.SIGHUP, before)


def test_tensorboard_from_the_command_line(cli: Any) -> None:
    pytest.importorskip("tensorboard")
    code, out, err = cli(*SHORT.split(), "--out", "run", "--set", "tensorboard_log=tbx", "--logger", "tensorboard")
    assert code == 0, err
    for events in (Path("tbx").glob("TRPO*/events*"), Path("run").glob("tensorboard*/events*")):
        assert [path for path in events if path.stat().st_size > 500]
    assert "total_timesteps" in out, "verbose=1 prints tables"
    code, _, err = cli(*SHORT.split(), "--out", "other", "--logger", "tensorbord")
    assert "did you mean 'tensorboard'" in err


def test_the_final_agent_holds_the_running_episodes(tmp_path: Path) -> None:
    request = attrs.evolve(BASE, n_envs=2, env="CartPole-v1", eval_every=0)
    for kind in ("sync", "async"):
        run(attrs.evolve(request, out=tmp_path / kind, vectorization=kind))
        env = make_vec_env("CartPole-v1", 2)
        agent = rlsdk.load(tmp_path / kind / "final", env=env, force_reset=False)
        assert agent._assembled.stored_cursor is not None
        assert agent._assembled.stored_cursor.episodes is not None, kind


class Failing(IdentityEnv):
    works = False

    def step(self, action: Any) -> Any:
        if not Failing.works:
            raise RuntimeError("no contact")
        return super().step(action)


def test_a_run_that_failed_at_once_does_not_block_its_retry(tmp_path: Path) -> None:
    import gymnasium

    gymnasium.register("Failing-v0", Failing)
    request = attrs.evolve(BASE, env="Failing-v0", out=tmp_path / "run")
    try:
        with pytest.raises(RlsdkError, match="no contact"):
            run(request)
        assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "failed"
        with pytest.raises(SettingsError, match="start it again without --resume"):
            run(RunRequest(algorithm="trpo", out=tmp_path / "run", resume=True))
        Failing.works = True
        assert run(request).env_steps == BASE.steps
        with pytest.raises(SettingsError, match="already holds a run"):
            run(request)
    finally:
        Failing.works = False
        del gymnasium.registry["Failing-v0"]


@pytest.mark.usefixtures("from_an_index")
def test_an_algorithm_that_is_not_installed_leaves_nothing(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSDK_PLUGINS", "tqc")
    code, _, err = cli("run", "ars", "--env", "CartPole-v1", "--steps", "5", "--seeds", "3")
    assert code == 1
    assert err.count("pip install rlsdk-ars") == 1
    assert not os.listdir(".")


@pytest.mark.parametrize(("count", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (2_000, "2,000 runs")])
def test_a_noun_agrees_with_its_number(count: int, text: str) -> None:
    assert counted(count, "run") == text


def test_a_line_that_the_disk_has_no_space_for() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        append_whole(Path("/dev/full"), b"a row")
