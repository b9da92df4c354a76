"""The user-facing class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_trpo.algorithm import hessian_vector_product
from rlsdk_trpo.config import TRPOConfig
from rlsdk_trpo.plugin import SPEC


class TRPO(Agent):
    """Trust region policy optimisation (arXiv:1502.05477): natural gradient steps under a KL bound."""

    spec = SPEC

    @configured_by(TRPOConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def hessian_vector_product(
        self, params: Sequence[nn.Parameter], grad_kl: Tensor, vector: Tensor, retain_graph: bool = True
    ) -> Tensor:
        """(H + cg_damping) v [D], where `grad_kl` is the flat gradient [D] of a KL divergence, made with its graph."""
        return hessian_vector_product(params, grad_kl, vector, self.config.cg_damping, retain_graph=retain_graph)
