"""Read altered files of other kinds than agents: `python -m tests.altered_files.others FIRST LAST KIND...`.

The output is that of `tests.altered_files.child`.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

from rlsdk.errors import RlsdkError
from tests.altered_files.alterations import spoiled
from tests.altered_files.further_kinds import ALL
from tests.altered_files.kinds import Kind, _require_line
from tests.effort import limited

HANG, MEGABYTES = 60, 512
SEEN: list[str] = []
"""The forbidden events of the current case: files written elsewhere, unexpected imports."""
ALLOWED = ["/dev/", "/proc/"]


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook (`sys.addaudithook`) that adds forbidden events to `SEEN`."""
    if event == "open" and isinstance(arguments[0], str) and not arguments[0].endswith(".pyc"):
        writes = (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and not os.path.abspath(arguments[0]).startswith(tuple(ALLOWED)):
            SEEN.append(f"{event} {arguments[0]}")
    elif event in ("os.system", "os.exec", "os.posix_spawn", "socket.connect", "ctypes.dlopen"):
        SEEN.append(f"{event} {arguments!r}"[:300])
    elif event == "import" and "evil" in arguments[0]:
        SEEN.append(f"{event} {arguments[0]}")


def read(kind: Kind, path: Path) -> str:
    """Read the file as the product does; return "loaded" or "refused"."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), limited(60.0):
            kind.read(path)
    except RlsdkError as error:
        _require_line(error)
        return "refused"
    return "loaded"


def where(error: BaseException) -> str:
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "/rlsdk" in f.filename and "tests" not in f.filename
    ]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[::-1][:3])


def one(kind: Kind, place: Path, inside: Path, content: bytes | None) -> tuple[str, str]:
    """Read a copy of the files in `place`, of which `inside` has other content; return the outcome and the problem."""
    case = place.with_name("case")
    shutil.copytree(place, case)
    if content is not None:
        (case / inside).write_bytes(content)
    faulthandler.dump_traceback_later(HANG, exit=True)
    SEEN.clear()
    peak, problem = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, ""
    try:
        answer = read(kind, case / inside)
    except Exception as error:
        answer, problem = "raw", f"{type(error).__name__} at {where(error)}: {error}"
    faulthandler.cancel_dump_traceback_later()
    if (grown := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) > MEGABYTES * 1024:
        problem = problem or f"memory grew by {grown // 1024} MB"
    shutil.rmtree(case)
    return answer, problem or (f"did {SEEN[:3]}" if SEEN else "")


def main() -> None:
    first, last, *names = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        ALLOWED.append(scratch)
        os.chdir(scratch)
        wholes = {name: Path(scratch, f"whole-{number}") for number, name in enumerate(names)}
        places = {}
        for (
            name,
            whole,
        ) in wholes.items():  # this also imports what is imported at first use, before the audit hook is set
            whole.mkdir()
            with contextlib.redirect_stdout(io.StringIO()):
                places[name] = ALL[name].make(whole).relative_to(whole)
            answer = one(ALL[name], whole, places[name], None)
            assert answer == ("loaded", ""), (name, answer)
        sys.addaudithook(watch)
        for name, whole in wholes.items():
            data, began = (whole / places[name]).read_bytes(), time.perf_counter()
            for seed in range(int(first), int(last)):
                print(f"running {name} {seed}", file=sys.stderr, flush=True)
                content = spoiled(data, ALL[name].form, random.Random(f"{name} {seed}"))
                answer, problem = one(ALL[name], whole, places[name], content)
                counts.update([answer, f"{name}: {answer}", *["problems"] * bool(problem)])
                if problem:
                    print(json.dumps({"subject": name, "seed": seed, "problem": problem[:600]}), flush=True)
            print(f"{name}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
        os.chdir("/")
    print(json.dumps({"counts": counts}), flush=True)


if __name__ == "__main__":
    main()
