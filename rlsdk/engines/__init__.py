"""Dense networks run by hand instead of by autograd, where that is known to be faster."""

from rlsdk.engines.libraries import NUMPY, NUMPY_ACTING_ROWS, TORCH, Array, Library, choose
from rlsdk.engines.products import dense
from rlsdk.engines.stack import Stack, Trace, fits, stack_of

__all__ = [
    "NUMPY",
    "NUMPY_ACTING_ROWS",
    "TORCH",
    "Array",
    "Library",
    "Stack",
    "Trace",
    "choose",
    "dense",
    "fits",
    "stack_of",
]
