"""Trained agents in installed packages are found, checked and loaded without running code of the package."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlsdk
import rlsdk_zoo
from rlsdk.cli import main
from rlsdk.errors import ArtifactError, PluginError
from rlsdk.registry import plugins
from rlsdk.registry.manifest import ManifestError, parse_manifest
from tests.plugin_site import Site, installed

MANIFEST = 'id = "{id}"\ntitle = "Bots"\nsummary = "agents"\nsdk = ">=0.1"\nzoo = "agents"\n'
RECORD = """
algorithm = "{algorithm}"
environment = "Bandit/CartPole-v1"
package = "rlsdk-{algorithm}"
command = "rlsdk run {algorithm}"
seed = 3
steps = 64
seconds = 0.5
size = {size}
sha256 = "{sha256}"
weights_sha256 = "{sha256}"
result = {{ episodes = 2, seed = 9, mean = 21.5, std = 1.0, low = 20, high = 23.0 }}
versions = {{ python = "3.12" }}
"""
NAME = "trpo/Bandit/CartPole-v1"
SEEN = np.zeros(4, np.float32)


@pytest.fixture(scope="module")
def agent() -> Any:
    settings: dict[str, Any] = {"n_steps": 32, "policy_kwargs": {"net_arch": [8]}}
    return rlsdk.make("trpo", env="CartPole-v1", seed=3, **settings)


class Zoos:
    """Adds packages with trained agents to a folder on sys.path."""

    def __init__(self, site: Site, agent: Any) -> None:
        self.site, self.agent = site, agent

    def add(self, identity: str, algorithm: str = "trpo") -> Path:
        """Write a package `acme-<identity>` with one agent and return the agent file."""
        package = self.site.add(
            identity, manifest=MANIFEST.format(id=identity), code="raise SystemError('was imported')"
        )
        file = package / "agents" / algorithm / "Bandit" / "CartPole-v1.rlsdk"
        file.parent.mkdir(parents=True)
        self.agent.save(file, exclude=["training"])
        data = file.read_bytes()
        record = RECORD.format(algorithm=algorithm, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        file.with_suffix(".toml").write_text(record)
        plugins(rescan=True)
        return file


@pytest.fixture
def zoos(tmp_path: Path, agent: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Zoos]:
    """A `Zoos` without packages. The package rlsdk-zoo is hidden if it is installed."""
    monkeypatch.setenv("RLSDK_PLUGINS", "trpo,bots,more")
    monkeypatch.setattr(main, "OWN", {**main.OWN, "zoo": ("rlsdk_zoo.command:app", "Trained agents.", "zoo list")})
    (tmp_path / "site").mkdir()
    with installed(tmp_path / "site") as site:
        yield Zoos(site, agent)


def test_an_agent_is_found_checked_and_loaded(zoos: Zoos, agent: Any) -> None:
    file = zoos.add("bots")
    (found,) = rlsdk_zoo.agents()
    assert (found.name, found.zoo, found.path) == (NAME, "acme-bots", file)
    assert found.result.mean == 21.5
    loaded = rlsdk_zoo.load(NAME, env="CartPole-v1")
    np.testing.assert_array_equal(
        loaded.predict(SEEN, deterministic=True)[0], agent.predict(SEEN, deterministic=True)[0]
    )
    assert loaded.env is not None
    assert loaded.learn(32).num_timesteps == 32
    assert rlsdk_zoo.load(f"acme-bots:{NAME}", n_steps=64).config.n_steps == 64


def test_the_commands(zoos: Zoos, cli: Any) -> None:
    file = zoos.add("bots")
    code, out, _ = cli("zoo", "list")
    header, row = out.splitlines()
    assert (code, header.split()[0], row.split()[0]) == (0, "name", NAME)
    assert "21.5 [20.0 .. 23.0]" in row
    assert NAME not in cli("zoo", "list", "nothing like it")[1]
    assert NAME in cli("zoo", "list", "cartpole")[1]
    (record,) = json.loads(cli("zoo", "list", "--json", "trpo")[1])
    assert (record["name"], record["result"]["mean"], record["seed"]) == (NAME, 21.5, 3)
    code, out, _ = cli("zoo", "get", NAME)
    assert (code, out.split(":")[0]) == (0, "trpo-Bandit-CartPole-v1.rlsdk")
    assert Path("trpo-Bandit-CartPole-v1.rlsdk").read_bytes() == file.read_bytes()
    assert cli("zoo", "get", NAME, "-o", "mine.rlsdk")[0] == 0
    Path("own.txt").write_text("mine")
    assert cli("zoo", "get", NAME, "-o", "own.txt")[1].startswith("own.txt.rlsdk: ")
    assert Path("own.txt").read_text() == "mine"
    Path("own.rlsdk").write_bytes(b"the agent of a training")
    code, _, err = cli("zoo", "get", NAME, "-o", "own")
    assert (code, "own.rlsdk exists; choose another --out, or add --overwrite" in err) == (1, True)
    assert Path("own.rlsdk").read_bytes() == b"the agent of a training"
    assert cli("zoo", "get", NAME, "-o", "mine.rlsdk")[0] == 0, "a copy of the same agent is accepted"
    assert cli("zoo", "get", NAME, "-o", "own", "--overwrite")[0] == 0
    assert Path("own.rlsdk").read_bytes() == file.read_bytes()
    assert "return" in cli("eval", "mine.rlsdk", "--episodes", "1")[1]
    code, out, _ = cli("zoo", "show", NAME)
    assert code == 0
    assert out.startswith(f"# {NAME}\n")
    assert record["sha256"] in out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("trpo/Bandit/CartPol-v1", f"did you mean {NAME}?"),
        ("trpo", f"did you mean {NAME}?"),
        ("Bandit/CartPole-v1", f"did you mean {NAME}?"),
        ("x" * 100_000, "names are ALGORITHM/ENVIRONMENT"),
        ("a\nb", "names are ALGORITHM/ENVIRONMENT"),
        ("", "names are ALGORITHM/ENVIRONMENT"),
    ],
)
def test_unknown_names(zoos: Zoos, cli: Any, name: str, words: str) -> None:
    zoos.add("bots")
    for command in ("get", "show"):
        code, _, err = cli("zoo", command, name)
        assert (code, words in err, len(err.splitlines())) == (1, True, 1), err
        assert len(err) < 500
    with pytest.raises(ArtifactError, match="no trained agent is called"):
        rlsdk_zoo.load(name)


@pytest.mark.parametrize("damage", ["altered", "cut", "gone", "folder", "pipe"])
def test_damaged_files(zoos: Zoos, cli: Any, damage: str) -> None:
    file = zoos.add("bots")
    data = file.read_bytes()
    file.unlink()
    if damage in ("altered", "cut"):
        file.write_bytes(data[:-1] if damage == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "folder":
        file.mkdir()
    elif damage == "pipe":
        os.mkfifo(file)
    code, _, err = cli("zoo", "get", NAME, "-o", "out.rlsdk")
    assert (code, len(err.splitlines())) == (1, 1), err
    assert "pip install --force-reinstall --no-deps acme-bots" in err
    assert not Path("out.rlsdk").exists()
    with pytest.raises(ArtifactError, match=NAME):
        rlsdk_zoo.load(NAME)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seed = 3", "seeds = 3", "seeds"),
        ("steps = 64", "steps = [", "is not valid TOML"),
        ('sha256 = "', 'sha256 = "x', "is not a SHA-256"),
        ('algorithm = "trpo"', 'algorithm = "tqc"', "is of tqc/Bandit/CartPole-v1"),
        ('command = "', 'command = "\\u001b[2J', "is not one line"),
        ("mean = 21.5", 'mean = "high"', "mean"),
        ("\n", "x", "is not valid TOML"),
    ],
)
def test_a_damaged_record_hides_no_other_agent(zoos: Zoos, old: str, new: str, words: str) -> None:
    record = zoos.add("bots").with_suffix(".toml")
    zoos.add("more")
    record.write_text(record.read_text().replace(old, new))
    with pytest.warns(RuntimeWarning, match=words):
        (left,) = rlsdk_zoo.agents()
    assert left.zoo == "acme-more"


def test_two_zoos_with_the_same_name(zoos: Zoos) -> None:
    zoos.add("bots")
    zoos.add("more")
    with pytest.raises(ArtifactError, match=f"acme-bots:{NAME} and acme-more:{NAME}"):
        rlsdk_zoo.load(NAME)
    assert rlsdk_zoo.find(f"acme-more:{NAME}").zoo == "acme-more"


@pytest.mark.usefixtures("from_an_index")
def test_what_has_to_be_installed_is_named(zoos: Zoos, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (["list"], ["get", NAME], ["show", NAME]):
        code, _, err = cli("zoo", *command)
        assert (code, "pip install rlsdk-zoo" in err, len(err.splitlines())) == (1, True, 1), err
    zoos.add("bots")
    monkeypatch.setenv("RLSDK_PLUGINS", "bots")
    with pytest.raises(PluginError, match="pip install rlsdk-trpo"):
        rlsdk_zoo.load(NAME)
    assert cli("zoo", "get", NAME)[0] == 0  # copying a file needs no plugin


@pytest.mark.parametrize("folder", ["..", "a/b", "/etc", "a\nb"])
def test_a_manifest_names_a_folder_of_its_package(folder: str) -> None:
    values = {"id": "bots", "title": "t", "summary": "s", "sdk": ">=0.1", "zoo": folder}
    with pytest.raises(ManifestError, match="zoo"):
        parse_manifest(values)


@pytest.mark.full
def test_listing_imports_no_torch(zoos: Zoos) -> None:
    zoos.add("bots")
    code = f"""
import sys
sys.path.insert(0, {str(zoos.site.folder)!r})
import rlsdk
import rlsdk_zoo
assert [agent.name for agent in rlsdk_zoo.agents()] == [{NAME!r}]
print(sorted({{"torch", "gymnasium", "acme_bots"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
