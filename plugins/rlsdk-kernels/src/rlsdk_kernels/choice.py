"""Chooses the fastest kernel for networks and optimizers. `hooks` offers these functions for those of `rlsdk.kernels.SLOTS`.

Each takes the same arguments, and returns `reference` or None if no kernel fits.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Generator, Tensor, nn

from rlsdk.kernels import (
    ActorCriticLayers,
    Differentiable,
    KernelChoice,
    PolicyActor,
    PolicyRows,
    SquashedLayers,
    SquashedPolicy,
    VectorStep,
    is_dense,
)
from rlsdk.records import Act, Observation
from rlsdk_kernels.backends import NUMPY_WIDTH
from rlsdk_kernels.compiled_library import has_avx2, may_compile

if TYPE_CHECKING:
    from rlsdk_kernels.actor_critic_kernel import ActorCriticKernel
    from rlsdk_kernels.compiled_policy import CompiledPolicyLoss
    from rlsdk_kernels.compiled_renorm import CompiledRenorm
    from rlsdk_kernels.compiled_steps import CompiledPolicySteps
    from rlsdk_kernels.compiled_vectors import Normalization
    from rlsdk_kernels.cuda_graphs import GraphedTransition
    from rlsdk_kernels.dense_acting import GreedyActing
    from rlsdk_kernels.dense_kernel import DenseLayers
    from rlsdk_kernels.policy_loss import PolicyLossKernel

InputsT = TypeVar("InputsT")
KeptT = TypeVar("KeptT")
TransientT = TypeVar("TransientT")
ResultT = TypeVar("ResultT")
ReferenceT = TypeVar("ReferenceT")
"""What torch computes with, in the type that the core gives it: these functions return it where no kernel fits."""
AnyAct = Act[Any, Any]
"""An act with the carry and the extras of any policy."""
Acts = Callable[[Observation, Any, bool, Generator], AnyAct]
"""A function that acts: (observation, carry, whether it is deterministic, generator) -> act."""
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


def dense_network(
    modules: Sequence[nn.Module],
    encoder: nn.Module,
    choice: KernelChoice,
    hooked: bool,
    reference: ReferenceT,
    member: int | None = None,
) -> ReferenceT | DenseLayers | CompiledRenorm:
    """Return the kernel for layers that follow an encoder.

    Args:
        modules: the layers.
        encoder: the encoder.
        choice: the properties that determine the fastest kernel.
        hooked: whether modules have hooks, which only `reference` calls.
        reference: evaluates the network by calling its modules.
        member: the index of one member of an ensemble, to evaluate it alone; None: all.
    """
    if (name := _backend_of(modules, encoder, choice, hooked)) is not None:
        from rlsdk_kernels.dense_choice import dense_of

        return dense_of(modules, name, member)
    # zeros that are left out make it faster than torch at any width
    fast = may_compile() and has_avx2()
    if hooked or member is not None or (choice.setting, choice.device) != ("auto", "cpu") or not fast:
        return reference
    from rlsdk_kernels.compiled_renorm import CompiledRenorm, is_renormalized

    alone = next(encoder.parameters(), None) is None
    return CompiledRenorm(modules) if alone and is_renormalized(modules) else reference


def _backend_of(modules: Sequence[nn.Module], encoder: nn.Module, choice: KernelChoice, hooked: bool) -> str | None:
    """Return the name of the fastest backend for layers that follow an encoder; None: no kernel of dense layers fits."""
    name = None if hooked or next(encoder.parameters(), None) is not None else backend_name(choice)
    if name is None or is_dense(modules):
        return name
    from rlsdk_kernels.dense_choice import can_be_compiled

    # with layer normalization
    return name if name == "compiled" and can_be_compiled(modules) else None


def dense_acting(
    modules: Sequence[nn.Module],
    encoder: nn.Module,
    choice: KernelChoice,
    hooked: bool,
    reference: Callable[[Tensor], Tensor],
) -> Callable[[Tensor], Tensor]:
    """Return the function that computes raw outputs [N, O] without graph from encoded observations [N, I]."""
    if _backend_of(modules, encoder, choice, hooked) is None:
        return reference
    from rlsdk_kernels.dense_acting import DenseActing

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
    if _backend_of(modules, encoder, choice, hooked) is None:
        return None
    from rlsdk_kernels.dense_acting import GreedyActing

    return GreedyActing(modules, actions, values_per_action)


def squashed_policy(
    layers: SquashedLayers | None, choice: KernelChoice, hooked: bool, reference: SquashedPolicy
) -> SquashedPolicy:
    """Return the kernel for a squashed Gaussian policy. `layers` is None if the policy has other layers than
    `SquashedLayers`."""
    name = backend_name(choice)
    if layers is None or hooked or name is None:
        return reference
    parts = layers.body, [layers.mean], [layers.log_std]
    if name == "compiled":
        from rlsdk_kernels.dense_choice import can_be_compiled, without_compiled

        if all(map(can_be_compiled, parts)):
            from rlsdk_kernels.squashed_policy import CompiledSquashedPolicy

            return CompiledSquashedPolicy(layers)
        name = without_compiled(layers.body).name
    from rlsdk_kernels.squashed_policy import SquashedKernel

    return SquashedKernel(layers, name, reference)


def policy_actor(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: PolicyActor
) -> PolicyActor:
    """Return the kernel for acting with an actor-critic network.

    `layers` is None if the network has other layers than `ActorCriticLayers`.
    """
    if layers is None or hooked or choice.setting == "autograd":
        return reference
    from rlsdk_kernels.actor_critic_kernel import ActorCriticActing

    return ActorCriticActing(layers, reference)


def policy_evaluator(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: ReferenceT
) -> ReferenceT | ActorCriticKernel[PolicyRows]:
    """Return the kernel for learning with an actor-critic network. Gradients of its parameters must be allocated."""
    name = backend_name(choice)
    if layers is None or hooked or name is None or not layers.differ_from_there:
        return reference
    from rlsdk_kernels.actor_critic_kernel import ActorCriticKernel

    return ActorCriticKernel[PolicyRows](layers, name)


def policy_loss(choice: KernelChoice, reference: ReferenceT) -> ReferenceT | CompiledPolicyLoss | PolicyLossKernel:
    """Return the fastest loss of an actor-critic method: a kernel for rows on the CPU, else `reference`."""
    if choice.setting in ("autograd", "torch") or choice.device != "cpu":
        return reference
    if may_compile():
        from rlsdk_kernels.compiled_policy import CompiledPolicyLoss

        return CompiledPolicyLoss()
    from rlsdk_kernels.policy_loss import PolicyLossKernel

    return PolicyLossKernel()


def policy_steps(evaluator: object, loss: object) -> CompiledPolicySteps | None:
    """Return compiled code that makes the gradient steps of `evaluator` and `loss` in one call; None: there is none."""
    if not may_compile():
        return None
    from rlsdk_kernels.actor_critic_kernel import ActorCriticKernel
    from rlsdk_kernels.compiled_policy import CompiledPolicyLoss
    from rlsdk_kernels.compiled_steps import CompiledPolicySteps

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
    if as_written or setting != "auto" or not torch.cuda.is_available():
        return act
    from rlsdk_kernels.cuda_graphs import GraphedActing, is_known

    return GraphedActing(act, network) if all(map(is_known, network.modules())) else act


def graphed_transition(
    step: Callable[[InputsT, Generator], tuple[KeptT, TransientT]], env: object, generator: Generator
) -> GraphedTransition[InputsT, KeptT, TransientT] | None:
    """Return the step of an environment as a CUDA graph; None if `generator` is on the CPU. See `GraphedTransition`."""
    if generator.device.type != "cuda":
        return None
    from rlsdk_kernels.cuda_graphs import GraphedTransition

    return GraphedTransition(step, env, generator)


def optimizer_step(
    choice: object, optimizer: torch.optim.Optimizer, flat: nn.Parameter
) -> Callable[[torch.optim.Optimizer, MutableMapping[str, Tensor]], bool]:
    """Return a function that makes the step of an optimizer with one parameter `flat` [D].

    Call it with the optimizer and the parameter's state. It returns False if it cannot make the step; then call the optimizer.
    """
    group = optimizer.param_groups[0]
    if choice == "adam" and group["fused"] and not group.get("decoupled_weight_decay"):
        from rlsdk_kernels.optimizer_steps import AdamKernel

        return AdamKernel(optimizer, flat).step
    if choice == "rmsprop":
        from rlsdk_kernels.optimizer_steps import RmspropKernel

        return RmspropKernel(optimizer, flat).step
    if choice == "radam":
        from rlsdk_kernels.optimizer_steps import RadamKernel

        return RadamKernel(optimizer, flat).step
    return lambda *_: False


def vector_step(flat: Tensor) -> Callable[[VectorStep], bool] | None:
    """Return a function that makes and counts a step of the vector `flat` [D]; it returns False if it cannot.

    None: there is no compiled code for this vector.
    """
    if not flat.is_cpu or not may_compile():
        return None
    from rlsdk_kernels.compiled_vectors import CompiledStep

    return CompiledStep()


def normalization() -> Normalization | None:
    """Return what normalizes values [..] without graph in compiled code; None: there is no compiled code."""
    if not may_compile():
        return None
    from rlsdk_kernels.compiled_vectors import Normalization

    return Normalization()


def clip_norm(gradients: Tensor, reference: Callable[[Tensor, float], None]) -> Callable[[Tensor, float], None]:
    """Return a function that scales vectors like `gradients` [D] down to a norm, in place, as `reference` does."""
    if may_compile():
        from rlsdk_kernels.compiled_vectors import clip_norm as by_compiled_code
        from rlsdk_kernels.compiled_vectors import fits

        if fits((gradients,), gradients.numel()):
            return by_compiled_code
    return reference


def differentiable_dense(modules: Sequence[nn.Module], hooked: bool, reference: Differentiable) -> Differentiable:
    """Return the kernel for layers that are differentiated as torch's modules are, [N, I] -> [N, O]."""
    shapes = [parameter.shape for module in modules for parameter in module.parameters()]
    is_ensemble = any(len(shape) > 2 for shape in shapes)
    width = max([1, *(size for shape in shapes for size in shape)])
    if hooked or is_ensemble or backend_name(KernelChoice(width=width)) != "compiled":
        return reference
    from rlsdk_kernels.dense_choice import can_be_compiled
    from rlsdk_kernels.differentiable_dense import DifferentiableDense

    most_rows = None if has_avx2() else NUMPY_SIZE // width
    return DifferentiableDense(modules, most_rows, reference) if can_be_compiled(modules) else reference


def convolutions(
    modules: Sequence[nn.Module], scale: float, hooked: bool, reference: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Return the kernel that converts pixels [N, channels, height, width] to features [N, F]; pixels are multiplied by
    `scale`."""
    if hooked:
        return reference
    from rlsdk_kernels.layer_products import ConvolutionKernel, is_convolutional

    return ConvolutionKernel(modules, scale, reference) if is_convolutional(modules) else reference


def graphed_update(
    step: Callable[..., ResultT], algorithm: object, counters: tuple[str, ...]
) -> Callable[..., ResultT] | None:
    """Return the method `step` of an algorithm as CUDA graphs; None if it must be called as written."""
    from rlsdk_kernels.cuda_graphs import graphs_of

    return graphs_of(step, algorithm, counters)
