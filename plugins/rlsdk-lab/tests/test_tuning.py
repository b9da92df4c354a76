"""The search for hyper-parameters: its search space, resuming, pruning, and the files it writes."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from rlsdk.errors import EnvironmentFault, SettingsError, WorkError
from rlsdk.interfaces import Executor
from rlsdk.registry import load
from rlsdk.settings import structure
from rlsdk_lab import Range, Tuning, search_space, tune
from rlsdk_lab.many_runs import watching
from rlsdk_lab.trials import _Reports
from rlsdk_lab.tuning import _open

pytest.importorskip("optuna")
ALGORITHMS = ["ars", "maskable-ppo", "qrdqn", "recurrent-ppo", "tqc", "trpo"]


class Ends:
    """A fake trial that always returns the lower or the upper end of a range, and records the requests."""

    def __init__(self, upper: bool) -> None:
        self.upper, self.asked = upper, {}  # type: ignore[var-annotated]

    def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> float:
        self.asked[name] = ("float", log)
        return high if self.upper else low

    def suggest_int(self, name: str, low: int, high: int) -> int:
        self.asked[name] = ("int", False)
        return high if self.upper else low

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        self.asked[name] = ("choice", choices)
        return choices[-1 if self.upper else 0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("upper", [False, True])
def test_both_ends_of_every_range_are_accepted_settings(algorithm: str, upper: bool) -> None:
    kind = load(algorithm).config_type
    space = search_space(kind)
    assert "learning_rate" in [found.name for found in space]
    for found in space:
        value: Any = found.suggest(Ends(upper))
        assert found.low - 1e-9 <= value <= found.high + 1e-9
        for part in reversed(found.name.split(".")):
            value = {part: value}
        structure({"policy": load(algorithm).policies[0], "env": "X", **value}, kind)


def test_values_are_drawn_on_the_scale_that_suits_them() -> None:
    trial = Ends(False)
    for found in (
        Range("learning_rate", 1e-5, 1e-2, False),
        Range("batch_size", 32, 1024, True),
        Range("gamma", 0.9, 0.9999, False),
        Range("gae_lambda", 0.8, 1.0, False),
        Range("n_critics", 1, 5, True),
    ):
        found.suggest(trial)
    assert trial.asked["learning_rate"] == ("float", True)
    assert trial.asked["batch_size"] == ("choice", [32, 64, 128, 256, 512, 1024])
    assert trial.asked["1 - gamma"] == ("float", True)
    assert trial.asked["gae_lambda"] == ("float", False)
    assert trial.asked["n_critics"] == ("int", False)


def test_tables_are_searched_and_fixed_values_are_not() -> None:
    names = [found.name for found in search_space(load("tqc").config_type, ["gamma"])]
    assert "policy_kwargs.n_critics" in names
    assert "gamma" not in names


def plan(folder: Path, **changes: Any) -> Tuning:
    context: dict[str, Any] = {"algorithm": "ars", "env": "CartPole-v1", "steps": 400, "trials": 2, "episodes": 1}
    return Tuning(**{**context, "out": folder, "settings": {"n_delta": 2}, **changes})


def test_a_search_goes_on_and_writes_settings_that_run(tmp_path: Path) -> None:
    first = tune(plan(tmp_path))
    assert first.trials == 2
    assert set(first.values) == {"learning_rate", "delta_std"}
    again = tune(plan(tmp_path, trials=4))
    assert again.trials == 4, "those of the first call count"
    assert again.score >= first.score
    written = tomllib.loads((tmp_path / "best.toml").read_text())
    assert written["n_delta"] == 2
    assert written["learning_rate"] == pytest.approx(again.values["learning_rate"])
    config = structure(written, load("ars").config_type)
    assert config.env == "CartPole-v1"
    assert config.seed is None
    with pytest.raises(SettingsError, match="holds a search with --steps 400, not 500; give the same, or choose"):
        tune(plan(tmp_path, steps=500))


def test_edited_settings_of_a_search_are_kept(tmp_path: Path) -> None:
    best = tune(plan(tmp_path)).file
    edited = best.read_text() + "# mine\n"
    best.write_text(edited)
    with pytest.warns(UserWarning, match=r"best\.toml was edited and stays as it is; what is new is in .*best_2\.toml"):
        again = tune(plan(tmp_path, trials=3))
    assert best.read_text() == edited
    assert again.file == tmp_path / "best_2.toml"
    assert structure(tomllib.loads(again.file.read_text()), load("ars").config_type).env == "CartPole-v1"
    with pytest.warns(UserWarning, match="stays as it is"):
        assert tune(plan(tmp_path, trials=4)).file == again.file, "what was not edited is replaced"


def test_trials_with_other_scores_are_another_search(tmp_path: Path) -> None:
    _open(plan(tmp_path))
    others = {"episodes": 2, "pruner": "halving", "settings": {"n_top": 1}}
    with pytest.raises(SettingsError) as refused:
        _open(plan(tmp_path, **others))
    assert "--eval-episodes 1, not 2, --pruner median, not halving, --set n_delta 2, not nothing, --set n_top" in str(
        refused.value
    )
    with pytest.raises(SettingsError, match="--pruner median, not none"):
        _open(plan(tmp_path, prune=False))
    with pytest.raises(SettingsError, match=r"--set n_top nothing, not None"):
        _open(plan(tmp_path, settings={"n_delta": 2, "n_top": None}))
    _open(plan(tmp_path, jobs=2, trials=9, seed=3))


def test_the_same_search_finds_the_same(tmp_path: Path) -> None:
    found = [tune(plan(tmp_path / name)) for name in "ab"]
    assert (found[0].score, found[0].values) == (found[1].score, found[1].values)


def test_a_search_that_goes_on_repeats_no_trial(tmp_path: Path) -> None:
    """A search that stops and continues has the same trials as one that does not stop."""
    tune(plan(tmp_path / "a", trials=2))
    tune(plan(tmp_path / "a", trials=4))
    tune(plan(tmp_path / "b", trials=4))
    found = [[(t.params, t.value) for t in _open(plan(tmp_path / name)).get_trials()] for name in "ab"]
    assert found[0] == found[1]
    assert len({trial[0]["learning_rate"] for trial in found[0]}) == 4


def test_two_workers_share_a_study(tmp_path: Path) -> None:
    best = tune(plan(tmp_path, jobs=2, trials=3))
    assert best.trials == 3
    assert [trial.number for trial in _open(plan(tmp_path)).get_trials()] == [0, 1, 2]


@pytest.mark.full
def test_trials_are_the_same_in_other_processes(tmp_path: Path) -> None:
    for name, executor in (("a", "in-process"), ("b", "concurrent.futures:ProcessPoolExecutor")):
        tune(plan(tmp_path / name, trials=3, executor=executor))
    found = [[(t.params, t.value) for t in _open(plan(tmp_path / name)).get_trials()] for name in "ab"]
    assert found[0] == found[1]


class Deadly(Executor):
    """An executor whose first item fails as if its process had ended twice; the other items run in this process."""

    def __init__(self) -> None:
        self.submitted: list[Any] = []

    def map(self, work: Any, items: Any) -> list[Any]:
        raise AssertionError

    def submit(self, work: Any, item: Any) -> Future[Any]:
        self.submitted.append(item)
        future = Future[Any]()
        if len(self.submitted) == 1:
            future.set_exception(WorkError("item 0 ended its process twice"))
        else:
            future.set_result(work(item))
        return future

    def close(self) -> None: ...


def test_each_trial_is_a_piece_of_work_and_a_deadly_one_is_a_failed_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly = Deadly()
    monkeypatch.setattr("rlsdk_lab.many_runs.make_executor", lambda name, jobs: deadly)
    best = tune(plan(tmp_path, trials=3, jobs=2))
    assert (best.trials, best.failed, len(deadly.submitted)) == (3, 1, 3)
    assert {item.worker for item in deadly.submitted} <= {0, 1}
    assert _open(plan(tmp_path)).get_trials()[0].user_attrs["reason"] == "item 0 ended its process twice"


def test_trials_that_were_stopped_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(Deadly):
        def submit(self, work: Any, item: Any) -> Future[Any]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rlsdk_lab.many_runs.make_executor", lambda name, jobs: Stopped())
        with pytest.raises(KeyboardInterrupt):
            tune(plan(tmp_path))
    best = tune(plan(tmp_path))
    assert (best.trials, best.failed) == (2, 0)
    assert len(_open(plan(tmp_path)).get_trials()) == 3


def test_successive_halving_lets_the_best_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fake scores, the first trial is the best at every evaluation, so no other trial is trained to its end."""

    def evaluation(self: Any, run: Any, evaluation: Any) -> bool:
        return reported(self, run, SimpleNamespace(mean=-self.trial.number))

    reported = _Reports.on_evaluation
    monkeypatch.setattr(_Reports, "on_evaluation", evaluation)
    best = tune(plan(tmp_path, trials=4, steps=1500, pruner="halving"))
    assert (best.trials, best.given_up) == (4, 3)
    study = _open(plan(tmp_path, steps=1500, pruner="halving"))
    ended = [max(trial.intermediate_values) for trial in study.get_trials()]
    assert ended[0] > 1200
    assert max(ended[1:]) < 600
    with pytest.raises(SettingsError, match="unknown pruner 'halvin'; did you mean 'halving'"):
        tune(plan(tmp_path, pruner="halvin"))


