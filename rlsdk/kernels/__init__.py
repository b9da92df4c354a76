"""Kernels: hand-written code that computes the same as torch's modules and autograd, faster, with one common protocol.

Networks and losses get kernels from `rlsdk.kernels.factory`: `evaluate(inputs) -> (outputs, vjp)`. With
`RLSDK_KERNELS=off` torch computes everything, more slowly.

`__all__` is for packages that offer kernels by the hook `kernels`. It has descriptions of networks and steps, the Protocols of
kernels, and the checks of networks before a kernel takes their place. `rlsdk.kernels.factory` has the functions that kernels
replace. Its `kernels_of` chooses single kernels, so that a package can compare one with torch::

    with factory.kernels_of({"discounted_sums": my_sums}):
        found = factory.discounted_sums(value, weight)
    with kernels_off():
        expected = factory.discounted_sums(value, weight)
"""

from rlsdk.kernels.factory import graphed, graphed_transition
from rlsdk.kernels.protocol import (
    ActorCriticLayers,
    DenseNetwork,
    GreedyKernel,
    GumbelNoise,
    KernelChoice,
    LossRows,
    NormalizationKernel,
    NormalNoise,
    PlainHead,
    PolicyActor,
    PolicyEvaluator,
    PolicyLoss,
    PolicyRows,
    PolicySteps,
    ReplayedTransition,
    SquashedLayers,
    SquashedPolicy,
    is_dense,
    is_linear,
)
from rlsdk.kernels.reference import Differentiable, is_transformed, no_choice, require_choice
from rlsdk.kernels.structure import (
    KernelSlot,
    Structure,
    fixed_layers,
    function_modes,
    is_hooked,
    kernel_states,
    kernels_off,
)
from rlsdk.kernels.vector_steps import VectorStep, step_optimizer, without_compiler

__all__ = [
    "ActorCriticLayers",
    "DenseNetwork",
    "Differentiable",
    "GreedyKernel",
    "GumbelNoise",
    "KernelChoice",
    "KernelSlot",
    "LossRows",
    "NormalNoise",
    "NormalizationKernel",
    "PlainHead",
    "PolicyActor",
    "PolicyEvaluator",
    "PolicyLoss",
    "PolicyRows",
    "PolicySteps",
    "ReplayedTransition",
    "SquashedLayers",
    "SquashedPolicy",
    "Structure",
    "VectorStep",
    "fixed_layers",
    "function_modes",
    "graphed",
    "graphed_transition",
    "is_dense",
    "is_hooked",
    "is_linear",
    "is_transformed",
    "kernel_states",
    "kernels_off",
    "no_choice",
    "require_choice",
    "step_optimizer",
    "without_compiler",
]
