"""Faster implementations of what rlsdk computes in torch: compiled code, numpy and CUDA graphs.

Nothing here is imported by name: rlsdk finds the package by its hook `kernels`, and `RLSDK_KERNELS=off` switches it off.
"""

__version__ = "0.1.0"
