"""What installed plugins raise while they are used is one line that names the package, the function, the place and a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlsdk.cli.main import main
from rlsdk.errors import PluginError
from rlsdk.registry import extension
from rlsdk.registry.loading import naming_plugins
from rlsdk.runs.directory import RunDirectory
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk.updates import ClippedPolicy
from tests.plugin_site import Site, installed

MANIFEST = """
id = "bad"
title = "Extensions"
summary = "raise on demand"
sdk = ">=0.1"
sinks = ["bad"]
environments = ["bad"]
vectorizers = ["badly"]
wrappers = ["Bad"]
executors = ["bad"]
preset_files = [".bad"]
profilers = ["bad"]
reports = ["bad"]
[commands]
bad = ["acme_bad.plugin:command", "A command.", "bad"]
"""
CODE = """
import concurrent.futures
import contextlib
import os
import gymnasium
from rlsdk.registry import hookimpl

class Odd(BaseException): ...

def fail(where):
    wanted, _, kind = os.environ["ACME_BAD"].partition(" ")
    if wanted == where:
        raise {"ValueError": ValueError("x" * 1000), "SystemExit": SystemExit(0), "Odd": Odd("a\\nb")}[kind]

class Sink:
    written = 0
    def __init__(self, folder): fail("Sink.__init__")
    def begin_run(self, details, *, resumed): fail("Sink.begin_run")
    def write(self, step, values):
        self.written += 1
        if self.written == 2: fail("Sink.write")
    def close(self): fail("Sink.close")

class Env(gymnasium.Wrapper):
    steps = 0
    def step(self, action):
        self.steps += 1
        if self.steps == 80: fail("Env.step")
        return super().step(action)
    def reset(self, **how):
        fail("Env.reset")
        return super().reset(**how)
    def close(self):
        fail("Env.close")
        super().close()

def make(name, **arguments):
    fail("make")
    return Env(gymnasium.make("CartPole-v1"))

def wrap(env):
    fail("wrap")
    return Env(env)

class Vector:
    steps = 0
    def __init__(self, env, count):
        from rlsdk.environments import make_vec_env
        fail("Vector.__init__")
        self.env = make_vec_env(env, count)
    def __getattr__(self, name): return getattr(self.env, name)
    def step(self, action):
        self.steps += 1
        if self.steps == 80: fail("Vector.step")
        return self.env.step(action)

class Executor:
    def __init__(self, workers): fail("Executor.__init__")
    def map(self, work, items):
        fail("Executor.map")
        return list(map(work, items))
    def submit(self, work, item):
        future = concurrent.futures.Future()
        future.set_result(work(item))
        return future
    def close(self): fail("Executor.close")

@contextlib.contextmanager
def profile(agent, env):
    fail("profile")
    yield
    fail("profile.end")

def read(path, spec, env): fail("read")
def report(folder): fail("report")
def command(): fail("command")