def test_hopeless_trials_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pruner, which is replaced here, ends all trials except the first. With `prune=False` no trial ends early."""
    import optuna

    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda self, study, trial: trial.number >= 1)
    best = tune(plan(tmp_path, trials=3, steps=1500))
    assert (best.trials, best.given_up) == (3, 2)
    unpruned = tune(plan(tmp_path / "unpruned", trials=3, steps=1500, prune=False))
    assert unpruned.given_up == 0


def test_settings_that_do_not_fit_are_failed_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Range, "suggest", lambda self, trial: -1.0)
    with pytest.raises(SettingsError, match=r"no trial of 2 was finished; the last: .*learning_rate"):
        tune(plan(tmp_path))
    assert "trial 1: failed: " in capsys.readouterr().out


def test_every_trial_writes_to_its_sinks_and_shows_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slowly(folders: Mapping[str, Path]) -> Any:
        return watching(folders, seconds=0.01)

    monkeypatch.setattr("rlsdk_lab.many_runs.watching", slowly)
    tune(plan(tmp_path, sinks=("tensorboard",)))
    assert all(list((tmp_path / f"trial-000{number}").rglob("events.*")) for number in (0, 1))
    lines = (tmp_path / "worker-0/log.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["trial 0", "trial 1"]
    assert "worker 0: trial 0: " in capsys.readouterr().err


def test_a_sink_that_cannot_begin_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed trials count. If the search continued, it would use up all trials without a result."""
    import optuna

    class Closed:
        def begin_run(self, details: object, *, resumed: bool) -> None:
            raise SettingsError("the service is closed")

        def write(self, step: int, values: object) -> None: ...
        def close(self) -> None: ...

    with pytest.raises(SettingsError, match="unknown logger 'nosuch'"):
        tune(plan(tmp_path, sinks=("nosuch",)))
    monkeypatch.setattr("rlsdk_lab.trial_logs.named_sinks", lambda names: [lambda folder, resumed: Closed()])
    with pytest.raises(SettingsError, match="the service is closed"):
        tune(plan(tmp_path))
    states = [trial.state for trial in _open(plan(tmp_path)).get_trials()]
    assert states == [optuna.trial.TrialState.FAIL]


