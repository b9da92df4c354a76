"""Packages offer kernels by the hook `kernels`. What is wrong with one is a warning of one line; torch computes instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
import rlsdk_kernels
from rlsdk.errors import ContractViolation, PluginError, SettingsError, UsageError
from rlsdk.kernels import factory, kernels_off, reference
from rlsdk.kernels import factory as table
from rlsdk.registry import discovery, loading
from rlsdk.runtime.files import read_toml
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.dense_kernel import DenseKernel
from rlsdk_kernels.hooks import kernels as own_table
from rlsdk_testing import verify
from tests.plugin_site import Site

MANIFEST = 'id = "{id}"\ntitle = "t"\nsummary = "s"\nsdk = "{sdk}"\nkernels = {names}\n'
CODE = """
from rlsdk.registry import hookimpl

@hookimpl
def kernels():
    {body}
"""
CALLED = "return {'clip_norm': lambda gradients, reference: lambda values, norm: values.fill_(7.0)}"
SUMS = "return {'discounted_sums': lambda value, weight: RESULT}"
"""A kernel that computes a result."""
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
    assert set(manifest["kernels"]) == set(table.SLOTS) == set(own_table())
    assert all(table.offered(name) is not None for name in table.SLOTS)
    with kernels_off():
        assert all(table.offered(name) is None for name in table.SLOTS)


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
    fix = "name the packages to use, the preferred first, such as RLSDK_KERNELS=rlsdk-kernels,acme-quick"
    with pytest.warns(RuntimeWarning, match=f"clip_norm are offered by .*acme-quick/quick; {fix}") as found:
        assert clipped() == pytest.approx(0.5)
    assert [len(str(each.message).splitlines()) for each in found] == [1]
    assert table.offered("sequential") is not None, "the other kernels stay"


@pytest.mark.parametrize(
    ("packages", "value", "others"),
    [
        (("acme-quick", "rlsdk-kernels"), 7.0, True),
        (("rlsdk-kernels", "acme-quick"), 0.5, True),
        (("acme-quick",), 7.0, False),
        (("rlsdk-kernels",), 0.5, True),
    ],
)
def test_the_user_orders_packages(
    packages: tuple[str, ...], value: float, others: bool, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(site, "quick", CALLED)
    monkeypatch.setattr(factory, "PACKAGES", packages)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clipped() == pytest.approx(value)
    assert (table.offered("sequential") is not None) == others


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


def sums() -> torch.Tensor:
    return factory.discounted_sums(torch.ones(3, 2), torch.ones(3, 2))


WRONG = {
    "value.sum()": r"returned torch.float32 \[\], not torch.float32 \[3, 2\]",
    "value.double()": "returned .*float64",
    "value * float('nan')": "returned NaN or infinite numbers",
    "3": "returned 3, not a tensor",
    "1 / 0": "raised ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("result", WRONG)
def test_the_first_result_of_a_kernel_is_compared(result: str, site: Site, alone: None) -> None:
    offer(site, "bad", SUMS.replace("RESULT", result), '["discounted_sums"]')
    with pytest.warns(RuntimeWarning, match=f"the kernel 'discounted_sums' of acme_bad {WRONG[result]}") as found:
        assert sums().tolist() == [[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]
    assert [len(str(each.message).splitlines()) for each in found] == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sums()[0, 0] == 3.0, "torch computes from now on"


def test_after_its_first_result_a_kernel_is_called_itself(site: Site, alone: None) -> None:
    offer(site, "fine", SUMS.replace("RESULT", "reference(value, weight)"), '["discounted_sums"]')
    package = site.folder / "acme_fine" / "plugin.py"
    package.write_text("from rlsdk.kernels.reference import discounted_sums as reference\n" + package.read_text())
    assert isinstance(vars(factory)["_find_tables"]()[0]["discounted_sums"], factory.FirstUse)
    sums()
    assert type(table.offered("discounted_sums")).__name__ == "function"


class Wrong:
    """A kernel for layers, with the results of the functions that a test gives."""

    def __init__(self, outputs: Callable[[torch.Tensor], object]) -> None:
        self.outputs = outputs

    def __call__(self, x: torch.Tensor) -> object:
        return self.outputs(x)

    def evaluate(self, x: torch.Tensor) -> object:
        return self.outputs(x), lambda grad: None


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda x: x[:, :1], r"not torch.float32 \[5, 2\]"),
        (lambda x: 1 / 0, "raised ZeroDivisionError"),
        (lambda x: x.mul_(0)[:, :2] / 0, "returned NaN"),
        (None, "raised .*not callable|no attribute 'evaluate'"),
    ],
)
def test_kernels_of_networks_are_compared(outputs: Any, message: str) -> None:
    network, x = torch.nn.Linear(3, 2), torch.ones(5, 3)
    expected = network(x)
    made = Wrong(outputs) if outputs else 3
    for use in (lambda layers: layers(x), lambda layers: layers.evaluate(x)[0]):
        with factory.kernels_of({"differentiable_dense": lambda modules, hooked, reference: made}):
            layers = factory.differentiable_dense([network], False, reference.TorchLayers(network))
            with pytest.warns(RuntimeWarning, match=message) as found:
                assert use(layers).equal(expected)
            assert [len(str(each.message).splitlines()) for each in found] == [1]
            assert x.equal(torch.ones(5, 3)), "what the kernel changed is put back"
    assert layers(x).equal(expected)


LATER = """
calls = []