@hookimpl
def sinks(): return {"bad": Sink}
@hookimpl
def environments(): return {"bad": make}
@hookimpl
def wrappers(): return {"Bad": wrap}
@hookimpl
def vectorizers(): return {"badly": Vector}
@hookimpl
def executors(): return {"bad": Executor}
@hookimpl
def preset_files(): return {".bad": read}
@hookimpl
def profilers(): return {"bad": profile}
@hookimpl
def reports(): return {"bad": report}
"""
RUN = (
    *("run", "ppo", "--steps", "192", "--set", "n_steps=64", "--set", "batch_size=64", "--set", "n_epochs=1"),
    *("--no-preset", "--eval-every", "0", "--eval-episodes", "1", "--checkpoint-every", "192", "--quiet"),
)
SINK, ENVIRONMENT, WRAPPER = ("--logger", "bad"), ("--env", "bad/Env-v0"), ("--wrapper", "Bad")
VECTOR, SEEDS = ("--vectorization", "badly"), ("--seeds", "1", "--executor", "bad")
KINDS = ("ValueError", "SystemExit")


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "site"
    folder.mkdir()
    with installed(folder) as site:
        site.add("bad", manifest=MANIFEST, code=CODE)
        site.listed()
        yield site


def ended(arguments: tuple[str, ...], fails: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of the command line."""
    monkeypatch.setenv("ACME_BAD", fails)
    monkeypatch.setattr("sys.argv", ["rlsdk", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("where", "options", "saved"),
    [
        ("Sink.__init__", SINK, 0),
        ("Sink.begin_run", SINK, 0),
        ("make", ENVIRONMENT, 0),
        ("Env.reset", ENVIRONMENT, 0),
        ("Env.step", ENVIRONMENT, 64),
        ("wrap", WRAPPER, 0),
        ("Env.step", WRAPPER, 64),
        ("Vector.__init__", VECTOR, 0),
        ("Vector.step", VECTOR, 64),
        ("profile", ("--profile",), 0),
        ("profile.end", ("--profile",), 192),
        ("Executor.__init__", SEEDS, 0),
        ("Executor.map", SEEDS, 0),
        ("Executor.close", SEEDS, 192),
        ("read", ("--preset", "some.bad"), 0),
    ],
)
def test_an_error_of_a_hook_is_one_line(
    where: str,
    options: tuple[str, ...],
    saved: int,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    env = () if options == ENVIRONMENT else ("--env", "CartPole-v1")
    arguments = tuple(each for each in RUN if "--preset" not in options or each != "--no-preset")
    assert ended((*arguments, *env, *options, "--out", "run"), f"{where} {kind}", monkeypatch) == 1
    lines = capfd.readouterr().err.strip().splitlines()
    (line,) = [each for each in lines if each.startswith("error: ")]
    assert not [each for each in lines if "Traceback" in each]
    assert kind in line
    assert "plugin.py, line " in line
    assert len(line) < 800
    assert [file.stem[-3:] for file in Path("run").rglob("step_*.rlsdk")] == ([f"{saved:03}"] if saved else [])
    # an environment that ends the program is an error of this environment, as any other of its errors
    if kind != "ValueError" and options not in (ENVIRONMENT, WRAPPER, VECTOR):  # SystemExit is no `Exception`
        assert line.startswith(f"error: acme-bad/bad 1.2.3 raised {kind} in {where.removesuffix('.end')}: ")
        assert line.endswith("; leave it out, or report this to its authors")


@pytest.mark.usefixtures("bad")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["Sink.write", "Sink.close", "Env.close", "report"])
def test_what_the_results_do_not_depend_on_ends_no_run(
    where: str, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ACME_BAD", f"{where} {kind}")
    settings = {"n_steps": 64, "batch_size": 64, "n_epochs": 1}
    how = RunRequest(
        algorithm="ppo",
        env="CartPole-v1?wrapper=Bad",
        steps=128,
        settings=settings,
        sinks=("bad",),
        out=tmp_path / "run",
    )
    if where.startswith("Sink"):
        with pytest.warns(UserWarning, match=f"the logger Sink raised {kind}"):
            run(how)
    else:
        run(how)
    assert RunDirectory(tmp_path / "run").read_record().status == "finished"


@pytest.mark.usefixtures("bad")
def test_python_gets_the_cause_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACME_BAD", "profile Odd")
    with pytest.raises(PluginError, match=r"acme-bad/bad 1\.2\.3 raised Odd in profile: a b") as caught:
        run(
            RunRequest(
                algorithm="ppo",
                env="CartPole-v1",
                steps=64,
                settings={"n_steps": 64},
                profile=True,
                out=tmp_path / "run",
            )
        )
    assert type(caught.value.__cause__).__name__ == "Odd"
    assert RunDirectory(tmp_path / "run").read_record().error == str(caught.value)


@pytest.mark.usefixtures("bad")
def test_a_command_of_a_plugin_may_end_and_may_not_fail(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(("bad",), "command SystemExit", monkeypatch) == 0
    assert ended(("bad",), "command ValueError", monkeypatch) == 1
    assert "error: acme-bad/bad 1.2.3 raised ValueError in command: xxx" in capfd.readouterr().err


@pytest.mark.usefixtures("bad")
def test_other_errors_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_BAD", "")
    extension("executors", "bad")(1).close()
    with pytest.raises(ZeroDivisionError), naming_plugins():
        1 / 0  # noqa: B018


@pytest.mark.usefixtures("bad")
def test_an_update_that_fails_writes_no_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may have changed half of the weights."""
    update, calls = ClippedPolicy.update, []

    def failing(self: Any, *batch: Any, **how: Any) -> Any:
        calls.append(how)
        if len(calls) == 2:
            extension("reports", "bad")(tmp_path)
        return update(self, *batch, **how)

    monkeypatch.setenv("ACME_BAD", "report ValueError")
    monkeypatch.setattr(ClippedPolicy, "update", failing)
    how: dict[str, Any] = {"steps": 192, "n_envs": 1, "use_preset": False, "checkpoint_every": 192}
    how["settings"] = {"n_steps": 64, "batch_size": 64, "n_epochs": 1}
    request = RunRequest(algorithm="ppo", env="CartPole-v1", out=tmp_path / "run", **how)
    with pytest.raises(PluginError, match="raised ValueError in report"):
        run(request)
    assert RunDirectory(tmp_path / "run").read_record().env_steps == 64
    assert not list((tmp_path / "run").rglob("step_*.rlsdk"))
