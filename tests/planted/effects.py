"""python -m tests.planted.effects    shows that each bug of `tests.planted.authors` changes what an agent does

A bug is planted into a copy of its package. Short trainings there are compared with those of the unchanged package: weights,
counts, saved states, metrics and predictions. The contract kit is not used.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlsdk
from rlsdk.environments import to_space
from rlsdk.registry.discovery import plugins
from rlsdk_datasets import RecordedEpisode, write_episodes
from rlsdk_testing.scaffold import new_package
from tests.example_plugins import THIRD_PARTY, install
from tests.planted.authors import WRITTEN
from tests.planted.bug import Bug

SCAFFOLDS: dict[str, tuple[str, str | None]] = {
    "planted-continuous": ("off-policy", "continuous"),
    "planted-off-policy": ("off-policy", "discrete"),
    "planted-offline": ("offline", None),
    "planted-on-policy": ("on-policy", None),
    "planted-own-loop": ("own-loop", None),
    "planted-population": ("population", None),
}
"""Id of an unchanged package of `rlsdk new` -> its family and its kind of actions."""
EXAMPLES = {"ppo-lagrangian": "constrained", "rnd": "random-network-distillation"}
"""Id of an example -> its folder, where the two differ."""
LIMIT = 300
"""The time limit for one bug, in seconds."""
Seen = dict[str, object]
"""What was observed: name -> a number or a digest."""


class Walk(gymnasium.Env[Any, Any]):
    """A walk with rewards and costs. An episode terminates at random with probability `ends`, or is truncated at `limit`."""

    def __init__(
        self, box: bool = False, start: int = 0, limit: int = 13, ends: float = 0.08, scale: float = 1.0
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(-5.0, 5.0, (3,), np.float32)
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(3, start=start)
        if box:
            self.action_space = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)
        self.limit, self.ends, self.scale = limit, ends, scale
        self.place, self.time = np.zeros(3), 0

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-1.0, 1.0, 3), 0
        return self.place.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        space = self.action_space
        push = float(action) - space.start - 1.0 if isinstance(space, gymnasium.spaces.Discrete) else float(sum(action))
        noise = self.np_random.normal(0.0, 0.1, 3)
        self.place = np.clip(0.9 * self.place + 0.3 * push * np.array([1.0, -0.5, 0.2]) + noise, -5.0, 5.0)
        self.time += 1
        reward = self.scale * float(1.5 * self.place[0] - 0.4 * push + 0.3)
        ended = bool(self.np_random.random() < self.ends)
        info = {"cost": float(self.place[1] > 0.0)}
        return self.place.astype(np.float32), reward, ended, self.time >= self.limit, info


class MaskedWalk(Walk):
    """Forbids one of the three actions at each step."""

    def action_masks(self) -> Any:
        return np.arange(3) != self.time % 3


@dataclass(frozen=True)
class Trial:
    """One training: the environments or the recorded data, the settings, the length, and the settings assigned afterwards."""

    name: str
    settings: Mapping[str, Any]
    steps: int = 200
    walk: Mapping[str, Any] = field(default_factory=dict)
    envs: int = 1
    masked: bool = False
    recorded: bool = False
    later: Mapping[str, Any] = field(default_factory=dict)
    stop: int | None = None
    """The number of callback calls after which the training is stopped."""

    def env(self) -> Any:
        """The environments. Several have an extra row for each reset, which is a filler in a rollout."""
        make = partial(MaskedWalk if self.masked else Walk, **self.walk)
        return SyncVectorEnv([make] * self.envs, autoreset_mode=AutoresetMode.NEXT_STEP) if self.envs > 1 else make()

    def data(self, folder: Path) -> Path:
        """Record episodes of random actions."""
        env, made, dice = Walk(**self.walk), [], np.random.default_rng(0)
        for seed in range(12):
            observation, _ = env.reset(seed=seed)
            observations, actions, rewards, ended, cut = [observation], [], [], False, False
            while not (ended or cut):
                discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
                start = env.action_space.start if isinstance(env.action_space, gymnasium.spaces.Discrete) else 0
                actions.append(dice.integers(3) + start if discrete else dice.uniform(-2, 2, 2).astype(np.float32))
                observation, reward, ended, cut, _ = env.step(actions[-1])
                observations.append(observation)
                rewards.append(reward)
            rows = torch.tensor(np.array(observations)), torch.tensor(np.array(actions)), torch.tensor(rewards)
            made.append(RecordedEpisode(*rows, terminated=ended, seed=seed))
        return write_episodes(folder / "data", made, to_space(env.observation_space), to_space(env.action_space))


FALLING = {"kind": "linear", "start": 3.1e-3, "end": 1e-4}
BOX, SECOND = {"box": True}, {"start": 2}
ON = {"n_steps": 32, "batch_size": 16, "n_epochs": 3, "learning_rate": FALLING, "ent_coef": 0.02, "max_grad_norm": 0.2}
ON |= {"gamma": 0.9, "gae_lambda": 0.8}
OFF = {"learning_starts": 30, "batch_size": 16, "buffer_size": 120, "learning_rate": FALLING, "gamma": 0.9, "tau": 0.1}
DECAY = {"exploration_fraction": 0.3}
DYNA = OFF | DECAY | {"planning_steps": 2, "target_update_interval": 20, "buffer_size": 70}
LOOP = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "learning_rate": FALLING, "episodes_per_round": 2.0}
REPLAY = {"n_steps": 8, "batch_size": 4, "buffer_size": 200, "replay_ratio": 2, "clip_rho": 1.1, "clip_c": 0.7}
CURIOUS = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "intrinsic_gamma": 0.8, "gamma": 0.9}
SAFE = {"n_steps": 32, "batch_size": 16, "n_epochs": 2, "cost_limit": 3.0, "multiplier_rate": 0.2}
SAFE |= {"initial_multiplier": 0.3}
RECORDED = {"learning_rate": FALLING, "batch_size": 16, "gamma": 0.8, "tau": 0.2, "conservatism": 0.7}
RECORDED |= {"max_grad_norm": 0.3}
TEACHER = {"learning_rate": 5e-3, "batch_size": 16}
SEARCH, ELITE = {"candidates": 12, "elites": 4}, {"first_std": 0.5, "extra_std": 0.3}
DECAYED = {"policy_kwargs": {"optimizer_class": "sgd", "optimizer_kwargs": {"weight_decay": 0.1}}}

TRIALS: dict[str, tuple[Trial, ...]] = {
    "planted-on-policy": (
        Trial("one", ON, later={"n_epochs": 1, "ent_coef": 0.5}),
        Trial("fillers", ON, 300, envs=3),
        Trial("start", {**ON, "normalize_advantage": False}, 150, SECOND),
        Trial("box", {**ON, "vf_coef": 0.1, **DECAYED}, 200, BOX, envs=2),
        Trial("sde", {**ON, "use_sde": True, "sde_sample_freq": 4}, 200, BOX),
        Trial("default", {"n_steps": 32}, 100),
    ),
    "planted-own-loop": (
        Trial("one", LOOP, 300, later={"episodes_per_round": 5.0}),
        Trial("fillers", {**LOOP, "episodes_per_round": 2.5}, 400, envs=3, later={"n_steps": 40}),
        Trial("half", {**LOOP, "n_steps": 4, "episodes_per_round": 0.5}, 100),
        Trial("stop", LOOP, 150, stop=45),
        Trial("long", {**LOOP, "n_steps": 4, "episodes_per_round": 500.0}, 3000),
        Trial("exact", {"n_steps": 16, "episodes_per_round": 0.1, "batch_size": 8}, 160),
    ),
    "planted-off-policy": (
        Trial("one", OFF | DECAY, 260, later={"learning_rate": 1e-2, "exploration_final_eps": 0.5}),
        Trial("three", {**OFF, **DECAY, "max_grad_norm": 0.05, "learning_starts": 40}, 260, envs=3),
        Trial("prioritized", {**OFF, **DECAY, "replay_buffer_class": "prioritized"}, 200, SECOND),
        Trial("zero", {**OFF, "exploration_fraction": 0.0}, 120),
        Trial("steps", {**OFF, **DECAY, "n_steps": 3, "learning_starts": 0}, 150, {"scale": 6.0}),
    ),
    "planted-continuous": (
        Trial("one", OFF, 150, BOX, later={"gamma": 0.5}),
        Trial("two", {**OFF, "ent_coef": 0.3, "learning_starts": 40}, 150, BOX, envs=2),
        Trial(
            "prioritized",
            {**OFF, "replay_buffer_class": "prioritized", "action_bounds": [-0.5, 0.5]},
            130,
            {"box": True, "scale": 4.0},
        ),
        Trial("sde", {**OFF, "use_sde": True, "use_sde_at_warmup": True}, 100, BOX),
    ),
    "planted-offline": (
        Trial("one", RECORDED, recorded=True, later={"conservatism": 0.1, "learning_rate": 1e-2}),
        Trial("start", RECORDED, 100, SECOND, recorded=True),
        Trial("normalize", {**RECORDED, "normalize": True}, 100, recorded=True),
    ),
    "planted-population": (
        Trial("one", {**SEARCH, "spread": 0.3}, 1500, later={"spread": 1.0, "elites": 2}),
        Trial("box", {**SEARCH, "n_eval_episodes": 2, "policy_kwargs": {"net_arch": [8]}}, 1500, BOX),
        Trial("bad", {**SEARCH, "elites": 3}, 1200, {"scale": -2.0}),
    ),
    "cross-entropy": (
        Trial("one", SEARCH | ELITE, 1500),
        Trial("box", {**SEARCH, **ELITE, "n_eval_episodes": 2}, 1500, BOX),
        Trial("bad", {**SEARCH, **ELITE, "elites": 3}, 1200, {"scale": -2.0}),
    ),
    "cloning": (
        Trial("one", {**TEACHER, "held_out": 0.4}, 100, recorded=True),
        Trial("start", TEACHER, 100, SECOND, recorded=True),
        Trial("box", {**TEACHER, "held_out": 0.2, "normalize": True}, 100, BOX, recorded=True),
    ),
    "reinforce": (
        Trial("one", {"n_steps": 48, "gamma": 0.8}),
        Trial("fillers", {"n_steps": 48, "gamma": 0.8}, 450, envs=3),
        Trial("start", {"n_steps": 48, "learning_rate": 1e-2}, 100, SECOND),
        Trial("masks", {"n_steps": 48}, 100, masked=True),
    ),
    "rnd": (
        Trial("one", CURIOUS, 160),
        Trial("fillers", CURIOUS, 300, envs=3),
        Trial("start", {**CURIOUS, "max_grad_norm": 0.05}, 100, SECOND),
        Trial("masks", CURIOUS, 100, masked=True),
    ),
    "ppo-lagrangian": (
        Trial("one", SAFE, 200, BOX),
        Trial("three", {**SAFE, "cost_limit": 30.0}, 300, envs=3),
        Trial("fillers", {**SAFE, "cost_limit": 1.0}, 300, BOX, envs=2),
        Trial("long", SAFE, 160, {"limit": 50, "ends": 0.0}),
    ),
    "v-trace": (
        Trial("one", REPLAY, 160),
        Trial("fillers", {**REPLAY, "normalize": True, "max_grad_norm": 0.05}, 300, envs=3),
        Trial("start", REPLAY, 100, SECOND),
        Trial("masks", REPLAY, 100, masked=True),
        Trial("stop", REPLAY, 100, stop=45),
    ),
    "dyna": (
        Trial("one", DYNA),
        Trial("fillers", {**DYNA, "normalize": True}, 240, envs=3),
        Trial("start", {**DYNA, "batch_size": 8}, 120, SECOND),
        Trial("ends", {**DYNA, "buffer_size": 500}, 200, {"limit": 4, "ends": 0.3}),
    ),
}


def digest(*values: object) -> str:
    """A digest of nested tensors, arrays and numbers."""
    content = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            content.update(f"{value.dtype}{tuple(value.shape)}".encode() + value.detach().double().numpy().tobytes())
        elif isinstance(value, Mapping):
            content.update("".join(f"{name} {digest(value[name])};" for name in sorted(value, key=str)).encode())
        elif isinstance(value, list | tuple):
            content.update(digest(*value).encode())
        else:
            content.update(repr(value).encode())
    return content.hexdigest()[:12]


def state_of(agent: Any) -> Seen:
    """The counts, and digests of the states that a file stores."""
    seen: Seen = {"steps": agent.num_timesteps, "updates": agent._n_updates}
    for name in ("policy", "algorithm", "plan", "buffer"):
        read = getattr(getattr(agent.parts, name), "state_dict", None)
        if read is not None:
            seen[name] = digest(dict(read()))
    return seen


def recording(agent: Any) -> list[str]:
    """A list to which each update of the agent adds a digest of its metrics."""
    found, update = list[str](), agent.parts.algorithm.update

    def recorded(*args: Any, **kwargs: Any) -> Any:
        metrics = update(*args, **kwargs)
        found.append(digest(dict(metrics)))
        return metrics

    agent.parts.algorithm.update = recorded
    return found


def observed(algorithm: str, trial: Trial, folder: Path) -> Iterator[tuple[str, object]]:
    """Yield what is seen of an agent: new, trained, in predictions, loaded, resumed, and after settings were assigned."""
    torch.manual_seed(11)
    where: dict[str, Any] = {"dataset": trial.data(folder)} if trial.recorded else {}
    make_env = (lambda: None) if trial.recorded else trial.env
    agent = rlsdk.make(algorithm, env=make_env(), seed=1, **where, **trial.settings)
    yield "new", state_of(agent)
    metrics, calls, reports = recording(agent), iter(range(trial.stop or sys.maxsize)), list[object]()

    def callback(_locals: object, _globals: object) -> bool:
        return next(calls, None) is not None

    agent.learn(trial.steps, callback=None if trial.recorded else callback)
    yield "trained", state_of(agent)
    reports.extend((episode["r"], episode["l"]) for episode in getattr(agent, "ep_info_buffer", None) or ())
    yield "metrics", digest(metrics, reports)
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 3)).astype(np.float32)
    for deterministic in (True, True, False):
        played = [agent.predict(row, deterministic=deterministic)[0].tolist() for row in rows]
        yield f"predictions, {deterministic = }", digest(played)
    if trial.stop is None:
        agent.save(folder / "agent")
        loaded = rlsdk.load(folder / "agent", env=make_env(), **where)
        yield "loaded", state_of(loaded)
        metrics = recording(loaded)
        yield "resumed", state_of(loaded.learn(trial.steps // 2, reset_num_timesteps=False))
        yield "metrics after loading", digest(metrics)
    if trial.later:
        for name, value in trial.later.items():
            setattr(agent, name, value)
        yield "assigned", state_of(agent)
        yield "trained after assigning", state_of(agent.learn(trial.steps // 2, reset_num_timesteps=False))


def plugin_with(algorithm: str, bug: Bug | None, folder: Path) -> None:
    """Put a copy of the package of `algorithm`, with the bug, in `folder`, which is on sys.path."""
    if algorithm in SCAFFOLDS:
        family, actions = SCAFFOLDS[algorithm]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is an algorithm of this name in the repository's tests
            root = new_package(algorithm, family, folder / "new", actions=actions)
    else:
        root = THIRD_PARTY / EXAMPLES.get(algorithm, algorithm)
    install(root / "pyproject.toml", folder)
    if bug is not None:
        (package,) = (root / "src").iterdir()
        path = folder / package.name / Path(bug.file.removesuffix(".tmpl")).name
        path.write_text(bug.planted_in(path.read_text()))
    plugins(rescan=True)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {LIMIT} s")


def seen_of(algorithm: str, bug: Bug | None = None, plain: Seen | None = None) -> Seen:
    """What is observed of the algorithm, with the bug until it differs from `plain`. Runs in a process of its own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)  # a bug may make a training endless
    seen: Seen = {}
    folder = Path(tempfile.mkdtemp(prefix="effects-"))
    try:
        (folder / "new").mkdir()
        sys.path.insert(0, str(folder))
        plugin_with(algorithm, bug, folder)
        for trial in TRIALS[algorithm]:
            place = folder / trial.name
            place.mkdir()
            try:
                for name, value in observed(algorithm, trial, place):
                    seen[f"{trial.name}: {name}"] = value
                    if plain is not None and plain.get(f"{trial.name}: {name}") != value:
                        return seen  # one difference is enough
            except Exception as error:
                seen[f"{trial.name}: {type(error).__name__}"] = " ".join(str(error).split())[:100]
    finally:
        shutil.rmtree(folder)
    return seen


