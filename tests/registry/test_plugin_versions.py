"""Files made with another version of a plugin, and plugins made for another version of rlsdk."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlsdk
from rlsdk.agent import agent_class, agent_file
from rlsdk.errors import ArtifactError, PluginError, RlsdkError, SettingsError
from rlsdk.registry import discovery, load, plugins
from rlsdk.registry.loading import plugin_of
from rlsdk.storage import archive
from tests.plugin_site import Site

ROOT = Path(__file__).parents[2]
MANIFEST = """
id = "bad"
title = "REINFORCE"
summary = "for tests"
family = "on-policy"
sdk = ">=0.1,<0.2"
actions = ["Discrete"]
observations = ["Box"]
policies = ["MlpPolicy"]
"""
CODE = """
import attrs
from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk.settings import AgentConfig, described

@attrs.frozen
class Config(AgentConfig):
    n_steps: int = attrs.field(default=8, metadata=described("steps per rollout"))
    {setting}: float = attrs.field(default=0.1, metadata=described("step size"))
    data: str = attrs.field(default="", metadata=described("a file"))
    gamma: float = attrs.field(default=0.99, metadata=described("discount"))

def build(facts, config):
    from tests import small_algorithms
    if config.data:
        open(config.data)
    parts = small_algorithms.build(facts, small_algorithms.Config("MlpPolicy", n_steps=config.n_steps))
    {change}
    return parts

def agent():
    from acme_bad.agent import Bad
    return Bad

{upgrade}

SPEC = AlgorithmSpec(id="bad", family="on-policy", config_type=Config, build=build, policies=("MlpPolicy",), {arguments})

@hookimpl
def algorithm():
    return SPEC
"""
AGENT = """
from rlsdk.agent import Agent
from acme_bad.plugin import SPEC

class Bad(Agent):
    spec = SPEC
"""


def write(site: Site, *, setting: str = "rate", version: str = "1.2.3", **more: str) -> Any:
    """Install the plugin `bad` in the given version and return its spec."""
    upgrade = more.get("upgrade", "")
    arguments = "agent=agent" + (", upgrade=upgrade" if upgrade else "")
    code = CODE.format(setting=setting, upgrade=upgrade, change=more.get("change", ""), arguments=arguments)
    package = site.add("bad", manifest=MANIFEST, code=code, version=version)
    (package / "agent.py").write_text(AGENT)
    for name in [name for name in sys.modules if name.startswith("acme_bad")]:
        del sys.modules[name]
    plugins(rescan=True)
    return load("bad")


@pytest.fixture
def old(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent file made with version 1.2.3 of the plugin, whose step size is called `rate`."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    agent = agent_class(write(site))("MlpPolicy", "CartPole-v1", rate=0.25, seed=1)
    agent.save(tmp_path / "old")
    return tmp_path / "old.rlsdk"


UPGRADE = """
def upgrade(settings, state, from_version):
    assert from_version == "1.2.3", from_version
    settings["step_size"] = settings.pop("rate") * 2
    state["policy"] = {name.replace("linear", "layer"): value for name, value in state["policy"].items()}
    return settings, state
"""


def test_a_plugin_upgrades_its_files(site: Site, old: Path) -> None:
    """`upgrade` renames a setting and a parameter in `load` and in `set_parameters`."""
    before = rlsdk.load(old).parts.policy.linear.weight.detach().clone()
    change = "parts.policy.layer = parts.policy.linear; parts.policy.__dict__['_modules'].pop('linear')"
    spec = write(site, setting="step_size", version="2.0", upgrade=UPGRADE, change=change)
    agent = rlsdk.load(old)
    assert agent.config.step_size == 0.5
    assert np.array_equal(agent.parts.policy.layer.weight.detach(), before)
    assert rlsdk.load(old, custom_objects={"step_size": 0.75}).config.step_size == 0.75
    other = agent_class(spec)("MlpPolicy", "CartPole-v1", seed=2)
    other.set_parameters(old, exact_match=False)
    assert np.array_equal(other.parts.policy.layer.weight.detach(), before)


@pytest.mark.parametrize(
    ("upgrade", "kind", "words"),
    [
        ("", SettingsError, "unknown setting 'rate'"),
        ("def upgrade(settings, state, from_version):\n    return settings", PluginError, "`upgrade` returned"),
        ("def upgrade(settings, state, from_version):\n    return settings['x'], state", ArtifactError, "KeyError: 'x'"),
        ("def upgrade(settings, state, from_version):\n    return {}, state", SettingsError, "setting 'policy' is missing"),
        ("def upgrade(settings, state, from_version):\n    return settings, {}", RlsdkError, "'rate'"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_names_file_and_versions(
    site: Site, old: Path, upgrade: str, kind: type[Exception], words: str
) -> None:
    write(site, setting="step_size", version="2.0", upgrade=upgrade)
    with pytest.raises(kind) as caught:
        rlsdk.load(old)
    message = str(caught.value)
    assert words in message
    assert f"{old} was made with acme-bad 1.2.3, installed is acme-bad 2.0; pip install acme-bad==1.2.3" in message
    assert len(message.splitlines()) == 1


def test_a_build_that_needs_what_is_not_there(site: Site, tmp_path: Path) -> None:
    """The data file that the agent was made with no longer exists: the error names `custom_objects`."""
    data = tmp_path / "data.npz"
    data.touch()
    agent_class(write(site))("MlpPolicy", "CartPole-v1", data=str(data)).save(tmp_path / "agent")
    data.unlink()
    with pytest.raises(RlsdkError) as caught:
        rlsdk.load(tmp_path / "agent")
    assert "custom_objects" in str(caught.value)
    assert rlsdk.load(tmp_path / "agent", custom_objects={"data": ""}).config.data == ""


def test_the_range_holds_wherever_a_plugin_enters(site: Site, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK range is checked by the class's constructor, by its `load`, by `rlsdk.make` and by `rlsdk.load`."""
    own = import_module("acme_bad.agent").Bad
    assert own("MlpPolicy", "CartPole-v1").num_timesteps == 0
    monkeypatch.setattr(discovery, "sdk_version", lambda: "0.2.0")
    plugins(rescan=True)
    attempts: list[Any] = [
        lambda: own("MlpPolicy", "CartPole-v1"),
        lambda: own.load(old),
        lambda: rlsdk.make("bad", env="CartPole-v1"),
        lambda: rlsdk.load(old),
    ]
    for attempt in attempts:
        with pytest.raises(PluginError, match=r"needs rlsdk >=0.1,<0.2, installed is 0.2.0"):
            attempt()
    monkeypatch.setenv("RLSDK_PLUGINS", "off")
    with pytest.raises(PluginError, match="needs rlsdk"):
        own("MlpPolicy", "CartPole-v1")


