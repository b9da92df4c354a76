"""What no library can go below on this machine: the bare environment and the bare matrix products of one step.

Our agent, in plain torch, trains a few steps while every product, convolution and LSTM that it asks torch for is written down;
then those are timed one kind after another with nothing around them: no activation, loss, optimiser, sampling, memory,
normalisation or log.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.cases import Case
from rlsdk.environments.gymnasium_adapter import make_one
from rlsdk.kernels import backends, kernels_off

Work = Callable[[], object]
SECONDS, BLOCKS = 0.1, 3
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
"""Operations of torch that multiply, and which argument the left factor is."""
HEAVY = ("convolution", "convolution_backward", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")
"""Those that are timed as they are."""


def floor(case: Case) -> float:
    """Environment steps per second of processor time."""
    return 1.0 / ((0.0 if case.offline else _environment(case)) + _arithmetic(case))


def _environment(case: Case) -> float:
    """Seconds of one bare step with actions drawn before."""
    env = make_one(case.source(), {})
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(64)]

    def steps() -> None:
        for action in actions:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return _seconds(steps) / len(actions)


def _seconds(work: Work) -> float:
    """Of one call, the median of some blocks."""
    work()
    return sorted(_block(work) for _ in range(BLOCKS))[BLOCKS // 2]


def _block(work: Work) -> float:
    """Of one call, averaged over enough calls for the clock: some machines' clocks tick in hundredths of a second."""
    calls = 1
    while (took := timeit.timeit(work, timer=time.process_time, number=calls)) < SECONDS:
        calls *= 2
    return took / calls


def _arithmetic(case: Case) -> float:
    """Seconds of products for one environment step, averaged over those of one timing."""
    with kernels_off():
        model = case.agent(0)
        model.learn(case.warmup, threads=None)
        before = model.num_timesteps
        with Recorded() as recorded:
            model.learn(case.chunk, reset_num_timesteps=False, threads=None)
    with torch.no_grad():
        total: float = sum(kind.times * min(map(_seconds, kind.ways())) for kind in recorded.kinds.values())
    return total / float(model.num_timesteps - before)


@dataclass
class Kind:
    """Calls of one operation with arguments of the same shapes in memory."""

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    times: int = 0

    def ways(self) -> list[Work]:
        """One such call: a product by the quicker library, those of an ensemble together and one after another too."""
        if self.name not in PRODUCTS:
            return [lambda: self.call(*self.arguments)]
        left, right = self.arguments[PRODUCTS[self.name] :][:2]
        if left.ndim < 3:
            return [_product(left, right)]
        members = [_product(one, other) for one, other in zip(left, right, strict=True)]
        return [_product(left, right), lambda: [work() for work in members]]


def _product(left: Tensor, right: Tensor) -> Work:
    if backends.is_quick(left, right):
        return lambda: backends.product(left, right)
    out = torch.matmul(left, right)
    return lambda: torch.matmul(left, right, out=out)


class Recorded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down what torch is asked to multiply inside the block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kinds: dict[Any, Kind] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in PRODUCTS or name in HEAVY:
            key = (name, *((tuple(a.shape), a.stride()) if isinstance(a, Tensor) else str(a) for a in args))
            if key not in self.kinds:
                kept = tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in args)
                self.kinds[key] = Kind(name, func, kept)
            self.kinds[key].times += 1
        return func(*args, **(kwargs or {}))
