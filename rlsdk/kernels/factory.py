"""Chooses kernels for networks and optimizers. Torch computes, unless an installed package offers something faster.

Each function here is called once per network, optimizer or algorithm, and again after its layers were replaced.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from inspect import getattr_static
from traceback import walk_tb
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.errors import PluginError, RlsdkError, SettingsError, one_line, raised, shown, suggest
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
    PolicyOutputs,
    PolicySteps,
    ReplayedTransition,
    RowsT,
    SquashedLayers,
    SquashedPolicy,
)
from rlsdk.kernels.reference import Advantages, Differentiable, is_transformed
from rlsdk.kernels.structure import KNOWN
from rlsdk.kernels.vector_steps import VectorStep
from rlsdk.records import StepData
from rlsdk.registry.discovery import FORGET

ResultT = TypeVar("ResultT")
InputsT = TypeVar("InputsT")
KeptT = TypeVar("KeptT")
TransientT = TypeVar("TransientT")
ArgumentsT = ParamSpec("ArgumentsT")


# The switches of kernels. With the environment variable `RLSDK_KERNELS=off`, or inside `with kernels_off():`, torch computes
# everything. With `RLSDK_KERNELS=uncompiled`, or inside `with compiled_off():`, there is no compiled code. Packages that offer
# kernels obey it. `RLSDK_KERNELS=acme-kernel,rlsdk-kernels` uses the kernels of these packages only; where both offer one, that
# of the first. `RLSDK_PLUGINS` does not hide kernels.

VARIABLE = "RLSDK_KERNELS"
STATES = ("on", "uncompiled", "off")
_given = os.environ.get(VARIABLE, "on")
PACKAGES = () if _given in STATES else tuple(map(str.strip, _given.split(",")))
"""The packages whose kernels are used, the preferred first; (): all."""
if PACKAGES:
    from rlsdk.registry.loading import require_kernels_of

    require_kernels_of(PACKAGES, VARIABLE, STATES)
kernel_states = ["on" if PACKAGES else _given]
"""What is on; the last one counts: `on`, `uncompiled` (numpy and torch), or `off` (torch). Every update reads it, so a call
would cost time. Only this module changes it."""


def kernels_off() -> AbstractContextManager[None]:
    """Networks created inside the `with` block, and losses computed inside it, use torch's modules and autograd."""
    return inside("off")


def compiled_off() -> AbstractContextManager[None]:
    """Kernels made inside the `with` block use numpy and torch, as in an installation without compiled code."""
    return inside("off" if kernel_states[-1] == "off" else "uncompiled")


@contextmanager
def inside(state: str) -> Iterator[None]:
    """Inside the `with` block, `state` is on; see `kernel_states`."""
    kernel_states.append(state)
    try:
        yield
    finally:
        kernel_states.pop()


# The faster implementations that installed packages offer by the hook `kernels`, such as those of rlsdk-kernels.
#
# The core computes everything in torch and knows no such package. It asks for the table when it looks up the first
# kernel:
#
#     @replaceable
#     def policy_loss(choice: KernelChoice, reference: PolicyLoss) -> PolicyLoss:
#         return reference  # unless the table has a function `policy_loss`, which then takes the arguments

SLOTS: dict[str, Callable[..., Any]] = {}
"""Name -> the function of the core that a kernel of this name replaces. It takes the same arguments and returns the same;
its docstring has the shapes. Where torch must compute, it returns its argument `reference`, or None if it has none."""
_tables: list[dict[str, Callable[..., Any] | None]] = []
"""The table with all `SLOTS`, once it is known. Torch's compiler can read a list, but not call what a cache needs."""
_computed: dict[str, Callable[..., Any]] = {}
"""The functions of torch that return a result, not a kernel."""
TESTED = ("rlsdk_kernels",)
"""Packages whose kernels are not compared again at run time: their own tests compare every one with torch, at all sizes."""
_owners: set[str] = set()
"""The packages of all kernels that were in a table."""


def offered(name: str) -> Callable[..., Any] | None:
    """Return the function of this name that an installed package offers; None: torch computes, or kernels are off."""
    return None if kernel_states[-1] == "off" else (_tables or _find_tables())[0][name]