def late(gradients, reference):
    def clip(values, norm):
        calls.append(1)
        if len(calls) > 2:
            raise ValueError("no card")
        reference(values, norm)
    return clip
"""


def test_a_kernel_that_raises_later_ends_the_training_with_one_line(site: Site, alone: None) -> None:
    offer(site, "late", "return {'clip_norm': late}")
    package = site.folder / "acme_late" / "plugin.py"
    package.write_text(LATER + package.read_text())
    model = rlsdk.make("ppo", env="CartPole-v1", seed=0, n_steps=16, batch_size=8)
    message = r"a kernel of acme_late raised ValueError: no card .*RLSDK_KERNELS=off"
    with pytest.raises(PluginError, match=message) as caught:
        model.learn(60)
    assert len(str(caught.value).splitlines()) == 1


def test_a_single_kernel_is_chosen() -> None:
    with factory.kernels_of({"discounted_sums": lambda value, weight: value * 7.0}):
        assert sums()[0, 0] == 7.0
        assert table.offered("sequential") is None
    assert sums()[0, 0] == 3.0
    with pytest.raises(SettingsError, match="there is no kernel 'discounted_sum'; did you mean 'discounted_sums'"):
        factory.kernels_of({"discounted_sum": print}).__enter__()


@pytest.mark.full
def test_an_unknown_package_is_an_error() -> None:
    from tests.kernels.test_without_kernels import in_a_process

    done = in_a_process(["-c", "from rlsdk.kernels import kernels_off"], RLSDK_KERNELS="rlsdk-kernel")
    assert "no installed package 'rlsdk-kernel' offers kernels; did you mean 'rlsdk-kernels'" in done.stderr


MUTANTS = {
    "a wrong value": "value.cumsum(0)",
    "a wrong shape": "value[:1]",
    "a wrong dtype": "value.double()",
    "NaN": "value * float('nan')",
    "an error": "1 / 0",
}


@pytest.mark.parametrize("result", MUTANTS.values(), ids=MUTANTS)
def test_the_kit_finds_wrong_kernels(result: str, site: Site) -> None:
    offer(site, "bad", SUMS.replace("RESULT", result), '["discounted_sums"]')
    with pytest.raises(ContractViolation, match="discounted_sums"):
        verify("bad", "plugin.kernels-agree")


@pytest.mark.full
def test_the_kit_finds_wrong_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    verify("kernels", "plugin.kernels-agree")
    monkeypatch.setattr(CompiledDense, "backward", lambda *_: None)
    monkeypatch.setattr(DenseKernel, "backward", lambda *_: None)
    with pytest.raises(ContractViolation, match="the gradients of"):
        verify("kernels", "plugin.kernels-agree")


def test_errors_about_the_network_are_those_of_the_kernel() -> None:
    values = torch.ones(4)
    values.untyped_storage().resize_(0)
    with pytest.raises(UsageError, match="lost its memory"):
        factory.clip_norm(values, reference.clip_norm)
