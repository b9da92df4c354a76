"""The faster implementations that installed packages offer by the hook `kernels`, such as those of rlsdk-kernels.

The core computes everything in torch and knows no such package. It asks for the table when it looks up the first kernel:

    @replaceable
    def policy_loss(choice: KernelChoice, reference: PolicyLoss) -> PolicyLoss:
        return reference  # unless the table has a function `policy_loss`, which then takes the arguments
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rlsdk.errors import RlsdkError, message_of, one_line, suggest
from rlsdk.kernels.hooks import KNOWN
from rlsdk.kernels.switch import kernel_states
from rlsdk.registry.discovery import FORGET

ArgumentsT = ParamSpec("ArgumentsT")
ResultT = TypeVar("ResultT")
NAMES = (
    *("dense_network", "dense_acting", "greedy_acting", "squashed_policy", "policy_actor", "policy_evaluator"),
    *("policy_loss", "policy_steps", "optimizer_step", "vector_step", "clip_norm", "normalization"),
    *("differentiable_dense", "convolutions", "sequential", "pairwise_huber", "action_values"),
    *("discounted_sums", "advantages", "explained_variance"),
    *("graphed_acting", "graphed_transition", "graphed_update"),
)
"""The functions that a package may offer. Each takes the arguments of the function of `rlsdk.kernels` that has its name."""
_tables: list[dict[str, Callable[..., Any] | None]] = []
"""The table with all `NAMES`, once it is known. Torch's compiler can read a list, but not call what a cache needs."""


def offered(name: str) -> Callable[..., Any] | None:
    """Return the function of this name that an installed package offers; None: torch computes, or kernels are off."""
    return None if kernel_states[-1] == "off" else (_tables or _found())[0][name]


def _found() -> list[dict[str, Callable[..., Any] | None]]:
    """Ask the installed packages. What is wrong with one is a warning: training continues, in torch."""
    from rlsdk.registry.loading import offered_kernels

    table, problems = offered_kernels() if KNOWN else ({}, ())
    for name in sorted(set(table) - set(NAMES)):
        problems = (*problems, f"an installed package offers the kernel {name!r}; {suggest(name, NAMES)}")
    _tables[:] = [{name: table.get(name) for name in NAMES}]
    for problem in problems:
        warnings.warn(
            f"{one_line(problem, 1000)}; torch computes instead, which is slower", RuntimeWarning, stacklevel=4
        )
    return _tables


FORGET.append(_tables.clear)


def replaceable(by_torch: Callable[ArgumentsT, ResultT]) -> Callable[ArgumentsT, ResultT]:
    """A function that chooses a kernel: the one of its name in the table takes its place.

    One that raises an exception, other than an `RlsdkError`, is not called again. There is a warning, and torch computes.
    """
    name = by_torch.__name__

    @wraps(by_torch)
    def chosen(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> ResultT:
        if (choose := offered(name)) is not None:
            try:
                found: ResultT = choose(*args, **kwargs)
                return found
            except RlsdkError:  # it is about the network or the settings
                raise
            except Exception as error:
                _tables[0][name] = None
                cause = one_line(f"{type(error).__name__}: {message_of(error)}", 500)
                text = f"the kernel {name!r} of {choose.__module__.partition('.')[0]} raised {cause}; torch computes instead"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
        return by_torch(*args, **kwargs)

    return chosen
