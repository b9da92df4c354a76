"""A process that is killed while it saves leaves the old file or the new one, at every point."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk.callbacks import CheckpointCallback
from rlsdk.storage import archive

FORK = multiprocessing.get_context("fork")


def agent(fill: float) -> Any:
    """A small agent whose weights all equal `fill`."""
    settings: dict[str, Any] = {"buffer_size": 40, "policy_kwargs": {"net_arch": [4]}}
    made = rlsdk.make("tqc", env="Pendulum-v1", seed=0, **settings)
    with torch.no_grad():
        for parameter in made.policy.parameters():
            parameter.fill_(fill)
    return made


def content(path: Path) -> float:
    """The value of all weights in the file; raises an error if the file is incomplete or mixes two files."""
    weights = {float(w) for p in rlsdk.load(path).policy.parameters() for w in p.detach().flatten()}
    assert len(weights) == 1, "a mixture of two files"
    return weights.pop()


class Dying:
    """Kills this process after `fatal` further file operations. It kills a write when half of the bytes are written."""

    def __init__(self, fatal: int) -> None:
        self.left = fatal

    def __call__(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.left == 0:
                if operation.__name__ == "write":
                    operation(bytes(args[0])[: len(args[0]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            return operation(*args, **kwargs)

        return counted


def save_and_die(made: Any, path: Path, fatal: int) -> None:
    """Save, and kill this process after `fatal` file operations. Call it in a process of its own."""
    dying, create = Dying(fatal), tempfile.NamedTemporaryFile

    def watched(*args: Any, **kwargs: Any) -> Any:
        stream = create(*args, **kwargs, buffering=0)
        for name in ("write", "flush", "seek"):
            setattr(stream, name, dying(getattr(stream.file, name)))
        return stream

    archive.tempfile.NamedTemporaryFile = dying(watched)  # type: ignore[assignment]
    for name in ("fsync", "replace"):
        setattr(os, name, dying(getattr(os, name)))
    Path.chmod = dying(Path.chmod)  # type: ignore[method-assign]
    Path.unlink = dying(Path.unlink)  # type: ignore[method-assign]
    made.save(path)


def exit_code(target: Callable[..., None], *args: Any) -> int | None:
    process = FORK.Process(target=target, args=args)
    process.start()
    process.join(60)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


@pytest.mark.full
def test_killed_at_each_operation(tmp_path: Path) -> None:
    path, new = tmp_path / "agent.rlsdk", agent(2.0)
    seen = []
    for fatal in range(1000):
        agent(1.0).save(path)
        code = exit_code(save_and_die, new, path, fatal)
        seen.append(content(path))
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert fatal > 20, "hardly anything was interrupted"
    assert seen == sorted(seen), "once the new file is there, it stays"
    assert seen[0] == 1.0
    assert seen[-1] == 2.0
    new.save(path)
    assert content(path) == 2.0, "files that dead processes left behind do no harm"


def save_for_ever(path: Path) -> None:
    models = [agent(1.0), agent(2.0)]
    while True:
        for made in models:
            made.save(path)


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    path, draw, found = tmp_path / "agent.rlsdk", random.Random(0), set()
    agent(1.0).save(path)
    for _ in range(150):
        process = FORK.Process(target=save_for_ever, args=(path,))
        process.start()
        before = path.stat().st_ino
        while path.stat().st_ino == before:  # on a busy machine it takes long until it saves
            time.sleep(0.001)
        time.sleep(draw.random() * 0.1)
        process.kill()
        process.join()
        found.add(content(path))
    assert found == {1.0, 2.0}


def test_checkpoints_keep_the_last_ones(tmp_path: Path) -> None:
    made = rlsdk.make("trpo", env="CartPole-v1", seed=0, n_steps=32)
    made.learn(32 * 6, CheckpointCallback(32, tmp_path, keep=3))
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["step_000000128.rlsdk", "step_000000160.rlsdk", "step_000000192.rlsdk"]
