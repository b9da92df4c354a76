"""The user-facing class."""

from __future__ import annotations

from typing import Any

from rlsdk.agent import Agent
from rlsdk.constructor import configured_by
from rlsdk_qrdqn.config import QRDQNConfig
from rlsdk_qrdqn.plugin import SPEC


class QRDQN(Agent):
    """Quantile-regression DQN (arXiv:1710.10044): Q-learning with a distribution of returns, by quantiles."""

    spec = SPEC

    @configured_by(QRDQNConfig)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
