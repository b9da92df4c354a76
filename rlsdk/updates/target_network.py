"""Target networks: a slowly moving copy of an online network."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

NetworkT = TypeVar("NetworkT", bound=nn.Module)


class TargetNetwork(Generic[NetworkT]):
    """`network` is a copy of `online` that takes no gradients and follows it by `update`."""

    def __init__(self, online: NetworkT) -> None:
        self.online, self.network = online, deepcopy(online).eval()
        self.network.requires_grad_(False)
        self._pairs: list[tuple[Tensor, Tensor]] = list(
            zip(self.network.parameters(), online.parameters(), strict=True)
        )
        self._buffers = list(zip(self.network.buffers(), online.buffers(), strict=True))

    @torch.no_grad()
    def update(self, tau: float) -> None:
        """target += tau * (online - target); buffers such as batch-norm statistics are copied whole."""
        for mine, theirs in self._pairs:
            mine.lerp_(theirs, tau)
        for mine, theirs in self._buffers:
            mine.copy_(theirs)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def load_state_dict(self, state: Any) -> None:
        self.network.load_state_dict(state)
