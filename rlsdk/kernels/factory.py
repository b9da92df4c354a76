"""Chooses kernels for networks and optimisers. Torch computes, unless an installed package offers something faster.

Each function here is called once per network, optimiser or algorithm, and again after its layers were replaced.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from importlib.util import find_spec
from inspect import getattr_static
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.errors import RlsdkError, message_of, one_line, suggest
from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.protocol import (
    Acting,
    ActionValues,
    ActorCriticLayers,
    Acts,
    DenseNetwork,
    GreedyKernel,
    KernelChoice,
    NormalizationKernel,
    PolicyActor,
    PolicyEvaluator,
    PolicyLoss,
    PolicySteps,
    ReplayedTransition,
    RowsT,
    SquashedLayers,
    SquashedPolicy,
)
from rlsdk.kernels.reference import Advantages, Differentiable
from rlsdk.kernels.structure import KNOWN, kernel_states
from rlsdk.kernels.vector_steps import VectorStep
from rlsdk.records import StepData
from rlsdk.registry.discovery import FORGET

ResultT = TypeVar("ResultT")
InputsT = TypeVar("InputsT")
KeptT = TypeVar("KeptT")
TransientT = TypeVar("TransientT")
ArgumentsT = ParamSpec("ArgumentsT")


# The faster implementations that installed packages offer by the hook `kernels`, such as those of rlsdk-kernels.
#
# The core computes everything in torch and knows no such package. It asks for the table when it looks up the first
# kernel:
#
#     @replaceable
#     def policy_loss(choice: KernelChoice, reference: PolicyLoss) -> PolicyLoss:
#         return reference  # unless the table has a function `policy_loss`, which then takes the arguments

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


@replaceable
def dense_network(
    modules: Sequence[nn.Module],
    encoder: nn.Module,
    choice: KernelChoice,
    hooked: bool,
    reference: DenseNetwork,
    member: int | None = None,
) -> DenseNetwork:
    """Return the kernel for layers that follow an encoder.

    Args:
        modules: the layers.
        encoder: the encoder.
        choice: the properties that determine the fastest kernel.
        hooked: whether modules have hooks, which only `reference` calls.
        reference: evaluates the network by calling its modules.
        member: the index of one member of an ensemble, to evaluate it alone; None: all.
    """
    return reference


@replaceable
def dense_acting(
    modules: Sequence[nn.Module], encoder: nn.Module, choice: KernelChoice, hooked: bool, reference: Acting
) -> Acting:
    """Return the kernel for acting with layers that follow an encoder."""
    return reference


@replaceable
def greedy_acting(
    modules: Sequence[nn.Module],
    encoder: nn.Module,
    choice: KernelChoice,
    hooked: bool,
    actions: int,
    values_per_action: int,
) -> GreedyKernel | None:
    """Return the kernel for acting greedily; None if no kernel fits, for example without dense layers."""
    return None


@replaceable
def squashed_policy(
    layers: SquashedLayers | None, choice: KernelChoice, hooked: bool, reference: SquashedPolicy
) -> SquashedPolicy:
    """Return the kernel for a squashed Gaussian policy. `layers` is None if the policy has other layers than
    `SquashedLayers`."""
    return reference


@replaceable
def policy_actor(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: PolicyActor
) -> PolicyActor:
    """Return the kernel for acting with an actor-critic network.

    `layers` is None if the network has other layers than `ActorCriticLayers`.
    """
    return reference


@replaceable
def policy_evaluator(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: PolicyEvaluator[RowsT]
) -> PolicyEvaluator[RowsT]:
    """Return the kernel for learning with an actor-critic network. Gradients of its parameters must be allocated."""
    return reference


@replaceable
def policy_loss(choice: KernelChoice, reference: PolicyLoss) -> PolicyLoss:
    """Return the fastest loss of an actor-critic method: a kernel for rows on the CPU, else `reference`."""
    return reference


@replaceable
def policy_steps(evaluator: PolicyEvaluator[RowsT], loss: PolicyLoss) -> PolicySteps | None:
    """Return compiled code that makes the gradient steps of `evaluator` and `loss` in one call; None: there is none."""
    return None


@replaceable
def graphed_acting(act: Acts, network: nn.Module, setting: str, as_written: bool) -> Acts:
    """Return `act`; on a GPU, its replay as a CUDA graph.

    Args:
        act: computes the actions of `network`. It draws numbers from its generator only, and reads no value on the CPU.
        network: holds all modules that `act` calls.
        setting: the `setting` of `KernelChoice`.
        as_written: whether `act` must be called every time, for example because modules have hooks.
    """
    return act


@replaceable
def graphed_transition(
    step: Callable[[InputsT, Generator], tuple[KeptT, TransientT]], env: object, generator: Generator
) -> ReplayedTransition[InputsT, KeptT, TransientT] | None:
    """Return the step of an environment as a CUDA graph; None if `generator` is on the CPU. See `ReplayedTransition`."""
    return None


@replaceable
def differentiable_dense(modules: Sequence[nn.Module], hooked: bool, reference: Differentiable) -> Differentiable:
    """Return the kernel for layers that are differentiated as torch's modules are, [N, I] -> [N, O]."""
    return reference


