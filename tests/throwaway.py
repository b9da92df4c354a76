"""Small plugin distributions, built as wheels and installed into temporary virtual environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{distribution}"
version = "1.2.3"
[project.entry-points."rlsdk.plugins"]
{id} = "{package}.plugin"
[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""
MANIFEST = """
id = "{id}"
title = "A plugin"
summary = "for tests"
family = "off-policy"
sdk = "{sdk}"
actions = ["Box"]
observations = ["Box"]
policies = ["MlpPolicy"]
"""
GOOD = """
{first}
import attrs
from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk.settings import AgentConfig

@attrs.frozen
class Config(AgentConfig):
    pass

@hookimpl
def algorithm():
    build = lambda facts, config: None
    return AlgorithmSpec(id="{id}", family="off-policy", config_type=Config, build=build, policies=("MlpPolicy",))
"""


EXTENSION_MANIFEST = """
id = "{id}"
title = "Extensions"
summary = "a sink, an environment, a serializer and an executor"
sdk = ">=0.1"
sinks = ["tally"]
environments = ["acme"]
serializers = [".numpy"]
executors = ["threads"]
"""
EXTENSION = """
from rlsdk.registry import hookimpl

class Tally:
    def __init__(self, folder):
        self.path, self.steps = folder / "tally.txt", []
    def write(self, step, values):
        self.steps.append(step)
    def close(self):
        self.path.write_text(str(self.steps))

class NumpyFiles:
    def save(self, path, tensors, document):
        import json, numpy
        arrays = {k.replace("/", "|"): v.detach().numpy() for k, v in tensors.items()}
        with open(path, "wb") as stream:
            numpy.savez(stream, __document__=numpy.array(json.dumps(document)), **arrays)
    def load(self, path):
        import json, numpy, torch
        with numpy.load(path, allow_pickle=False) as data:
            document = json.loads(str(data["__document__"]))
            tensors = {k.replace("|", "/"): torch.from_numpy(data[k]) for k in data if k != "__document__"}
        return tensors, document
    def inspect(self, path):
        tensors, document = self.load(path)
        return {"document": document, "tensors": {k: [str(v.dtype), list(v.shape)] for k, v in tensors.items()}}

def make_environment(name, **kwargs):
    from rlsdk_envs.toy import IdentityEnvBox
    assert name == "acme/Identity-v0", name
    return IdentityEnvBox(episode_length=kwargs.get("episode_length", 10))

class Threads:  # deals work out to threads, the last piece first
    def __init__(self, workers):
        from concurrent.futures import ThreadPoolExecutor
        self.pool = ThreadPoolExecutor(workers)
    def map(self, work, items):
        return [future.result() for future in [self.pool.submit(work, item) for item in items][::-1]][::-1]
    def close(self):
        print("pool closed")
        self.pool.shutdown()

@hookimpl
def executors():
    return {"threads": Threads}

@hookimpl
def sinks():
    return {"tally": Tally}

@hookimpl
def environments():
    return {"acme": make_environment}

@hookimpl
def serializers():
    return {".numpy": NumpyFiles}
"""


def write_extension(folder: Path) -> Path:
    """Write the sources of a plugin without an algorithm: a sink, an environment namespace, a serializer and an executor."""
    root = write_distribution(folder, "extras", manifest=EXTENSION_MANIFEST.format(id="extras"))
    (root / "acme_extras" / "plugin.py").write_text(EXTENSION)
    return root


def write_distribution(
    folder: Path,
    identity: str,
    *,
    distribution: str = "",
    first: str = "",
    sdk: str = ">=0.1",
    manifest: str | None = None,
) -> Path:
    """Write the source tree of a plugin whose module begins with the lines `first`; return its folder."""
    distribution = distribution or f"acme-{identity}"
    package = distribution.replace("-", "_")
    root = folder / distribution
    (root / package).mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT.format(distribution=distribution, id=identity, package=package))
    (root / package / "__init__.py").write_text("")
    (root / package / "rlsdk.toml").write_text(MANIFEST.format(id=identity, sdk=sdk) if manifest is None else manifest)
    (root / package / "plugin.py").write_text(GOOD.format(first=first, id=identity))
    return root


def build_wheels(sources: list[Path], folder: Path) -> list[Path]:
    """Build one wheel per source tree; return the wheels in `folder`."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, *map(str, sources)], check=True)
    return sorted(folder.glob("*.whl"))


def python_with(folder: Path, chosen: Callable[[str], bool]) -> str:
    """Make a virtual environment in `folder` with links to the installed packages of chosen file names. Return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    (folder / "others").mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if chosen(path.name):
            (folder / "others" / path.name).symlink_to(path)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"import site; site.addsitedir({str(folder / 'others')!r})\n")
    return str(folder / "env" / "bin" / "python")


def _without_path() -> dict[str, str]:
    """The environment variables of this process without PYTHONPATH, which is only for this process."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class Environment:
    """A virtual environment with the packages of the current one and the given wheels."""

    def __init__(self, folder: Path, wheels: list[Path]) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        self.python = folder / "bin" / "python"
        site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (site / "parent.pth").write_text(
            f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"  # editable installs of the parent too
        )
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-index", "--no-deps"]
        subprocess.run([*pip, *map(str, wheels)], check=True, env=_without_path())

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python with `arguments` in this environment."""
        environment = {**_without_path(), **variables}
        command = [str(self.python), *arguments]
        where = self.python.parent  # a folder without the sources of rlsdk
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=300, check=False, cwd=where
        )

    def json(self, code: str, **variables: str) -> Any:
        """Run `code` and return the value that it assigns to `result`, sent as JSON."""
        done = self.run("-c", f"import json, sys\n{code}\nprint('\\n' + json.dumps(result))", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
