"""Dense networks run by hand instead of by autograd, where that is known to be faster."""

from rlsdk.engines.architecture import architecture
from rlsdk.engines.libraries import NUMPY, NUMPY_ACTING_ROWS, TORCH, Array, Library, choose
from rlsdk.engines.products import dense
from rlsdk.engines.stack import Stack, Trace, fits, stack_of
from rlsdk.engines.structure import Fitted, Structure

__all__ = [
    "NUMPY",
    "NUMPY_ACTING_ROWS",
    "TORCH",
    "Array",
    "Fitted",
    "Library",
    "Stack",
    "Structure",
    "Trace",
    "architecture",
    "choose",
    "dense",
    "fits",
    "stack_of",
]
