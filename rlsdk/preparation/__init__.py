"""What happens to observations and rewards before networks see them: frames stacked, numbers normalised.

It belongs to the agent: it travels in its file, acts in `predict` and evaluation, and only training changes it.
"""

from rlsdk.networks.documented_methods import explains_documented_methods
from rlsdk.preparation.normalizer import Normalizer
from rlsdk.preparation.policy import PreparedPolicy
from rlsdk.preparation.preparation import Preparation, prepare

__all__ = ["Normalizer", "Preparation", "prepare"]

explains_documented_methods(PreparedPolicy)