@replaceable
def convolutions(
    modules: Sequence[nn.Module], scale: float, hooked: bool, reference: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Return the kernel that converts pixels [N, channels, height, width] to features [N, F]; pixels are multiplied by
    `scale`."""
    return reference


@replaceable
def optimizer_step(
    choice: object, optimizer: torch.optim.Optimizer, flat: nn.Parameter
) -> Callable[[torch.optim.Optimizer, MutableMapping[str, Tensor]], bool]:
    """Return a function that makes the step of an optimiser with one parameter `flat` [D].

    Call it with the optimiser and the parameter's state. It returns False if it cannot make the step; then call the optimiser.
    """
    return lambda *_: False


@replaceable
def vector_step(flat: Tensor) -> Callable[[VectorStep], bool] | None:
    """Return a function that makes and counts a step of the vector `flat` [D]; it returns False if it cannot.

    None: there is no compiled code for this vector.
    """
    return None


@replaceable
def normalization() -> NormalizationKernel | None:
    """Return what normalises values [..] without graph in compiled code; None: there is no compiled code."""
    return None


@replaceable
def clip_norm(gradients: Tensor, reference: Callable[[Tensor, float], None]) -> Callable[[Tensor, float], None]:
    """Return a function that scales vectors like `gradients` [D] down to a norm, in place, as `reference` does."""
    return reference


def sequential(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Call modules one after another, [N, I] -> [N, O]. If autograd is on, the result has a graph."""
    found: Tensor = (offered("sequential") or by_torch.sequential)(modules, x)
    return found


def action_values(*tensors: Tensor | None) -> ActionValues | None:
    """Return faster functions for these tensors [..]; None if torch must compute, for example on a GPU or for autograd."""
    choose = offered("action_values")
    return None if choose is None else choose(*tensors)


def seeded_draws(seed: int) -> AbstractContextManager[object]:
    """Inside the `with` block, torch functions without their own generator draw as after `torch.manual_seed(seed)`.

    The global generator is not changed. Draws of other threads have no effect, unless this version of torch has no
    dispatch modes.
    """
    if find_spec("torch.utils._python_dispatch") is not None:
        from rlsdk.kernels.structure import SeededDraws

        return SeededDraws(seed)
    return by_torch.seeded_draws(seed)


class Graphed(Generic[ResultT]):
    """A method that GPUs replay. At its first use, an attribute of the algorithm takes its place."""

    def __init__(self, step: Callable[..., ResultT], counters: tuple[str, ...]) -> None:
        self.step, self.counters, self.__doc__ = step, counters, step.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, algorithm: object | None, owner: type) -> Callable[..., ResultT]:
        if algorithm is None:
            return self.step
        if getattr_static(owner, self.name, None) is not self:  # a subclass calls it by super()
            as_written: Callable[..., ResultT] = MethodType(self.step, algorithm)
            return as_written
        made: Callable[..., ResultT] | None = None
        if torch.cuda.is_available() and (choose := offered("graphed_update")) is not None:
            made = choose(self.step, algorithm, self.counters)
        vars(algorithm)[self.name] = found = made or MethodType(self.step, algorithm)
        return found


def graphed(*counters: str) -> Callable[[Callable[..., ResultT]], Graphed[ResultT]]:
    """A decorator of a method that makes one update: a GPU replays it as a CUDA graph, if kernels are on.

    Its arguments are a tree of tensors; the learning rate, or a tuple of the learning rate and other numbers, with None for
    those that are not used; and values that determine which operations it executes (with a float among them, it is not
    replayed). It returns a tree of float tensors.

    It must change tensors in place only, draw no random numbers, and read no value on the CPU. It may read attributes of the
    algorithm, except `counters`, which change in every update; a changed attribute is noticed, a change inside a list or a
    dictionary is not. While a graph is captured, the numbers are tensors, 0-d.
    """
    return lambda step: Graphed(step, counters)


def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """Return the sums [T, B]; see `rlsdk.kernels.reference.discounted_sums`."""
    choose = offered("discounted_sums")
    found: Tensor | None = None if choose is None else choose(value, weight)
    return by_torch.discounted_sums(value, weight) if found is None else found


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a number, 0-d; see `rlsdk.kernels.reference.explained_variance`."""
    choose = offered("explained_variance")
    found: Tensor | None = None if choose is None else choose(prediction, target)
    return by_torch.explained_variance(prediction, target) if found is None else found


def advantages(steps: StepData[Any], value: Tensor, next_value: Tensor, gamma: float, lam: float) -> Advantages:
    """Generalised advantages and regression targets of values, as rows; see `rlsdk.math.gae`.

    Returns:
        (advantages [B * T], targets [B * T], whether all steps are valid). The rows are all steps of the first environment in
        order of time, then those of the next one.

    Args:
        steps: the steps [T, B].
        value: the values of the observations acted on, float [T, B].
        next_value: the values of the next observations, float [T, B]. Where an episode ended, it is the value of that
            episode's last observation.
        gamma: discount.
        lam: lambda of generalised advantage estimation.
    """
    choose = offered("advantages")
    found: Advantages | None = None if choose is None else choose(steps, value, next_value, gamma, lam)
    return by_torch.advantages(steps, value, next_value, gamma, lam) if found is None else found
