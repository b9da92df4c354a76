"""Networks and action distributions that settings name. Classes are imported on first use, so that listing plugins is fast."""

from typing import TYPE_CHECKING

from rlsdk.registry import public_names

if TYPE_CHECKING:
    from rlsdk_networks.distributions import Beta as Beta
    from rlsdk_networks.distributions import Dirichlet as Dirichlet
    from rlsdk_networks.networks import MlpNetwork as MlpNetwork
    from rlsdk_networks.networks import SeededDropout as SeededDropout
    from rlsdk_networks.networks import SimbaNetwork as SimbaNetwork
    from rlsdk_networks.simplex import Simplex as Simplex

__version__ = "0.1.0"

__getattr__, __dir__ = public_names(
    __name__,
    Beta="rlsdk_networks.distributions",
    MlpNetwork="rlsdk_networks.networks",
    Dirichlet="rlsdk_networks.distributions",
    SeededDropout="rlsdk_networks.networks",
    SimbaNetwork="rlsdk_networks.networks",
    Simplex="rlsdk_networks.simplex",
)