def _find_tables() -> list[dict[str, Callable[..., Any] | None]]:
    """Ask the installed packages. What is wrong with one is a warning: training continues, in torch."""
    from rlsdk.registry.loading import offered_kernels

    table, problems = offered_kernels(PACKAGES) if KNOWN else ({}, ())
    for name in sorted(set(table) - set(SLOTS)):
        problems = (*problems, f"an installed package offers the kernel {name!r}; {suggest(name, SLOTS)}")
    _enter(table)
    for problem in problems:
        warnings.warn(
            f"{one_line(problem, 1000)}; torch computes instead, which is slower", RuntimeWarning, stacklevel=4
        )
    return _tables


# the packages too: one that offers no kernels any more is not blamed as if it did
FORGET.extend((_tables.clear, _owners.clear))


def _enter(table: Mapping[str, Callable[..., Any]]) -> None:
    _owners.update(map(_package, table.values()))
    _tables[:] = [{name: table.get(name) for name in SLOTS}]
    for name in _computed.keys() & table.keys():
        if _package(table[name]) not in TESTED:
            _tables[0][name] = FirstUse(name, table[name], table[name], _computed[name])


def _package(choose: Callable[..., Any]) -> str:
    return str(getattr(choose, "__module__", "?")).partition(".")[0]


