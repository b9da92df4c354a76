"""Every kind of file that the product reads, apart from agent files: how one is made, and what reads it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import gymnasium as gym
import numpy as np

import rlsdk
import rlsdk_zoo as zoo
from rlsdk.errors import PluginError, RlsdkError
from rlsdk.evaluation.evaluate import Evaluation
from rlsdk.records import Episode
from rlsdk.registry import load, plugins, presets
from rlsdk.registry.packaged_files import capabilities
from rlsdk.runs.directory import RunDirectory, claimed
from rlsdk.runs.request import RunRequest
from rlsdk.runs.runner import run
from rlsdk.settings import load_settings
from rlsdk.settings.constructor import bind
from rlsdk.sinks import CsvSink, JsonlSink
from rlsdk_datasets import Dataset, open_episodes, summary_of
from rlsdk_envs import Monitor
from rlsdk_envs.wrappers import load_results, ts2xy
from rlsdk_interchange import import_minari, record_episodes, remember
from rlsdk_interchange.sb3 import import_sb3
from rlsdk_interchange.sb3_statistics import read_statistics, set_statistics
from rlsdk_lab import Tuning, bench, tune
from rlsdk_lab.benchmark import Bench
from rlsdk_lab.curves import CurveSettings, curves
from rlsdk_lab.many_runs import _progress
from rlsdk_lab.report import write_report
from rlsdk_lab.rl_zoo import rl_zoo_preset
from rlsdk_lab.scores import score_of
from rlsdk_lab.suite import load_suite
from rlsdk_sb3.evaluations import EvaluationLog
from tests.plugin_site import Site, on_path

SMALL: dict[str, Any] = {"n_delta": 2, "policy_kwargs": {"net_arch": [4]}}


@attrs.frozen
class Kind:
    """`make` writes files into an empty folder, and returns the one to alter, whose form is `form` (see `spoiled`). `read`
    takes the path of that file and reads it as the product does."""

    form: str
    make: Callable[[Path], Path]
    read: Callable[[Path], None]
    needs: str = ""
    """A module without which the kind is left out."""


# --- runs ------------------------------------------------------------------------------------------------------------


def _run(folder: Path) -> Path:
    settings = {**SMALL, "seed": 0}
    options: dict[str, Any] = {"steps": 60, "eval_every": 30, "checkpoint_every": 30, "eval_episodes": 1}
    run(RunRequest(algorithm="ars", env="CartPole-v1", settings=settings, out=folder / "run", **options))
    return folder / "run"


def _read_run(path: Path) -> None:
    """Read the record and the curve, and take the run up again."""
    directory = RunDirectory(path.parent)
    record = directory.read_record()
    for read in (lambda: score_of(path.parent), lambda: curves([path.parent], CurveSettings())):
        _tolerant(read)
    if record.steps <= 200 and record.n_envs <= 4 and record.eval_episodes <= 4 and record.threads <= 2:
        run(RunRequest(algorithm=record.algorithm, out=path.parent, resume=True, steps=None))


def _read_metrics(path: Path) -> None:
    directory = RunDirectory(path.parent)
    for read in (
        lambda: curves([path.parent], CurveSettings(smooth=2)),
        lambda: curves([path.parent], CurveSettings(metric="rollout/ep_rew_mean", x="time")),
        directory.best_evaluation,
        lambda: directory.forget_after(30),
    ):
        _tolerant(read)
    sink = CsvSink(path) if path.suffix == ".csv" else JsonlSink(path)
    sink.write(60, {"a": 1.0})
    sink.write(70, {"a": 1.0, "eval/mean_reward": 2.0})
    sink.close()


def _tolerant(read: Callable[[], object]) -> None:
    """Call `read`, whose refusal is welcome: the next reader gets the file too."""
    try:
        read()
    except RlsdkError as error:
        _require_line(error)


def _require_line(error: RlsdkError) -> None:
    assert str(error).strip(), f"{type(error).__name__} has no message"
    assert len(str(error)) < 5_000, f"{type(error).__name__} has {len(str(error))} characters"


def _read_settings(path: Path) -> None:
    settings = load_settings(path)
    bind(load("ars").config_type, (), {**settings, "env": "CartPole-v1"})


# --- searches and benchmarks -----------------------------------------------------------------------------------------


def _search(folder: Path) -> Tuning:
    options: dict[str, Any] = {"steps": 40, "trials": 3, "episodes": 1, "settings": {"n_delta": 2}}
    return Tuning(algorithm="ars", env="CartPole-v1", out=folder, **options)


def _journal(folder: Path) -> Path:
    tune(_search(folder))
    return folder / "journal.log"


def _read_journal(path: Path) -> None:
    tune(attrs.evolve(_search(path.parent), trials=4))


SUITE = """
[suite]
description = "for tests"
episodes = 1
[ranges]
CartPole-v1 = [0.0, 500.0]
[[cells]]
algorithm = "ars"
env = "CartPole-v1"
steps = 40
documented = [500.0, 0.0]
source = "a page"
[cells.settings]
n_delta = 2
"""


def _suite(folder: Path) -> Path:
    (folder / "mine.toml").write_text(SUITE)
    return folder / "mine.toml"


def _bench(path: Path) -> Bench:
    return Bench(suite=load_suite(str(path)), seeds=(0,), out=path.parent / "out", executor="in-process")


def _benched(folder: Path) -> Path:
    bench(_bench(_suite(folder)))
    return folder / "out" / "bench.json"


def _read_bench(path: Path) -> None:
    outcome = bench(_bench(path.parent.parent / "mine.toml"))
    if outcome.scores:
        write_report(outcome, "rlsdk bench")


# --- packages --------------------------------------------------------------------------------------------------------

PRESET = '[run]\nsteps = 20_000\nn_envs = 1\nsource = "a page"\n[settings]\nlearning_rate = 1e-3\n'


def _in_package(name: str, content: str) -> Callable[[Path], Path]:
    """A maker of a distribution `acme-bad`, whose file `name` is altered."""

    def make(folder: Path) -> Path:
        package = Site(folder).add("bad")
        path = package / name if "." in name and "dist" not in name else folder / name
        path.parent.mkdir(exist_ok=True)
        if content:
            path.write_text(content)
        return path

    return make


def _read_package(path: Path) -> None:
    folder = next(above for above in path.parents if (above / "acme_good").exists())
    with on_path(folder):
        found = {plugin.distribution: plugin for plugin in plugins(rescan=True)}
        assert found["acme-good"].problem is None
        bad = found.get("acme-bad")
        if bad is None:
            return
        capabilities(bad)
        if bad.problem is not None:
            raise PluginError(bad.problem)
        presets(bad.id)
        load(bad.qualified_id)


def _zoo_table(folder: Path) -> Path:
    package = Site(folder).add("bad")
    (package / "rlsdk.toml").write_text((package / "rlsdk.toml").read_text() + 'zoo = "agents"\n')
    entry = next(entry for entry in zoo.agents() if entry.algorithm == "ars")
    place = package / "agents" / "ars"
    place.mkdir(parents=True)
    for suffix in (".rlsdk", ".toml"):
        shutil.copy(entry.path.with_suffix(suffix), place)
    return place / entry.path.with_suffix(".toml").name


def _read_zoo(path: Path) -> None:
    with on_path(path.parents[3]):
        found = [agent for agent in zoo.agents() if agent.zoo == "acme-bad"]
        for agent in found:
            agent.read()
            agent.card()
            assert str(agent.result)
    if not found:
        raise PluginError("left out with a warning")


# --- data sets -------------------------------------------------------------------------------------------------------


def _data_set(folder: Path) -> Path:
    return record_episodes("random", "CartPole-v1", 2, folder / "demo", seed=0)


def _read_data_set(path: Path) -> None:
    Dataset.at(path).contents()
    summary_of(path).rows()
    episodes = list(open_episodes(path))
    remember(rlsdk.make("dqn", env="CartPole-v1", buffer_size=1000, seed=0), episodes)


def _minari(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from rlsdk_interchange import export_minari

        with _minari_in(folder):
            export_minari(_data_set(folder), "rlsdk/demo-v0", author="a", author_email="a@b", code_permalink="c")
        return folder / "minari" / "rlsdk" / "demo-v0" / "data" / name

    return make


class _minari_in:  # used like a function
    """Inside the block, the data sets of Minari are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        os.environ["MINARI_DATASETS_PATH"] = str(self.folder / "minari")

    def __exit__(self, *_: object) -> None:
        del os.environ["MINARI_DATASETS_PATH"]


