"""The benchmark cases: algorithm, environment and settings, the same for all sides. Packages list them in `benchmarks.toml`."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers import translated
from benchmarks.trainers import Trainer
from rlsdk.settings import merge

ROOT = Path(__file__).parents[1]
FILE = "benchmarks.toml"
"""A file next to a package's pyproject.toml: `algorithm`, `peer` if there is one, further common fields, and the tables
[cases.NAME].

A table has fields of `Case`. A common field holds for every case. `settings` of both are merged.
"""
FOLDERS = ("plugins", "contrib_algos")


@dataclass(frozen=True)
class Case:
    """One comparison. `warmup` steps are not timed. In every round, `chunk` steps are timed."""

    name: str
    algorithm: str
    """The id of the plugin."""
    env: str
    peer: str = ""
    """The class of the peer with its library, as "stable_baselines3.PPO". Empty if no maintained library has the algorithm."""
    settings: dict[str, Any] = field(default_factory=dict)
    warmup: int = 1040
    chunk: int = 200
    policy: str = "MlpPolicy"
    n_envs: int = 1
    normalize: bool = False
    workers: int = 0
    """The number of processes that step environments. Cases with such processes are timed in wall-clock time."""
    aim: float = 0.0
    """The smallest ratio of rlsdk's speed to the peer's that is acceptable."""
    episodes: int = 0
    """How many episodes are recorded with random actions, for algorithms that need a data set."""
    offline: bool = False
    """Whether the algorithm learns from the data set alone. Its steps are then updates."""
    device: str = "cpu"
    """The torch device that trains."""

    def ours(self, seed: int) -> Trainer:
        """Make a trainer of rlsdk's agent, after the warm-up."""
        model = self.agent(seed)
        model.learn(self.warmup, threads=None)

        def learn(steps: int) -> object:
            return model.learn(steps, reset_num_timesteps=False, threads=None)

        return Trainer(learn, model.parts.algorithm, "update")

    def agent(self, seed: int) -> Any:
        """Make a new agent of rlsdk."""
        import rlsdk
        from rlsdk.environments import make_vec_env
        from rlsdk.registry import load

        context: dict[str, Any] = {"seed": seed, "device": self.device}
        if self.normalize:
            context["normalize"] = True
        if self.episodes:
            context["dataset"] = recorded(self.env, self.episodes)
        if self.offline:
            return rlsdk.make(self.algorithm, env=None, policy=self.policy, **context, **self.settings)
        count = max(self.n_envs, load(self.algorithm).default_envs)  # the plugin's default
        kind = "async" if self.workers else "sync"
        env = make_vec_env(self.source(), count, vectorization=kind, workers=self.workers or None)
        return rlsdk.make(self.algorithm, env=env, policy=self.policy, **context, **self.settings)

    def theirs(self, seed: int) -> Trainer:
        """Make a trainer of the peer's agent, after the warm-up."""
        return self._peer(self.peer_class(), seed)

    def peer_class(self) -> Any:
        """Import the class of the peer."""
        library, _, name = self.peer.rpartition(".")
        return getattr(import_module(library), name)

    def sbx(self, seed: int) -> Trainer:
        """Make a trainer of the agent of SBX (JAX), after the warm-up."""
        return self._peer(self.sbx_class(), seed)

    def sbx_class(self) -> Any:
        """The class of SBX with the same name as the peer's; None if there is none or SBX is not installed."""
        if not self.peer:
            return None
        try:
            return getattr(import_module("sbx"), self.peer.rpartition(".")[2], None)
        except ModuleNotFoundError:
            return None

    def _peer(self, kind: Any, seed: int) -> Trainer:
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import VecNormalize

        env: Any = make_vec_env(self.source(), self.n_envs, seed=seed)
        env = VecNormalize(env) if self.normalize else env
        library = kind.__module__.partition(".")[0]
        settings = translated(self.settings, env.action_space, library)
        model = kind(self.policy, env, seed=seed, device=self.device, **settings)
        extra = {"async_eval": self._players(model)} if self.workers else {}
        model.learn(self.warmup, **extra)
        return Trainer(lambda steps: model.learn(steps, reset_num_timesteps=False, **extra), model, "train")

    def _players(self, model: Any) -> Any:
        from sb3_contrib.common.vec_env import AsyncEval
        from stable_baselines3.common.env_util import make_vec_env

        makers: list[Any] = [partial(make_vec_env, self.source(), seed=i) for i in range(self.workers)]
        players: Any = AsyncEval(makers, model.policy)
        players.seed(0)
        players.close = lambda: None  # the peer ends them after every `learn`; starting them again is not to be timed
        return players

    def source(self) -> Any:
        """The id of the environment, or a function that makes it."""
        from gymnasium.spaces import Discrete

        from rlsdk_envs import toy

        if self.env == "images":
            return lambda: toy.FakeImageEnv(84, 4, action_space=Discrete(6))
        if self.env == "drawn frames":
            from benchmarks.drawn_frames import DrawnFrames

            return DrawnFrames
        if not self.env.startswith("toy:"):
            return self.env

        name, *arguments = self.env.removeprefix("toy:").split(",")
        return lambda: getattr(toy, name)(*map(int, arguments))


@cache
def recorded(env: str, episodes: int) -> str:
    """The path of a data set of random actions, recorded once per process."""
    from rlsdk_interchange import record_episodes

    folder = tempfile.mkdtemp(prefix="rlsdk-benchmarks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(record_episodes("random", env, episodes, Path(folder) / "random", seed=0))


def files() -> list[Path]:
    """The files `benchmarks.toml` of all packages of this repository, in a fixed order."""
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).glob(f"*/{FILE}"))]


def read(path: Path) -> Iterator[Case]:
    """Read the cases of one package from its file."""
    shared = tomllib.loads(path.read_text(encoding="utf-8"))
    for name, own in shared.pop("cases").items():
        yield Case(**{"name": name, **merge(shared, own)})


CASES = {case.name: case for path in files() for case in read(path)}
