"""Kernels: hand-written code that computes the same as torch's modules and autograd, faster, with one common protocol.

Networks and losses get kernels from `rlsdk.kernels.factory`: `evaluate(inputs) -> (outputs, vjp)`. With
`RLSDK_KERNELS=off` torch computes everything, more slowly.
"""

from rlsdk.kernels.factory import graphed, seeded_draws
from rlsdk.kernels.hooks import function_modes, is_hooked
from rlsdk.kernels.protocol import AUTOGRAD, Kernel, KernelChoice, Learnt
from rlsdk.kernels.reference import Autograd, AutogradPair
from rlsdk.kernels.structure import KernelSlot, Structure, fixed_layers
from rlsdk.kernels.switch import kernels_off

__all__ = [
    "AUTOGRAD",
    "Autograd",
    "AutogradPair",
    "Kernel",
    "KernelChoice",
    "KernelSlot",
    "Structure",
    "Learnt",
    "fixed_layers",
    "function_modes",
    "graphed",
    "is_hooked",
    "kernels_off",
    "seeded_draws",
]
