"""The contract kit itself: plugins that misbehave during a check, settings and time limits of a check, and its results."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlsdk
from rlsdk import interfaces
from rlsdk.errors import ArtifactError, ContractViolation, PluginError, SettingsError
from rlsdk.registry import find, load, unregister
from rlsdk_testing import CheckResult, Subject, clauses, isolation, kit, run_checks, running, verify
from rlsdk_testing.child_process import ChildProcess
from rlsdk_testing.isolation import Isolated
from rlsdk_testing.kit import named_clause
from rlsdk_testing.request import CheckRequest
from rlsdk_testing.running import InProcess, checker, summary
from rlsdk_testing.worker_process import Fault
from tests.bad_plugins import add_plugin
from tests.plugin_site import Site
from tests.small_algorithms import register_reinforce

FIRST, UPDATES, STATES, LAST = (
    "plugin.manifest-agrees",
    "algorithm.metrics",
    "agent.parameters-round-trip",
    "serializer.round-trip",
)
"""The first and the last clause run no code of parts. The second calls `update`, the third also `state_dict`."""


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make the kit have only these clauses, in this order."""
    chosen = tuple(map(named_clause, names))
    monkeypatch.setattr(running, "clauses", lambda: chosen)


def outcomes(**options: Any) -> dict[str, CheckResult]:
    return {result.id: result for result in run_checks("bad", **options)}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        pytest.param(
            {"state_dict": "time.sleep(1e6)"},
            "it did not end within 15 s in state_dict (acme_bad/parts.py, line",
            id="hangs",
            marks=pytest.mark.slow,
        ),
        pytest.param({"state_dict": "os._exit(3)"}, "it ended the process with exit code 3", id="exits"),
        pytest.param(
            {"state_dict": "import ctypes; ctypes.string_at(0)"},
            "it ended the process by SIGSEGV in ",
            id="crashes",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"state_dict": "kept = []\n        while True: kept.append(bytearray(20_000_000))"},
            "it used more than 1.2 GB of memory",
            id="exhausts memory",
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_clause_that_loses_the_process_fails_and_the_others_are_checked(
    site: Site, monkeypatch: pytest.MonkeyPatch, lines: dict[str, str], words: str
) -> None:
    add_plugin(site, **lines)
    only(monkeypatch, FIRST, STATES, UPDATES)
    monkeypatch.setattr(isolation, "SECONDS", 15.0)
    monkeypatch.setattr(ChildProcess, "MEMORY", 12 * 10**8)
    found = outcomes()
    assert [(name, result.status) for name, result in found.items()] == [
        (FIRST, "passed"),
        (STATES, "failed"),
        (UPDATES, "passed"),
    ]
    assert found[STATES].detail.startswith(words)
    assert f"rlsdk_testing.verify('acme-bad/bad', '{STATES}')" in found[STATES].remedy


@pytest.mark.full
@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("sys.exit(3)", "the plugin called sys.exit(3)", id="sys.exit"),
        pytest.param("raise KeyboardInterrupt", "KeyboardInterrupt", id="interrupt"),
        pytest.param(
            "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)", "it left ", id="leaves"
        ),
        pytest.param(
            "vars(os).setdefault('forked', []) or os.forked.append(os.fork())",
            "a process that it forked did not end",
            id="forks",
        ),
    ],
)
def test_what_happens_in_a_process_that_stays_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch, line: str, words: str
) -> None:
    add_plugin(site, state_dict=line)
    only(monkeypatch, STATES, UPDATES)
    found = outcomes()
    assert (found[STATES].status, found[UPDATES].status) == ("failed", "passed")
    assert words in found[STATES].detail
    assert found[STATES].remedy


@pytest.mark.full
def test_what_a_plugin_changes_in_the_process_harms_one_clause(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))"
    add_plugin(site, state_dict=f"torch.set_default_dtype(torch.float64); os.chdir('/'); {limit}")
    only(monkeypatch, STATES, UPDATES, LAST)
    found = outcomes()
    assert [result.status for result in found.values()] == ["failed", "passed", "passed"]
    changed = "resource limits, the working directory, torch's default dtype"
    assert found[STATES].detail.splitlines()[-1] == f"it changed {changed}"
    assert found[STATES].remedy


