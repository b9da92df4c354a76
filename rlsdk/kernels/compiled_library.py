"""Loads the compiled kernels, whose C sources are in `compiled/`.

The installation compiles them if it finds a C compiler (`hatch_build.py`). Without them, numpy and torch compute the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import CDLL, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).parent / "compiled"
POINTER, COUNT = c_void_p, c_int64
NETWORK = ("layers", POINTER), ("count", COUNT), ("grads", POINTER)


class Layer(ctypes.Structure):
    """A layer of a dense network, as `dense.h` declares it."""

    _fields_ = (
        *((name, POINTER) for name in ("weight", "bias")),
        *((name, COUNT) for name in ("inputs", "outputs", "activation", "by_inputs")),
    )


class Columns(ctypes.Structure):
    """The columns of a minibatch, as `policy.h` declares them."""

    _fields_ = tuple(
        (name, POINTER)
        for name in ("weight", "advantage", "old_log_prob", "old_value", "target", "log_prob", "entropy", "value")
    )


class Terms(ctypes.Structure):
    """The coefficients of the loss, as `policy.h` declares them."""

    _fields_ = (
        *((name, c_float) for name in ("clip", "clip_value", "entropy", "value")),
        ("normalize_advantage", c_int32),
    )


class Optimiser(ctypes.Structure):
    """A vector of parameters and the options of its optimiser, as `optimisers.h` declares them."""

    _fields_ = (
        *((name, COUNT) for name in ("kind", "size", "clear_every")),
        *((name, POINTER) for name in ("value", "grad", "first", "second")),
        *((name, c_double) for name in ("rate", "alpha", "beta", "eps", "decay")),
        *((name, c_float) for name in ("smallest", "largest_norm")),
    )


class Policy(ctypes.Structure):
    """An actor and a critic with their gradients, as `policy_steps.c` declares them."""

    _fields_ = (
        *((f"{part}_{name}", kind) for part in ("actor", "critic") for name, kind in NETWORK),
        *((name, POINTER) for name in ("log_std", "log_std_grad")),
        ("forbidden", c_float),
    )


class Rows(ctypes.Structure):
    """The rows of a rollout, as `policy_steps.c` declares them."""

    _fields_ = (
        *((name, POINTER) for name in ("inputs", "action", "mask", "weight", "advantage")),
        *((name, POINTER) for name in ("old_log_prob", "old_value", "target")),
        ("rows", COUNT),
    )


class Order(ctypes.Structure):
    """How rows are divided into minibatches, as `policy_steps.c` declares it."""

    _fields_ = (("order", POINTER), ("chosen", COUNT), ("size", COUNT), ("largest_kl", c_double))


ARGUMENTS: dict[str, tuple[type[c_void_p] | type[c_int64] | type[c_float], ...]] = {
    "dense_forward": (POINTER, COUNT, COUNT, POINTER, COUNT, POINTER, POINTER),
    "dense_outputs": (POINTER, COUNT, POINTER, COUNT, POINTER),
    "dense_backward": (POINTER, COUNT, COUNT, POINTER, COUNT, POINTER, POINTER, POINTER, POINTER, POINTER),
    "dense_jvp": (POINTER, COUNT, POINTER, COUNT, POINTER, POINTER, POINTER, POINTER),
    "act_greedily": (POINTER, COUNT, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER),
    "act_by_choice": (POINTER, COUNT, POINTER, COUNT, POINTER, POINTER, c_float, c_float, POINTER),
    "act_by_noise": (POINTER, COUNT, POINTER, COUNT, POINTER, POINTER),
    "choices_taken": (POINTER, POINTER, POINTER, COUNT, COUNT, c_float, POINTER, POINTER, POINTER),
    "choices_vjp": (POINTER, POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER),
    "vectors_taken": (POINTER, POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER),
    "vectors_vjp": (POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER),
    "policy_loss": (POINTER, COUNT, POINTER, POINTER, POINTER, POINTER, POINTER),
    "discounted_sums": (POINTER, POINTER, COUNT, COUNT, POINTER),
    "explained_variance": (POINTER, POINTER, COUNT),
    "greedy_targets": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER),
    "values_taken": (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER),
    "values_taken_vjp": (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER),
    "smooth_l1": (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER, POINTER),
    "clip_norm": (POINTER, COUNT, c_float),
    "optimiser_step": (POINTER, COUNT),
    "policy_steps": (POINTER, POINTER, POINTER, POINTER, POINTER, COUNT, POINTER, POINTER),
}
"""The arguments of each function. Those that allocate memory or check actions return 0 if they succeed."""


def library_file(folder: Path = FOLDER) -> Path | None:
    """Return the library for this processor; None if the installation compiled none."""
    capability = torch.backends.cpu.get_cpu_capability().lower()
    names = ["default"] if capability not in ("avx2", "avx512") else [capability, "default"]
    return next((path for name in names if (path := folder / f"kernels-{name}.so").is_file()), None)


def load(path: Path) -> CDLL | None:
    """Load a library and declare its functions; None if it is of another system or of other sources."""
    try:
        loaded = CDLL(str(path))
        for name, arguments in ARGUMENTS.items():
            getattr(loaded, name).argtypes = arguments
        loaded.explained_variance.restype = c_double
    except (OSError, AttributeError):
        return None
    return loaded


@cache
def library() -> CDLL | None:
    """Load the library for this processor; None if there is none."""
    path = library_file()
    return None if path is None else load(path)


def loaded_library() -> CDLL:
    """Return the library, which must exist."""
    found = library()
    assert found is not None
    return found


def places(tensors: Iterable[Tensor]) -> ctypes.Array[c_void_p]:
    """Return the addresses of tensors [..], which must stay alive."""
    addresses = list(map(Tensor.data_ptr, tensors))
    return (c_void_p * len(addresses))(*addresses)


def as_floats(values: Tensor) -> Tensor:
    """Return `values` [..] as contiguous float32 on the CPU, without a copy if possible."""
    if values.dtype is torch.float32 and values.is_cpu and values.is_contiguous():
        return values
    return values.detach().to("cpu", torch.float32).contiguous()
