"""Trained agents in installed packages: `rlsdk_zoo.load("tqc/Pendulum-v1")`.

A package names a folder in its manifest, `zoo = "agents"`. In it, `ALGORITHM/ENVIRONMENT.rlsdk` is an agent, and the `.toml` of
the same name is its record, a `ZooAgent`. Finding, checking and reading them runs no code of the package.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rlsdk.errors import ArtifactError, PluginError, SettingsError, one_line, shown
from rlsdk.registry import Plugin, plugins
from rlsdk.runtime import pip_install
from rlsdk.settings import load_settings

if TYPE_CHECKING:
    from rlsdk.agent import Agent

LIMIT = 256 * 1024 * 1024
"""Largest size of an agent file in bytes."""
PACKAGE = "rlsdk-zoo"


@attrs.frozen(kw_only=True)
class ZooResult:
    """The result of an agent: returns of deterministic episodes with other seeds than in training."""

    episodes: int
    seed: int
    """The seed of the environments in these episodes."""
    mean: float
    std: float
    """Standard deviation over episodes."""
    low: float
    high: float
    """`low` and `high`: 95 % bootstrap interval of the mean over episodes."""

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f} .. {self.high:.1f}]"


def _digest(instance: object, field: attrs.Attribute[str], value: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ArtifactError(f"{field.name} is not a SHA-256")


def _line(instance: object, field: attrs.Attribute[str], value: str) -> None:
    if not value.isprintable() or not 0 < len(value) <= 1000:
        raise ArtifactError(f"{field.name} is not one line of text")


@attrs.frozen(kw_only=True)
class ZooAgent:
    """The record of a trained agent in an installed package: its origin and its result."""

    algorithm: str = attrs.field(validator=_line)
    environment: str = attrs.field(validator=_line)
    package: str = attrs.field(validator=_line)
    """The package with the algorithm, as `pip install` accepts it."""
    command: str = attrs.field(validator=_line)
    """The command that trains the agent."""
    seed: int
    steps: int
    """Environment steps of the training; updates, if it learned from a data set alone."""
    seconds: float
    """Duration of the training."""
    size: int
    """Size of the agent file in bytes."""
    sha256: str = attrs.field(validator=_digest)
    """SHA-256 of the agent file."""
    weights_sha256: str = attrs.field(validator=_digest)
    """SHA-256 of the weights alone. `command` reproduces it with the same versions on the same kind of processor."""
    result: ZooResult
    versions: dict[str, str]
    """Versions of Python and the packages in the training."""
    zoo: str = ""
    """The distribution that contains the agent."""
    path: Path = attrs.field(factory=Path)
    """The agent file. `read` returns its checked content."""

    @property
    def name(self) -> str:
        """`algorithm/environment`."""
        return f"{self.algorithm}/{self.environment}"

    @property
    def qualified_name(self) -> str:
        """`zoo:algorithm/environment`, which is unique if several zoos have the same name."""
        return f"{self.zoo}:{self.name}"

    def read(self) -> bytes:
        """Return the content of the agent file, after a check of its SHA-256.

        Raises:
            ArtifactError: the file is missing or altered.
        """
        fix = f"install it again: {pip_install(self.zoo, options='--force-reinstall --no-deps')}"
        if not self.path.is_file():  # reading a named pipe would never end
            raise ArtifactError(f"the agent {self.name} of {self.zoo} is missing: there is no file {self.path}; {fix}")
        try:
            with self.path.open("rb") as stream:
                data = stream.read(LIMIT + 1)
        except OSError as error:
            raise ArtifactError(
                f"the agent {self.name} of {self.zoo} cannot be read: {error.strerror}; {fix}"
            ) from None
        if len(data) > LIMIT:
            raise ArtifactError(f"the agent {self.name} of {self.zoo} is larger than {LIMIT:,} bytes; {fix}")
        if (found := hashlib.sha256(data).hexdigest()) != self.sha256:
            raise ArtifactError(
                f"the agent {self.name} of {self.zoo} is damaged: its SHA-256 is {found[:12]}..., not"
                f" {self.sha256[:12]}...; {fix}"
            )
        return data

    def card(self) -> str:
        """Return a page in Markdown: what the agent is, its result, how it was trained, and how to use it."""
        result, versions = self.result, ", ".join(f"{name} {value}" for name, value in self.versions.items())
        install = pip_install(self.zoo, self.package)
        return CARD.format(agent=self, result=result, versions=versions, install=install)


CARD = """# {agent.name}

An agent of `{agent.algorithm}` for `{agent.environment}`.
Trained with rlsdk for {agent.steps:,} environment steps (updates, if it learned from a data set alone), seed {agent.seed}.

## Result

