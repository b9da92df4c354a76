"""Kernels: hand-written code that computes the same as torch's modules and autograd, faster, with one common protocol.

Networks and losses get kernels from `rlsdk.kernels.factory`: `evaluate(inputs) -> (outputs, vjp)`. With
`RLSDK_KERNELS=off` torch computes everything, more slowly.

Its names are for packages that offer kernels by the hook `kernels`. They are descriptions of networks and steps, the Protocols
of kernels, and checks of networks before a kernel takes their place. `rlsdk.kernels.factory` has the functions that kernels
replace. Its `kernels_of` chooses single kernels, so that a package can compare one with torch::

    with factory.kernels_of({"discounted_sums": my_sums}):
        found = factory.discounted_sums(value, weight)
    with kernels_off():
        expected = factory.discounted_sums(value, weight)
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
