"""The class `MaskablePPO`, which users construct."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from rlsdk.agent import Agent
from rlsdk.errors import SettingsError
from rlsdk.settings import configured_by
from rlsdk_maskable_ppo.config import MaskablePPOConfig

if TYPE_CHECKING:
    from rlsdk.networks import ActorCritic

BY_POSITION = 4
"""How many arguments of `learn` after `total_timesteps` may be positional: those up to `reset_num_timesteps`."""


class MaskablePPO(Agent[MaskablePPOConfig]):
    """Proximal policy optimization (arXiv:1707.06347) that respects action masks (arXiv:2006.14171)."""

    @configured_by(MaskablePPOConfig)
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    def learn(
        self,
        total_timesteps: float,
        *args: Any,
        use_masking: bool = True,
        schedule_until: float | None = None,
        exact_steps: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Train as `Agent.learn` does. With `use_masking=False` this training ignores masks, as if every action were allowed.

        Raises:
            SettingsError: an argument after `reset_num_timesteps` is positional. Their order differs between versions.
        """
        if len(args) > BY_POSITION:
            raise SettingsError(
                "learn takes arguments after reset_num_timesteps by name: learn(..., use_masking=False)"
            )
        network = cast("ActorCritic", self.parts.policy)
        before, network.use_masks = network.use_masks, network.use_masks and use_masking
        try:
            kwargs |= {"schedule_until": schedule_until, "exact_steps": exact_steps}
            return super().learn(total_timesteps, *args, **kwargs)
        finally:
            network.use_masks = before