Mean return {result.mean:.2f}, 95 % interval {result.low:.2f} to {result.high:.2f}, standard deviation {result.std:.2f}.
Measured over {result.episodes} deterministic episodes from seed {result.seed}; training used other seeds.
This is one agent of one seed: other seeds may end elsewhere.

## Use

```
{install}
rlsdk zoo get {agent.name} --out agent.rlsdk
rlsdk eval agent.rlsdk
```

```python
import rlsdk_zoo
from rlsdk.evaluation import evaluate_policy

agent = rlsdk_zoo.load("{agent.name}")
mean, deviation = evaluate_policy(agent, "{agent.environment}", n_eval_episodes=5)
```

The file holds what prediction needs. Reading it runs no code, and its SHA-256 is checked first. Training can continue from its
weights (`agent.set_env`, `agent.learn`); critics, optimizers and replay buffers are new.

## Made with

```
{agent.command}
```

{versions}; {agent.seconds:.0f} s of training.

| | SHA-256 |
|---|---|
| file, {agent.size:,} bytes | `{agent.sha256}` |
| weights | `{agent.weights_sha256}` |
"""


def agents() -> tuple[ZooAgent, ...]:
    """Return every trained agent of the installed packages, sorted by name. Damaged records are left out, with a warning.

    Raises:
        PluginError: no installed package has trained agents.
    """
    found = list[ZooAgent]()
    for plugin in plugins():
        if plugin.manifest is None or plugin.problem is not None or not plugin.manifest.zoo:
            continue
        for name, path in plugin.tables(plugin.manifest.zoo).items():
            try:
                found.append(_read(plugin, name, path))
            except ArtifactError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    if not found:
        raise PluginError(f"no trained agents are installed; install some: {pip_install(PACKAGE)}")
    return tuple(sorted(found, key=lambda agent: (agent.name, agent.zoo)))


def find(name: str) -> ZooAgent:
    """Return the agent with this name, such as `tqc/Pendulum-v1`.

    If several packages have the name, use `rlsdk-zoo:tqc/Pendulum-v1`.

    Raises:
        ArtifactError: there is no such agent, or several.
        PluginError: no installed package has trained agents.
    """
    everything = agents()
    matches = [agent for agent in everything if name in (agent.name, agent.qualified_name)]
    if len(matches) > 1:
        names = " and ".join(agent.qualified_name for agent in matches)
        raise ArtifactError(f"{shown(name)} is in several zoos; name one of them: {names}")
    if not matches:
        # the time of comparing names grows with the square of their length
        names = ", ".join(_near(str(name)[:100], everything))
        near = f"did you mean {names}?" if names else "names are ALGORITHM/ENVIRONMENT;"
        raise ArtifactError(
            f"no trained agent is called {shown(name, 100)}; {near} `rlsdk zoo list` shows all {len(everything)}"
        )
    return matches[0]


def load(name: str, env: object = None, device: str = "auto", **kwargs: object) -> Agent:
    """Load the trained agent with this name, after a check of its file. The other arguments are those of `rlsdk.load`.

    Raises:
        ArtifactError: no agent has the name, or its file is damaged.
        PluginError: no package with trained agents is installed, or the algorithm is not installed.
    """
    from rlsdk import load as load_file

    return load_file(BytesIO(find(name).read()), env, device, **kwargs)


def _near(name: str, everything: tuple[ZooAgent, ...]) -> list[str]:
    """Return similar names: those that differ in a few letters, else those with the same algorithm or environment."""
    names = [agent.name for agent in everything]
    if close := get_close_matches(name, names, n=3, cutoff=0.75):
        return close
    algorithm, _, environment = name.partition("/")
    wanted = {algorithm, environment or algorithm}
    return [agent.name for agent in everything if wanted & {agent.algorithm, agent.environment}][:5]


def _reason(error: BaseException, kind: type[object] | None) -> str:
    """Return the error in one entry of a record as text."""
    from cattrs.v import format_exception

    return str(error) if isinstance(error, ArtifactError) else format_exception(error, kind)


def _read(plugin: Plugin, name: str, path: Path) -> ZooAgent:
    import cattrs

    where = f"the record of the agent {name} in {plugin.distribution}"
    try:
        record = cattrs.Converter(forbid_extra_keys=True).structure(load_settings(path), ZooAgent)
    except SettingsError as error:
        raise ArtifactError(f"{where}: {error}") from None
    except Exception as error:
        reasons = "; ".join(cattrs.transform_error(error, path="record", format_exception=_reason))
        raise ArtifactError(f"{where} is not valid: {one_line(reasons, 300)}") from None
    if record.name != name:
        raise ArtifactError(f"{where} is of {record.name}; a record is called ALGORITHM/ENVIRONMENT.toml")
    return attrs.evolve(record, zoo=plugin.distribution, path=path.with_name(f"{path.stem}.rlsdk"))
