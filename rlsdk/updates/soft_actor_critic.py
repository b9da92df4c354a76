"""The steps of the soft actor-critic family. Source: Haarnoja et al. 2018, arXiv:1812.05905."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError
from rlsdk.updates.optimizer import FlatOptimizer


def parse_entropy_coefficient(value: str | float) -> tuple[float, bool]:
    """(initial value, learnt?) of `"auto"`, `"auto_0.1"` or a number.

    Raises:
        SettingsError: anything else, or not positive (a fixed coefficient may be 0).
    """
    try:
        learnt = isinstance(value, str) and value.startswith("auto")
        initial = float(str(value)[5:] or 1.0) if learnt else float(value)
        if isinstance(value, str) and learnt and value != "auto" and not value.startswith("auto_"):
            raise ValueError
    except ValueError:
        raise SettingsError(
            f'ent_coef {value!r} must be "auto", "auto_" with a first value (auto_0.1), or a number'
        ) from None
    if not math.isfinite(initial) or initial < 0.0 or (learnt and initial == 0.0):
        raise SettingsError(f"ent_coef {value!r} must be {'positive' if learnt else 'not negative'} and finite")
    return initial, learnt


class EntropyCoefficient:
    """The weight alpha of the entropy bonus: fixed, or learnt so that the policy's entropy approaches a target.

    Loss of the learnt one (arXiv:1812.05905, eq. 17, in the log): -log_alpha * mean(log_prob + target_entropy).
    """

    def __init__(self, value: str | float, target_entropy: float, learning_rate: float, device: str) -> None:
        initial, self.learnt = parse_entropy_coefficient(value)
        self.target_entropy = target_entropy
        self.fixed = torch.tensor(initial, device=device)
        self.log_alpha = nn.Parameter(torch.full((1,), math.log(initial) if self.learnt else 0.0, device=device))
        self.optimizer = FlatOptimizer([self.log_alpha], "adam", learning_rate)

    @torch.no_grad()
    def update(self, log_prob: Tensor, learning_rate: float) -> tuple[Tensor, dict[str, Tensor]]:
        """(alpha before this update, 0-d; metrics), given log-densities [N] of the policy's own actions."""
        if not self.learnt:
            return self.fixed, {"train/ent_coef": self.fixed}
        alpha = self.log_alpha.exp().squeeze(0)
        gradient = -(log_prob + self.target_entropy).mean()
        loss = self.log_alpha.squeeze(0) * gradient
        self.optimizer.gradients.copy_(gradient)
        self.optimizer.step(learning_rate)
        return alpha, {"train/ent_coef": alpha, "train/ent_coef_loss": loss}

    def state_dict(self) -> dict[str, Any]:
        return {"log_alpha": self.log_alpha.detach().clone(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])
        self.optimizer.load_state_dict(state["optimizer"])
