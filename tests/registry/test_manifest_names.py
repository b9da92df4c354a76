"""Names in manifests (`build`, `config`, `agent`): checked when plugins are listed, imported when they are used.

A name that does not exist is an error of one line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import rlsdk
from rlsdk.agent import agent_class
from rlsdk.errors import PluginError
from rlsdk.registry import AlgorithmSpec, Manifest, find, load
from rlsdk.registry.discovery import register
from rlsdk.registry.manifest import ManifestError, parse_manifest
from rlsdk.settings import AgentConfig
from rlsdk_tqc import TQC
from tests import small_algorithms
from tests.plugin_site import Site, installed

MANIFEST = """
id = "{id}"
title = "A plugin"
summary = "for tests"
family = "{family}"
sdk = "{sdk}"
actions = ["Discrete"]
observations = ["Discrete"]
policies = ["MlpPolicy"]
{more}
build = "{build}"
config = "{config}"
"""
CODE = """
import attrs
from rlsdk.settings import AgentConfig

@attrs.frozen
class Config(AgentConfig):
    rate: float = 0.1

def build(context, config):
    raise RuntimeError("built")

NUMBER = 3
"""
AGENT = """
from rlsdk.agent import Agent
from {package}.code import Config

class Trainer(Agent[Config]):
    "An agent."
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with installed(tmp_path) as made:
        yield made


def add(site: Site, identity: str = "bad", **changes: str) -> None:
    package = f"acme_{identity}"
    values = {"family": "on-policy", "sdk": ">=0.1", "more": "", "build": f"{package}.code:build"}
    values |= {"config": f"{package}.code:Config", "id": identity} | changes
    folder = site.add(identity, manifest=MANIFEST.format(**values), code="raise RuntimeError('imported')")
    (folder / "code.py").write_text(CODE)
    (folder / "trainer.py").write_text(AGENT.format(package=package))
    site.listed()


def one_line(caught: pytest.ExceptionInfo[Any]) -> str:
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def test_a_manifest_is_enough_and_the_entry_points_module_is_not_imported(site: Site) -> None:
    add(site, more='live = ["rate"]\naction_masks = "optional"\nagent = "acme_bad.trainer:Trainer"')
    spec = load("bad")
    assert (spec.id, spec.live, spec.action_masks, spec.policies) == ("bad", ("rate",), "optional", ("MlpPolicy",))
    assert load("bad") is spec
    kind = agent_class(spec)
    assert kind.spec is spec
    with pytest.raises(RuntimeError, match="built"):
        kind("MlpPolicy", "rlsdk/IdentityEnv-v0")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"build": "os:system"}, "name something in its package, acme_bad"),
        ({"config": "acme_badly.code:Config"}, "name something in its package, acme_bad"),
        ({"build": "acme_bad.code"}, "write module:name"),
        ({"build": "acme_bad.code:build()"}, "write module:name"),
        ({"build": "acme_bad..code:build"}, "write module:name"),
        ({"build": "acme_bad.code:build.__globals__"}, "write module:name"),
        ({"config": ""}, r"lacks \['config'\]"),
        ({"more": 'action_masks = "maybe"'}, "accepted: ignored, optional, required"),
        ({"more": "default_envs = 0"}, "a whole number from 1"),
        ({"more": "default_envs = true"}, "a whole number from 1"),
        ({"more": 'policy_classes = { Fancy = "CnnPolicy" }'}, "one of its policies"),
        ({"more": 'policy_classes = ["Fancy"]'}, "table of strings"),
    ],
)
def test_names_are_checked_when_plugins_are_listed(site: Site, changes: dict[str, str], words: str) -> None:
    add(site, **changes)
    with pytest.raises(PluginError, match=words) as caught:
        load("bad")
    assert "acme-bad" in one_line(caught)
    assert not [name for name in sys.modules if name.startswith("acme_bad")]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config": "acme_bad.code:Confg"}, "acme_bad.code has no 'Confg'; did you mean 'Config'"),
        ({"config": "acme_bad.code:NUMBER"}, "name an attrs class"),
        ({"build": "acme_bad.cod:build"}, "there is no module acme_bad.cod"),
        ({"more": 'live = ["rat"]'}, "live of its manifest names"),
        ({"more": 'agent = "acme_bad.agent:Agent"'}, "there is no module acme_bad.agent"),
    ],
)
def test_what_is_not_there_is_named_when_the_plugin_is_loaded(site: Site, changes: dict[str, str], words: str) -> None:
    add(site, **changes)
    with pytest.raises(PluginError, match=words) as caught:
        load("bad")
    assert "'bad' is broken" in one_line(caught)


@pytest.mark.parametrize(
    ("name", "words"), [("bild", "has no 'bild'; did you mean 'build'"), ("NUMBER", "name a function")]
)
def test_a_build_that_is_missing_or_no_function(site: Site, name: str, words: str) -> None:
    add(site, build=f"acme_bad.code:{name}")
    with pytest.raises(PluginError, match=words) as caught:
        rlsdk.make("bad", env="rlsdk/IdentityEnv-v0")
    assert f"build = 'acme_bad.code:{name}'" in one_line(caught)


