"""Every option of `rlsdk run` that affects the result is stored with the run, and a resumed run uses it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlsdk
from rlsdk.callbacks.periodic import StopOnInterrupt
from rlsdk.cli.run import run_training
from rlsdk.errors import SettingsError
from rlsdk.runs.request import RunRecord, RunRequest
from rlsdk.runs.runner import run
from rlsdk_lab.sweep import Sweep, stored, sweep
from rlsdk_testing.subject import differing, flat_state

STEPS, STOP = 48, 24
SMALL = {"n_steps": 8, "n_critic_updates": 1, "policy_kwargs": {"net_arch": [4]}}
BASE = RunRequest(
    algorithm="trpo",
    env="rlsdk/IdentityEnv-v0",
    steps=STEPS,
    settings={**SMALL, "batch_size": 8, "seed": 1},
    eval_every=16,
    eval_episodes=1,
    checkpoint_every=8,
    use_preset=False,
)
Option = tuple[str, Any, Callable[[RunRecord], Any]]
SHAPING: dict[str, Option] = {
    "env": ("env", "rlsdk/IdentityEnvBox-v0", lambda record: record.env),
    "steps": ("steps", 64, lambda record: record.steps),
    "seed": ("settings", {**BASE.settings, "seed": 5}, lambda record: {**BASE.settings, "seed": record.seed}),
    "n_envs": ("n_envs", 2, lambda record: record.n_envs),
    "eval_every": ("eval_every", 8, lambda record: record.eval_every),
    "eval_episodes": ("eval_episodes", 3, lambda record: record.eval_episodes),
    "checkpoint_every": ("checkpoint_every", 16, lambda record: record.checkpoint_every),
    "stop_at": ("stop_at", 90.0, lambda record: record.stop_at),
    "threads": ("threads", 2, lambda record: record.threads),
    "vectorization": ("vectorization", "sync", lambda record: record.vectorization),
    "sinks": ("sinks", ("tensorboard",), lambda record: record.sinks),
    "max_restores": ("max_restores", 2, lambda record: record.max_restores),
    "schedule_until": ("schedule_until", 96, lambda record: record.schedule_until),
    "exact_steps": ("exact_steps", True, lambda record: record.exact_steps),
    "device": (
        "settings",
        {**BASE.settings, "device": "cpu"},
        lambda record: {**BASE.settings, "device": record.device},
    ),
    "no_preset": ("use_preset", False, lambda record: record.preset),
}
"""Option -> (field of the request, a value that is not the default, a function that reads it from run.json)."""
IN_THE_SETTINGS = {"assignments", "config", "preset"}
"""Options that are stored in config.toml and in every checkpoint."""
IN_THE_ENVIRONMENT = {"env_kwargs", "wrapper"}
"""Options that are stored in the id of the environment; tests/environments/test_environment_ids.py resumes a run with them."""
IN_COLLECTORS = {"collectors", "max_lag"}
"""Options of collectors; tests/test_collectors.py and tests/test_running_ahead.py resume runs with them."""
IN_THE_SWEEP = {"seeds": (3, 4), "jobs": 1, "executor": "in-process"}
"""Options that are stored in sweep.json, and values for them."""
NOT_SHAPING = {
    "algorithm": "is given again, and compared",
    "out": "is where the run lies",
    "resume": "is what resuming is",
    "trust": "is a decision about the files, made each time",
    "profile": "prints, and changes nothing",
    "quiet": "prints less, and changes nothing",
    "as_json": "prints the result in another form",
    "dataset": "is given again, and its digest compared: test_recorded_runs.py of rlsdk-datasets resumes a run with it",
    "policy_from": "is what the first checkpoint begins with; run.json names it",
}


TYPED = {
    "env": "X-v0", "steps": 7, "seed": 3, "n_envs": 2, "eval_every": 5, "eval_episodes": 4, "checkpoint_every": 6,
    "stop_at": 1.5, "threads": 2, "vectorization": "sync", "max_restores": 2, "sinks": "console", "device": "cpu",
    "schedule_until": 96, "exact_steps": None,
    "no_preset": None,
}  # fmt: skip
"""Option -> the value on the command line; None for a flag."""


def interrupted_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Stop every run at `step`, like Ctrl-C."""

    def on_report(self: StopOnInterrupt, run: Any, report: Any) -> bool:
        self.interrupted = run.num_timesteps >= step
        return not self.interrupted

    monkeypatch.setattr(StopOnInterrupt, "on_report", on_report)


