"""The preprocessing of observations and rewards before networks see them: frame stacking and normalization.

It is part of the agent and of the agent's file. `predict` and evaluation apply it too. Only training changes its statistics.
"""

from rlsdk.preprocessing.normalizer import Normalizer, RolloutNormalizer
from rlsdk.preprocessing.preprocessing import Preprocessing, preprocessing_of

__all__ = ["Normalizer", "Preprocessing", "RolloutNormalizer", "preprocessing_of"]