def test_any_family_can_be_listed_and_loaded(site: Site) -> None:
    add(site, family="model-based")
    plugin = find("bad")
    assert plugin.problem is None
    assert load("bad").family == "model-based"


def test_two_plugins_with_one_id_are_told_apart(site: Site) -> None:
    add(site, "bad")
    twin = "[rlsdk.plugins]\nbad = acme_twin\n"
    manifest = MANIFEST.format(
        id="bad", family="on-policy", sdk=">=0.1", more="", build="acme_twin.code:build", config="acme_twin.code:Config"
    )
    (site.add("twin", manifest=manifest, entry=twin) / "code.py").write_text(CODE)
    site.listed()
    with pytest.raises(PluginError, match="offered by two installed distributions") as caught:
        load("bad")
    assert "acme-bad/bad and acme-twin/bad" in one_line(caught)
    assert load("acme-twin/bad").config_type.__module__ == "acme_twin.code"


def test_specs_in_python_are_held_to_the_same() -> None:
    def spec(**changes: Any) -> AlgorithmSpec:
        values: dict[str, Any] = {
            "id": "odd", "family": "odd", "config_type": AgentConfig, "build": len, "policies": ("MlpPolicy",)
        }  # fmt: skip
        return AlgorithmSpec(**values | changes)

    with pytest.raises(TypeError, match=r"config_type of 'odd' must be an attrs class, not <class 'int'>"):
        spec(config_type=int)
    with pytest.raises(TypeError, match=r"build of 'odd' must be a function of \(context, config\), not 3"):
        spec(build=3)
    manifest = Manifest(
        id="odd", title="t", summary="s", sdk=">=0.1", family="odd", actions=("Box",), observations=("Box",),
        policies=("MlpPolicy",), live=("seed",),
    )  # fmt: skip
    with pytest.raises(PluginError, match="live or action_masks, which go with build and config"):
        register(spec(), manifest)


@pytest.mark.full
def test_the_sdk_range_is_checked_by_the_constructor_of_the_class(tmp_path: Path) -> None:
    """The check also works for a plugin whose sources are on the path and which is not installed."""
    package = tmp_path / "acme_later"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "code.py").write_text(CODE)
    (package / "trainer.py").write_text(AGENT.format(package="acme_later"))
    more = 'agent = "acme_later.trainer:Trainer"'
    places = {"build": "acme_later.code:build", "config": "acme_later.code:Config"}
    text = MANIFEST.format(id="later", family="on-policy", sdk=">=99", more=more, **places)
    (package / "rlsdk.toml").write_text(text)
    use = "Trainer('MlpPolicy', 'rlsdk/IdentityEnv-v0')"
    code = f"from acme_later.trainer import Trainer\ntry: {use}\nexcept Exception as error: print(error)"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.count("\n") == 1
    assert "it needs rlsdk >=99" in done.stdout


def test_the_sdk_range_is_checked_by_make_load_and_the_class(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = TQC("MlpPolicy", "Pendulum-v1", buffer_size=100, policy_kwargs={"net_arch": [4]})
    model.save(tmp_path / "model")
    from rlsdk.registry import discovery, plugins

    monkeypatch.setattr(discovery, "sdk_version", lambda: "0.9")
    plugins(rescan=True)
    try:
        for work in (
            lambda: TQC("MlpPolicy", "Pendulum-v1"),
            lambda: TQC("MlpPolicy", "no such environment"),
            lambda: rlsdk.make("tqc", env="Pendulum-v1"),
            lambda: rlsdk.load(tmp_path / "model"),
            lambda: TQC.load(tmp_path / "model"),
        ):
            with pytest.raises(PluginError, match=r"needs rlsdk >=0.1,<0.2, installed is 0.9") as caught:
                work()
            one_line(caught)
    finally:
        monkeypatch.undo()
        plugins(rescan=True)


def test_every_plugin_states_its_facts_once() -> None:
    """Each plugin in this repository is described by its manifest only: no module makes an `AlgorithmSpec`."""
    folder = Path(__file__).parents[2] / "plugins"
    for path in folder.glob("*/src/*/*.py"):
        assert "AlgorithmSpec(" not in path.read_text(), path
    assert not list(folder.glob("*/src/*/plugin.py"))


def test_a_manifest_with_build_needs_a_family() -> None:
    data = {k: v for k, v in attrs.asdict(Manifest(id="x", title="t", summary="s", sdk=">=0.1")).items() if v}
    with pytest.raises(ManifestError, match=r"lacks \['family', 'config'\]"):
        parse_manifest({**data, "sinks": ["s"], "build": "x.y:z"})
    assert small_algorithms.build
