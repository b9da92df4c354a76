"""The global state of numpy and torch, which is restored after a plugin's import.

It is read before the import if the library is loaded, else immediately after the plugin has imported the library.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rlsdk.registry.process_state import Guarded, State, put_values, values_at

LIBRARIES = ("numpy", "torch")


def of_library(name: str) -> list[Guarded]:
    """Return the states of the library `name`, "numpy" or "torch", which must be loaded."""
    return _of_numpy(sys.modules[name]) if name == "numpy" else _of_torch(sys.modules[name])


def _of_numpy(numpy: ModuleType) -> list[Guarded]:
    def random_state() -> tuple[object, ...]:
        kind, keys, *rest = numpy.random.get_state()
        return kind, keys.tobytes(), *rest

    def put_random_state(value: tuple[object, ...]) -> None:
        kind, keys, *rest = value
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))

    return [
        State("numpy's random state", random_state, put_random_state),
        State("numpy's error handling", numpy.geterr, lambda value: numpy.seterr(**value)),
        State("numpy's error callback", numpy.geterrcall, numpy.seterrcall),
        State("numpy's print options", numpy.get_printoptions, lambda value: numpy.set_printoptions(**value)),
    ]


def _of_torch(torch: ModuleType) -> list[Guarded]:
    def put_random_state(value: bytes) -> None:
        torch.random.set_rng_state(torch.frombuffer(bytearray(value), dtype=torch.uint8))

    def deterministic() -> tuple[bool, bool]:
        return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()

    def put_deterministic(value: tuple[bool, bool]) -> None:
        torch.use_deterministic_algorithms(value[0], warn_only=value[1])

    def put_device(value: str) -> None:
        # setting "cpu" would leave a torch function mode active, which every call of torch would go through
        torch.set_default_device(None if value == "cpu" else value)

    def flush_denormal() -> bool:
        return not bool((torch.tensor([1e-310], dtype=torch.float64, device="cpu") * 1).all())

    switches = [(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")]
    return [
        State("torch's random state", lambda: torch.random.get_rng_state().numpy().tobytes(), put_random_state),
        State("torch's random state on GPUs", lambda: _of_gpus(torch), lambda value: _put_gpus(torch, value)),
        State("torch's thread count", torch.get_num_threads, torch.set_num_threads),
        State("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        State("torch's default device", lambda: str(torch.get_default_device()), put_device),
        State("torch's grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        State("torch's deterministic mode", deterministic, put_deterministic),
        State("torch's matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        State("torch's anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        State(
            "torch's autocast",
            lambda: torch.is_autocast_enabled("cpu"),
            lambda value: torch.set_autocast_enabled("cpu", value),
        ),
        State("torch's flushing of denormal numbers", flush_denormal, torch.set_flush_denormal),
        State("cudnn's settings", lambda: values_at(switches), lambda value: put_values(switches, value)),
    ]


def _of_gpus(torch: ModuleType) -> list[bytes]:
    if not torch.cuda.is_initialized():
        return []
    return [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]


def _put_gpus(torch: ModuleType, value: list[bytes]) -> None:
    if not value:
        raise RuntimeError("GPUs were not in use before")
    torch.cuda.set_rng_state_all([torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in value])


class _Watch(MetaPathFinder):
    """Calls `loaded` right after a library is imported, before the importing code continues."""

    def __init__(self, loaded: Callable[[str], None]) -> None:
        self.loaded = loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in LIBRARIES:
            return None
        for finder in list(sys.meta_path):
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            self.loaded(spec.name)

        loader.exec_module = exec_module


@contextlib.contextmanager
def watched(loaded: Callable[[str], None]) -> Iterator[None]:
    """Inside the `with` statement, call `loaded` with the name of each library as soon as it has been imported."""
    watch = _Watch(loaded)
    sys.meta_path.insert(0, watch)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(watch)
