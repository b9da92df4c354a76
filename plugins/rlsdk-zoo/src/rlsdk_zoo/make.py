"""`python -m rlsdk_zoo.make [NAME ...]`: train agents with their presets, evaluate them, write files and records.

`NAME` is ALGORITHM/ENVIRONMENT. Without a name, every agent of `recipes.toml` is made. Runs are stored in the folder `--runs`:
a finished run is not repeated, an interrupted one is continued. Agents are written to the folder `--out`, by default in this
package. Algorithms that learn from recorded episodes use episodes of another agent of this package, which `recipes.toml` names.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.evaluation import run_episodes
from rlsdk.registry import Preset, find, preset, preset_names
from rlsdk.settings import AgentConfig, data_settings, describe, structure
from rlsdk_lab import summarize
from rlsdk_zoo.installed import ZooAgent, ZooResult

HERE = Path(__file__).parent
AGENTS = HERE / "agents"
RECIPES = HERE / "recipes.toml"
EPISODES, EVALUATION_SEED = 100, 1_000_000
ZOO = "rlsdk-zoo"


@attrs.frozen
class Demonstrations:
    """Episodes to learn from: the agent of this package that plays them, their number, and whether its actions are
    deterministic."""

    agent: str
    episodes: int
    deterministic: bool = True

    @property
    def commands(self) -> list[list[str]]:
        """The arguments of `rlsdk` that record the episodes to the data set `demo` in the current folder."""
        record = ["record-episodes", "expert.rlsdk", "--episodes", str(self.episodes), "--out", "demo"]
        get = ["zoo", "get", f"{ZOO}:{self.agent}", "--out", "expert.rlsdk"]
        return [get, [*record, *(["--deterministic"] if self.deterministic else [])]]


@attrs.frozen
class Recipe:
    """How to make an agent: a preset of `algorithm`, the environment, a seed, and episodes that are recorded first."""

    algorithm: str
    environment: str
    seed: int
    preset: Preset
    demonstrations: Demonstrations | None = None

    @property
    def command(self) -> list[str]:
        """The arguments of `rlsdk` that train the agent."""
        dataset = ["--dataset", "demo"] if self.demonstrations else []
        tuned = [] if self.preset.env == self.environment else ["--preset", self.preset.env]
        place = ["--env", self.environment, *tuned, "--seed", str(self.seed), "--eval-every", "0"]
        return ["run", self.algorithm, *dataset, *place]

    @property
    def line(self) -> str:
        """All commands that make the agent, as one line for a shell."""
        before = self.demonstrations.commands if self.demonstrations else []
        return " && ".join(" ".join(["rlsdk", *options]) for options in (*before, self.command))

    @property
    def folder(self) -> str:
        """The name of the run directory."""
        return f"{self.algorithm}-{self.environment.replace('/', '-')}"


def recipe(name: str, seed: int) -> Recipe:
    """Return the recipe of the agent `name`, ALGORITHM/ENVIRONMENT, with a seed. `recipes.toml` may name another preset.

    Raises:
        SettingsError: the algorithm has no preset for the environment. PluginError: the algorithm is not installed.
    """
    algorithm, _, environment = name.partition("/")
    tables = recipes()
    known = preset(algorithm, tables["presets"].get(name, environment))
    if known is None:
        names = ", ".join(preset_names(algorithm))
        raise SettingsError(f"{algorithm} has no preset for {environment!r}; it has presets for {names}")
    recorded = tables["demonstrations"].get(name)
    return Recipe(algorithm, environment, seed, known, Demonstrations(**recorded) if recorded else None)


def seeds() -> dict[str, int]:
    """The seeds of all agents of this package, as name -> seed."""
    return dict(recipes()["seeds"])


def recipes() -> dict[str, Any]:
    """The tables of `recipes.toml`."""
    return tomllib.loads(RECIPES.read_text(encoding="utf-8"))


def make(one: Recipe, runs: Path, out: Path, episodes: int = EPISODES) -> ZooAgent:
    """Train and evaluate one agent, and write its file and its record.

    Raises:
        SettingsError: the run directory has a run with other settings. RlsdkError: training failed.
    """
    run = _trained(one, runs)
    agent = rlsdk.load(run / "final.rlsdk")
    if (agent.spec.id, agent.seed) != (one.algorithm, one.seed) or not has_preset(agent.config, one.preset):
        raise SettingsError(f"{run} holds a run of other settings than the preset; remove it, and it is trained again")
    target = out / one.algorithm / f"{one.environment}.rlsdk"
    target.parent.mkdir(parents=True, exist_ok=True)
    agent.save(target, exclude=["training"])
    made = _described(one, json.loads((run / "run.json").read_text()), target, _evaluated(one, target, episodes))
    target.with_name(f"{target.stem}.toml").write_text(_toml(made), encoding="utf-8")
    return made


def has_preset(config: AgentConfig, tuned: Preset) -> bool:
    """Return whether `config` has the settings of a preset, and default values for all other settings.

    The policy, environment, seed, data sets and settings that do not affect what is learned may have any value.
    """
    free = {doc.name for doc in describe(type(config)) if doc.affects != "training"}
    free |= {"policy", "env", "seed", *data_settings(type(config))}
    own = {name: getattr(config, name) for name in free}
    # A preset has the values of a file; settings can be compared with them after the conversion only.
    return structure({**own, **tuned.settings}, type(config)) == config


def _trained(one: Recipe, runs: Path) -> Path:
    """Train the agent, unless an earlier call did. Returns the run directory of the finished run."""
    folder = runs / one.folder
    record = folder / "run.json"
    status = json.loads(record.read_text()).get("status") if record.is_file() else None
    if status == "finished":
        return folder
    recorded = one.demonstrations
    place = Path() if recorded is None else runs / f"{one.folder}-recorded"
    if recorded is not None and status is None:
        place.mkdir(parents=True, exist_ok=True)
        (place / "expert.rlsdk").unlink(missing_ok=True)
        get, recording = recorded.commands
        _run(one, get, place)
        _run(one, [*recording, "--overwrite"], place)
    options = one.command if status is None else ["run", one.algorithm, "--resume"]
    _run(one, [*options, "--out", str(folder.absolute())], place)
    return folder


def _run(one: Recipe, options: list[str], place: Path) -> None:
    line = [sys.executable, "-m", "rlsdk", *options]
    if code := subprocess.run(line, check=False, cwd=place).returncode:  # noqa: S603  # the command is built above
        raise RlsdkError(f"training {one.algorithm} on {one.environment} ended with code {code}; see above")


def _evaluated(one: Recipe, file: Path, episodes: int) -> ZooResult:
    """Evaluate the agent in the written file."""
    env = make_vec_env(one.environment)
    try:
        played = summarize(run_episodes(rlsdk.load(file), env, episodes, seed=EVALUATION_SEED).returns)
    finally:
        env.close()
    low, high = played.interval or (played.mean, played.mean)
    numbers = {"mean": played.mean, "std": played.std, "low": low, "high": high}
    rounded = {name: round(value, 3) for name, value in numbers.items()}
    return ZooResult(episodes=episodes, seed=EVALUATION_SEED, **rounded)


def _described(one: Recipe, run: dict[str, Any], file: Path, result: ZooResult) -> ZooAgent:
    with zipfile.ZipFile(file) as archive:
        weights = hashlib.sha256(archive.read("policy.safetensors")).hexdigest()
    data, plugin = file.read_bytes(), find(one.algorithm)
    versions = {name: version for name, version in run["system"].items() if name != "platform"}
    return ZooAgent(
        algorithm=one.algorithm,
        environment=one.environment,
        package=plugin.distribution,
        command=one.line,
        seed=one.seed,
        steps=run["env_steps"],
        seconds=round(run["seconds"], 1),
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        weights_sha256=weights,
        result=result,
        versions={**versions, plugin.distribution: plugin.version},
    )


def _toml(agent: ZooAgent) -> str:
    """Return the record of an agent as TOML."""
    values = attrs.asdict(agent, filter=lambda field, _: field.name not in ("zoo", "path"))
    tables = {name: values.pop(name) for name in ("result", "versions")}
    lines = [f"# python -m rlsdk_zoo.make {agent.name}", *_lines(values)]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(table: dict[str, object]) -> list[str]:
    """The lines `name = value` of a TOML table. Texts and numbers have the same syntax in JSON and TOML."""
    return [f"{name} = {json.dumps(value)}" for name, value in table.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the agents that the command line names. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m rlsdk_zoo.make", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("names", nargs="*", metavar="NAME", help="ALGORITHM/ENVIRONMENT (default: all of recipes.toml)")
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"), help="folder of the runs (default: runs/zoo)")
    parser.add_argument("--out", type=Path, default=AGENTS, help="folder of the agents (default: this package)")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="episodes of the evaluation (default: 100)")
    given = parser.parse_args(arguments)
    known = seeds()
    try:
        for one in [recipe(name, known.get(name, 0)) for name in given.names or known]:
            made = make(one, given.runs, given.out, given.episodes)
            print(f"{made.name}: {made.result}, {made.size / 1000:.0f} kB", flush=True)
    except RlsdkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
