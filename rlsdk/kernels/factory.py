"""The one place that selects kernels. Each function returns the fastest one for a network, or `reference` where none fits.

`RLSDK_KERNELS=off` in the environment, or `kernels_off()` around what makes and trains an agent, leaves everything to torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError, suggest
from rlsdk.kernels import reference as by_torch
from rlsdk.kernels.protocol import (
    Acting,
    ActorCriticLayers,
    DenseNetwork,
    KernelChoice,
    PolicyActor,
    PolicyEvaluator,
    RowsT,
    SquashedLayers,
    SquashedPolicy,
    has_parameters,
    is_dense,
)
from rlsdk.kernels.structure import KNOWN

VARIABLE = "RLSDK_KERNELS"
NUMPY_WIDTH, NUMPY_ROWS = 128, 128
"""Up to this width and batch numpy is faster: its calls cost a third of torch's, and the arithmetic is small."""


def _as_switch(value: str) -> bool:
    """Raises SettingsError: neither on nor off."""
    if value not in ("on", "off"):
        raise SettingsError(f"the environment variable {VARIABLE} is {value!r}; {suggest(value, ('on', 'off'))}")
    return value == "on"


_on = [_as_switch(os.environ.get(VARIABLE, "on"))]


@contextmanager
def kernels_off() -> Iterator[None]:
    """Networks that are made inside the block, and losses that are computed there, are left to torch and autograd."""
    _on.append(False)
    try:
        yield
    finally:
        _on.pop()


@cache
def _exists(module: str) -> bool:
    try:
        return find_spec(f"rlsdk.kernels.{module}") is not None
    except ModuleNotFoundError:
        return False


def _may_use(module: str) -> bool:
    """Whether kernels are on, support this torch, and are installed."""
    return _on[-1] and KNOWN and _exists(module)


def backend_name(choice: KernelChoice) -> str | None:
    """`numpy` or `torch`, whichever evaluates dense layers faster; None: autograd."""
    if choice.setting == "autograd" or choice.device != "cpu":
        return None
    if choice.setting != "auto":
        return choice.setting
    return "numpy" if choice.width <= NUMPY_WIDTH and choice.rows <= NUMPY_ROWS else "torch"


def dense_network(
    modules: Sequence[nn.Module], encoder: nn.Module, choice: KernelChoice, hooked: bool, reference: DenseNetwork
) -> DenseNetwork:
    """For layers on an encoder's features. `reference`: calls the modules."""
    name = backend_name(choice)
    if hooked or name is None or not _may_use("dense_kernel") or has_parameters(encoder) or not is_dense(modules):
        return reference
    from rlsdk.kernels.backends import BACKENDS
    from rlsdk.kernels.dense_kernel import DenseKernel

    return DenseKernel(modules, BACKENDS[name])


def dense_acting(
    modules: Sequence[nn.Module], encoder: nn.Module, choice: KernelChoice, hooked: bool, reference: Acting
) -> Acting:
    """The same for acting."""
    off = hooked or backend_name(choice) is None or not _may_use("dense_kernel")
    if off or has_parameters(encoder) or not is_dense(modules):
        return reference
    from rlsdk.kernels.dense_kernel import DenseActing

    return DenseActing(modules, reference)


def squashed_policy(
    layers: SquashedLayers | None, choice: KernelChoice, hooked: bool, reference: SquashedPolicy
) -> SquashedPolicy:
    """For a squashed Gaussian policy. `layers`: None where it has others than `SquashedLayers`."""
    name = backend_name(choice)
    if layers is None or hooked or name is None or not _may_use("squashed_kernel"):
        return reference
    from rlsdk.kernels.backends import BACKENDS
    from rlsdk.kernels.squashed_kernel import SquashedKernel

    return SquashedKernel(layers, BACKENDS[name], reference)


def policy_actor(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: PolicyActor
) -> PolicyActor:
    """For acting with an actor-critic network. `layers`: None where it has others than `ActorCriticLayers`."""
    if layers is None or hooked or choice.setting == "autograd" or not _may_use("actor_critic_kernel"):
        return reference
    from rlsdk.kernels.actor_critic_kernel import ActorCriticActing

    return ActorCriticActing(layers, reference)


def policy_evaluator(
    layers: ActorCriticLayers | None, choice: KernelChoice, hooked: bool, reference: PolicyEvaluator[RowsT]
) -> PolicyEvaluator[RowsT]:
    """For learning with an actor-critic network whose parameters' gradients are allocated."""
    name = backend_name(choice)
    if layers is None or hooked or name is None or not _may_use("actor_critic_kernel"):
        return reference
    from rlsdk.kernels.actor_critic_kernel import ActorCriticKernel
    from rlsdk.kernels.backends import BACKENDS

    return ActorCriticKernel[RowsT](layers, BACKENDS[name])


def convolutions(
    modules: Sequence[nn.Module], scale: float, hooked: bool, reference: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Takes pixels [N, channels, height, width] to features [N, F]; `scale` is what pixels are multiplied by."""
    if hooked or not _may_use("convolutions"):
        return reference
    from rlsdk.kernels.convolutions import ConvolutionKernel, is_convolutional

    return ConvolutionKernel(modules, scale, reference) if is_convolutional(modules) else reference


def sequential(modules: Iterable[nn.Module], x: Tensor) -> Tensor:
    """What modules give one after another, [N, I] -> [N, O], with a graph where there is one."""
    return _sequential()(modules, x) if _on[-1] else by_torch.sequential(modules, x)


@cache
def _sequential() -> Callable[[Iterable[nn.Module], Tensor], Tensor]:
    if not KNOWN or not _exists("layer_products"):
        return by_torch.sequential
    from rlsdk.kernels.layer_products import sequential as by_kernel

    return by_kernel


def pairwise_huber(current: Tensor, target: Tensor, asymmetry: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """(sum, 0-d; gradients [.., N, K]), see `rlsdk.kernels.reference.pairwise_huber`."""
    function = _pairwise_huber() if _on[-1] else by_torch.pairwise_huber
    return function(current, target, asymmetry, weight)


@cache
def _pairwise_huber() -> Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]:
    if not _exists("pairwise_huber"):
        return by_torch.pairwise_huber
    from rlsdk.kernels.pairwise_huber import pairwise_huber as by_kernel

    return by_kernel


def adam_step(optimizer: torch.optim.Optimizer, flat: nn.Parameter) -> Callable[[torch.optim.Optimizer], bool]:
    """A function that makes the step of a fused Adam with one parameter `flat` [D]; False where it cannot."""
    if not _may_use("fused_adam"):
        return lambda _: False
    from rlsdk.kernels.fused_adam import AdamKernel

    return AdamKernel(optimizer, flat).step
