"""The user-facing class."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rlsdk.agent import Agent
from rlsdk.errors import SettingsError, UsageError
from rlsdk.settings.constructor import configured_by
from rlsdk.training import LocalCollector
from rlsdk.training.population import play, scores
from rlsdk_ars.config import ARSConfig

if TYPE_CHECKING:
    from rlsdk.training import PopulationPlan
    from rlsdk_ars.async_eval import AsyncEval


class ARS(Agent[ARSConfig]):
    """Augmented random search (arXiv:1803.07055): random directions in parameter space, the best of them followed."""

    @configured_by(ARSConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    def evaluate_candidates(
        self, candidate_weights: Tensor, callback: object = None, async_eval: AsyncEval | None = None
    ) -> Tensor:
        """Mean returns float32 [P] of policies with the weights [P, D], over `n_eval_episodes` each.

        The agent's own weights, statistics and counts stay as they are.

        Args:
            candidate_weights: flat parameters, as `torch.nn.utils.parameters_to_vector` gives them.
            callback: accepted for compatibility; `learn` calls callbacks.
            async_eval: accepted for compatibility; candidates are played side by side.

        Raises:
            UsageError: the agent has no environment. SettingsError: the weights have another shape.
        """
        expected = len(parameters_to_vector(self.policy.parameters()))
        if candidate_weights.dim() != 2 or candidate_weights.shape[1] != expected:
            raise SettingsError(f"candidate_weights has shape {tuple(candidate_weights.shape)}, not (P, {expected})")
        if self.env is None:
            raise UsageError("the agent has no environment to play candidates in; call set_env(env)")
        plan = cast("PopulationPlan", self.parts.plan)
        return scores(plan, play(LocalCollector(self.env), plan, candidate_weights, self.seed, self._n_updates))
