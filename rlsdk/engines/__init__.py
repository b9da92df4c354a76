"""Dense networks run by hand instead of by autograd, where that is known to be faster."""

from rlsdk.engines.libraries import NUMPY, NUMPY_ACTING_ROWS, TORCH, Array, Library, library_for
from rlsdk.engines.stack import Stack, Trace, fits

__all__ = ["NUMPY", "NUMPY_ACTING_ROWS", "TORCH", "Array", "Library", "Stack", "Trace", "fits", "library_for"]