@contextmanager
def kernels_of(table: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Networks created inside the `with` block, and losses computed inside it, use these kernels alone: name -> function.

    Raises:
        SettingsError: there is no kernel of such a name.
    """
    for name in set(table) - set(SLOTS):
        raise SettingsError(f"there is no kernel {name!r}; {suggest(name, SLOTS)}")
    before = list(_tables)
    _enter(table)
    try:
        with inside("on"):
            yield
    finally:
        _tables[:] = before


def kernel_fault(error: Exception) -> PluginError | None:
    """Return the error to raise instead of one that the code of a kernel raised; None: other code raised it."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    places = [(str(frame.f_globals.get("__name__")), frame.f_code.co_qualname) for frame in frames]
    module, function = ([("", "")] + [place for place in places if not place[0].startswith(("torch.", "numpy."))])[-1]
    package = module.partition(".")[0]
    if package not in _owners or isinstance(error, RlsdkError):
        return None
    return PluginError(
        f"a kernel of {package} {raised(error)} ({module}, in {function}); the step cannot be repeated. Set"
        f" {VARIABLE}=off to compute in torch, or uninstall the package"
    )


def _reject(name: str, choose: Callable[..., Any], problem: str) -> None:
    """Remove a kernel from the table, and warn."""
    for table in _tables:
        table[name] = None
    text = f"the kernel {name!r} of {_package(choose)} {problem}; torch computes instead"
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def replaceable(function: Callable[ArgumentsT, ResultT]) -> Callable[ArgumentsT, ResultT]:
    """A function that a kernel replaces: the one of its name in the table. If that returns None, torch computes.

    One that raises an exception where torch raises none, other than an `RlsdkError`, or whose first result is not like that of
    torch, is not called again. There is a warning, and torch computes.
    """
    name, parameters = function.__name__, list(function.__annotations__)
    place = parameters.index("reference") if "reference" in parameters else None

    @wraps(function)
    def chosen(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> ResultT:
        # as `offered`, without the call: every update comes here
        choose = None if kernel_states[-1] == "off" else (_tables or _find_tables())[0][name]
        if choose is None:
            return function(*args, **kwargs)
        try:
            found: Any = choose(*args, **kwargs)
        except RlsdkError:
            # it is about the network or the settings
            raise
        except Exception as error:
            # first: if torch raises an exception too, the arguments are wrong, and the kernel is not
            result = function(*args, **kwargs)
            _reject(name, choose, raised(error))
            return result
        if found is None:
            return function(*args, **kwargs)
        if place is not None and found is not args[place] and _package(choose) not in TESTED:
            found = FirstUse(name, choose, found, args[place])
        kernel: ResultT = found
        return kernel

    SLOTS[name] = chosen
    return chosen


def computed(function: Callable[ArgumentsT, ResultT]) -> Callable[ArgumentsT, ResultT]:
    """The same for a function that returns a result, not a kernel."""
    _computed[function.__name__] = function
    return replaceable(function)


def unlike(given: object, expected: object) -> str:
    """Return how a result differs from that of torch in shape, dtype or finiteness; empty: it does not."""
    if isinstance(expected, PolicyOutputs):
        given, expected = ([getattr(each, name, None) for name in NUMBERS] for each in (given, expected))
    if isinstance(expected, tuple | list):
        if not isinstance(given, type(expected)) or len(given) != len(expected):
            return f"returned {shown(given, 60)}, not {len(expected)} values"
        return next(filter(None, map(unlike, given, expected)), "")
    if not isinstance(expected, Tensor):
        return f"returned {shown(given, 60)}, not a function" if callable(expected) and not callable(given) else ""
    if not isinstance(given, Tensor):
        return f"returned {shown(given, 60)}, not a tensor"
    found, wanted = (f"{each.dtype} {list(each.shape)}" for each in (given, expected))
    if found != wanted or given.device != expected.device:
        return f"returned {found}, not {wanted} on {expected.device}"
    # on an accelerator the program would have to wait for the numbers
    wrong = given.is_cpu and bool(expected.isfinite().all()) and not given.isfinite().all()
    return "returned NaN or infinite numbers" if wrong else ""


NUMBERS = ("log_prob", "entropy", "value")
"""The tensors of a `PolicyOutputs`."""


class FirstUse:
    """Stands for a kernel, and compares the first result of each of its functions with that of the reference.

    After it, the kernel's method takes the place of the check, which then costs nothing.
    """

    def __init__(self, name: str, choose: Callable[..., Any], kernel: Any, reference: object) -> None:
        self._name, self._choose, self._kernel, self._reference = name, choose, kernel, reference
        self._called: Callable[..., Any] = partial(self._first, "__call__")

    @property  # type: ignore[misc]  # packages examine their kernels with `isinstance`
    def __class__(self) -> type:
        return type(self._kernel)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._called(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # copies look for methods before there are attributes
            raise AttributeError(name)
        expected = getattr(self._reference, name, None)
        return partial(self._first, name) if callable(expected) else getattr(self._kernel, name, expected)

    def _first(self, method: str, *args: Any, **kwargs: object) -> Any:
        if is_transformed():
            return getattr(self._kernel, method)(*args, **kwargs)
        # the reference gets other memory, because some kernels change vectors in place, and draws the same numbers
        # (a function that computes a result changes nothing, and may return None each time: it costs no copies)
        may_change = self._kernel is not self._choose
        copies = [each.clone() if may_change and isinstance(each, Tensor) else each for each in args]
        states = [(each, each.get_state()) for each in args if isinstance(each, Generator)]
        expected, comparable = None, True
        try:
            expected = getattr(self._reference, method)(*copies, **kwargs)
        except Exception:
            # such as for rows that the kernel has prepared for itself
            comparable = False
        for generator, state in states:
            generator.set_state(state)
        try:
            compute = self._kernel if method == "__call__" else getattr(self._kernel, method)
            found = compute(*args, **kwargs)
            problem = "" if found is None else unlike(found, expected)
        except Exception as error:
            if isinstance(error, RlsdkError) or not comparable:
                raise
            problem = raised(error)
        if problem:
            self._give_up(problem, args, copies)
        elif found is not None or expected is None:
            self._trust(method, compute)
            return found
        return expected

    def _give_up(self, problem: str, args: Sequence[object], results: Sequence[Any]) -> None:
        reference = self._reference
        _reject(self._name, self._choose, problem)
        for own, result in zip(args, results, strict=True):
            if isinstance(own, Tensor):
                own.detach().copy_(result)
        # no function of this kernel is called again, because one may have prepared what another one reads
        self.__dict__ = {"_kernel": reference, "_reference": None, "_called": reference}

    def _trust(self, method: str, compute: Callable[..., Any]) -> None:
        name, choose = self._name, self._choose
        vars(self)["_called" if method == "__call__" else method] = compute
        for table in _tables:
            if table[name] is self:
                # it computes a result, and is looked up each time
                table[name] = choose


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
    """Return a function that makes the step of an optimizer with one parameter `flat` [D].

    Call it with the optimizer and the parameter's state. It returns False if it cannot make the step; then call the optimizer.
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
    """Return what normalizes values [..] without graph in compiled code; None: there is no compiled code."""
    return None


@replaceable
def clip_norm(gradients: Tensor, reference: Callable[[Tensor, float], None]) -> Callable[[Tensor, float], None]:
    """Return a function that scales vectors like `gradients` [D] down to a norm, in place, as `reference` does."""
    return reference


@computed
def sequential(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Call modules one after another, [N, I] -> [N, O]. If autograd is on, the result has a graph."""
    return by_torch.sequential(modules, x)


@computed
def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (sum, 0-d; gradients [.., N, K]); see `rlsdk.kernels.reference.pairwise_huber`."""
    return by_torch.pairwise_huber(current, target, asymmetry, weight)


@replaceable
def action_values(*tensors: Tensor | None) -> ActionValues | None:
    """Return faster functions for these tensors [..]; None if torch must compute, for example on a GPU or for autograd."""
    return None


@replaceable
def graphed_update(
    step: Callable[..., ResultT], algorithm: object, counters: tuple[str, ...]
) -> Callable[..., ResultT] | None:
    """Return the method `step` of an algorithm as CUDA graphs; None if it must be called as written. See `graphed`."""
    return None


class Graphed(Generic[ResultT]):
    """A method that GPUs replay. At its first use, an attribute of the algorithm takes its place."""

    def __init__(self, step: Callable[..., ResultT], counters: tuple[str, ...]) -> None:
        self.step, self.counters, self.__doc__ = step, counters, step.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, algorithm: object | None, owner: type) -> Callable[..., ResultT]:
        if algorithm is None:
            return self.step
        if getattr_static(owner, self.name, None) is not self:
            # a subclass calls it by super()
            as_written: Callable[..., ResultT] = MethodType(self.step, algorithm)
            return as_written
        made = graphed_update(self.step, algorithm, self.counters) if torch.cuda.is_available() else None
        # An attribute of the object comes before this descriptor, so later calls cost no search.
        vars(algorithm)[self.name] = found = made or MethodType(self.step, algorithm)
        return found


def graphed(*counters: str) -> Callable[[Callable[..., ResultT]], Graphed[ResultT]]:
    """A decorator of a method that makes one update: a GPU replays it as a CUDA graph, if kernels are on.

    Its arguments are a tree of tensors; the learning rate, or a tuple of the learning rate and other numbers, with None for
    those that are not used; and values that determine which operations it executes (with a float among them, it is not
    replayed). It returns a tree of float tensors.

    It must change tensors in place only, draw no random numbers, and read no value on the CPU. It may read attributes of the
    algorithm and of the objects of `rlsdk.updates` that it holds, at any depth. `counters` are names of those that change in
    every update, at any depth too: the method must not read them. Any other changed attribute is noticed; a change inside a
    list or a dictionary is not. While a graph is captured, the numbers are tensors, 0-d.
    """
    return lambda step: Graphed(step, counters)


@computed
def discounted_sums(value: Tensor, weight: Tensor) -> Tensor:
    """Return the sums [T, B]; see `rlsdk.kernels.reference.discounted_sums`."""
    return by_torch.discounted_sums(value, weight)


@computed
def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """Return a number, 0-d; see `rlsdk.kernels.reference.explained_variance`."""
    return by_torch.explained_variance(prediction, target)


@computed
def advantages(steps: StepData[Any], value: Tensor, next_value: Tensor, gamma: float, lam: float) -> Advantages:
    """Generalized advantages and regression targets of values, as rows; see `rlsdk.math.gae`.

    Returns:
        (advantages [B * T], targets [B * T], whether all steps are valid). The rows are all steps of the first environment in
        order of time, then those of the next one.

    Args:
        steps: the steps [T, B].
        value: the values of the observations acted on, float [T, B].
        next_value: the values of the next observations, float [T, B]. Where an episode ended, it is the value of that
            episode's last observation.
        gamma: discount.
        lam: lambda of generalized advantage estimation.
    """
    return by_torch.advantages(steps, value, next_value, gamma, lam)


__all__ = [*SLOTS]  # noqa: PLE0604  # what the reference documents: the functions above
