"""What happens to observations and rewards before networks see them: frames stacked, numbers normalised.

It belongs to the agent: it travels in its file, is applied in `predict` and evaluation, and only training changes it.
"""

from rlsdk.preprocessing.normalizer import Normalizer
from rlsdk.preprocessing.preprocessing import Preprocessing, preprocessing_of
from rlsdk.preprocessing.rollouts import RolloutNormalizer

__all__ = ["Normalizer", "Preprocessing", "RolloutNormalizer", "preprocessing_of"]
