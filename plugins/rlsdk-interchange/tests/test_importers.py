"""Formats that packages add to `rlsdk import`: a manifest lists them, and a bad one is one line that harms no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.kernels import factory, reference
from rlsdk.registry import discovery, extensions, loading
from rlsdk.registry.manifest import ManifestError, parse_manifest
from tests.example_plugins import THIRD_PARTY, install
from tests.plugin_site import Site, on_path

MANIFEST = """
id = "{id}"
title = "t"
summary = "s"
sdk = "{sdk}"
[importers]
{name} = ["acme_{id}.{module}:read", "A format.", "import ars x --format {name}"]
"""
READ = """
import rlsdk
def read(path, algorithm, env, **settings):
    {body}
{last}
"""
AGENT = "return rlsdk.make(algorithm, env=env, **settings)"
IMPORT = ("import", "ars", "given.x", "--env", "CartPole-v1", "--format")


def add(site: Site, identity: str, name: str, **given: str) -> None:
    """Add a package with an importer; `given` replaces its `sdk`, its `module`, the `body` of the function or what follows."""
    about = {"sdk": ">=0.1", "module": "reader", "body": AGENT, "last": "", **given}
    package = site.add(identity, manifest=MANIFEST.format(id=identity, name=name, **about))
    (package / "reader.py").write_text(READ.format(**about))
    discovery.plugins(rescan=True)


def test_a_package_adds_a_format(site: Site, cli: Any) -> None:
    add(site, "one", "plain")
    assert extensions("importers") == ("plain", "sb3")
    code, out, err = cli(*IMPORT, "plain", "--set", "n_delta=3", "--out", "mine")
    assert (code, err) == (0, "")
    assert "ars agent for CartPole-v1: mine.rlsdk" in out
    assert rlsdk.load("mine").config.n_delta == 3


def test_the_list_imports_nothing(site: Site) -> None:
    add(site, "one", "plain", last="raise RuntimeError('imported')")
    assert "plain" in extensions("importers")


@pytest.mark.parametrize(
    ("made", "name", "words"),
    [
        ({}, "plane", "no installed plugin offers 'plane' (importers); did you mean 'plain'"),
        (
            {"last": "raise RuntimeError('x')"},
            "plain",
            "acme-bad/bad 1.2.3 is broken: importing it raised RuntimeError: x",
        ),
        (
            {"last": "read = 3"},
            "plain",
            "acme-bad/bad 1.2.3 is broken: importers = 'acme_bad.reader:read' of its manifest is 3",
        ),
        (
            {"module": "nothere"},
            "plain",
            "importers = 'acme_bad.nothere:read', but there is no module acme_bad.nothere",
        ),
        ({"body": "raise KeyError('layers')"}, "plain", "the importer 'plain' of acme_bad raised KeyError: 'layers'"),
        ({"body": "return 3"}, "plain", "the importer 'plain' of acme_bad returned 3; it must return an Agent"),
        ({"sdk": ">=99"}, "plain", "acme-bad/bad 1.2.3 cannot be used: it needs rlsdk >=99"),
    ],
    ids=["unknown", "raises at import", "no function", "no module", "raises", "no agent", "other SDK"],
)
def test_a_bad_importer_is_one_line(made: dict[str, str], name: str, words: str, site: Site, cli: Any) -> None:
    add(site, "bad", "plain", **made)
    add(site, "fine", "other")
    code, out, err = cli(*IMPORT, name, "--out", "mine")
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert words in err
    assert not Path("mine.rlsdk").exists()
    assert cli(*IMPORT, "other", "--out", "mine")[0] == 0, "others are unharmed"


def test_two_packages_with_one_format(site: Site, cli: Any) -> None:
    add(site, "one", "plain")
    add(site, "two", "plain")
    add(site, "fine", "other")
    code, _, err = cli(*IMPORT, "plain", "--out", "mine")
    assert (code, err.count("\n")) == (1, 1)
    assert "'plain' (importers) is offered by several plugins: acme-one/one, acme-two/two; uninstall all but one" in err
    assert cli(*IMPORT, "other", "--out", "mine")[0] == 0


def test_statistics_of_the_peer_belong_to_its_format(site: Site, cli: Any) -> None:
    add(site, "one", "plain")
    code, _, err = cli(*IMPORT, "plain", "--out", "mine", "--vecnormalize", "x.pkl")
    assert code == 1
    assert "--vecnormalize belongs to --format sb3" in err


@pytest.mark.parametrize(
    "value",
    [{"a": ["x.y:z", "s"]}, {"a": ["x.y", "s", "e"]}, {"two words": ["x.y:z", "s", "e"]}, ["a"]],
    ids=str,
)
def test_a_wrong_table_is_refused(value: object) -> None:
    with pytest.raises(ManifestError, match="'importers'"):
        parse_manifest({"id": "x", "title": "t", "summary": "s", "sdk": ">=0.1", "importers": value})


def test_the_example_package_adds_a_command_and_a_format(tmp_path: Path, cli: Any) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(THIRD_PARTY / "extras" / "pyproject.toml", site)
    with on_path(site):
        trained = rlsdk.make("ars", env="CartPole-v1", seed=1, policy="LinearPolicy").learn(200)
        np.savez("w.npz", **{name: tensor.numpy() for name, tensor in trained.policy.state_dict().items()})
        line = ("import", "ars", "w.npz", "--format", "arrays", "--env", "CartPole-v1", "--set", "policy=LinearPolicy")
        assert cli(*line, "--out", "mine")[0] == 0
        seen = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
        assert np.array_equal(rlsdk.load("mine").predict(seen)[0], trained.predict(seen)[0])
        Path("w.npz").write_text("text")
        code, _, err = cli(*line, "--out", "other")
        assert (code, err.count("\n")) == (1, 1)
        assert "w.npz cannot be read as an .npz file" in err
        assert "best" in extensions("commands")


@pytest.mark.kernels("how kernels are found")
def test_the_example_kernel_takes_the_place_of_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(THIRD_PARTY.parent / "kernel" / "pyproject.toml", tmp_path)
    value, weight = torch.randn(37, 3), torch.rand(37, 3)
    expected = reference.discounted_sums(value, weight)
    with on_path(tmp_path):
        with pytest.warns(
            RuntimeWarning,
            match="discounted_sums are offered by .*RLSDK_KERNELS=.*or uninstall all but one; torch computes",
        ):
            factory.offered("discounted_sums")
        monkeypatch.setattr(loading, "entries", lambda: tuple(e for e in discovery.entries() if e.id != "kernels"))
        discovery.plugins(rescan=True)
        found = factory.offered("discounted_sums")
        assert found is not None
        assert vars(found)["_choose"].__module__ == "acme_kernel"
        torch.testing.assert_close(factory.discounted_sums(value, weight), expected)
        torch.testing.assert_close(found(value[:1], weight[:1]), value[:1])
        monkeypatch.undo()