def left_by(folder: Path) -> dict[str, Any]:
    """Return the record, metrics, checkpoints and settings of a run, without measured times."""
    record = json.loads((folder / "run.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    clock = ("time/fps", "time/time_elapsed")
    return {
        "record": {name: value for name, value in record.items() if name != "seconds"},
        "metrics": [{name: value for name, value in row.items() if name not in clock} for row in rows],
        "checkpoints": sorted(path.name for path in (folder / "checkpoints").glob("*.rlsdk")),
        "settings": attrs.asdict(attrs.evolve(rlsdk.load(folder / "final").config, device="cpu")),
        "events": len(list(folder.glob("tensorboard_*"))),
    }


def test_every_option_is_looked_at() -> None:
    options = set(inspect.signature(run_training).parameters)
    assert options == {*SHAPING, *IN_THE_SETTINGS, *IN_THE_ENVIRONMENT, *IN_COLLECTORS, *IN_THE_SWEEP, *NOT_SHAPING}


@pytest.mark.parametrize("option", SHAPING)
def test_a_resumed_run_has_the_options_of_the_first_call(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, value, recorded = SHAPING[option]
    request = attrs.evolve(BASE, **{field: value})
    assert getattr(BASE, field) != value or field == "use_preset"
    run(attrs.evolve(request, out=tmp_path / "whole"))
    assert recorded(RunRecord.read(tmp_path / "whole" / "run.json")) == value
    with monkeypatch.context() as context:
        interrupted_at(context, STOP)
        first = run(attrs.evolve(request, out=tmp_path / "parts"))
    assert first.env_steps <= STOP + 8
    run(RunRequest(algorithm="trpo", out=tmp_path / "parts", resume=True))
    assert left_by(tmp_path / "parts") == left_by(tmp_path / "whole")
    for name in ("final", "best"):
        assert not differing(*(flat_state(rlsdk.load(tmp_path / folder / name)) for folder in ("parts", "whole"))), name


def test_options_given_again_replace_those_of_the_record(tmp_path: Path) -> None:
    run(attrs.evolve(BASE, out=tmp_path))
    run(RunRequest(algorithm="trpo", out=tmp_path, resume=True, steps=STEPS + 16, eval_episodes=2))
    record = RunRecord.read(tmp_path / "run.json")
    assert (record.steps, record.eval_episodes, record.eval_every, record.status) == (STEPS + 16, 2, 16, "finished")
    with pytest.raises(SettingsError, match="less than the 64 steps"):
        run(RunRequest(algorithm="trpo", out=tmp_path, resume=True, steps=8))


def test_a_resumed_sweep_has_the_options_of_the_first_call(tmp_path: Path) -> None:
    settings = {name: value for name, value in BASE.settings.items() if name != "seed"}
    request = attrs.evolve(BASE, out=tmp_path, stop_at=1e6, threads=2, settings=settings)
    sweep(Sweep(request=request, **IN_THE_SWEEP))
    again = stored(RunRequest(algorithm="trpo", out=tmp_path, resume=True))
    assert again is not None
    assert {name: getattr(again, name) for name in IN_THE_SWEEP} == IN_THE_SWEEP
    assert attrs.evolve(again.request, resume=False) == request
    elsewhere = stored(RunRequest(algorithm="trpo", out=tmp_path, resume=True, executor="processes"))
    assert elsewhere is not None
    assert (elsewhere.executor, elsewhere.request.executor) == ("processes", None)
    longer = stored(RunRequest(algorithm="trpo", out=tmp_path, resume=True, steps=STEPS + 8))
    assert longer is not None
    sweep(longer)
    assert RunRecord.read(tmp_path / "seed-4" / "run.json").env_steps == STEPS + 8


def test_the_command_line_hands_over_every_option(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[RunRequest] = []

    def refuse(request: RunRequest) -> None:
        caught.append(request)
        raise SettingsError("enough")

    monkeypatch.setattr("rlsdk.runs.runner.run", refuse)
    assert set(TYPED) == set(SHAPING)
    cli("run", "trpo")
    for name, value in TYPED.items():
        option = "--logger" if name == "sinks" else f"--{name.replace('_', '-')}"
        cli("run", "trpo", *([option] if value is None else [option, str(value)]))
    plain, *given = (attrs.asdict(request) for request in caught)
    for (name, value), request in zip(TYPED.items(), given, strict=True):
        field = SHAPING[name][0]
        wanted = {"settings": {name: value}, "sinks": (value,), "use_preset": False, "exact_steps": True}.get(
            field, value
        )
        assert {key: item for key, item in request.items() if item != plain[key]} == {field: wanted}
