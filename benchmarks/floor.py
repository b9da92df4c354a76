"""The shortest possible time of a step on this machine: the bare environment and the bare matrix products.

An agent of rlsdk trains a few steps in plain torch, while every product, convolution and LSTM is recorded. Then these calls are
timed alone: without activations, losses, optimizers, sampling, replay buffers, normalization or logs.

The second floor is that of plain torch: all calls of torch that compute something, each timed alone. It adds activations,
losses, optimizers, sampling and copies, and the overhead of each call. Time between the calls, such as that of Python, is not
counted. The kernels of rlsdk can be faster than this floor, because they need fewer calls.

python -m benchmarks.floor [CASE ...]     print both, and our speed in the same run
"""

from __future__ import annotations

import argparse
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from benchmarks.cases import CASES, Case
from rlsdk.environments.gymnasium_adapter import make_one
from rlsdk.kernels import kernels_off
from rlsdk.runtime import limited_threads
from rlsdk_kernels import backends

Work = Callable[[], object]
HEAD = (
    "| case | rlsdk, steps/s | floor, steps/s | rlsdk of that | second floor, steps/s | rlsdk of that |\n"
    "|---|---|---|---|---|---|"
)
CHUNKS = 3
PLAIN = (bool, int, str, NoneType, torch.dtype, torch.device, torch.layout, torch.memory_format)
SECONDS, SECONDS_OF_MANY, BLOCKS = 0.1, 0.01, 3
PRODUCTS = {"mm": 0, "bmm": 0, "mv": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
"""Matrix products of torch -> the index of the argument that is the left factor."""
HEAVY = ("convolution", "convolution_backward", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")
"""Further operations of the first floor, which are timed unchanged."""


def floor(case: Case, *, every_call: bool = False) -> float:
    """Environment steps per second of processor time, with one thread; updates if the case learns from a data set alone.

    With `every_call`, all calls of torch count, not only products.
    """
    with limited_threads(1):
        seconds = _calls(case) if every_call else _arithmetic(case)
        return 1.0 / ((0.0 if case.offline else _environment(case)) + seconds)


def ours(case: Case) -> float:
    """Environment steps per second of processor time of rlsdk's agent, with one thread: the median of some chunks. Updates
    instead of steps if the case learns from a data set alone."""
    with limited_threads(1):
        model = case.agent(0)
        model.learn(case.warmup, threads=None)
        speeds = []
        for _ in range(CHUNKS):
            steps, began = model.num_timesteps, time.process_time()
            model.learn(case.chunk, reset_num_timesteps=False, threads=None)
            speeds.append((model.num_timesteps - steps) / (time.process_time() - began))
    return float(sorted(speeds)[CHUNKS // 2])


def _environment(case: Case) -> float:
    """Seconds of one step of the bare environment. Actions are drawn before."""
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


def _seconds(work: Work, least: float | None = None) -> float:
    """Seconds of one call: the median over some blocks, each of at least `least` seconds, by default `SECONDS`."""
    work()
    return sorted(_block(work, SECONDS if least is None else least) for _ in range(BLOCKS))[BLOCKS // 2]


def _block(work: Work, least: float) -> float:
    """Seconds of one call, averaged over enough calls: some machines' clocks have a resolution of 0.01 seconds."""
    calls = 1
    while (took := timeit.timeit(work, timer=time.process_time, number=calls)) < least:
        calls *= 2
    return took / calls


def _arithmetic(case: Case) -> float:
    """Seconds of products for one environment step, averaged over some rounds."""
    recorded, steps = _recorded(case, multiplies)
    with torch.no_grad():
        total: float = sum(kind.times * min(map(_seconds, kind.ways())) for kind in recorded.kinds.values())
    return total / steps


def multiplies(call: Any) -> bool:
    """Whether a call of torch counts in the first floor."""
    return _name(call) in PRODUCTS or _name(call) in HEAVY


def computes(call: Any) -> bool:
    """Whether a call of torch counts in the second floor. Views compute nothing."""
    return not call.is_view


def _calls(case: Case) -> float:
    """Seconds of all calls of plain torch for one environment step."""
    recorded, steps = _recorded(case, computes)
    torch.set_flush_denormal(True)  # values that repeated scaling makes denormal would be slow
    try:
        with torch.no_grad():
            kinds = recorded.kinds.values()
            total: float = sum(
                kind.times * min(_seconds(way, SECONDS_OF_MANY) for way in kind.ways()) for kind in kinds
            )
    finally:
        torch.set_flush_denormal(False)
    return total / steps


def _recorded(case: Case, wanted: Callable[[Any], bool]) -> tuple[Recorded, float]:
    """Return the calls of torch in some rounds for which `wanted` is true, and the number of environment steps."""
    with kernels_off():
        model = case.agent(0)
        model.learn(case.warmup, threads=None)
        before = model.num_timesteps
        with Recorded(wanted) as recorded:
            model.learn(max(1, case.chunk // 4), reset_num_timesteps=False, threads=None)  # at least one round
    return recorded, float(model.num_timesteps - before)


def _name(call: Any) -> str:
    return str(call.overloadpacket.__name__)


@dataclass
class Kind:
    """Calls of one operation with arguments of the same shapes in memory."""

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    times: int = 0

    def ways(self) -> list[Work]:
        """The ways to do one such call, of which the fastest counts. A product uses the faster library. Products of an ensemble
        are done in one call, or one after another."""
        if self.name not in PRODUCTS:
            return [lambda: self.call(*self.arguments, **self.named)]
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
    """A context that records the calls of torch for which `wanted` is true."""

    def __init__(self, wanted: Callable[[Any], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.wanted = wanted
        self.kinds: dict[Any, Kind] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if self.wanted(func):
            drawn = _name(func) == "randint"  # its bounds, as the size of a growing buffer, do not change its time
            key = str(
                (func, *tree_map(_shape, ([each for each in args if isinstance(each, list)] if drawn else args, named)))
            )
            if key not in self.kinds:
                own, own_named = tree_map(_copy, (args, named))
                self.kinds[key] = Kind(_name(func), func, own, own_named)
            self.kinds[key].times += 1
        return func(*args, **named)


def _shape(value: object) -> object:
    """The part of an argument that the time of a call depends on. Fractions, such as step sizes, and generators are all
    alike."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    return value if isinstance(value, PLAIN) else type(value).__name__


def _copy(value: object) -> object:
    return value.detach().clone() if isinstance(value, Tensor) else value


def main(names: list[str]) -> None:
    """Measure the speed and both floors of the cases `names`, or of all cases. Print them."""
    print(HEAD)
    for name in names or [name for name, case in CASES.items() if not case.workers]:
        case = CASES[name]
        own, low, second = ours(case), floor(case), floor(case, every_call=True)
        row = f"| {name} | {own:.0f} | {low:.0f} | {own / low:.0%} | {second:.0f} | {own / second:.0%} |"
        print(row, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__)
    parser.add_argument(
        "cases", nargs="*", choices=[*CASES, []], metavar="CASE", help=f"of {', '.join(CASES)}; all without"
    )
    main(parser.parse_args().cases)
