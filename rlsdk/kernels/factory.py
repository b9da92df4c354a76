"""Selects kernels for networks and optimisers. Each function returns the fastest kernel, or `reference` if none fits."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from inspect import getattr_static
from types import MethodType
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.protocol import (
    NUMPY_WIDTH,
    Acting,
    ActorCriticLayers,
    Acts,
    DenseNetwork,
    KernelChoice,
    PolicyActor,
    PolicyEvaluator,
    PolicyLoss,
    PolicySteps,
    RowsT,
    SquashedLayers,
    SquashedPolicy,
    has_parameters,
    is_dense,
)
from rlsdk.kernels.switch import exists, may_compile, may_use

if TYPE_CHECKING:
    from rlsdk.kernels.compiled_vectors import Normalization
    from rlsdk.kernels.graphed_transition import GraphedTransition
    from rlsdk.kernels.greedy_acting import GreedyActing
    from rlsdk.kernels.vector_steps import VectorStep

ResultT = TypeVar("ResultT")
InputsT = TypeVar("InputsT")
KeptT = TypeVar("KeptT")
TransientT = TypeVar("TransientT")
COMPILED_WIDTH = 512
"""Up to this width of layers, compiled code is faster than torch on processors with AVX2."""
NUMPY_SIZE = NUMPY_WIDTH * NUMPY_WIDTH
"""The largest product of width and batch rows for which numpy and compiled code are faster than torch."""


def backend_name(choice: KernelChoice) -> str | None:
    """`compiled`, `numpy` or `torch`, whichever evaluates dense layers fastest; None: autograd."""
    if choice.setting == "autograd" or choice.device != "cpu":
        return None
    if choice.setting != "auto":
        return choice.setting
    narrow = choice.width <= NUMPY_WIDTH and choice.width * choice.rows <= NUMPY_SIZE
    if may_compile() and (narrow or (choice.width <= COMPILED_WIDTH and has_avx2())):
        return "compiled"
    return "numpy" if narrow else "torch"


@cache
def has_avx2() -> bool:
    """Whether the processor has AVX2."""
    if not exists("processor"):
        return False
    from rlsdk.kernels import processor

    return processor.has_avx2()


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
    name = backend_name(choice)
    if hooked or name is None or not may_use("dense_kernel") or has_parameters(encoder) or not is_dense(modules):
        return reference
    from rlsdk.kernels.dense_choice import dense_of

    return dense_of(modules, name, member)


def dense_acting(
    modules: Sequence[nn.Module], encoder: nn.Module, choice: KernelChoice, hooked: bool, reference: Acting
) -> Acting:
    """Return the kernel for acting with layers that follow an encoder."""
    off = hooked or backend_name(choice) is None or not may_use("dense_kernel")
    if off or has_parameters(encoder) or not is_dense(modules):
        return reference
    from rlsdk.kernels.dense_acting import DenseActing

    return DenseActing(modules, reference)


def greedy_acting(
    modules: Sequence[nn.Module],
    encoder: nn.Module,
    choice: KernelChoice,
    hooked: bool,
    actions: int,
    values_per_action: int,
) -> GreedyActing | None:
    """Return the kernel for acting greedily; None if no kernel fits, for example without dense layers."""
    off = hooked or backend_name(choice) is None or not may_use("greedy_acting")
    if off or has_parameters(encoder) or not is_dense(modules):
        return None
    from rlsdk.kernels.greedy_acting import GreedyActing

    return GreedyActing(modules, actions, values_per_action)


def squashed_policy(
    layers: SquashedLayers | None, choice: KernelChoice, hooked: bool, reference: SquashedPolicy
) -> SquashedPolicy:
    """Return the kernel for a squashed Gaussian policy. `layers` is None if the policy has other layers than
    `SquashedLayers`."""
    name = backend_name(choice)
    if layers is None or hooked or name is None or not may_use("squashed_kernel"):
        return reference
    parts = layers.body, [layers.mean], [layers.log_std]
    if name == "compiled":
        from rlsdk.kernels.dense_choice import can_be_compiled, without_compiled

        if all(map(can_be_compiled, parts)):
            from rlsdk.kernels.compiled_squashed import CompiledSquashedPolicy

            return CompiledSquashedPolicy(layers)
        name = without_compiled(layers.body).name
    from rlsdk.kernels.squashed_kernel import SquashedKernel

    return SquashedKernel(layers, name, reference)


def policy_actor(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: PolicyActor
) -> PolicyActor:
    """Return the kernel for acting with an actor-critic network.

    `layers` is None if the network has other layers than `ActorCriticLayers`.
    """
    if layers is None or hooked or choice.setting == "autograd" or not may_use("actor_critic_kernel"):
        return reference
    from rlsdk.kernels.actor_critic_kernel import ActorCriticActing

    return ActorCriticActing(layers, reference)


def policy_evaluator(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: PolicyEvaluator[RowsT]
) -> PolicyEvaluator[RowsT]:
    """Return the kernel for learning with an actor-critic network. Gradients of its parameters must be allocated."""
    name = backend_name(choice)
    if layers is None or hooked or name is None or not may_use("actor_critic_kernel") or not layers.differ_from_there:
        return reference
    from rlsdk.kernels.actor_critic_kernel import ActorCriticKernel

    return ActorCriticKernel[RowsT](layers, name)


def policy_loss(choice: KernelChoice, reference: PolicyLoss) -> PolicyLoss:
    """Return the fastest loss of an actor-critic method: a kernel for rows on the CPU, else `reference`."""
    if choice.setting in ("autograd", "torch") or choice.device != "cpu" or not may_use("policy_loss"):
        return reference
    if may_compile():
        from rlsdk.kernels.compiled_policy import CompiledPolicyLoss

        return CompiledPolicyLoss()
    from rlsdk.kernels.policy_loss import PolicyLossKernel

    return PolicyLossKernel()


def policy_steps(evaluator: PolicyEvaluator[RowsT], loss: PolicyLoss) -> PolicySteps | None:
    """Return compiled code that makes the gradient steps of `evaluator` and `loss` in one call; None: there is none."""
    if not may_compile() or not may_use("compiled_steps"):
        return None
    from rlsdk.kernels.actor_critic_kernel import ActorCriticKernel
    from rlsdk.kernels.compiled_policy import CompiledPolicyLoss
    from rlsdk.kernels.compiled_steps import CompiledPolicySteps

    if not isinstance(evaluator, ActorCriticKernel) or not isinstance(loss, CompiledPolicyLoss):
        return None
    if (networks := evaluator.compiled_networks()) is None:
        return None
    actor, critic = networks
    fit = (critic.input_size, critic.output_size) == (actor.input_size, 1)
    return CompiledPolicySteps(evaluator.layers, actor, critic) if fit else None


def graphed_acting(act: Acts, network: nn.Module, setting: str, as_written: bool) -> Acts:
    """Return `act`; on a GPU, its replay as a CUDA graph.

    Args:
        act: computes the actions of `network`. It draws numbers from its generator only, and reads no value on the CPU.
        network: holds all modules that `act` calls.
        setting: the `setting` of `KernelChoice`.
        as_written: whether `act` must be called every time, for example because modules have hooks.
    """
    if as_written or setting != "auto" or not torch.cuda.is_available() or not may_use("graphed_acting"):
        return act
    from rlsdk.kernels.cuda_graphs import is_known
    from rlsdk.kernels.graphed_acting import GraphedActing

    return GraphedActing(act, network) if all(map(is_known, network.modules())) else act


def graphed_transition(
    step: Callable[[InputsT, Generator], tuple[KeptT, TransientT]], env: object, generator: Generator
) -> GraphedTransition[InputsT, KeptT, TransientT] | None:
    """Return the step of an environment as a CUDA graph; None if `generator` is on the CPU. See `GraphedTransition`."""
    if generator.device.type != "cuda" or not may_use("graphed_transition"):
        return None
    from rlsdk.kernels.graphed_transition import GraphedTransition

    return GraphedTransition(step, env, generator)


def seeded_draws(seed: int) -> AbstractContextManager[object]:
    """Inside the `with` block, torch functions without their own generator draw as after `torch.manual_seed(seed)`.

    The global generator is not changed. Draws of other threads have no effect, unless this version of torch has no
    dispatch modes.
    """
    if exists("draws_mode") and find_spec("torch.utils._python_dispatch") is not None:
        from rlsdk.kernels.draws_mode import SeededDraws

        return SeededDraws(seed)
    return by_torch.seeded_draws(seed)


def optimizer_step(
    choice: object, optimizer: torch.optim.Optimizer, flat: nn.Parameter
) -> Callable[[torch.optim.Optimizer, MutableMapping[str, Tensor]], bool]:
    """Return a function that makes the step of an optimiser with one parameter `flat` [D].

    Call it with the optimiser and the parameter's state. It returns False if it cannot make the step; then call the optimiser.
    """
    group = optimizer.param_groups[0]
    if choice == "adam" and group["fused"] and not group.get("decoupled_weight_decay") and may_use("fused_adam"):
        from rlsdk.kernels.fused_adam import AdamKernel

        return AdamKernel(optimizer, flat).step
    if choice == "rmsprop" and may_use("rmsprop_kernel"):
        from rlsdk.kernels.rmsprop_kernel import RmspropKernel

        return RmspropKernel(optimizer, flat).step
    return lambda *_: False


def vector_step(flat: Tensor) -> Callable[[VectorStep], bool] | None:
    """Return a function that makes and counts a step of the vector `flat` [D]; it returns False if it cannot.

    None: there is no compiled code for this vector.
    """
    if not flat.is_cpu or not may_compile():
        return None
    from rlsdk.kernels.compiled_vectors import CompiledStep

    return CompiledStep()


def normalization() -> Normalization | None:
    """Return what normalises values [..] without graph in compiled code; None: there is no compiled code."""
    if not may_compile():
        return None
    from rlsdk.kernels.compiled_vectors import Normalization

    return Normalization()


def clip_norm(gradients: Tensor) -> Callable[[Tensor, float], None]:
    """Return a function that scales vectors like `gradients` [D] down to a norm, in place."""
    if may_compile():
        from rlsdk.kernels.compiled_vectors import clip_norm as by_compiled_code
        from rlsdk.kernels.compiled_vectors import fits

        if fits((gradients,), gradients.numel()):
            return by_compiled_code
    return by_torch.clip_norm


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
        if torch.cuda.is_available() and may_use("graphed_update"):
            from rlsdk.kernels.graphed_update import graphs_of

            made = graphs_of(self.step, algorithm, self.counters)
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
