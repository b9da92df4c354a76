"""What happens to observations and rewards before networks see them: frames stacked, numbers normalised.

It belongs to the agent: it travels in its file, acts in `predict` and evaluation, and only training changes it.
"""

from rlsdk.preparation.normalizer import Normalizer
from rlsdk.preparation.preparation import Preparation, prepare

__all__ = ["Normalizer", "Preparation", "prepare"]
