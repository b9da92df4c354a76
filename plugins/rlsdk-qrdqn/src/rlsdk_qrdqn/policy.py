"""The policy of QR-DQN: epsilon-greedy on the mean of predicted quantiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from rlsdk.engines import NUMPY, NUMPY_ACTING_ROWS, Fitted, Library, Stack, dense, stack_of
from rlsdk.exploration import epsilon_greedy
from rlsdk.networks import backward, features_dim, mlp, mode_matters
from rlsdk.networks.documented_methods import explains_documented_methods
from rlsdk.records import Act, Observation
from rlsdk.spaces import Discrete, MultiDiscrete
from rlsdk_qrdqn.loss import greedy_action


@explains_documented_methods
class QuantilePolicy(nn.Module):
    """Encoder -> hidden layers -> quantiles [N, A, K], where A counts the values of all choices, one choice after the other."""

    epsilon: Tensor
    start: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        hidden: Sequence[int],
        activation_fn: str | Callable[[], nn.Module],
        space: Discrete | MultiDiscrete,
        quantiles: int,
        *,
        library: Library | None = None,
    ) -> None:
        """`library`: what runs dense layers by hand; None = autograd."""
        super().__init__()
        self.encoder, self.space, self.quantiles = encoder, space, quantiles
        inputs = features_dim(encoder)
        self.body = mlp(inputs, hidden, activation_fn)
        self.sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
        self.head = nn.Linear(hidden[-1] if hidden else inputs, sum(self.sizes) * quantiles)
        self.register_buffer("start", torch.tensor(space.start), persistent=False)
        self.register_buffer("epsilon", torch.tensor(1.0))
        self.mode_matters = mode_matters(encoder, self.body)
        self._library = library
        self._stacks = Fitted(self._fit, self)

    def _fit(self, hooked: bool) -> tuple[Stack | None, Stack | None]:
        """What runs the dense layers by hand, for acting and for learning."""
        self.mode_matters = mode_matters(self.encoder, self.body, self.head)
        layers, library = [*self.body, self.head], None if hooked else self._library
        return stack_of(layers, self.encoder, library and NUMPY), stack_of(layers, self.encoder, library)

    def forward(self, features: Any) -> Tensor:
        flat = dense([self.body, self.head], self.encoder(features))
        return flat.view(flat.shape[0], -1, self.quantiles)

    def evaluated(self, features: Any) -> tuple[Tensor, Callable[[Tensor], None]]:
        """(quantiles [N, A, K] without graph, what brings the gradient of a loss with respect to them into the parameters'
        `grad`, which is taken to be zero)."""
        _, stack = self._stacks()
        if stack is None:
            quantiles = self(features)
            return quantiles.detach(), lambda slope: backward(quantiles, slope)
        with torch.no_grad():
            flat, pull = stack.evaluated(self.encoder(features))
        return flat.view(len(flat), -1, self.quantiles), lambda slope: pull(slope.flatten(1))

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        acting, _ = self._stacks()
        if self.mode_matters:
            self.eval()
        action = greedy_action(self._seen(observation.features, acting), observation.action_mask, self.sizes)
        if not deterministic:
            action = epsilon_greedy(action, self.sizes, self.epsilon, observation.action_mask, generator)
        return Act(self.to_environment(action), (), ())

    def to_environment(self, action: Tensor) -> Tensor:
        """Choices from 0, [N, choices], in environment units."""
        return (action.squeeze(-1) if isinstance(self.space, Discrete) else action) + self.start

    def from_environment(self, action: Tensor) -> Tensor:
        """The inverse."""
        choices = action.long() - self.start
        return choices.unsqueeze(-1) if isinstance(self.space, Discrete) else choices

    def _seen(self, features: Any, acting: Stack | None) -> Tensor:
        """Quantiles for acting: in numpy for few rows, where calling torch would cost more than the arithmetic."""
        if acting is None or len(encoded := self.encoder(features)) > NUMPY_ACTING_ROWS or not encoded.is_cpu:
            quantiles: Tensor = self(features)
            return quantiles
        return torch.from_numpy(acting(encoded.numpy())).view(len(encoded), -1, self.quantiles)