def difference(plain: Seen, seen: Seen) -> str | None:
    """The first observation that differs from the one without a bug; None if there is none."""
    return next((name for name, value in seen.items() if plain.get(name) != value), None)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.effects", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--only", nargs="+", default=[], help="ids, ideas or algorithms")
    options = parser.parse_args()
    bugs = [
        each.bug
        for each in WRITTEN
        if not options.only or {each.bug.id, each.idea, each.bug.algorithm} & set(options.only)
    ]
    without = list[str]()
    # one process for each task, because a process imports a package only once
    with get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        names = sorted({bug.algorithm for bug in bugs})
        plain = dict(zip(names, pool.starmap(seen_of, [(name,) for name in names], chunksize=1), strict=True))
        for name, seen in plain.items():
            failed = [what for what in seen if what.endswith("Error")]
            print(f"{name:<60} {len(seen)} observations without a bug; errors: {failed}", flush=True)
        tasks = [(bug.algorithm, bug, plain[bug.algorithm]) for bug in bugs]
        for bug, seen in zip(bugs, pool.imap(_seen_of, tasks, chunksize=1), strict=True):
            found = difference(plain[bug.algorithm], seen)
            without += [] if found else [bug.id]
            print(f"{bug.id:<60} {found or 'NO DIFFERENCE'}", flush=True)
    sys.exit(f"without a difference: {without}" if without else 0)


def _seen_of(task: tuple[str, Bug, Seen]) -> Seen:
    return seen_of(*task)


if __name__ == "__main__":
    main()
