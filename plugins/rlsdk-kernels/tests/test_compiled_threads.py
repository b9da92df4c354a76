"""Threads of torch share the large products of compiled code. Results are the same for any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes import CFUNCTYPE, c_uint, c_void_p, cast
from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor, nn

from rlsdk.networks.layers import EnsembleMLP
from rlsdk_kernels import compiled_library
from rlsdk_kernels.compiled_dense import CompiledDense
from tests.compiled_variants import needs_library

pytestmark = [needs_library, pytest.mark.kernels("tests compiled kernels")]
SHARED = CFUNCTYPE(None, c_void_p)
PARALLEL = CFUNCTYPE(None, SHARED, c_void_p, c_uint, c_uint)
Widths = tuple[int, ...]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def network_of(widths: Widths, members: int) -> CompiledDense:
    """A network with ReLU between its layers, or an ensemble."""
    torch.manual_seed(0)
    inputs, *hidden, outputs = widths
    if members:
        modules: list[nn.Module] = list(EnsembleMLP(members, inputs, hidden, outputs, "relu").layers)
    else:
        pairs = pairwise(widths)
        modules = [module for pair in pairs for module in (nn.Linear(*pair), nn.ReLU())][:-1]
    network = CompiledDense(modules)
    for parameter in network.parameters:
        parameter.grad = torch.zeros_like(parameter)
    return network


def results(network: CompiledDense, x: Tensor) -> list[Tensor]:
    outputs, vjp = network.evaluate(x)
    vjp(outputs.square())
    towards_inputs = network.evaluate_inputs(x)[1](outputs)
    return [outputs, towards_inputs, *(p.grad.clone() for p in network.parameters if p.grad is not None)]


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("members", [0, 2, 5])
@pytest.mark.parametrize(
    ("widths", "rows"), [((3, 200, 140, 2), 100), ((17, 256, 256, 1), 64), ((130, 300, 1), 301), ((130, 1), 5)]
)
def test_results_do_not_depend_on_the_number_of_threads(widths: Widths, rows: int, members: int) -> None:
    network, x = network_of(widths, members), torch.randn(rows, widths[0], generator=Generator().manual_seed(1))
    found = []
    for count in (1, 2, 3, 1):
        torch.set_num_threads(count)
        found.append(results(network, x))
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of threads of all calls of OpenMP. A function of Python takes its place: it calls the work twice, as two
    threads would."""
    counts: list[int] = []

    def parallel(work: object, data: int, count: int, _flags: int) -> None:
        counts.append(count)
        for _ in range(2):
            SHARED(cast(work, c_void_p).value)(data)  # type: ignore[arg-type, call-overload]

    function = PARALLEL(parallel)
    monkeypatch.setattr(compiled_library, "parallel_of_torch", lambda: cast(function, c_void_p).value)
    compiled_library.threads_of.cache_clear()
    yield counts
    torch.set_num_threads(1)
    network_of((4, 2), 0)(torch.randn(1, 4))
    compiled_library.threads_of.cache_clear()


@pytest.mark.usefixtures("variant")
def test_threads_share_large_products_only(calls: list[int]) -> None:
    network, x = network_of((256, 256, 2), 0), torch.randn(64, 256)
    torch.set_num_threads(1)
    alone = results(network, x)
    assert not calls
    torch.set_num_threads(2)
    shared = results(network, x)
    # the first layer is shared in two forward passes, and in the gradients of its weights and of the inputs
    assert calls == [2] * 4
    assert all(map(torch.equal, alone, shared))
    network.evaluate(x[:8])
    assert calls == [2] * 4
    torch.set_num_threads(1)
    results(network, x)
    assert calls == [2] * 4


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize(
    ("members", "rows", "forward", "backward"),
    [
        (2, 64, 1, 1),  # each thread computes a member
        (2, 2, 0, 0),  # too small
        (0, 128, 1, 3),  # each thread computes half of the rows; backwards threads share products
        (3, 64, 1 + 2, 1 + 3),  # two members, and the products of the third
        (3, 128, 1 + 1, 1 + 3),
    ],
)
def test_threads_compute_whole_members_and_ranges_of_rows(
    members: int, rows: int, forward: int, backward: int, calls: list[int]
) -> None:
    network, x = network_of((256, 256, 256, 2), members), torch.randn(rows, 256)
    torch.set_num_threads(1)
    expected = results(network, x)
    torch.set_num_threads(2)
    outputs, vjp = network.evaluate(x)
    assert calls == [2] * forward
    vjp(outputs.square())
    assert calls == [2] * (forward + backward)
    assert all(map(torch.equal, expected, results(network, x)))


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit memory in this way")
@pytest.mark.parametrize("threads", [1, 2])
def test_exhausted_memory_is_an_error(threads: int) -> None:
    """Networks so wide that there is no memory for a copy of their weights."""
    script = f"""
import resource, runpy, torch
here = runpy.run_path({__file__!r})
network_of, results = here["network_of"], here["results"]
torch.set_num_threads({threads})
network, x = network_of((4096, 4096, 1), 2), torch.randn(4, 4096)
results(network, x)
outputs, vjp = network.evaluate(x)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, -1))
for call in (lambda: network.evaluate(x), lambda: vjp(outputs)):
    try:
        call()
    except MemoryError as error:
        assert "no memory for the layers" in str(error)
    else:
        raise AssertionError("there was enough memory")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may have no OpenMP with this function")
def test_torch_has_an_openmp_whose_threads_can_be_used() -> None:
    assert compiled_library.parallel_of_torch()


@pytest.mark.usefixtures("variant")
def test_without_openmp_one_thread_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_library, "parallel_of_torch", lambda: None)
    compiled_library.threads_of.cache_clear()
    network, x = network_of((256, 256, 2), 0), torch.randn(64, 256)
    torch.set_num_threads(1)
    alone = results(network, x)
    torch.set_num_threads(2)
    assert all(map(torch.equal, alone, results(network, x)))
    compiled_library.threads_of.cache_clear()


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_computes_alone() -> None:
    """It lacks the threads of OpenMP, and would wait for them for ever."""
    script = """
import os, sys, torch
from torch import nn
from rlsdk_kernels.compiled_dense import CompiledDense
layers = [nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)]
network, narrow, x = CompiledDense(layers), CompiledDense([nn.Linear(64, 64)]), torch.randn(256, 256)
torch.set_num_threads(2)
expected = network(x)
if (child := os.fork()) == 0:
    narrow(torch.randn(2048, 64))
    os._exit(0 if network(x).equal(expected) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


def test_narrow_networks_follow_torch_too() -> None:
    """Otherwise they would use the number of threads of the last wide network."""
    torch.set_num_threads(1)
    network_of((256, 256, 2), 0)(torch.randn(8, 256))
    torch.set_num_threads(2)
    narrow = network_of((4, 64, 64, 2), 0)
    narrow(torch.randn(8, 4))
    assert narrow._threads.used == 2
