"""Load altered files in a separate process: `python -m tests.altered_files.child FIRST LAST SUBJECT...`.

It prints a line of JSON for every case that failed, and one with counts at the end. The last line of standard error
names the case that was running when the process ended.
"""

from __future__ import annotations

import collections
import faulthandler
import gc
import io
import json
import os
import resource
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import rlsdk
from rlsdk.environments.states.capture import Assigned
from rlsdk.errors import ArtifactError, PluginError, ResourceError, RlsdkError, SettingsError, UnsupportedSpaceError
from rlsdk.training import OffPolicyPlan, OnPolicyPlan
from tests.altered_files.alterations import alter
from tests.altered_files.subjects import SUBJECTS, Subject, whole
from tests.effort import limited

HANG = 60
MEGABYTES = 1024
"""How much the process may grow in a case. Altered settings may request networks and buffers larger than the file."""
REFUSALS = (ArtifactError, PluginError, ResourceError, SettingsError, UnsupportedSpaceError)
"""The errors that may refuse a file. PluginError: it names another algorithm. SettingsError: another version of the plugin
may have had its settings. ResourceError: its replay buffer is too large. UnsupportedSpaceError: the spaces do not fit."""
SEEN: list[str] = []
"""The forbidden events of the current case: files written or removed, processes started, unexpected imports."""
FORBIDDEN = (
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate", "os.system",
    "os.exec",
    "os.posix_spawn", "subprocess.Popen", "socket.connect", "shutil.", "ctypes.dlopen", "tempfile.",
)  # fmt: skip


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook (`sys.addaudithook`) that adds forbidden events to `SEEN`."""
    if event == "open" and isinstance(arguments[0], str) and not arguments[0].startswith(("/dev/", "/proc/")):
        if (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not arguments[0].endswith(".pyc"):
            SEEN.append(f"{event} {arguments[0]}")
    elif event.startswith(FORBIDDEN) and "__pycache__" not in str(arguments):
        SEEN.append(f"{event} {arguments!r}"[:300])
    elif event == "import" and ("evil" in arguments[0] or arguments[0].startswith("x.")):
        SEEN.append(f"{event} {arguments[0]}")


def construction(env: Any) -> dict[str, str]:
    """Return the spaces, types and attributes of environments that no agent file may change, as texts."""
    found = {}
    for number, environment in enumerate(env.environments):
        layers = []
        layer = environment
        while True:
            layers.append(layer)
            if layer is layer.unwrapped:
                break
            layer = layer.env
        assigned = Assigned(layers)
        for depth, layer in enumerate(layers):
            for name, value in vars(layer).items():
                if not assigned.is_state(layer, name, value):
                    found[f"{number}.{depth}.{name}"] = repr(value)[:200]
            found[f"{number}.{depth}"] = repr(
                (layer.observation_space, layer.action_space, layer.metadata, type(layer))
            )
            found[f"{number}.{depth}.names"] = repr([n for n in vars(layer) if callable(getattr(type(layer), n, None))])
    return found


def is_light(agent: Any) -> bool:
    """Whether training for a few steps takes little time; altered settings may make it long."""
    plan = agent.parts.plan
    if isinstance(plan, OffPolicyPlan):
        return plan.gradient_steps <= 4 and plan.batch_size <= 1024 and plan.train_every <= 64 and not plan.episodes
    if isinstance(plan, OnPolicyPlan):
        config = agent.config
        counts = [plan.n_steps, getattr(config, "n_epochs", 1), getattr(config, "n_critic_updates", 1)]
        counts += [getattr(config, name, 1) for name in ("cg_max_steps", "line_search_max_iter")]
        return max(counts) <= 64
    return bool(agent.config.n_delta <= 16 and agent.config.n_eval_episodes <= 4 and agent.cursor is None)


def one(subject: Subject, data: bytes, env: Any) -> str:
    """Load the file, predict and train; return the outcome, such as "loaded" or "refused"."""
    try:
        with limited(what="loading"):
            agent = rlsdk.load(io.BytesIO(data), env=env, force_reset=False)
    except REFUSALS as error:
        return "refused" if isinstance(error, ArtifactError) else type(error).__name__
    try:
        masks = "none" if agent.masks.required else None
        agent.predict(env.environments[0].observation_space.sample(), action_masks=masks)
        if not is_light(agent):
            return "heavy"
        agent.learn(8, reset_num_timesteps=False)
    except RlsdkError as error:
        return f"then {type(error).__name__}"
    return "loaded"


def cases(names: list[str], first: int, last: int) -> Iterator[tuple[str, int]]:
    for name in names:
        for seed in range(first, last):
            yield name, seed


def main() -> None:
    first, last, *names = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    files = {name: whole(name) for name in names}
    envs: dict[str, Any] = {}
    for name in names:  # modules that are imported at first use are imported before the audit hook is set
        assert one(SUBJECTS[name], files[name], SUBJECTS[name].env()) == "loaded", name
    sys.addaudithook(watch)
    counts: collections.Counter[str] = collections.Counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    globals_before = torch.get_rng_state(), os.getcwd(), dict(os.environ)
    for name, seed in cases(names, int(first), int(last)):
        subject = SUBJECTS[name]
        env = envs.get(name) or subject.env()
        envs = {name: env} if subject.shared else {}
        data, before = alter(files[name], f"{name} {seed}"), construction(env)
        print(f"running {name} {seed}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(HANG, exit=True)
        SEEN.clear()
        problem = ""
        try:
            answer = one(subject, data, env)
        except Exception as error:
            place = error.__traceback__
            while place is not None and place.tb_next is not None:
                place = place.tb_next
            where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""
            answer, problem = "raw", f"{type(error).__name__} at {where}: {error}"
        faulthandler.cancel_dump_traceback_later()
        now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if now - peak > MEGABYTES * 1024:
            problem = problem or f"memory grew by {(now - peak) // 1024} MB"
        peak = max(peak, now)
        if SEEN:
            problem = problem or f"did {SEEN[:3]}"
        if (after := construction(env)) != before:
            changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
            problem = problem or f"changed {changed}"
        counts[answer] += 1
        if problem:
            counts["problems"] += 1
            print(json.dumps({"subject": name, "seed": seed, "problem": problem[:600]}), flush=True)
        if seed % 200 == 0:
            gc.collect()
    assert torch.equal(globals_before[0], torch.get_rng_state())
    assert globals_before[1:] == (os.getcwd(), dict(os.environ))
    print(json.dumps({"counts": counts}), flush=True)


if __name__ == "__main__":
    main()
