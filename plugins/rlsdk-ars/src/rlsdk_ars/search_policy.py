"""The policy of population methods: in torch for predicting and saving, and in numpy for playing candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from rlsdk.distributions import MultiCategorical
from rlsdk.errors import SettingsError, suggest
from rlsdk.interfaces import BuildContext, explain_names
from rlsdk.kernels import no_choice, require_choice
from rlsdk.networks import ActionScale, build_encoder, features_dim, mlp
from rlsdk.records import Act, Observation
from rlsdk.settings import NetworkConfig
from rlsdk.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, choices_of, shape_of
from rlsdk_ars.episodes import Vector

ActionSpace = Box | Discrete | MultiDiscrete | MultiBinary
ACTIVATIONS: dict[str, Callable[[Vector], Vector]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "identity": lambda x: x,
}


@explain_names
class SearchPolicy(nn.Module):
    """A policy: encoder without parameters -> layers -> an action.

    The action is the largest output of each choice, the sign of each bit, or outputs clipped or squashed into a Box.
    """

    def __init__(self, encoder: nn.Module, layers: nn.Sequential, space: ActionSpace, squash: bool) -> None:
        super().__init__()
        self.encoder, self.layers, self.space = encoder, layers, space
        self.scale = ActionScale(space) if squash and isinstance(space, Box) else None

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        return Act(self._action(self.layers(self.encoder(observation.features))), (), ())

    def imitation_loss(self, observation: Observation, action: Tensor, starts: Tensor | None = None) -> Tensor:
        """The loss [N]; see `rlsdk.interfaces.PolicyAbilities`. For choices and bits it is the cross-entropy of the outputs.

        For a Box it is the squared error of the outputs; if they are squashed, of the unit actions.
        """
        outputs: Tensor = self.layers(self.encoder(observation.features))
        if isinstance(self.space, Box):
            wanted = action.reshape(len(outputs), -1) if self.scale is None else self.scale.to_unit(action)
            error = (outputs if self.scale is None else outputs.tanh()) - wanted
            return error.square().mean(-1)
        if isinstance(self.space, MultiBinary):
            wanted = action.reshape(len(outputs), -1).to(outputs.dtype)
            return binary_cross_entropy_with_logits(outputs, wanted, reduction="none").sum(-1)
        sizes = choices_of(self.space)
        chosen = action.long().reshape(-1, len(sizes)) - torch.tensor(self.space.start, device=action.device)
        return -MultiCategorical.of(outputs, sizes).log_prob(chosen)

    def _action(self, outputs: Tensor) -> Tensor:
        if not isinstance(self.space, Box):  # the adapter of the environment examines actions of a Box
            require_choice(outputs)
        if isinstance(self.space, Discrete):
            return outputs.argmax(-1) + self.space.start
        if isinstance(self.space, MultiDiscrete):
            chosen = torch.stack([part.argmax(-1) for part in torch.split(outputs, list(self.space.nvec), -1)], -1)
            return chosen + torch.tensor(self.space.start, device=outputs.device)
        if isinstance(self.space, MultiBinary):
            return (outputs > 0.0).to(torch.int8).reshape(-1, *shape_of(self.space))
        if self.scale is not None:
            return self.scale.to_environment(outputs.tanh())
        low, high = (
            torch.as_tensor(b.copy(), device=outputs.device).float() for b in (self.space.low, self.space.high)
        )
        return outputs.reshape(-1, *self.space.shape).clamp(low, high)


@attrs.frozen
class NumpyPolicy:
    """Computes the actions of `SearchPolicy` for several candidates together, without torch. It can be pickled."""

    shapes: tuple[tuple[int, int, bool], ...]
    """(outputs, inputs, whether it has a bias) of each layer."""
    activation: str
    space: ActionSpace
    squash: bool

    def __call__(self, parameters: NDArray[np.float32]) -> Callable[[Vector], NDArray[np.generic]]:
        """Return the function that acts with these parameters [P, D]: encoded observations [P, F] -> P actions.

        Raises:
            DivergenceError: a parameter is NaN or infinite.
        """
        if not np.isfinite(parameters).all():
            raise no_choice()
        layers, start, count = [], 0, len(parameters)
        for outputs, inputs, biased in self.shapes:
            columns = slice(start, start + outputs * inputs)
            weight = parameters[:, columns].reshape(count, outputs, inputs).astype(np.float64)
            start = columns.stop
            bias = parameters[:, start : start + outputs, None].astype(np.float64) if biased else None
            start += outputs if biased else 0
            layers.append((weight, bias))
        activation, (weight, bias), hidden = ACTIVATIONS[self.activation], layers[-1], layers[:-1]
        decode = _decoder(self.space, self.squash)

        def act(vectors: Vector) -> NDArray[np.generic]:
            # one matrix product per candidate, so that a candidate's result does not depend on the others
            columns = vectors[:, :, None]
            for inner, offset in hidden:
                columns = np.matmul(inner, columns)
                columns = activation(columns if offset is None else columns + offset)
            columns = np.matmul(weight, columns)
            return decode((columns if bias is None else columns + bias)[:, :, 0])

        return act


def _decoder(space: ActionSpace, squash: bool) -> Callable[[Vector], NDArray[np.generic]]:
    """Return the function: outputs [P, K] -> actions [P, ...] in environment units. It is chosen once, as it runs at
    every step."""
    if isinstance(space, Discrete):
        return lambda outputs: outputs.argmax(1) + space.start
    if isinstance(space, MultiDiscrete):
        cuts, start = np.cumsum(space.nvec)[:-1], np.asarray(space.start)
        return lambda outputs: np.stack([part.argmax(1) for part in np.split(outputs, cuts, 1)], 1) + start
    if isinstance(space, MultiBinary):
        return lambda outputs: (outputs > 0.0).astype(np.int8).reshape(-1, *shape_of(space))
    low, high, shape = (
        space.low.astype(np.float64).reshape(-1),
        space.high.astype(np.float64).reshape(-1),
        space.shape,
    )
    span, kind, flat = 0.5 * (high - low) if squash else None, space.dtype, len(space.shape) == 1

    def decode(outputs: Vector) -> NDArray[np.generic]:
        values = outputs if span is None else low + (np.tanh(outputs) + 1.0) * span
        # two ufuncs: np.clip costs three times as much on so few numbers
        actions = np.minimum(np.maximum(values, low), high).astype(kind)
        return actions if flat else actions.reshape(-1, *shape)

    return decode


def build_search_policy(
    context: BuildContext, networks: NetworkConfig, hidden: Sequence[int], *, bias: bool = True, squash: bool = True
) -> tuple[SearchPolicy, NumpyPolicy]:
    """Build a policy, and the same function of candidates' parameters for `PopulationPlan`.

    Args:
        context: spaces and device. Discrete and MultiDiscrete actions are the largest output of each choice,
            MultiBinary actions the signs of outputs.
        networks: the activation, and the settings of the encoder.
        hidden: widths of the hidden layers; without any the policy is linear.
        bias: whether layers have a bias.
        squash: whether Box actions are squashed by tanh; otherwise they are clipped.

    Raises:
        SettingsError: the activation does not exist in numpy, an optimizer is set although none is used, or the encoder
            of the observations has parameters.
    """
    space, activation = context.action_space, networks.activation_fn
    assert isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary)
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise SettingsError(
            f"candidates are played in numpy: activation_fn {activation!r}; {suggest(str(activation), ACTIVATIONS)}"
        )
    if networks.optimizer_class not in ("adam", None) or networks.optimizer_kwargs:
        raise SettingsError(
            "optimizer_class, optimizer_kwargs: candidates are searched without an optimizer; leave them out"
        )
    # by the space, because the names of these policies choose layers and not encoders
    kind = "MultiInputPolicy" if isinstance(context.observation_space, Dict | Tuple) else "MlpPolicy"
    if networks.features_extractor_class is not None:
        raise SettingsError(
            "features_extractor_class is not possible here: candidates are played in numpy; encode in an environment wrapper"
        )
    encoder = build_encoder(context, kind, networks)
    # candidates hold the layers' parameters only, so those of an encoder would never change
    if any(True for _ in encoder.parameters()):
        raise SettingsError(
            "the parameters of the policy alone are searched; images are not possible; encode them in an environment wrapper"
        )
    choices = isinstance(space, Discrete | MultiDiscrete)
    outputs = sum(choices_of(space)) if choices else prod(shape_of(space))
    inputs = features_dim(encoder)
    body = mlp(inputs, hidden, activation, bias=bias)
    layers = nn.Sequential(*body, nn.Linear(hidden[-1] if hidden else inputs, outputs, bias=bias))
    policy = SearchPolicy(encoder, layers, space, squash).to(context.device)
    shapes = tuple((m.out_features, m.in_features, m.bias is not None) for m in layers if isinstance(m, nn.Linear))
    return policy, NumpyPolicy(shapes, activation, space, squash)
