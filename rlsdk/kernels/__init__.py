"""Kernels: hand-written code that computes the same as torch's modules and autograd, faster, with one common protocol.

A kernel of a network has `evaluate(inputs) -> (outputs, vjp)`. With `RLSDK_KERNELS=off` torch computes everything, more slowly.

Its names are for packages that offer kernels by the hook `kernels`. `SLOTS` has the functions that kernels replace. The others
are descriptions of networks and steps, the Protocols of kernels, and checks of networks before a kernel takes their place.
`kernels_of` chooses single kernels, so that a package can compare one with torch::

    with kernels_of({"discounted_sums": my_sums}):
        found = SLOTS["discounted_sums"](value, weight)
    with kernels_off():
        expected = SLOTS["discounted_sums"](value, weight)
"""

from rlsdk.runtime.lazy import attach

__getattr__, __dir__ = attach(__name__, __file__)
