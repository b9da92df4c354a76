"""Further kinds of files: what is beside agents, sweeps and packages, and containers whose digests fit their altered content.

`ALL` holds these kinds and those of `kinds`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import rlsdk
import rlsdk_zoo as zoo
from rlsdk.agent import agent_class
from rlsdk.agent.agent_file import KIND
from rlsdk.callbacks import CheckpointCallback
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.registry import load
from rlsdk.runs.directory import SEAL, record_made_here, sealed
from rlsdk.runs.request import RunRequest, read_table
from rlsdk.runs.runner import run
from rlsdk.runs.stored_evaluation import EvaluationRequest, evaluate_stored
from rlsdk.runtime import is_edited
from rlsdk.runtime import sealed as sealed_card
from rlsdk.runtime.packages import pip_install
from rlsdk.storage.archive import SafetensorsSerializer, inspect
from rlsdk_interchange import hub
from rlsdk_interchange.cards import Results, model_card
from rlsdk_interchange.hub_commands import pull_file
from rlsdk_lab.suite import load_suite
from rlsdk_lab.sweep import Sweep, stored, sweep
from rlsdk_lab.tuning import tune
from rlsdk_trackers.tracked_run import TrackedRun
from tests.altered_files.kinds import (
    KINDS,
    SMALL,
    Kind,
    _data_set,
    _in_package,
    _in_run,
    _journal,
    _minari,
    _read_data_set,
    _read_minari,
    _read_moments,
    _read_package,
    _read_sb3,
    _run,
    _sb3,
    _search,
    _vec_normalize,
    _zoo_table,
)
from tests.plugin_site import Site, on_path

DQN: dict[str, Any] = {"buffer_size": 60, "learning_starts": 5, "policy_kwargs": {"net_arch": [4]}, "seed": 0}
OBSERVATION = np.zeros(4, np.float32)

# --- agents in other files -------------------------------------------------------------------------------------------


def _agent(folder: Path) -> Path:
    rlsdk.make("dqn", env="CartPole-v1", **DQN).learn(40).save(folder / "agent.rlsdk")
    return folder / "agent.rlsdk"


def _read_checkpoint(path: Path) -> None:
    """Look at the file, then take the run up from it."""
    inspect(path, kind=KIND)
    run(RunRequest(algorithm="ars", out=path.parent.parent, resume=True, steps=80))


def _read_best(path: Path) -> None:
    evaluate_stored(path, None, EvaluationRequest(episodes=1), executor="in-process")


def _replay(folder: Path) -> Path:
    rlsdk.make("dqn", env="CartPole-v1", **DQN).learn(40).save_replay_buffer(folder / "rows.rlsdk")
    return folder / "rows.rlsdk"


def _read_replay(path: Path) -> None:
    """What is refused leaves the buffer of the agent as it was."""
    agent = rlsdk.make("dqn", env="CartPole-v1", **DQN).learn(20)
    buffer: Any = agent.replay_buffer
    before = len(buffer)
    try:
        agent.load_replay_buffer(path)
    except RlsdkError:
        assert len(buffer) == before, "a refused file changed the buffer"
        raise
    finally:
        agent.learn(4, reset_num_timesteps=False)


def _read_parameters(path: Path) -> None:
    """What is refused leaves the weights of the agent as they were."""
    for exact in (True, False):
        agent = rlsdk.make("dqn", env="CartPole-v1", **{**DQN, "seed": 1})
        before = [value.clone() for value in agent.policy.parameters()]
        try:
            agent.set_parameters(path, exact_match=exact)
        except RlsdkError:
            assert all(map(torch.equal, before, agent.policy.parameters())), "a refused file changed the weights"
            raise
        agent.predict(OBSERVATION)
        agent.learn(8)


def _read_policy(path: Path) -> None:
    agent_class(load("dqn")).load_policy(path, "CartPole-v1", seed=0).learn(8)


def _tensors(folder: Path) -> Path:
    tensors = {"a/b": torch.arange(6.0).reshape(2, 3), "a/c": torch.ones((), dtype=torch.int64)}
    SafetensorsSerializer().save(folder / "values.rlsdk", tensors, {"text": ["x", 1, None]})
    return folder / "values.rlsdk"


def _read_tensors(path: Path) -> None:
    SafetensorsSerializer().inspect(path)
    tensors, document = SafetensorsSerializer().load(path)
    assert all(isinstance(value, torch.Tensor) for value in tensors.values())
    assert isinstance(document, dict)


def _zoo_agent(folder: Path) -> Path:
    return _zoo_table(folder).with_suffix(".rlsdk")


def _read_zoo_agent(path: Path) -> None:
    with on_path(path.parents[3]):
        (found,) = (agent for agent in zoo.agents() if agent.zoo == "acme-bad")
        found.read()


# --- hubs ------------------------------------------------------------------------------------------------------------


def _read_hub(path: Path) -> None:
    """The library of the hub gives this file; `rlsdk pull` writes only a whole agent."""
    library = SimpleNamespace(
        get_hf_file_metadata=lambda address: None, hf_hub_url=str, hf_hub_download=lambda *_, **__: str(path)
    )
    library.hf_hub_url = lambda *_, **__: "address"
    target = path.with_name("pulled.rlsdk")
    try:
        with patch.object(hub, "_library", lambda: library):
            pull_file("me/agent", out=target)
        rlsdk.load(target, env="CartPole-v1").predict(OBSERVATION)
    except RlsdkError:
        left = sorted(each.name for each in path.parent.iterdir())
        assert left in ([path.name], [path.name, target.name]), left
        raise


def _read_card(path: Path) -> None:
    """An altered card counts as edited: `export` leaves it as it is."""
    is_edited(path.read_bytes().decode(errors="replace"))


def _card(folder: Path) -> Path:
    (folder / "agent.md").write_text(sealed_card(model_card(rlsdk.load(_agent(folder)), results=Results(9.0, 0.0, 2))))
    return folder / "agent.md"


# --- searches, sweeps and seals --------------------------------------------------------------------------------------


def _read_best_settings(path: Path) -> None:
    """A continued search replaces its best settings only if they are as it wrote them."""
    before = path.read_bytes()
    tune(_search(path.parent))
    assert is_edited(before.decode(errors="replace")) == (path.with_name("best_2.toml").exists()), "edits are counted"
    assert path.read_bytes() == before, "an edited file was replaced"


def _asked(folder: Path, **more: Any) -> RunRequest:
    return RunRequest(algorithm="ars", out=folder, settings={}, **more)


def _sweep(folder: Path) -> Path:
    options: dict[str, Any] = {"steps": 40, "eval_every": 0, "eval_episodes": 1, "env": "CartPole-v1"}
    request = RunRequest(algorithm="ars", settings=SMALL, out=folder / "seeds", **options)
    sweep(Sweep(request=request, seeds=(0, 1), jobs=1, executor="in-process"))
    return folder / "seeds" / "sweep.json"


def _read_sweep(path: Path) -> None:
    plan = stored(_asked(path.parent, resume=True, steps=None))
    if (
        plan is not None
        and (plan.request.steps or 0) <= 200
        and len(plan.seeds) <= 4
        and plan.request.threads in (None, 1)
    ):
        sweep(plan)


@contextmanager
def _state_in(folder: Path) -> Iterator[None]:
    with patch.dict(os.environ, {"XDG_STATE_HOME": str(folder / "state")}):
        yield


def _sealed(folder: Path) -> Path:
    """A run with its seal, beside copies of the whole record and of the key."""
    path = _run(folder) / "run.json"
    with _state_in(folder):  # a run writes the seal itself if its environment is one that files may not name
        path.write_text(json.dumps(sealed(path, read_table(path))))
    shutil.copy(path, folder / "whole.json")
    shutil.copy(_key_in(folder), folder / "whole.key")
    return path


def _key_in(folder: Path) -> Path:
    return folder / "state" / "rlsdk" / "key"


def _read_sealed(path: Path) -> None:
    """The record is vouched for only with the content and the key that it was sealed with."""
    folder = next(above for above in path.parents if (above / "whole.json").exists())
    record, key, whole = folder / "run" / "run.json", _key_in(folder), json.loads((folder / "whole.json").read_text())
    altered, altered_key = record.read_bytes(), key.read_bytes()
    key.write_bytes((folder / "whole.key").read_bytes())
    with _state_in(folder):  # a seal is of a folder, and this one is a copy: seal the whole record again
        table = sealed(record, {name: value for name, value in whole.items() if name != SEAL})
        record.write_bytes(altered.replace(str(whole[SEAL]).encode(), str(table[SEAL]).encode()))
        key.write_bytes(altered_key)
        found = record_made_here(record)
        whole_key = altered_key == (folder / "whole.key").read_bytes()
        if found is None:
            assert not whole_key or record.read_bytes() != json.dumps(table).encode(), (
                "what is whole is not vouched for"
            )
            options: dict[str, Any] = {"steps": 20, "eval_every": 0, "eval_episodes": 1, "env": "CartPole-v1"}
            run(RunRequest(algorithm="ars", settings=SMALL, out=folder / "new", **options))
            raise SettingsError("not vouched for")
        assert whole_key, "a seal of another key is vouched for"
        assert found == {name: value for name, value in table.items() if name != SEAL}, "altered content is vouched for"


def _tracked(folder: Path) -> Path:
    path = folder / "mlflow.json"
    TrackedRun.new(path, "a run", "rlsdk").store()
    return path


def _read_tracked(path: Path) -> None:
    found = TrackedRun.read(path)
    assert found is not None
    found.store()
    assert TrackedRun.read(path) == found


# --- packages --------------------------------------------------------------------------------------------------------

CELLS = (
    '[suite]\ndescription = "x"\n[[cells]]\nenv = "CartPole-v1"\nsteps = 40\n[cells.settings]\nlearning_rate = 1e-3\n'
)


def _read_cells(path: Path) -> None:
    """The cells of a damaged file are left out with a warning; the suite of others stays."""
    with on_path(path.parents[2]):
        suite = load_suite("mine")
    if not suite.cells:
        raise SettingsError("left out with a warning")


def _origin(folder: Path) -> Path:
    """A package that pip installed from a folder: pip's note and the folder's pyproject.toml."""
    Site(folder).add("bad")
    source = folder / "source"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[project]\nname = "acme-bad"\ndependencies = ["rlsdk", "numpy>=1"]\n'
        '[project.optional-dependencies]\nfast = ["rlsdk-kernels"]\n'
    )
    note = folder / "acme_bad-1.2.3.dist-info" / "direct_url.json"
    note.write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    return note


def _read_origin(path: Path) -> None:
    folder = next(above for above in path.parents if (above / "acme_good").exists())
    note, here = folder / "acme_bad-1.2.3.dist-info" / "direct_url.json", folder / "source"
    if path != note:  # the case is a copy in another folder
        note.write_text(json.dumps({"url": here.as_uri(), "dir_info": {"editable": True}}))
    with on_path(folder):
        command = pip_install("acme-bad")
    assert "\n" not in command


def _checkpoint(folder: Path) -> Path:
    return sorted((_run(folder) / "checkpoints").iterdir())[-1]


def _only_agent(folder: Path) -> Path:
    made = _agent(folder)
    (folder / "hub").mkdir()
    return Path(shutil.move(made, folder / "hub" / made.name))


def _whole_checkpoint(folder: Path) -> Path:
    """A checkpoint that holds its replay buffer."""
    agent = rlsdk.make("dqn", env="CartPole-v1", **DQN)
    agent.learn(40, CheckpointCallback(20, folder / "checkpoints"))
    return sorted((folder / "checkpoints").glob("*.rlsdk"))[-1]


def _read_whole_checkpoint(path: Path) -> None:
    rlsdk.load(path, env="CartPole-v1").learn(4, reset_num_timesteps=False)


FURTHER: dict[str, Kind] = {
    "checkpoint of a run": Kind("archive", _checkpoint, _read_checkpoint),
    "checkpoint that names parts": Kind("archive", _whole_checkpoint, _read_whole_checkpoint),
    "best.rlsdk of a run": Kind("archive", _in_run("best.rlsdk"), _read_best),
    "replay file": Kind("archive", _replay, _read_replay),
    "parameters": Kind("archive", _agent, _read_parameters),
    "policy of another agent": Kind("archive", _agent, _read_policy),
    "tensors": Kind("archive", _tensors, _read_tensors),
    "zoo agent": Kind("archive", _zoo_agent, _read_zoo_agent),
    "agent of a hub": Kind("archive", _only_agent, _read_hub),
    "card of a hub": Kind("bytes", _card, _read_card),
    "best.toml of a continued search": Kind(
        "bytes", lambda folder: _journal(folder).with_name("best.toml"), _read_best_settings, "optuna"
    ),
    "sweep.json": Kind("json", _sweep, _read_sweep),
    "sealed run.json": Kind("json", _sealed, _read_sealed),
    "key of seals": Kind("bytes", lambda folder: _key_in(_sealed(folder).parents[1]), _read_sealed),
    "tracked run": Kind("json", _tracked, _read_tracked),
    "cells of a suite": Kind("toml", _in_package("suites/mine.toml", CELLS), _read_cells),
    "RECORD": Kind("bytes", _in_package("acme_bad-1.2.3.dist-info/RECORD", ""), _read_package),
    "direct_url.json": Kind("json", _origin, _read_origin),
    "pyproject.toml": Kind(
        "toml", lambda folder: _origin(folder).parents[1] / "source" / "pyproject.toml", _read_origin
    ),
    "data set with digests": Kind("episodes", _data_set, _read_data_set),
    "content of stable-baselines3": Kind("sb3", _sb3, _read_sb3, "sb3_contrib"),
    "content of VecNormalize": Kind("moments", _vec_normalize, _read_moments, "stable_baselines3"),
    "content of main_data.hdf5": Kind("hdf5", _minari("main_data.hdf5"), _read_minari, "minari"),
}
ALL = {**KINDS, **FURTHER}
