"""Packages offer kernels by the hook `kernels`. What is wrong with one is a warning of one line; torch computes instead."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import rlsdk_kernels
from rlsdk.errors import UsageError
from rlsdk.kernels import factory, kernels_off, reference
from rlsdk.kernels import factory as table
from rlsdk.registry import discovery, loading
from rlsdk.runtime.files import read_toml
from rlsdk_kernels.hooks import kernels as own_table
from tests.plugin_site import Site

MANIFEST = 'id = "{id}"\ntitle = "t"\nsummary = "s"\nsdk = "{sdk}"\nkernels = {names}\n'
CODE = """
from rlsdk.registry import hookimpl

@hookimpl
def kernels():
    {body}
"""
CALLED = "return {'clip_norm': lambda gradients, reference: lambda values, norm: values.fill_(7.0)}"
pytestmark = pytest.mark.kernels("how kernels are found")


def offer(site: Site, identity: str, body: str, names: str = '["clip_norm"]', sdk: str = ">=0.1") -> None:
    manifest = MANIFEST.format(id=identity, sdk=sdk, names=names)
    site.add(identity, manifest=manifest, code=CODE.format(body=body))
    discovery.plugins(rescan=True)


def clipped() -> float:
    values = torch.ones(4)
    factory.clip_norm(values, reference.clip_norm)(values, 1.0)
    return float(values[0])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package rlsdk-kernels is not installed."""
    monkeypatch.setattr(loading, "entries", lambda: tuple(e for e in discovery.entries() if e.id != "kernels"))
    discovery.plugins(rescan=True)
    yield
    monkeypatch.undo()
    discovery.plugins(rescan=True)


def test_the_package_offers_all_kernels_that_there_are() -> None:
    manifest = read_toml(Path(rlsdk_kernels.__file__).with_name("rlsdk.toml"))
    assert manifest is not None
    assert set(manifest["kernels"]) == set(table.NAMES) == set(own_table())
    assert all(table.offered(name) is not None for name in table.NAMES)
    with kernels_off():
        assert all(table.offered(name) is None for name in table.NAMES)


def test_without_a_package_torch_computes(alone: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert factory.clip_norm(torch.ones(2), reference.clip_norm) is reference.clip_norm
        assert factory.normalization() is None
        assert clipped() == pytest.approx(0.5)


@pytest.mark.parametrize("switch", ["tqc", "off"])
def test_the_switch_of_plugins_does_not_hide_kernels(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(discovery.SWITCH, switch)
    discovery.plugins(rescan=True)
    assert table.offered("clip_norm") is not None


def test_a_package_of_others_offers_a_kernel(site: Site, alone: None) -> None:
    offer(site, "quick", CALLED)
    assert clipped() == 7.0
    with kernels_off():
        assert clipped() == pytest.approx(0.5)


def test_two_packages_with_one_kernel(site: Site) -> None:
    offer(site, "quick", CALLED)
    with pytest.warns(RuntimeWarning, match="clip_norm are offered by .*acme-quick/quick") as found:
        assert clipped() == pytest.approx(0.5)
    assert [len(str(each.message).splitlines()) for each in found] == [1]
    assert table.offered("sequential") is not None, "the other kernels stay"


@pytest.mark.parametrize(
    ("body", "names", "sdk", "message"),
    [
        ("raise RuntimeError('no card')", '["clip_norm"]', ">=0.1", "is broken.*no card"),
        ("import no_such_module", '["clip_norm"]', ">=0.1", "no_such_module"),
        ("return 3", '["clip_norm"]', ">=0.1", "returned 3; return a table"),
        ("return {}", '["clip_norm"]', ">=0.1", "its hook gives none"),
        ("return {'clip_norms': print}", '["clip_norms"]', ">=0.1", "did you mean 'clip_norm'"),
        (CALLED, '["clip_norm"]', ">=0.0.1,<0.1", "needs rlsdk"),
    ],
)
def test_a_table_that_cannot_be_used(body: str, names: str, sdk: str, message: str, site: Site, alone: None) -> None:
    offer(site, "bad", body, names, sdk)
    with pytest.warns(RuntimeWarning, match=message) as found:
        assert clipped() == pytest.approx(0.5)
    assert [len(str(each.message).splitlines()) for each in found] == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clipped() == pytest.approx(0.5), "the warning appears once"


def test_a_broken_package_leaves_the_others_alone(site: Site) -> None:
    offer(site, "bad", "raise RuntimeError('no card')", '["clip_norms"]')
    with pytest.warns(RuntimeWarning, match="no card"):
        assert table.offered("clip_norm") is own_table()["clip_norm"]


def test_a_kernel_that_raises_is_not_called_again(site: Site, alone: None) -> None:
    offer(site, "bad", "return {'clip_norm': lambda gradients, reference: 1 / 0}")
    with pytest.warns(RuntimeWarning, match="the kernel 'clip_norm' of acme_bad raised ZeroDivisionError") as found:
        assert clipped() == pytest.approx(0.5)
    assert [len(str(each.message).splitlines()) for each in found] == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clipped() == pytest.approx(0.5)


def test_errors_about_the_network_are_those_of_the_kernel() -> None:
    values = torch.ones(4)
    values.untyped_storage().resize_(0)
    with pytest.raises(UsageError, match="lost its memory"):
        factory.clip_norm(values, reference.clip_norm)
