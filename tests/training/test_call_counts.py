"""Tests of speed that do not depend on the load of the machine: calls and new tensors per step and per update.

The counts are the same every time with the versions of constraints.txt. A failing test means that a step or an update
does more work. Find the cause (cProfile, `rlsdk run --profile`), or raise the budget in the change that needs it. Lower
the budget when the counts fall.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.kernels.factory import compiled_off
from rlsdk.runtime.process import Streams
from rlsdk.training import LocalCollector, OffPolicyPlan, ReplayUpdates, begin_acting
from rlsdk_envs.toy import IdentityEnv, InvalidActionEnvDiscrete
from rlsdk_kernels.compiled_library import may_compile

STEPS = 64
pytestmark = pytest.mark.kernels("counts the calls that kernels make")


class Counts:
    """The number of calls of Python and C functions, and of tensors with their own memory."""

    calls = 0
    tensors = 0


class _Allocations(TorchDispatchMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not function.is_view and not function._schema.is_mutable:
            self.counts.tensors += 1
        return result


@contextmanager
def counted(kind: str) -> Iterator[Counts]:
    counts = Counts()

    def note(frame: Any, event: str, argument: Any) -> None:
        counts.calls += event in ("call", "c_call")

    if kind == "tensors":
        with _Allocations(counts):
            yield counts
        return
    gc.collect()
    # a garbage collection runs callbacks that libraries such as hypothesis registered, which would be counted
    gc.disable()
    sys.setprofile(note)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        gc.enable()


def measured(work: Callable[[], Any]) -> tuple[int, int]:
    """(calls, new tensors) of one call of `work`, after an earlier call that is not counted."""
    work()
    with counted("calls") as calls:
        work()
    with counted("tensors") as tensors:
        work()
    return calls.calls, tensors.tensors


def agent(name: str) -> Any:
    env: Any = {
        "maskable-ppo": lambda: InvalidActionEnvDiscrete(12, 6),
        "tqc": "Pendulum-v1",
        "trpo": "Pendulum-v1",
        "trpo normalized": "Pendulum-v1",
        "recurrent-ppo": "CartPole-v1",
        "qrdqn": lambda: IdentityEnv(4),
    }[name]
    settings: dict[str, Any] = {
        "tqc": {"learning_starts": 0, "buffer_size": 500, "batch_size": 32, "policy_kwargs": {"net_arch": [32, 32]}},
        "qrdqn": {"learning_starts": 0, "buffer_size": 500, "batch_size": 32},
        # always five conjugate gradients and one step length: how many more are taken depends on how the processor rounds
        "trpo": {"n_steps": STEPS, "batch_size": 32, "cg_max_steps": 5, "line_search_max_iter": 1},
    }.get(name, {"n_steps": STEPS, "batch_size": 32})
    algorithm, *prepared = name.split()
    if prepared:
        settings["normalize"] = True
    return rlsdk.make(algorithm, env=make_vec_env(env, 1, vectorization="sync"), seed=0, **settings)


COLLECTING = {
    "maskable-ppo": (135, 2.3),
    "qrdqn": (117, 3.3),
    "recurrent-ppo": (375, 27.5),
    "tqc": (127, 3.3),
    "trpo": (81, 1.3),
    "trpo normalized": (93, 1.4),
}
"""(calls, new tensors) per environment step at most: a few percent above the counts, for other patch releases. Checks of
scores, of the layout of parameters and of episodes that do not end added one to six calls. A policy that cannot act in place
says so after two or three tensors were made per rollout."""
UPDATING = {
    "maskable-ppo": (7330, 140),
    "qrdqn": (400, 22),
    "recurrent-ppo": (11_400, 2000),
    "tqc": (765, 95),
    "trpo": (6500, 285),
}
"""(calls, new tensors) at most per update: of a batch off-policy, of a rollout of 64 steps on-policy."""
COMPILED_COLLECTING = COLLECTING | {
    "maskable-ppo": (125, 3.4),
    "tqc": (119, 3.3),
    "trpo": (41, 0.3),
    "trpo normalized": (47, 0.42),
}
COMPILED_UPDATING = UPDATING | {
    "maskable-ppo": (405, 23),
    "qrdqn": (275, 22),
    "recurrent-ppo": (11_300, 1980),
    "tqc": (575, 52),
    "trpo": (5800, 335),
}
"""The same with compiled kernels, which make fewer calls. Their results are tensors; arrays of numpy are not counted."""
CODE = pytest.mark.parametrize("code", ["compiled", "uncompiled"])


@contextmanager
def code_of(code: str) -> Iterator[None]:
    """Inside the `with` block, agents run with or without compiled code; skips the test if there is none."""
    if code == "compiled" and not may_compile():
        pytest.skip("this installation compiled no kernels")
    with nullcontext() if code == "compiled" else compiled_off():
        yield


def _within(name: str, found: tuple[float, float], budget: tuple[float, float]) -> None:
    for what, now, allowed in zip(("calls", "new tensors"), found, budget, strict=True):
        assert now <= allowed, f"{name}: {now:.1f} {what}, {allowed} were enough before"


@CODE
@pytest.mark.parametrize("name", list(COLLECTING))
def test_collecting_takes_no_more_calls_than_before(name: str, code: str) -> None:
    budgets = COMPILED_COLLECTING if code == "compiled" else COLLECTING
    with code_of(code):
        _within(name, _collecting(name), budgets[name])


def _collecting(name: str) -> tuple[float, float]:
    model = agent(name)
    parts, generator = model.parts, Streams(0)["action"]
    env, policy = model.preprocessing.environment(model.env), parts.behavior_policy
    normalizer = model.preprocessing.rollouts(parts)
    collector = LocalCollector(env, (begin_acting(env, policy, 0),), [generator], normalizer)

    calls, tensors = measured(lambda: collector.collect(policy, STEPS))
    return calls / STEPS, tensors / STEPS


@CODE
@pytest.mark.parametrize("name", list(UPDATING))
def test_updating_takes_no_more_calls_than_before(name: str, code: str) -> None:
    budgets = COMPILED_UPDATING if code == "compiled" else UPDATING
    with code_of(code):
        _within(name, _updating(name), budgets[name])


def _updating(name: str) -> tuple[float, float]:
    model = agent(name).learn(2 * STEPS)
    parts = model.parts
    if isinstance(parts.plan, OffPolicyPlan):
        size, updating = parts.plan.batch_size, ReplayUpdates(parts, model.streams)
        found = measured(lambda: updating.update(1, size, 0.0))
    else:
        from rlsdk_testing.rollouts import rollout_of

        rollout = rollout_of(model, STEPS)
        found = measured(lambda: parts.algorithm.update(rollout, progress=0.0))
    return found