def test_prints_of_a_plugin_do_not_reach_the_table_or_the_json(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    add_plugin(site, update="print('NOISE'); os.write(1, b'NOISE'); os.write(2, b'NOISE'); sys.stdin.read()")
    only(monkeypatch, UPDATES, "plugin.prints-nothing")
    code, out, err = cli("check", "bad", "--json")
    assert [entry["status"] for entry in json.loads(out)] == ["passed", "failed"]
    assert code == 1
    assert err == "1 holds, 1 is broken (plugin.prints-nothing)\n"
    assert "NOISE" in json.loads(out)[1]["detail"]  # the clause quotes the output of the plugin


@pytest.mark.slow
def test_time_that_is_over_leaves_clauses_that_were_not_run(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    add_plugin(site, state_dict="time.sleep(1e6)")
    only(monkeypatch, FIRST, STATES, UPDATES)
    began = time.monotonic()
    code, out, _ = cli("check", "bad", "--seconds", "25")
    assert code == 3
    assert time.monotonic() - began < 50
    assert out.splitlines()[-1] == "1 holds, 2 were not run"
    assert [line.split()[2] for line in out.splitlines() if line.startswith("not run ")] == [STATES, UPDATES]
    assert "the time of the whole check was over before it ended" in out


def test_a_clause_that_fails_shows_the_counter_example_and_what_to_change(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    package = add_plugin(site, update="print('NOISE')")
    only(monkeypatch, "plugin.prints-nothing", "policy.masks-obeyed", "policy.episode-start-forgets")
    code, out, _ = cli("check", "bad")
    lines = [line.strip() for line in out.splitlines()]
    assert code == 1
    assert "building, training and predicting wrote 'NOISE" in out
    remedy = named_clause("plugin.prints-nothing").remedy
    code = (package / "parts.py").read_text().splitlines()
    place = f"update() in acme_bad/parts.py, line {1 + next(i for i, each in enumerate(code) if 'def update(' in each)}"
    assert f"to mend: {remedy} Look first at {place}." in lines
    assert "because: the algorithm ignores action masks" in lines
    assert lines[-1] == "0 hold, 1 is broken (plugin.prints-nothing), 2 do not apply"


class Losing:
    """A process that starts, but ends with a fault at every question about a clause."""

    fault = Fault("ended the process by SIGSEGV")

    def __init__(self, package: str) -> None: ...

    def ask(self, question: bytes, seconds: float, within: float = math.inf) -> object:
        return self.fault if question.startswith(b'"') else {"ready": True}

    def close(self) -> None: ...


def test_clauses_are_not_run_once_eight_in_a_row_lost_their_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "WorkerProcess", Losing)
    lost = Isolated(CheckRequest(algorithm="tqc"), "rlsdk_tqc")
    found = [lost.check(named_clause(FIRST)).status for _ in range(isolation.MOST_LOST + 2)]
    assert found == [*["failed"] * isolation.MOST_LOST, "not run", "not run"]


def test_a_clause_gets_less_time_after_one_that_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "WorkerProcess", Losing)
    asked: list[float] = []
    monkeypatch.setattr(Losing, "fault", Fault("hangs", hangs=True))

    def ask(self: Losing, question: bytes, seconds: float, within: float = math.inf) -> object:
        asked.append(seconds)
        return attrs.evolve(self.fault, late=within < seconds) if question.startswith(b'"') else {}

    monkeypatch.setattr(Losing, "ask", ask)
    hanging = Isolated(CheckRequest(algorithm="tqc"), "rlsdk_tqc")
    for _ in range(2):
        hanging.check(named_clause(FIRST))
    assert asked[1::2] == [isolation.SECONDS, isolation.SECONDS_AFTER_HANGING]
    assert hanging.check(named_clause(FIRST), 3.0).status == "not run"


def test_a_clause_that_captures_output_while_its_time_ends_is_not_run() -> None:
    """The stack trace of an interrupted clause is not taken for output of the plugin."""
    with Isolated(CheckRequest(algorithm="tqc"), "rlsdk_tqc") as checked:
        assert checked.check(named_clause(FIRST)).status == "passed"  # this also starts the process
        assert checked.check(named_clause("plugin.prints-nothing"), 0.05).status != "failed"


@pytest.mark.slow
def test_settings_reach_the_agents_of_the_check(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Any, tmp_path: Path
) -> None:
    """A plugin that reads a file when it is built gets settings by `settings`, `--set`, `--rlsdk-set` and
    `testing_settings`."""
    data = tmp_path / "data.txt"
    data.write_text("3")
    add_plugin(site, build="open(config.places).close()")
    only(monkeypatch, "agent.predict-array")
    (without,) = outcomes().values()
    assert without.detail.startswith("TypeError: ")
    assert without.status == "failed"
    assert outcomes(settings={"places": data})["agent.predict-array"].status == "passed"
    assert cli("check", "bad", "--set", f"places={data}")[0] == 0
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rlsdk-check",
        "bad",
        "-k",
        "predict-array",
    ]
    environment = {**os.environ, "PYTHONPATH": str(site.folder)}
    done = subprocess.run(
        [*command, "--rlsdk-set", f"places={data}"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    add_plugin(site, "fixed", spec=f"testing_settings=dict(places={str(data)!r})", build="open(config.places).close()")
    (own,) = run_checks("fixed")
    assert own.status == "passed", own.detail


def require_refused(cli: Any, package: Path, declared: str, words: str) -> None:
    """Check that this testing.py of the package ends the check with one line that contains `words`."""
    (package / "testing.py").write_text(declared + "\n")
    sys.modules.pop("acme_bad.testing", None)
    code, _, text = cli("check", "bad")
    assert code == 1
    assert words in text
    assert len(text.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_manifest_names_settings_and_bounds_for_testing(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    package = add_plugin(site, build="assert config.batch_size == 7")
    with (package / "rlsdk.toml").open("a") as manifest:
        manifest.write('testing_settings = "acme_bad.testing:SETTINGS"\ntesting_bounds = "acme_bad.testing:BOUNDS"\n')
    (package / "testing.py").write_text('SETTINGS = {"batch_size": 7}\nBOUNDS = {"bandit": 0.0}\n')
    site.listed()
    only(monkeypatch, "agent.predict-array", "learns.bandit")
    assert {outcome.status for outcome in outcomes().values()} == {"passed"}
    assert outcomes(settings={"batch_size": 8})["agent.predict-array"].status == "failed"
    for line, words in {
        'SETTINGS, BOUNDS = {"nope": 7}, {}': "names ['nope']; the settings are policy, env, ",
        "SETTINGS, BOUNDS = 7, {}": "is 7; name a dictionary",
        "BOUNDS = {}": "has no 'SETTINGS'; accepted: BOUNDS",
        'SETTINGS = {}\nBOUNDS = {"bandit": "high"}': "give a number for each toy",
    }.items():
        require_refused(cli, package, line, words)


MODEL = (
    "with torch.no_grad(): next(self.actor.parameters()).add_(1e-3 * (batch.next_observation.features[0].mean() +"
    " batch.reward.mean()))"
)


@pytest.mark.slow
def test_a_plugin_declares_clauses_that_do_not_hold_for_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    """A plugin that learns a model of the environment does not read discounts. It declares so, and the table shows
    the reason."""
    names = ("batch.discount-read", "batch.next-observation-read")
    only(monkeypatch, *names)
    package = add_plugin(site, update=MODEL)
    first = outcomes()
    assert [first[name].status for name in names] == ["failed", "passed"]
    with (package / "rlsdk.toml").open("a") as manifest:
        manifest.write('testing_exceptions = "acme_bad.testing:EXCEPTIONS"\n')
    reasons = dict.fromkeys(names, "it learns a model")
    (package / "testing.py").write_text(f"EXCEPTIONS = {reasons}\n")
    site.listed()
    found = outcomes()
    assert [found[name].status for name in names] == ["not applicable", "passed"]
    assert found[names[0]].detail.startswith("the plugin declares it: it learns a model (discounts of 0.9")
    for line, words in {
        'EXCEPTIONS = {"agent.predict-array": "it is special"}': "holds for every algorithm; accepted: batch.*, rollout.*",
        'EXCEPTIONS = {"batch.discount-read": " "}': "gives no reason for ['batch.discount-read']",
    }.items():
        require_refused(cli, package, line, words)


def test_a_file_that_is_not_there_any_more_is_named_with_its_setting(site: Site, tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text("3")
    add_plugin(site, build="open(config.places).close()")
    agent = rlsdk.make("bad", env="Pendulum-v1", places=str(data))
    agent.save(tmp_path / "agent")
    data.unlink()
    with pytest.raises(ArtifactError, match=r"places = .*data\.txt.*load\(path, custom_objects=\{'places': "):
        rlsdk.load(tmp_path / "agent")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "no installed plugin"),
        (["tqc", "--seconds", "0"], "seconds must be a number above 0"),
        (["tqc", "--seconds", "nan"], "seconds must be a number above 0"),
        (["tqc", "--set", "batch_size"], "is not NAME=VALUE"),
        (["tqc", "--set", "batch_siz=3"], "did you mean 'batch_size'?"),
        (["tqc", "--set", "batch_size=-3"], "batch_size = -3 is outside"),
        (["broken"], "importing it raised ZeroDivisionError"),
    ],
)
def test_bad_input_is_one_line(site: Site, cli: Any, arguments: list[str], words: str) -> None:
    site.add("broken", code="1 / 0")
    site.listed()
    code, out, err = cli("check", *arguments)
    assert (code, out) == (1, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_objects_as_settings_need_this_process() -> None:
    with pytest.raises(SettingsError, match="use isolate=False"):
        run_checks("tqc", settings={"learning_rate": lambda progress: 1e-3})


def test_registered_algorithms_and_verify_stay_in_this_process(site: Site) -> None:
    register_reinforce()
    try:
        assert isinstance(checker(CheckRequest(algorithm="reinforce")), InProcess)
    finally:
        unregister("reinforce")
    assert isinstance(checker(CheckRequest(algorithm="tqc"), isolate=False), InProcess)
    assert isinstance(checker(CheckRequest(algorithm="tqc")), Isolated)
    add_plugin(site, build="raise SystemExit(3)")
    with pytest.raises(ContractViolation, match=r"sys.exit\(3\)"):
        verify("bad", "agent.predict-array")


@pytest.mark.full
def test_the_check_needs_no_guard_of_main_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from rlsdk_testing import running, clauses\n"
        "running.clauses = lambda: clauses()[:2]\n"
        "print([r.status for r in running.run_checks('tqc')])\n"
        "from rlsdk_testing import child_process; import os\n"
        "print([m.command for m in child_process._members(os.getpid()) if m.pid != os.getpid()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['passed', 'passed']", "[]"]


def test_the_kit_needs_no_package_of_population_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks their records up among the imported modules."""
    monkeypatch.setitem(sys.modules, "rlsdk_ars", None)
    names = ("batch.rows-permuted", "algorithm.batch-unchanged", "population.elites", "population.plays-the-policy")
    found = [kit.outcome_of(named_clause(name), "qrdqn").status for name in names]
    assert found == ["passed", "passed", "not applicable", "not applicable"]


def test_the_summary_is_short() -> None:
    """The summary has only counts; the reasons are in the table, below each clause."""
    results = [
        CheckResult("a.b", "", "passed"),
        CheckResult("a.c", "", "not applicable", "no masks"),
        CheckResult("a.d", "", "not applicable", "no masks"),
        CheckResult("a.e", "", "not applicable", "no memory"),
        CheckResult("a.f", "", "not run", "the 3 s were over"),
    ]
    assert summary(results) == "1 holds, 3 do not apply, 1 was not run"


WRITTEN = {
    *(name for kind in vars(interfaces).values() if isinstance(kind, type) for name in dir(kind)),
    *("build", "config class", "rlsdk.toml", "propose"),
}
"""What the author of a plugin writes: methods of its parts, `build`, settings and the manifest. `propose` is what population
methods have in common."""


def test_every_clause_tells_what_to_change_and_where() -> None:
    silent = [each.id for each in clauses() if not WRITTEN.intersection(kit.NAMES.findall(each.remedy))]
    assert not silent, f"clauses whose remedy names no function or file of a plugin: {silent}"


def test_failures_of_every_clause_show_lines_of_the_plugin(site: Site) -> None:
    package = add_plugin(site)
    for each in clauses():
        lines = kit.lines_to_see(each.remedy, Subject("bad"))
        assert lines, each.id
        for text in lines:
            name, file, number = re.fullmatch(
                r"(?:([\w ]+)(?:\(\))? in )?acme_bad/([\w.]+)(?:, line (\d+))?", text
            ).groups()  # type: ignore[union-attr]
            code = (package / file).read_text().splitlines()
            assert name is None or name in ("config class", "build") or f"def {name}(" in code[int(number) - 1], text


def test_a_spec_that_differs_from_its_manifest_shows_both_values(site: Site) -> None:
    package = add_plugin(site)
    plugin = package / "plugin.py"
    plugin.write_text(plugin.read_text().replace('family="off-policy"', 'family="on-policy"'))
    site.listed()
    with pytest.raises(PluginError, match="family = 'on-policy' in the spec, 'off-policy' in the manifest"):
        run_checks("bad")


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are found in /proc")
def test_a_child_process_ends_with_the_processes_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import subprocess, time\n\ndef child():\n    subprocess.Popen(['sleep', '60'])\n    time.sleep(60)\n"
    (tmp_path / "acme_sleeper.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    leader = ChildProcess("acme_sleeper")
    names: list[str] = []
    limit = time.monotonic() + 30
    while names != ["pytho", "sleep"] and time.monotonic() < limit:  # /proc shows no command until a start is complete
        found = [member.command.partition(" ")[0] for member in leader.running()]
        names = sorted(name.rpartition("/")[2][:5] for name in found)
    assert names == ["pytho", "sleep"]
    assert max(process.private_bytes() for process in leader.running()) > 10**6
    leader.end()
    assert leader.how_it_ended() == "ended the process by SIGKILL"
    limit = time.monotonic() + 30
    while leader.running() and time.monotonic() < limit:  # a killed process takes a moment to end
        time.sleep(0.05)
    assert leader.running() == ()


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "observations"), [("CnnPolicy", ("Box",)), ("MultiInputPolicy", ("Dict",))])
def test_a_plugin_without_vectors_is_checked(policy: str, observations: tuple[str, ...]) -> None:
    """For a plugin whose usual observation is an image or a Dict, only clauses about vectors do not apply."""
    manifest = find("ppo").manifest
    assert manifest is not None
    described = {"policies": (policy,), "observations": observations, "policy_classes": ()}
    rlsdk.register(
        attrs.evolve(load("ppo"), id="watching", policies=(policy,)), attrs.evolve(manifest, id="watching", **described)
    )
    try:
        for name in SEEING:
            found = kit.outcome_of(named_clause(name), "watching")
            assert found.status == "passed", (name, found.detail)
    finally:
        unregister("watching")


SEEING = (
    "agent.predict-array",
    "agent.seed-reproduces",
    "algorithm.metrics",
    "rollout.episodes-permuted",
    "resume.vectors",
    "serializer.round-trip",
    "training.parameters-move",
)


@pytest.mark.parametrize("kind", ["commands", "importers"])
def test_functions_that_the_manifest_names_must_exist(kind: str, site: Site) -> None:
    manifest = add_plugin(site) / "rlsdk.toml"
    text = manifest.read_text()
    manifest.write_text(f'{text}\n[{kind}]\nshout = ["acme_bad:shout", "Shout.", "shout"]\n')
    (manifest.parent / "__init__.py").write_text("def shout():\n    pass\n")
    site.listed()
    verify("bad", "plugin.manifest-agrees")
    (manifest.parent / "__init__.py").write_text("")
    sys.modules.pop("acme_bad", None)
    site.listed()
    with pytest.raises(ContractViolation, match=f"{kind} = 'acme_bad:shout', but acme_bad has no 'shout'"):
        verify("bad", "plugin.manifest-agrees")
