"""The update of ARS: propose parameters around the current ones, then step along the best directions."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlsdk.buffers import require_memory
from rlsdk.errors import UsageError, shown
from rlsdk.interfaces import State
from rlsdk.kernels import Structure
from rlsdk.networks import FlatParameters, architecture
from rlsdk.records import Metrics
from rlsdk_ars.config import ARSConfig
from rlsdk_ars.loss import search_step
from rlsdk_ars.population import Scored
from rlsdk_ars.search_policy import SearchPolicy


class RandomSearch:
    """Algorithm 1 of arXiv:1803.07055 (versions V1-t, and V2-t with normalized observations)."""

    def __init__(self, policy: SearchPolicy, config: ARSConfig, generator: Generator) -> None:
        self.policy, self.config, self.generator = policy, config, generator
        self.structure, self.shapes = Structure(policy), architecture(policy.layers)
        self.structure.changed()
        self.memory = FlatParameters(policy.parameters())
        if config.zero_policy:
            self.values.zero_()
        needed = 16 * config.n_delta * len(self.values)  # the directions, their steps and two candidates, in float32
        require_memory(needed, f"the candidates of n_delta = {shown(config.n_delta, 60)}", "lower n_delta")
        self.deltas = torch.zeros(config.n_delta, len(self.values))

    def reconfigure(self, config: ARSConfig) -> None:
        """Use new settings from the next proposal on."""
        self.config = config

    @property
    def values(self) -> Tensor:
        """The policy's parameters as one vector [D]."""
        return self.memory.values

    def _refit(self) -> None:
        """Search among the parameters that the policy has now, after some of them were replaced.

        Raises:
            UsageError: the policy has hooks, or other layers than its candidates.
        """
        if self.structure.hooked:
            raise UsageError("ARS plays candidates in numpy, where no hooks run: remove them before learn")
        if architecture(self.policy.layers) != self.shapes:
            raise UsageError(
                "ARS plays candidates with the layers the policy was made with, which were replaced; choose layers by net_arch"
                " and activation_fn, or replace them by layers of the same kind and size"
            )
        self.memory = FlatParameters(self.policy.parameters())

    @torch.no_grad()
    def propose(self, *, progress: float) -> Tensor:
        """Return P = 2 n_delta candidates [P, D]: parameters + std * delta, then parameters - std * delta. Deltas of frozen
        parameters are 0."""
        if self.structure.changed() or self.structure.hooked:
            self._refit()
        self.memory.zero_grad()
        shape = (self.config.n_delta, len(self.values))
        self.deltas = torch.randn(shape, generator=self.generator, device=self.values.device)
        if (frozen := self.memory.frozen_entries()) is not None:
            self.deltas[:, frozen] = 0.0
        spread = self.config.delta_std(1.0 - progress) * self.deltas
        return torch.cat([self.values + spread, self.values - spread])

    @torch.no_grad()
    def update(self, batch: Scored, *, progress: float) -> Metrics:
        """Step along the best directions of the last proposal, given the scores of its candidates."""
        plus, minus = batch.score.chunk(2)
        rate = self.config.learning_rate(1.0 - progress)
        direction, deviation = search_step(self.deltas, plus, minus, self.config.top)
        self.values.add_(direction, alpha=rate)
        return {
            "train/score_mean": batch.score.mean(),
            "train/score_best": batch.score.max(),
            "train/score_std": deviation,
            "train/step_size": direction.norm() * rate,
            "train/delta_std": batch.score.new_tensor(self.config.delta_std(1.0 - progress)),
        }

    def state_dict(self) -> State:
        """The directions of the last proposal. The parameters are stored with the policy."""
        return {"search": {"deltas": self.deltas.clone()}}

    def load_state_dict(self, state: State, /) -> None:
        """Load the directions of the last proposal. They may be more or fewer than `n_delta`: the next proposal replaces them.

        Raises:
            ValueError: the directions have another number of parameters than the policy.
        """
        deltas = state["search"]["deltas"]
        if deltas.shape[1:] != self.deltas.shape[1:]:
            raise ValueError(
                f"the stored directions have {tuple(deltas.shape)} entries, not {tuple(self.deltas.shape)}"
            )
        self.deltas = deltas.to(self.deltas)