def test_a_file_is_opened_by_the_distribution_it_names(site: Site, old: Path, tmp_path: Path) -> None:
    """A second distribution offers the same id, first with a broken manifest, then with a valid one."""
    twin = {"entry": "[rlsdk.plugins]\nbad = acme_twin.plugin\n"}
    site.add("twin", manifest="id = ", **twin)
    plugins(rescan=True)
    assert rlsdk.load(old).config.rate == 0.25
    code = CODE.format(setting="other", upgrade="", change="", arguments="")
    site.add("twin", manifest=MANIFEST, code=code, **twin)
    plugins(rescan=True)
    with pytest.raises(PluginError, match="name one of them: acme-bad/bad and acme-twin/bad"):
        load("bad")
    agent = rlsdk.load(old)
    assert agent.config.rate == 0.25
    agent.save(tmp_path / "again")
    other = rlsdk.make("acme-twin/bad", env="CartPole-v1", other=0.5)
    other.save(tmp_path / "twin")
    assert rlsdk.load(tmp_path / "twin").config.other == 0.5
    assert archive.inspect(tmp_path / "twin.rlsdk", kind=agent_file.KIND)["kind"] == agent_file.KIND
    assert [plugin_of(each.spec).distribution for each in (agent, other)] == ["acme-bad", "acme-twin"]  # type: ignore[union-attr]


@pytest.mark.parametrize("returned", ["3", "object", "None"])
def test_an_agent_that_is_none(site: Site, old: Path, returned: str) -> None:
    """`AlgorithmSpec.agent` must return an agent class; anything else is an error."""
    code = CODE.format(setting="rate", upgrade="", change="", arguments=f"agent=lambda: {returned}")
    site.add("bad", manifest=MANIFEST, code=code)
    del sys.modules["acme_bad.plugin"]
    plugins(rescan=True)
    with pytest.raises(PluginError, match=r"acme-bad/bad 1.2.3 is broken: its `agent` returned"):
        rlsdk.load(old)


def test_a_file_names_the_package_to_install(site: Site, old: Path) -> None:
    for path in site.folder.glob("acme_bad-*/*"):
        path.unlink()
    plugins(rescan=True)
    with pytest.raises(PluginError) as caught:
        rlsdk.load(old)
    assert "pip install acme-bad" in str(caught.value)
    for name in ("tqc", "ars"):
        installed = [p for p in plugins() if p.id == name]
        assert installed


@pytest.mark.usefixtures("from_an_index")
def test_the_package_of_an_algorithm_of_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSDK_PLUGINS", "tqc")
    for name, words in (("ars", "; install it: "), ("maskable-pp", "did you mean 'maskable-ppo'? install it: ")):
        with pytest.raises(PluginError, match=re.escape(words) + "pip install rlsdk-(ars|maskable-ppo)$"):
            load(name)


@pytest.mark.parametrize("name", ["tqcc", "x-sac", "nosuch", "--index-url"])
def test_packages_that_are_not_of_this_project_are_not_suggested(name: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(name)
    assert "pip install" not in str(caught.value)


def test_the_extra_names_the_packages_of_all_algorithms() -> None:
    """The extra `algorithms` in pyproject.toml lists the packages of all algorithms in this repository."""
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    folders = {path.name for name in ("plugins", "contrib_algos") for path in (ROOT / name).glob("rlsdk-*")}
    assert written["algorithms"] == sorted({p.distribution for p in discovery.algorithms()} & folders)
