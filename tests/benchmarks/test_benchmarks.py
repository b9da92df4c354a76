"""The calculations of the benchmark. No test asserts a measured speed."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

import benchmarks.__main__ as command
import rlsdk
from benchmarks import floor, learning, native, peers, solving, trained_peer
from benchmarks.cases import CASES, FILE, FOLDERS, ROOT, Case, read
from benchmarks.compare import COLUMNS, Comparison
from benchmarks.marked import with_row
from benchmarks.plain_ppo import PlainPPO, Sizes
from benchmarks.trainers import Elsewhere, Timing, Trainer
from rlsdk.registry import preset
from tests.tables import in_one_test


def comparison(**changes: Any) -> Comparison:
    timings = {
        "ours": [Timing(200.0, 190.0, 0.5), Timing(300.0, 290.0, 0.7), Timing(240.0, 230.0, 0.6)],
        "theirs": [Timing(100.0, 90.0, 0.9), Timing(100.0, 90.0, 0.8), Timing(80.0, 70.0, 0.7)],
    }
    context = {
        "case": CASES["tqc-pendulum"],
        "threads": 1,
        "timings": timings,
        "floor": 480.0,
        "mib": {"ours": 1, "theirs": 2},
    }
    return Comparison(**{**context, **changes})


def test_a_row_of_the_table_by_hand() -> None:
    cells = [cell.strip() for cell in comparison().row().strip("|").split("|")]
    assert cells == [
        *("tqc-pendulum", "1", "240.0", "100.0", "**3.00x** [2.00 .. 3.00]", "", "480", "50%", "60%", "80%", "1", "2"),
    ]
    assert len(cells) == len(COLUMNS)


def test_cases_with_workers_go_by_the_clock() -> None:
    row = comparison(case=CASES["ars-halfcheetah-2-workers"], floor=None).row()
    assert "230.0 | 90.0" in row
    assert "**3.22x** [2.11 .. 3.29]; **3.00x** [2.00 .. 3.00] of all processes' processor time" in row
    assert "50%" not in row


def test_a_case_that_became_slower_is_named() -> None:
    recorded, row = {"tqc-pendulum": comparison().row()}, comparison().row()
    assert command.fallen({"tqc-pendulum": row}, recorded, 0.9) == []
    slower = comparison(timings={"ours": [Timing(250.0, 250.0, 0.5)], "theirs": [Timing(100.0, 100.0, 0.9)]}).row()
    assert command.fallen({"tqc-pendulum": slower}, recorded, 0.8) == []
    (line,) = command.fallen({"tqc-pendulum": slower}, recorded, 0.9)
    assert line == "tqc-pendulum: 2.50x of the peer is below 90% of the recorded 3.00x"
    alone = comparison(timings={"ours": [Timing(250.0, 250.0, 0.5)]}, mib={"ours": 1}).row()
    assert command.fallen({"tqc-pendulum": alone, "new": slower}, recorded, 0.9) == []
    beside_sbx = comparison(timings={"ours": [Timing(1.0, 1.0, 0.5)], "sbx": [Timing(100.0, 100.0, 0.9)]}).row()
    assert "**0.01x**" in beside_sbx  # only the ratio to the peer counts, and not that to SBX
    assert command.fallen({"tqc-pendulum": beside_sbx}, recorded, 0.9) == []


def test_the_command_fails_where_a_case_became_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = comparison(timings={"ours": [Timing(2.0, 2.0, 0.5)], "theirs": [Timing(100.0, 100.0, 0.9)]})
    monkeypatch.setattr(command, "compare", lambda case, rounds, threads: slow)
    arguments = ["benchmarks", "tqc-pendulum", "--at-least"]
    monkeypatch.setattr("sys.argv", [*arguments, "0.001"])
    command.main()
    monkeypatch.setattr("sys.argv", [*arguments, "0.8"])
    with pytest.raises(SystemExit, match=r"tqc-pendulum: 0\.02x of the peer is below 80% of the recorded"):
        command.main()
    for text in ("0", "nan", "-1", "most"):
        monkeypatch.setattr("sys.argv", [*arguments, text])
        with pytest.raises(SystemExit, match="2"):
            command.main()


def test_rows_and_the_summary_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table, landing = tmp_path / "performance.md", tmp_path / "README.md"
    table.write_text(command.TABLE.read_text())
    summary = (
        "**1.5 times as fast**, about 1 times as fast, the median of 1 measured cases. The slowest case is 1.0 times"
    )
    landing.write_text(f"{summary}\n| TQC | `tqc` | Box | 1.0 times |\n")
    monkeypatch.setattr(command, "TABLE", table)
    monkeypatch.setattr(command, "LANDING_PAGES", (landing,))
    timings = {"ours": [Timing(900.0, 0.0, 0.5)], "theirs": [Timing(10.0, 0.0, 0.9)], "sbx": [Timing(9e5, 0.0, 0.9)]}
    monkeypatch.setattr(command, "compare", lambda case, rounds, threads: comparison(timings=timings))
    monkeypatch.setattr("sys.argv", ["benchmarks", "tqc-pendulum", "--write"])
    command.main()
    (row,) = [line for line in table.read_text().splitlines() if line.startswith("| tqc-pendulum | 1 | 900.0 |")]
    assert "**90.00x**" in row
    before = command.ROOT.joinpath("docs/performance.md").read_text().splitlines()
    assert [line for line in table.read_text().splitlines() if line not in before and line[:1] == "|"] == [row]
    assert "| `tqc` | Box | 3.8 to 90.0 times |" in landing.read_text()  # without the ratio to SBX
    assert re.search(r"median of [2-9]\d measured cases", landing.read_text())
    assert "**1.5 times as fast**" not in landing.read_text()


def test_updates_are_timed_where_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.active_children", list)  # earlier tests may have left some

    class Model:
        def train(self) -> int:
            return sum(range(300_000))

    model = Model()
    trainer = Trainer(lambda steps: [model.train() for _ in range(steps)], model, "train")
    timing = trainer(20)
    assert timing.update is not None
    assert 0.5 < timing.update <= 1.0
    assert Trainer(lambda steps: sum(range(100_000)), model, "no_such_method")(1).update is None


@pytest.mark.parametrize(
    "name", ["tqc-pendulum", pytest.param("maskable-ppo-toy-8", marks=pytest.mark.slow), "ars-pendulum"]
)
def test_floors_are_found_from_what_networks_multiply(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "SECONDS", 1e-4)
    monkeypatch.setattr(floor, "SECONDS_OF_MANY", 1e-4)
    monkeypatch.setattr(floor, "BLOCKS", 1)
    case = replace(CASES[name], warmup=1010, chunk=10)
    assert 0.0 < floor.floor(case) < 1e6
    assert 0.0 < floor.floor(case, every_call=True) < 1e6


def test_products_are_counted() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    with floor.Recorded(floor.multiplies) as recorded:
        for _ in range(2):
            layers(torch.randn(7, 3)).sum().backward()
    found = sorted((kind.name, kind.times) for kind in recorded.kinds.values())
    assert found == [("addmm", 2), ("addmm", 2), ("mm", 2), ("mm", 2), ("mm", 2)]  # the inputs need no gradient
    with floor.Recorded(floor.computes) as recorded:
        step = torch.ones(3, requires_grad=True)
        for rate in (0.1, 0.2):
            torch.relu(step.view(3, 1)).mul(rate).sum().backward()
    times = {kind.name: kind.times for kind in recorded.kinds.values()}
    assert (times["relu"], times["sum"], times["threshold_backward"]) == (2, 2, 2)
    assert "view" not in times
    assert all(torch.isfinite(torch.as_tensor(kind.ways()[0]())).all() for kind in recorded.kinds.values())


def test_runs_with_other_settings_than_a_preset_are_not_taken_for_its_results(tmp_path: Path) -> None:
    known = preset("a2c", "Acrobot-v1")
    assert known is not None
    for name, more in (("like", {}), ("unlike", {"gamma": 0.5})):
        settings: dict[str, Any] = {**known.settings, **more}
        rlsdk.make("a2c", env="Acrobot-v1", **settings).save(tmp_path / name / "final.rlsdk")
    assert learning._has_preset(tmp_path / "like", "a2c", "Acrobot-v1")
    assert not learning._has_preset(tmp_path / "unlike", "a2c", "Acrobot-v1")
    assert not learning._has_preset(tmp_path / "like", "a2c", "no-such-preset")


def test_a_table_keeps_its_other_rows() -> None:
    page = f"before\n{native.MARK}\n\n{native.END}\nafter\n| dqn-cartpole | 1 | 40.0 | 20 | **2x** | | 100 | 40% |\n"
    for row in ("| tqc-pendulum | 1 | 3 | 33% | 2 | 50% |", "| dqn-cartpole | 1 | 9 | 11% | 8 | 7% |"):
        page = with_row(page, (native.MARK, native.END), floor.HEAD, CASES, row)
    assert page.count("| tqc-pendulum |") == 1
    assert page.count("| dqn-cartpole |") == 2


def test_calls_that_differ_in_chance_and_objects_are_of_one_kind() -> None:
    with floor.Recorded(floor.computes) as recorded:
        for high in (5, 6, 7):
            torch.randint(high, (3,))
            torch.rand(3, generator=torch.Generator())
        torch.randint(5, (4,))
    assert sorted(kind.times for kind in recorded.kinds.values()) == [1, 3, 3]


def test_our_speed_is_measured_beside_the_floors() -> None:
    assert floor.ours(replace(CASES["bc-cartpole"], warmup=20, chunk=20)) > 0.0


MANIFESTS = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*/src/*/rlsdk.toml"))]
PACKAGES = [path.parents[2] for path in MANIFESTS if "family" in tomllib.loads(path.read_text())]
"""Folders of the packages that contain an algorithm."""


@in_one_test
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_package_names_cases(package: Path) -> None:
    algorithm = package.name.removeprefix("rlsdk-")
    cases = list(read(package / FILE))
    assert cases
    assert {case.algorithm for case in cases} == {algorithm}
    assert all(case.name.startswith(algorithm) and CASES[case.name] == case for case in cases)


@in_one_test
@pytest.mark.parametrize("case", [case for case in CASES.values() if not case.workers], ids=lambda case: case.name)
def test_both_sides_accept_the_settings_of_a_case(case: Case) -> None:
    if case.env.startswith("HalfCheetah"):
        pytest.importorskip("mujoco")
    agent = case.agent(0)
    if not case.offline:
        agent.env.close()
    if not case.peer:
        return
    pytest.importorskip(case.peer.partition(".")[0])
    for kind in (case.peer_class(), case.sbx_class()):
        if kind is not None:
            bound = inspect.signature(kind).bind(case.policy, None, seed=0, device="cpu", **case.settings)
            assert set(case.settings) <= set(bound.arguments)


def test_sizes_can_be_given() -> None:
    asked = argparse.Namespace(warmup=2, chunk=5, n_envs=3, set=["policy_kwargs.n_quantiles=7", "batch_size=9"])
    case = command._resized(CASES["qrdqn-cartpole"], asked)
    assert (case.warmup, case.chunk, case.n_envs, case.settings["batch_size"]) == (2, 5, 3, 9)
    assert case.settings["policy_kwargs"] == {"net_arch": [256, 256], "n_quantiles": 7}


@pytest.mark.parametrize("argument", [["--threads", "0"], ["--rounds", "-1"], ["--chunk", "many"], ["--n-envs", "1.5"]])
def test_counts_are_positive_integers(
    argument: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "sac-pendulum", *argument])
    with pytest.raises(SystemExit):
        command.main()
    assert f"{argument[1]!r} is not a positive integer" in capsys.readouterr().err


def made() -> Trainer:
    return Trainer(lambda steps: sum(range(steps * 1000)), object(), "none")


def made_with_two_threads() -> Trainer:
    assert os.environ["NPROC"] == "2"  # jax reads it
    return made()


def test_the_threads_of_jax_are_limited() -> None:
    before = os.environ.get("NPROC")
    side = Elsewhere(made_with_two_threads, 2)
    assert side(500).cpu > 0.0
    side.close()
    assert os.environ.get("NPROC") == before
    assert "NPROC" in solving.THREADS


@pytest.mark.full
def test_a_trainer_in_a_process_of_its_own() -> None:
    side = Elsewhere(made)
    timing = side(500)
    side.close()
    assert timing.cpu > 0.0
    assert timing.update is None
    assert not side.process.is_alive()


def test_collecting_is_measured_with_networks_and_without() -> None:
    pytest.importorskip("sb3_contrib")
    from benchmarks.collection import measure, measure_acting

    for row in (measure("CartPole-v1", 1, 2, 1), measure_acting("CartPole-v1", 1, 2, 1)):
        name, count, *figures = (cell.strip() for cell in row.strip("|").split("|"))
        assert (name, count, len(figures)) == ("CartPole-v1", "2", 3)
        assert all(float(figure.strip("*").split()[0].rstrip("x*")) > 0.0 for figure in figures)


def test_tables_of_results_are_those_of_the_measured_figures() -> None:
    for path, text in learning.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python -m benchmarks.learning pages"
    assert len(learning.pages()) > 10
    assert sorted(learning.measured()) == sorted(sum(learning.FAMILIES.values(), ()))


def test_results_of_other_lengths_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "ROOT", tmp_path)
    (tmp_path / "contrib_algos" / "rlsdk-new").mkdir(parents=True)
    for steps, seed, reached in ((100, "0", 1.0), (100, "1", 3.0), (200, "2", 5.0)):
        learning.write("new", "Some-v0", "ours", {"steps": steps, "episodes": 10, "seeds": {seed: reached}})
        expected = {"2": 5.0} if steps == 200 else {"0": 1.0, "1": 3.0} if seed == "1" else {"0": 1.0}
        assert learning.known("new")["Some-v0"]["ours"]["seeds"] == expected
    assert learning.measured() == ["new"]
    assert "| Some-v0 | 200 | 5.0 | 5.0 |  |" in learning.card("new")


def test_seeds_of_a_peer_that_are_known_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    places: list[object] = []

    def train(_algorithm: str, _env: str, seed: int, _settings: object, _size: object, place: object) -> float:
        trained.append(seed)
        places.append(place)
        return float(seed)

    monkeypatch.setattr(learning, "store", lambda algorithm: tmp_path / f"{algorithm}.json")
    monkeypatch.setattr(learning, "trained_peer", train)
    learning.peer("sac", "Pendulum-v1", range(2), 100)
    learning.peer("sac", "Pendulum-v1", range(1, 3), 100)
    assert trained == [0, 1, 2]
    assert learning.known("sac")["Pendulum-v1"]["peer"]["seeds"] == {"0": 0.0, "1": 1.0, "2": 2.0}
    # a training of another length does not replace this one: seed 0 is trained again
    learning.peer("sac", "Pendulum-v1", range(1), 200)
    assert trained[3:] == [0]
    # an unfinished training of one preset is not continued with another
    learning.peer("sac", "Pendulum-v1", range(1), None, tmp_path, "Pendulum-v1-fast")
    assert set(learning.known("sac")) == {"Pendulum-v1", "Pendulum-v1-fast"}
    assert places[-1] == tmp_path / "sac-Pendulum-v1-fast-0"


def test_the_classes_of_peers_are_found() -> None:
    pytest.importorskip("sb3_contrib")
    found = [peers.peer_class(algorithm).__name__ for algorithm in ("ppo", "crossq", "maskable-ppo")]
    assert found == ["PPO", "CrossQ", "MaskablePPO"]
    with pytest.raises(SystemExit, match="neither stable-baselines3 nor sb3-contrib has gail"):
        peers.peer_class("gail")


@pytest.mark.parametrize(
    ("algorithm", "settings", "files"),
    [
        ("sac", {"learning_starts": 10, "buffer_size": 500}, {"agent.zip", "replay.pkl"}),
        ("ppo", {"normalize": True, "n_steps": 32}, {"agent.zip", "normalizer.pkl"}),
    ],
)
@pytest.mark.full
def test_an_interrupted_training_of_a_peer_goes_on(
    algorithm: str, settings: dict[str, object], files: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")
    monkeypatch.setattr(trained_peer, "SAVE_EVERY", 40)
    keep = tmp_path / "saved"
    trained_peer.trained_peer(algorithm, "Pendulum-v1", 0, settings, (1, 64), keep)
    assert {path.name for path in keep.iterdir()} == files
    steps: list[int] = []
    save = trained_peer._save
    monkeypatch.setattr(
        trained_peer, "_save", lambda model, place: (steps.append(model.num_timesteps), save(model, place))
    )
    trained_peer.trained_peer(algorithm, "Pendulum-v1", 0, settings, (1, 128), keep)
    assert steps == [80, 120]  # the training resumed from the file of step 40


def test_peers_explore_every_dimension_on_its_own() -> None:
    pytest.importorskip("stable_baselines3")
    noise = {"action_noise": {"mean": 0.0, "sigma": 0.1}}
    drawn = peers.translated(noise, gymnasium.spaces.Box(-1, 1, (2, 3)))["action_noise"]()
    assert drawn.shape == (2, 3)
    assert len(set(drawn.flat)) == 6


def test_native_cases() -> None:
    """The case `preset` has the settings of the preset of PPO, and plain PPO learns to balance the pole."""
    known = preset("ppo", native.PRESET)
    assert known is not None
    assert (known.n_envs, known.settings) == (native.CASES["preset"].n_envs, native.CASES["preset"].settings)
    assert not native.is_there("no-such-program")
    env = gymnasium.make_vec("CartPole-v1", 16, vectorization_mode="vector_entry_point")
    plain = PlainPPO(env, Sizes(16, 64, 256, 10, shared=True, learning_rate=3e-3))
    before = plain._rollout()[0]
    plain.learn(20_000)
    # the pole stands upright
    assert float(plain._rollout()[0][:, 2].abs().mean()) < 0.7 * float(before[:, 2].abs().mean())
    page, what = f"{native.MARK}\n\n| a | b |\n{native.END}\nrest\n", native.CASES["c"].what
    for number in (1, 2):
        page = with_row(page, (native.MARK, native.END), "| head |", [what], f"| {what} | {number} |")
    assert page == f"{native.MARK}\n\n| head |\n| {what} | 2 |\n\n{native.END}\nrest\n"