def test_bad_requests(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot write"):
        tune(plan(tmp_path / "file"))
    with pytest.raises(SettingsError, match="n_top"):
        tune(plan(tmp_path / "top", settings={"n_delta": 2, "n_top": 0}))
    with pytest.raises(EnvironmentFault, match="NoSuch"):
        tune(plan(tmp_path / "env", env="NoSuch-v0"))
    assert not list((tmp_path / "env").glob("best*"))
    fixed = {found.name: 1 for found in search_space(load("ars").config_type)}
    with pytest.raises(SettingsError, match="nothing to search"):
        tune(attrs.evolve(plan(tmp_path / "x"), settings=fixed))


def test_a_search_continues_behind_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """By a full disk, or a kill while it was written."""
    tune(plan(tmp_path, trials=1))
    journal = tmp_path / "journal.log"
    whole = journal.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    for cut in (first[:20], first[:20] + first, b'{"op', first[:-1]):
        journal.write_bytes(whole + cut)
        with pytest.warns(UserWarning, match="1 line of which only a part was written left out"):
            assert tune(plan(tmp_path, trials=1)).trials == 1
    journal.write_bytes(whole + first[:20])
    with pytest.warns(UserWarning, match="left out"):
        assert tune(plan(tmp_path, trials=2)).trials == 2
    assert tune(plan(tmp_path, trials=2)).trials == 2


def test_a_file_of_another_program_is_no_journal(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    journal.write_text("Monday: nothing to report\n")
    with pytest.raises(SettingsError, match=r"journal\.log is damaged, or not of a search; choose another --out"):
        tune(plan(tmp_path))
    assert journal.read_text() == "Monday: nothing to report\n"


def test_damaged_journals_are_refused_in_one_line(tmp_path: Path) -> None:
    """Lines that are JSON, and not what Optuna wrote: its own errors are those of its code, such as KeyError."""
    tune(plan(tmp_path, trials=2))
    journal = tmp_path / "journal.log"
    whole = [json.loads(line) for line in journal.read_text().splitlines()]
    kinds = {line["op_code"]: number for number, line in enumerate(whole)}
    value = next(n for n, line in enumerate(whole) if line.get("values"))
    parameter = next(n for n, line in enumerate(whole) if "param_name" in line)
    plan_of = next(n for n, line in enumerate(whole) if "plan" in line.get("user_attr", {}))
    changes: list[tuple[int, dict[str, Any] | None]] = [
        (0, {"study_name": "other"}),
        (0, {"study_name": 3}),
        *((number, None) for number in (0, value - 1, parameter)),
        *((number, {"op_code": 99}) for number in kinds.values()),
        (value, {"values": ["x"]}),
        (value, {"values": [1, 2]}),
        (value, {"values": 3}),
        (value, {"state": 77}),
        (value, {"trial_id": 10**9}),
        (parameter, {"param_name": 3}),
        (parameter, {"distribution": "{}"}),
        (parameter, {"param_value_internal": 1e30}),
        (plan_of, {"user_attr": {"plan": "{"}}),
        (plan_of, {"user_attr": {"plan": [3]}}),
    ]
    for number, change in changes:
        lines = [line if n != number else {**line, **(change or {})} for n, line in enumerate(whole)]
        lines = [line for n, line in enumerate(lines) if change is not None or n != number]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        journal.write_text(text)
        try:
            tune(plan(tmp_path, trials=2))
        except SettingsError as refused:
            assert "\n" not in str(refused), (number, change)  # noqa: PT017
            assert journal.read_text().startswith(text), "the lines of a refused journal stay"
        else:
            assert change is None or change.keys() & {"op_code", "trial_id"}, (number, change)


def test_a_full_disk_ends_a_search_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from optuna.storages.journal import JournalFileBackend

    tune(plan(tmp_path, trials=1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(JournalFileBackend, "append_logs", full)
        with pytest.raises(SettingsError, match=r"cannot write .*journal\.log: No space left on device"):
            tune(plan(tmp_path, trials=2))
    assert tune(plan(tmp_path, trials=2)).trials == 2


def test_the_lock_of_a_killed_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna waits for a lock that leads nowhere forever, and half a minute for one that leads to the journal."""
    monkeypatch.chdir(tmp_path)
    lock, seen, sync = Path("study/journal.log.lock"), [], os.fsync

    def watched(number: int) -> None:
        if lock.is_symlink():
            seen.append(lock.exists())
        sync(number)

    monkeypatch.setattr(os, "fsync", watched)
    tune(plan(Path("study"), trials=1))
    assert set(seen) == {True}
    lock.symlink_to("study/journal.log")
    assert not lock.exists()
    assert tune(plan(Path("study"), trials=1)).trials == 1
    assert not lock.is_symlink()