def _read_minari(path: Path) -> None:
    with _minari_in(path.parents[4]):
        open_episodes(import_minari("rlsdk/demo-v0", path.parents[4] / "back"))


# --- further files ---------------------------------------------------------------------------------------------------

RL_ZOO = """
default: &common
  n_timesteps: !!float 1e5
  learning_rate: lin_0.01
CartPole-v1:
  <<: *common
  n_envs: 2
  policy: 'MlpPolicy'
  n_delta: 4
  policy_kwargs: "dict(net_arch=[8], activation_fn=nn.ReLU)"
Pendulum-v1: {n_timesteps: 1000, env_wrapper: [{sb3_contrib.common.wrappers.TimeFeatureWrapper: {a: 1}}]}
"""


def _text(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return make


def _evaluations(folder: Path) -> Path:
    log = EvaluationLog(folder)
    log.write([(step, _evaluation()) for step in (10, 20)])
    return log.path


def _evaluation() -> Evaluation:
    return Evaluation((Episode(1.0, 5, True),), True)


def _read_evaluations(path: Path) -> None:
    log = EvaluationLog(path.parent)
    log.start(20)
    log.outdated(1)
    assert isinstance(log.best, float)
    log.write([(30, _evaluation())])
    with np.load(path) as stored:
        assert stored["timesteps"][-1] == 30


def _monitor(folder: Path) -> Path:
    with Monitor(gym.make("CartPole-v1"), folder / "monitor.csv") as env:
        for seed in range(3):
            env.reset(seed=seed)
            while not any(env.step(0)[2:4]):
                pass
    return folder / "monitor.csv"


def _read_monitor(path: Path) -> None:
    _tolerant(lambda: Monitor(gym.make("CartPole-v1"), path).close())
    results = load_results(path.parent)
    for axis in ("timesteps", "episodes", "walltime_hrs"):
        ts2xy(results, axis)


def _vec_normalize(folder: Path) -> Path:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    envs.reset()
    envs.save(str(folder / "statistics.pkl"))
    return folder / "statistics.pkl"


def _moments(folder: Path) -> Path:
    np.savez(folder / "statistics.npz", mean=np.zeros(4), var=np.ones(4), count=np.float64(9))
    return folder / "statistics.npz"


def _read_moments(path: Path) -> None:
    agent = rlsdk.make("ars", env="CartPole-v1", seed=0, normalize=True, **SMALL)
    set_statistics(agent, read_statistics(path), path)
    agent.predict(np.zeros(4, np.float32))


def _sb3(folder: Path) -> Path:
    from sb3_contrib import ARS

    ARS("LinearPolicy", "CartPole-v1", seed=0).save(folder / "model.zip")
    return folder / "model.zip"


def _read_sb3(path: Path) -> None:
    import_sb3(path, "ars", "CartPole-v1").predict(np.zeros(4, np.float32))


def _parts(folder: Path) -> Path:
    """A checkpoint whose replay buffer is in parts."""
    from rlsdk.callbacks import CheckpointCallback

    model = rlsdk.make(
        "dqn", env="CartPole-v1", seed=0, buffer_size=60, learning_starts=5, policy_kwargs={"net_arch": [4]}
    )
    model.learn(40, CheckpointCallback(20, folder / "checkpoints"))
    return sorted((folder / "checkpoints" / "replay").iterdir())[0]


def _read_parts(path: Path) -> None:
    newest = sorted(path.parent.parent.glob("step_*.rlsdk"))[-1]
    rlsdk.load(newest, env="CartPole-v1").learn(4, reset_num_timesteps=False)


def _lock(folder: Path) -> Path:
    (folder / ".running").write_text("process 1 on here")
    return folder / ".running"


def _read_lock(path: Path) -> None:
    with claimed(path.parent):
        _tolerant(lambda: _claim_again(path.parent))


def _claim_again(folder: Path) -> None:
    with claimed(folder):
        raise AssertionError("two runs at once")


def _in_run(name: str) -> Callable[[Path], Path]:
    return lambda folder: _run(folder) / name


TABLE = json.dumps({"policy": "MlpPolicy", "actions": ["Box"], "recurrent": False})
KINDS: dict[str, Kind] = {
    "run.json": Kind("json", _in_run("run.json"), _read_run),
    "config.toml of a run": Kind("toml", _in_run("config.toml"), lambda path: _read_run(path.with_name("run.json"))),
    "metrics.csv": Kind("csv", _in_run("metrics.csv"), _read_metrics),
    "metrics.jsonl": Kind("lines", _in_run("metrics.jsonl"), _read_metrics),
    "log.txt": Kind(
        "bytes", _text("log.txt", "10 of 20 steps, 1 s left\n" * 9), lambda path: (_progress(path), None)[1]
    ),
    "settings.toml": Kind(
        "toml", _text("s.toml", 'policy = "MlpPolicy"\nn_delta = 4\n[policy_kwargs]\nnet_arch = [8]\n'), _read_settings
    ),
    "rl-zoo": Kind(
        "yaml", _text("ars.yml", RL_ZOO), lambda path: (rl_zoo_preset(path, load("ars"), "CartPole-v1"), None)[1]
    ),
    "journal.log": Kind("lines", _journal, _read_journal, "optuna"),
    "best.toml": Kind("toml", lambda folder: _journal(folder).with_name("best.toml"), _read_settings, "optuna"),
    "suite": Kind("toml", _suite, lambda path: (load_suite(str(path)), None)[1]),
    "bench.json": Kind("json", _benched, _read_bench),
    "rlsdk.toml": Kind("toml", _in_package("rlsdk.toml", ""), _read_package),
    "preset": Kind("toml", _in_package("presets/CartPole-v1.toml", PRESET), _read_package),
    "capabilities.json": Kind("json", _in_package("capabilities.json", TABLE), _read_package),
    "entry_points.txt": Kind("bytes", _in_package("acme_bad-1.2.3.dist-info/entry_points.txt", ""), _read_package),
    "METADATA": Kind("bytes", _in_package("acme_bad-1.2.3.dist-info/METADATA", ""), _read_package),
    "zoo table": Kind("toml", _zoo_table, _read_zoo),
    "data set": Kind("bytes", _data_set, _read_data_set),
    "header of a data set": Kind("header", _data_set, _read_data_set),
    "metadata.json of Minari": Kind("json", _minari("metadata.json"), _read_minari, "minari"),
    "main_data.hdf5 of Minari": Kind("bytes", _minari("main_data.hdf5"), _read_minari, "minari"),
    "evaluations.npz": Kind("npz", _evaluations, _read_evaluations),
    "monitor.csv": Kind("csv", _monitor, _read_monitor),
    "VecNormalize": Kind("bytes", _vec_normalize, _read_moments, "stable_baselines3"),
    "statistics.npz": Kind("npz", _moments, _read_moments),
    "stable-baselines3": Kind("bytes", _sb3, _read_sb3, "sb3_contrib"),
    "parts of a replay buffer": Kind("bytes", _parts, _read_parts),
    "archive of a part": Kind("archive", _parts, _read_parts),
    "lock": Kind("bytes", _lock, _read_lock),
}
