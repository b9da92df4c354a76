"""The class `TRPO`, which users construct."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rlsdk.agent import Agent
from rlsdk.settings import configured_by
from rlsdk_trpo.algorithm import hessian_vector_product
from rlsdk_trpo.config import TRPOConfig


class TRPO(Agent[TRPOConfig]):
    """Trust region policy optimization (arXiv:1502.05477): natural gradient steps under a KL bound."""

    @configured_by(TRPOConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    def hessian_vector_product(
        self, params: Sequence[nn.Parameter], grad_kl: Tensor, vector: Tensor, retain_graph: bool = True
    ) -> Tensor:
        """Return (H + cg_damping) v [D], with v = `vector` and H the Hessian of a KL divergence with respect to `params`.

        `grad_kl` is the flat gradient [D] of the divergence, computed with `create_graph=True`.
        """
        return hessian_vector_product(params, grad_kl, vector, self.config.cg_damping, retain_graph=retain_graph)
