"""Loads the compiled kernels, whose C sources are in `compiled/`.

The installation compiles them if it finds a C compiler (`hatch_build.py`). Without them, numpy and torch compute the same.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable
from ctypes import CDLL, c_double, c_float, c_int32, c_int64, c_void_p, cast
from functools import cache
from pathlib import Path

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from rlsdk.errors import UsageError
from rlsdk.kernels import kernel_states
from rlsdk.runtime import open_library
from rlsdk.updates import LossTerms

# The properties of this processor, and of torch's libraries on it, that determine the fastest kernel.


@cache
def _description() -> str:
    """The processor's name and, on Linux, its vendor."""
    info = Path("/proc/cpuinfo")  # `platform.processor` is empty on Linux
    return info.read_text(encoding="utf-8").partition("\n\n")[0] if info.exists() else platform.processor()


def maker() -> str:
    """The maker of the processor: `Intel`, `AMD`, or another name that Python knows."""
    return next((name for name in ("Intel", "AMD") if name in _description()), platform.machine())


def has_onednn() -> bool:
    """Whether this build of torch contains oneDNN."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_ahead_of_mkl() -> bool:
    """Whether this is an AMD processor with AVX-512, which MKL does not use."""
    return has_avx512() and "AuthenticAMD" in _description()


def has_avx512() -> bool:
    """Whether this processor has AVX-512 and torch uses it."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def has_avx2() -> bool:
    """Whether this processor has AVX2, or AVX-512 too, and torch uses it."""
    return torch.backends.cpu.get_cpu_capability() in {"AVX2", "AVX512"}


FOLDER = Path(__file__).parent / "compiled"
POINTER, COUNT = c_void_p, c_int64
Number = c_void_p | c_int64 | c_int32 | c_float | c_double


def fields(kind: type[Number], names: str) -> tuple[tuple[str, type[Number]], ...]:
    """Return fields of a C structure, which all have the same type."""
    return tuple((name, kind) for name in names.split())


class Layer(ctypes.Structure):
    """A layer of a dense network, as `dense.h` declares it."""

    _fields_ = (
        *fields(POINTER, "weight bias"),
        *fields(COUNT, "inputs outputs activation by_inputs"),
        *fields(POINTER, "scale shift"),
        *fields(c_float, "eps"),
    )


class Norm(ctypes.Structure):
    """The normalization of a layer's inputs, as `renorm.c` declares it."""

    _fields_ = (
        *fields(POINTER, "scale bias mean variance passes"),
        *fields(COUNT, "warm_up"),
        *fields(c_float, "momentum eps"),
    )


class Network(ctypes.Structure):
    """A network with its gradients, as `dense.h` declares it."""

    _fields_ = (*fields(POINTER, "layers"), *fields(COUNT, "count"), *fields(POINTER, "grads"))


class Squashed(ctypes.Structure):
    """A squashed Gaussian policy, as `squashed.c` declares it."""

    _fields_ = (*(("body", Network), ("mean", Network), ("log_std", Network)), *fields(c_float, "low high"))


class Columns(ctypes.Structure):
    """The columns of a minibatch, as `policy.h` declares them."""

    _fields_ = fields(POINTER, "weight advantage old_log_prob old_value target log_prob entropy value")


class Steps(ctypes.Structure):
    """The steps of a rollout, as `policy.h` declares them."""

    _fields_ = fields(POINTER, "value reward next_value terminated truncated valid")


class Terms(ctypes.Structure):
    """The coefficients of the loss, as `policy.h` declares them."""

    _fields_ = (*fields(c_float, "clip clip_value entropy value"), *fields(c_int32, "normalize_advantage"))


class Optimizer(ctypes.Structure):
    """A vector of parameters and the options of its optimizer, as `optimizers.h` declares them."""

    _fields_ = (
        *fields(COUNT, "kind size clear_every"),
        *fields(POINTER, "value grad first second"),
        *fields(c_double, "rate alpha beta eps decay"),
        *fields(c_float, "smallest largest_norm"),
    )


ARGUMENTS: dict[str, tuple[type[Number], ...]] = {
    "dense_forward": (POINTER, COUNT, COUNT, POINTER, COUNT, POINTER, POINTER),
    "dense_outputs": (POINTER, COUNT, POINTER, COUNT, POINTER),
    "dense_backward": (POINTER, COUNT, COUNT, POINTER, COUNT, POINTER, POINTER, POINTER, POINTER, POINTER),
    "dense_jvp": (POINTER, COUNT, POINTER, COUNT, POINTER, POINTER, POINTER, POINTER),
    "act_greedily": (POINTER, COUNT, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER),
    "act_by_choice": (POINTER, COUNT, POINTER, COUNT, POINTER, POINTER, c_float, POINTER),
    "act_by_noise": (POINTER, COUNT, POINTER, COUNT, POINTER, POINTER),
    "choices_taken": (POINTER, POINTER, POINTER, COUNT, COUNT, c_float, POINTER, POINTER, POINTER),
    "choices_vjp": (POINTER, POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER),
    "vectors_taken": (POINTER, POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER),
    "vectors_vjp": (POINTER, POINTER, COUNT, COUNT, POINTER, POINTER, POINTER, POINTER),
    "policy_loss": (POINTER, COUNT, POINTER, POINTER, POINTER, POINTER, POINTER),
    "discounted_sums": (POINTER, POINTER, COUNT, COUNT, POINTER),
    "discounted_sums_double": (POINTER, POINTER, COUNT, COUNT, POINTER),
    "advantages": (POINTER, COUNT, COUNT, c_float, c_float, POINTER, POINTER),
    "explained_variance": (POINTER, POINTER, COUNT),
    "greedy_targets": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER),
    "values_taken": (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER),
    "values_taken_vjp": (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER),
    "smooth_l1": (POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, POINTER, POINTER),
    "pairwise_huber": (POINTER, POINTER, POINTER, POINTER, COUNT, COUNT, COUNT, COUNT, COUNT, POINTER),
    "squashed_sample": (POINTER, POINTER, POINTER, COUNT, COUNT, c_float, c_float, POINTER, POINTER),
    "squashed_vjp": (*[POINTER] * 5, COUNT, COUNT, c_float, c_float, POINTER, POINTER),
    "squashed_forward": (*[POINTER] * 3, COUNT, *[POINTER] * 3),
    "squashed_act": (POINTER, POINTER, COUNT, POINTER),
    "squashed_backward": (*[POINTER] * 3, COUNT, *[POINTER] * 4),
    "clip_norm": (POINTER, COUNT, c_float),
    "normalize": (POINTER, COUNT, COUNT, POINTER, POINTER, c_float, POINTER),
    "counted_step": (POINTER, POINTER),
    "radam_step": (*[POINTER] * 4, COUNT, *[c_double] * 4, COUNT),
    "use_threads": (COUNT, POINTER),
    "renorm_forward": (POINTER, POINTER, COUNT, COUNT, POINTER, COUNT, COUNT, POINTER, POINTER),
    "renorm_backward": (POINTER, POINTER, *[COUNT] * 4, *[POINTER] * 5),
    "policy_steps": (POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER, POINTER),
}
"""The arguments of each function. Those that allocate memory or check actions return 0 if they succeed."""


