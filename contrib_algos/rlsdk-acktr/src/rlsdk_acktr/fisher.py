"""The Fisher information of an actor-critic network, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from rlsdk.interfaces import State
from rlsdk_acktr.blocks import DiagonalBlock, KroneckerBlock
from rlsdk_acktr.config import ACKTRConfig
from rlsdk_acktr.recording import Calls, layers_of


class FisherInformation:
    """Kronecker factors for dense and convolutional layers, and a diagonal for all other parameters."""

    def __init__(self, network: nn.Module) -> None:
        self.layers = {name: KroneckerBlock(layer) for name, layer in layers_of(network).items()}
        self.others = {name: DiagonalBlock(parameter) for name, parameter in network.named_parameters()}
        """A block for every parameter. Blocks of parameters in layers with Kronecker factors stay empty if these are called."""

    def keep(self, before: FisherInformation) -> None:
        """Reuse the blocks of `before` for layers and parameters that this network still has."""
        layers = {block.layer: block for block in before.layers.values()}
        others = {block.parameter: block for block in before.others.values()}
        self.layers = {name: layers.get(block.layer, block) for name, block in self.layers.items()}
        self.others = {name: others.get(block.parameter, block) for name, block in self.others.items()}

    def observe(self, score: Tensor, calls: Calls, weight: Tensor | None, rows: int, decay: float) -> None:
        """Add one batch to the running averages.

        Args:
            score: the sum of the rows' log-likelihoods under the model, of targets sampled from it, 0-d.
            calls: the calls of the layers in the evaluation that gave `score`.
            weight: float [rows], 0 for rows that do not count; None where all do.
            rows: number of rows of the batch.
            decay: the decay of running averages.
        """
        called = [(block, calls[block.layer]) for block in self.layers.values() if block.layer in calls]
        known = {p for b in self.layers.values() if b.count or b.layer in calls for p in b.layer.parameters()}
        others = [b for b in self.others.values() if b.parameter not in known and b.parameter.requires_grad]
        edges = [edge for _, uses in called for _, edge in uses]
        wanted: Any = [*edges, *(block.parameter for block in others)]
        if not wanted:  # every trained parameter belongs to a layer that was not called this time
            return
        grads = torch.autograd.grad(score, wanted, retain_graph=True, allow_unused=True)
        found = iter(grads)
        for block, uses in called:
            pairs = [(inputs, grad) for (inputs, _), grad in zip(uses, found, strict=False) if grad is not None]
            if pairs:
                block.observe(pairs, weight, rows, decay)
        counting = score.new_tensor(rows) if weight is None else weight.sum()
        for other, grad in zip(others, grads[len(edges) :], strict=True):
            if grad is not None:
                other.observe(grad, counting, decay)

    def precondition(self, config: ACKTRConfig, *, refresh: bool) -> None:
        """Replace gradients by natural gradients. `refresh`: compute all eigenvectors again, not only missing ones."""
        for block in self.layers.values():
            if block.count:
                if refresh or not block.is_decomposed:
                    block.decompose()
                block.precondition(config.damping, config.factored_damping)
        for other in self.others.values():
            if other.count:
                other.precondition(config.damping)

    def state_dict(self) -> State:
        """The blocks with observations."""
        return {
            kind: {name: block.state_dict() for name, block in blocks.items() if block.count}
            for kind, blocks in (("layers", self.layers), ("others", self.others))
        }

    def load_state_dict(self, state: State, /) -> None:
        """Load the blocks in `state` and reset all others. Raises ValueError: `state` has a block that this network lacks."""
        for kind, blocks in (("layers", self.layers), ("others", self.others)):
            given = state[kind]
            if not isinstance(given, Mapping) or not set(given) <= set(blocks):
                raise ValueError(f"{kind} of the Fisher information are those of another network")
            for name, block in blocks.items():
                if name in given:
                    block.load_state_dict(given[name])
                else:
                    block.clear()


def score_of(log_prob: Tensor, value: Tensor, weight: Tensor | None, coef: float, generator: Generator) -> Tensor:
    """The sum of log-likelihoods of a batch, 0-d, to differentiate.

    The policy's samples are the actions taken. The value is the mean of a Gaussian with deviation 1. The gradient of its loss
    `coef` (V - y)^2 is 2 `coef` times the noise. Only the sign of the noise is sampled, so that the value's information is its
    exact Gauss-Newton matrix. Products of scores of the value and of the policy still cancel on average.

    Args:
        log_prob: log-probabilities of the actions taken, float [N].
        value: values of the states, float [N].
        weight: float [N], 0 for rows that do not count; None where all do.
        coef: weight of the value's Fisher loss.
        generator: generates the signs.
    """
    noise = torch.empty_like(value).bernoulli_(0.5, generator=generator).mul_(2.0).sub_(1.0)
    rows = log_prob + 2.0 * coef * noise * value
    return rows.sum() if weight is None else (rows * weight).sum()
