"""The class `ARS`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rlsdk.agent import Agent
from rlsdk.errors import SettingsError, UsageError
from rlsdk.settings import configured_by
from rlsdk.training import LocalCollector
from rlsdk_ars.config import ARSConfig
from rlsdk_ars.population import PopulationPlan, play, scores

if TYPE_CHECKING:
    from rlsdk_ars.async_eval import AsyncEval


class ARS(Agent[ARSConfig]):
    """Augmented random search (arXiv:1803.07055): a step along the best of random directions in parameter space."""

    @configured_by(ARSConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    def evaluate_candidates(
        self, candidate_weights: Tensor, callback: object = None, async_eval: AsyncEval | None = None
    ) -> Tensor:
        """Play candidates and return their mean returns, float32 [P], over `n_eval_episodes` episodes each.

        The agent's weights, statistics and counts do not change.

        Args:
            candidate_weights: parameters [P, D] of P policies, each flat as from `torch.nn.utils.parameters_to_vector`.
            callback: accepted for compatibility and ignored; only `learn` calls callbacks.
            async_eval: accepted for compatibility and ignored; candidates are always played in parallel.

        Raises:
            UsageError: the agent has no environment. SettingsError: `candidate_weights` has another shape.
        """
        expected = len(parameters_to_vector(self.policy.parameters()))
        if candidate_weights.dim() != 2 or candidate_weights.shape[1] != expected:
            raise SettingsError(f"candidate_weights has shape {tuple(candidate_weights.shape)}, not (P, {expected})")
        if self.env is None:
            raise UsageError("the agent has no environment to play candidates in; call set_env(env)")
        plan = cast("PopulationPlan", self.parts.plan)
        normalizer = self.preprocessing.rollouts(self.parts)
        collector = LocalCollector(self.env, normalizer=normalizer, space=self.context.observation_space)
        return scores(plan, play(collector, plan, candidate_weights, self.seed, self._n_updates))