def library_file(folder: Path = FOLDER) -> Path | None:
    """Return the library for this processor; None if the installation compiled none."""
    capability = torch.backends.cpu.get_cpu_capability().lower()
    names = ["default"] if capability not in ("avx2", "avx512") else [capability, "default"]
    return next((path for name in names if (path := folder / f"kernels-{name}.so").is_file()), None)


def load(path: Path) -> CDLL | None:
    """Load a library and declare its functions; None if it is of another system or of other sources, or cut off."""
    try:
        loaded = open_library(path)
        for name, arguments in ARGUMENTS.items():
            getattr(loaded, name).argtypes = arguments
        loaded.explained_variance.restype = loaded.pairwise_huber.restype = c_double
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


def may_compile() -> bool:
    """Whether kernels may use compiled code, and this installation has it for the processor."""
    return kernel_states[-1] == "on" and _has_library()


@cache
def _has_library() -> bool:
    return library() is not None


class Threads:
    """The number of threads of one library. They are those of torch's OpenMP: further threads would need further cores."""

    def __init__(self, library: CDLL) -> None:
        self.library, self.used, self._is_forked = library, 1, False
        os.register_at_fork(after_in_child=self._forked)

    def follow_torch(self) -> None:
        """Share products among as many threads as torch uses now. Without a known OpenMP, one thread computes them."""
        if (count := torch.get_num_threads()) != self.used:
            self.used, parallel = count, None if self._is_forked else parallel_of_torch()
            self.library.use_threads(count if parallel else 1, parallel)

    def _forked(self) -> None:
        """Compute with one thread: the child of a fork lacks the other threads of OpenMP, and would wait for them."""
        self._is_forked, self.used = True, 1
        self.library.use_threads(1, None)


threads_of = cache(Threads)
"""Returns the threads of a library, which is never unloaded."""


@cache
def parallel_of_torch() -> int | None:
    """Return the address of the function `GOMP_parallel` of torch's OpenMP; None if torch has another one, or none."""
    home = Path(torch.__file__).parents[1]
    pools = [Path(pool["filepath"]) for pool in ThreadpoolController().select(user_api="openmp").info()]
    if not pools:
        return None
    nearest = min(pools, key=lambda path: home not in path.parents)  # other packages may have loaded their own
    function = getattr(CDLL(str(nearest)), "GOMP_parallel", None)
    return None if function is None else cast(function, c_void_p).value


def places(tensors: Iterable[Tensor]) -> ctypes.Array[c_void_p]:
    """Return the addresses of tensors [..], which must stay alive."""
    addresses = list(map(Tensor.data_ptr, tensors))
    return (c_void_p * len(addresses))(*addresses)


def as_floats(values: Tensor) -> Tensor:
    """Return `values` [..] as contiguous float32 on the CPU, without a copy if possible."""
    if values.dtype is torch.float32 and values.is_cpu and values.is_contiguous():
        return values
    return values.detach().to("cpu", torch.float32).contiguous()


def require_readable(values: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raises UsageError if compiled code would read other memory than that of `values` [..], which are contiguous."""
    if values.shape != shape or values.dtype is not dtype or not values.is_cpu:
        raise UsageError(
            f"actions, masks, deviations or gradients of this batch are {values.dtype} {list(values.shape)} on"
            f" {values.device}; the policy takes {dtype} {list(shape)} on cpu"
        )


def floats_of(values: Tensor, *shape: int) -> Tensor:
    """Return `values` [..] as contiguous float32 on the CPU. Raises UsageError if they have another shape."""
    found = as_floats(values)
    require_readable(found, shape, torch.float32)
    return found


def as_mask(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `mask` as contiguous bool [N, O]. Raises UsageError if it has another type or shape."""
    found = mask.contiguous()
    require_readable(found, shape, torch.bool)
    return found


def not_a_choice(choices: int) -> UsageError:
    """Return the error for actions that are not among the choices."""
    return UsageError(f"an action is none of the {choices} choices, which are counted from 0")


def terms_of(terms: LossTerms) -> Terms:
    """Return the coefficients of the loss for compiled code."""
    limits = (-1.0 if limit is None else limit for limit in (terms.clip, terms.clip_value))
    return Terms(*limits, terms.ent_coef, terms.vf_coef, terms.normalize_advantage)
