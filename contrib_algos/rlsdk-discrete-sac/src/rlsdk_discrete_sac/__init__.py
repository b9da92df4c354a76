"""Discrete soft actor-critic for rlsdk. The class is imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_discrete_sac.agent import DiscreteSAC as DiscreteSAC

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(__name__)
