"""Action heads: they convert the latent features of a policy into a distribution over actions, and apply action masks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import attrs
import numpy as np
import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import Bernoulli, Categorical, Gaussian, MultiCategorical, Product, SquashedGaussian
from rlsdk.distributions.categorical import FORBIDDEN, SMALLEST
from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk.interfaces import BuildContext, Distribution
from rlsdk.kernels.protocol import GumbelNoise, NormalNoise
from rlsdk.spaces import LARGEST_BOUND, Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, choices_of

PartT = TypeVar("PartT")


class ActionHead(Protocol):
    """The members of every head. Distributions are over internal actions: choices counted from 0, vectors with one axis."""

    def __call__(self, latent: Tensor, mask: Tensor | None) -> Distribution: ...

    def to_environment(self, action: Any) -> Any:
        """Convert internal actions [N, ..] to environment units."""
        ...

    def from_environment(self, action: Any) -> Any:
        """Convert actions in environment units to internal actions."""
        ...


class DiscreteHead(nn.Module):
    """The head of a Discrete space: one categorical distribution."""

    def __init__(self, latent: int, space: Discrete) -> None:
        super().__init__()
        self.linear, self.start = nn.Linear(latent, space.n), space.start
        self.sampling, self.own_parameters = GumbelNoise(FORBIDDEN, SMALLEST), ()

    def forward(self, latent: Tensor, mask: Tensor | None) -> Categorical:
        return self.of(self.linear(latent), mask)

    of = staticmethod(Categorical.of)

    def to_environment(self, action: Tensor) -> Tensor:
        # most spaces begin at 0, and even an addition of 0 costs a call per step
        return action + self.start if self.start else action

    def from_environment(self, action: Tensor) -> Tensor:
        return action - self.start if self.start else action


class MultiDiscreteHead(nn.Module):
    """The head of a MultiDiscrete space: one categorical distribution per choice."""

    start: Tensor

    def __init__(self, latent: int, space: MultiDiscrete) -> None:
        super().__init__()
        self.linear, self.sizes = nn.Linear(latent, sum(space.nvec)), space.nvec
        # a buffer, so that it moves with the network; not persistent, because it follows from the space
        self.register_buffer("start", torch.tensor(space.start), persistent=False)
        self.sampling, self.own_parameters = None, ()

    def forward(self, latent: Tensor, mask: Tensor | None) -> MultiCategorical:
        return self.of(self.linear(latent), mask)

    def of(self, raw: Tensor, mask: Tensor | None) -> MultiCategorical:
        return MultiCategorical.of(raw, self.sizes, mask)

    def to_environment(self, action: Tensor) -> Tensor:
        return action + self.start

    def from_environment(self, action: Tensor) -> Tensor:
        return action - self.start


class MultiBinaryHead(nn.Module):
    """The head of a MultiBinary space: one Bernoulli distribution per bit."""

    def __init__(self, latent: int, space: MultiBinary) -> None:
        super().__init__()
        self.shape = space.shape
        self.linear = nn.Linear(latent, math.prod(space.shape))
        self.sampling, self.own_parameters = None, ()

    def forward(self, latent: Tensor, mask: Tensor | None) -> Bernoulli:
        return self.of(self.linear(latent), mask)

    of = staticmethod(Bernoulli.of)

    def to_environment(self, action: Tensor) -> Tensor:
        return action.reshape(-1, *self.shape)

    def from_environment(self, action: Tensor) -> Tensor:
        return action.reshape(-1, math.prod(self.shape))


class GaussianHead(nn.Module):
    """The head of a Box space: a Gaussian whose standard deviations do not depend on the observation.

    Actions are not squashed; the environment adapter clips them.
    """

    def __init__(self, latent: int, space: Box, log_std_init: float) -> None:
        super().__init__()
        self.shape, size = space.shape, math.prod(space.shape)
        self.linear = nn.Linear(latent, size)
        # the logarithm, so that gradient steps cannot make the deviation negative
        self.log_std = nn.Parameter(torch.full((size,), float(log_std_init)))

    @property
    def own_parameters(self) -> tuple[nn.Parameter]:
        """See `rlsdk.kernels.protocol.PlainHead`."""
        return (self.log_std,)

    @property
    def sampling(self) -> NormalNoise:
        """See `rlsdk.kernels.protocol.PlainHead`."""
        return NormalNoise(self.log_std)

    def forward(self, latent: Tensor, mask: Tensor | None) -> Gaussian:
        return self.of(self.linear(latent), mask)

    def of(self, raw: Tensor, mask: Tensor | None) -> Gaussian:
        return Gaussian(raw, self.log_std.expand_as(raw))

    def to_environment(self, action: Tensor) -> Tensor:
        return action if len(self.shape) == 1 else action.reshape(-1, *self.shape)

    def from_environment(self, action: Tensor) -> Tensor:
        return action.reshape(-1, math.prod(self.shape))


PLAIN = (DiscreteHead, MultiDiscreteHead, MultiBinaryHead, GaussianHead)
"""Heads with a single linear layer. `of(output of this layer, mask)` returns the distribution."""


class NestedHead(nn.Module):
    """The head of a Dict or Tuple space: one head per entry."""

    def __init__(self, space: Dict | Tuple, heads: Sequence[nn.Module]) -> None:
        super().__init__()
        children = list(space.spaces.values()) if isinstance(space, Dict) else list(space.spaces)
        self.keys = tuple(space.spaces) if isinstance(space, Dict) else None
        self.heads, self.widths = nn.ModuleList(heads), [sum(choices_of(child)) for child in children]

    def forward(self, latent: Tensor, mask: Tensor | None) -> Product:
        # a mask has the entries of all leaves one after another, in the order of the heads
        masks = [None] * len(self.heads) if mask is None else torch.split(mask, self.widths, -1)
        found = [head(latent, own) for head, own in zip(self.heads, masks, strict=True)]
        return Product(self._nested(found))

    def to_environment(self, action: Any) -> Any:
        return self._nested([cast("ActionHead", h).to_environment(a) for h, a in self._pairs(action)])

    def from_environment(self, action: Any) -> Any:
        return self._nested([cast("ActionHead", h).from_environment(a) for h, a in self._pairs(action)])

    def _pairs(self, action: Mapping[str, PartT] | Sequence[PartT]) -> list[tuple[nn.Module, PartT]]:
        values = [action[key] for key in self.keys or ()] if isinstance(action, Mapping) else action
        return list(zip(self.heads, values, strict=True))

    def _nested(self, values: list[PartT]) -> Mapping[str, PartT] | tuple[PartT, ...]:
        return tuple(values) if self.keys is None else dict(zip(self.keys, values, strict=True))


def build_action_head(space: Space, latent: int, log_std_init: float = 0.0) -> nn.Module:
    """Build the head for an action space.

    Raises:
        UnsupportedSpaceError: a Box that does not contain floats.
    """
    if isinstance(space, Box):
        if not space.dtype.startswith("float"):
            raise UnsupportedSpaceError(f"the action space must hold floats, got {space.dtype}; declare it as float32")
        return GaussianHead(latent, space, log_std_init)
    if isinstance(space, Dict | Tuple):
        children = space.spaces.values() if isinstance(space, Dict) else space.spaces
        return NestedHead(space, [build_action_head(child, latent, log_std_init) for child in children])
    if isinstance(space, Discrete):
        return DiscreteHead(latent, space)
    return MultiDiscreteHead(latent, space) if isinstance(space, MultiDiscrete) else MultiBinaryHead(latent, space)


def require_box(space: Space) -> Box:
    """Return the space if it is a Box, which state-dependent noise needs.

    Raises:
        SettingsError: it is not a Box.
    """
    if not isinstance(space, Box):
        raise SettingsError(f"use_sde needs a Box action space, not {type(space).__name__}; leave use_sde out")
    return space


class SdeHead(nn.Module):
    """A Gaussian mean with state-dependent noise. With `scale`, actions are squashed by tanh into a bounded Box."""

    def __init__(self, head: GaussianHead, noise: StateDependentNoise, scale: ActionScale | None) -> None:
        super().__init__()
        self.head, self.noise, self.scale = head, noise, scale

    def forward(self, latent: Tensor, mask: Tensor | None) -> Gaussian | SquashedGaussian:
        mean = self.head.linear(latent)
        kind = Gaussian if self.scale is None else SquashedGaussian
        return kind(mean, self.noise.log_std_of(latent))

    def explore(self, latent: Tensor, matrices: Tensor) -> Tensor:
        """Internal actions [B, A] with the noise of these noise matrices."""
        raw: Tensor = self.head.linear(latent) + self.noise.noise(latent, matrices)
        # squashed after the noise is added, so that explored actions stay inside the bounds too
        return raw if self.scale is None else raw.tanh()

    def to_environment(self, action: Tensor) -> Tensor:
        return (self.head if self.scale is None else self.scale).to_environment(action)

    def from_environment(self, action: Tensor) -> Tensor:
        return self.head.from_environment(action) if self.scale is None else self.scale.to_unit(action)


# Generalized state-dependent exploration (gSDE): noise that is a function of the state and changes only every few
# steps.
#
# Source: Raffin, Kober, Stulp 2020, arXiv:2005.05719, section 3.

EPSILON = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class NoiseMatrices:
    """The carry of gSDE: the matrix of each environment, float32 [B, L, A], and the steps since the rollout began,
    int64 [B]."""

    matrix: Tensor
    age: Tensor


class StateDependentNoise(nn.Module):
    """Computes noise = latent @ matrix, where matrix ~ N(0, std^2) element by element; `log_std` [L, A] is learned.

    The likelihood needs no matrix: given the latent, the noise is Gaussian with variance latent^2 @ std^2.
    """

    def __init__(
        self,
        latent: int,
        actions: int,
        log_std_init: float,
        use_expln: bool,
        *,
        full_std: bool = True,
        learn_features: bool = False,
    ) -> None:
        """With `full_std=False` all actions have the same deviations: `log_std` is [L, 1].

        `learn_features` sets whether the gradient of the deviation flows into the latent. It is True for soft
        actor-critic methods, whose actions are reparameterized samples: otherwise a part of the loss's gradient would
        be missing. It is False for on-policy algorithms, where exploration does not train the features.
        """
        super().__init__()
        self.learn_features = learn_features
        self.log_std = nn.Parameter(torch.full((latent, actions if full_std else 1), float(log_std_init)))
        self.actions, self.use_expln = actions, use_expln

    def std(self) -> Tensor:
        """Positive standard deviations [L, A]: exp(log_std). With `use_expln`, 1 + log1p(log_std) above 0, which grows
        slower."""
        wide = self.log_std.expand(-1, self.actions)
        if not self.use_expln:
            return wide.exp()
        # both branches are clamped: `where` passes gradients of the other branch, which would be NaN or infinite
        return torch.where(wide > 0.0, wide.clamp(min=0.0).log1p() + 1.0, wide.clamp(max=0.0).exp())

    def log_std_of(self, latent: Tensor) -> Tensor:
        """The log standard deviation [N, A] of the noise, given `latent` [N, L]."""
        # see `learn_features`: on-policy, exploration must not train the features (arXiv:2005.05719, section 3)
        seen = latent if self.learn_features else latent.detach()
        # EPSILON: a latent of zeros, as dead ReLU units give, would have the logarithm of 0
        return 0.5 * (seen.square() @ self.std().square() + EPSILON).log()

    def matrices(self, batch: int, generator: Generator) -> Tensor:
        """Sample a new noise matrix per environment, [B, L, A]."""
        shape = (batch, len(self.log_std), self.actions)
        # without gradient: the likelihood trains the deviation, not the matrices that were drawn
        return torch.randn(shape, generator=generator, device=self.log_std.device) * self.std().detach()

    def initial(self, batch: int) -> NoiseMatrices:
        """Return zero matrices. The first step samples new ones."""
        device = self.log_std.device
        matrix = torch.zeros(batch, len(self.log_std), self.actions, device=device)
        return NoiseMatrices(matrix, torch.zeros(batch, dtype=torch.int64, device=device))

    @staticmethod
    def begin_rollout(carry: NoiseMatrices) -> NoiseMatrices:
        """Return the same matrices with age 0, so that the next step samples new ones."""
        # the age alone changes, because the next step knows the batch and the generator to draw with
        return NoiseMatrices(carry.matrix, torch.zeros_like(carry.age))

    def refreshed(self, carry: NoiseMatrices, resample_every: int | None, generator: Generator) -> NoiseMatrices:
        """Return the matrices for this step: new ones at age 0 and then every `resample_every` steps (None: only at age
        0).

        Starts and ends of episodes have no effect.
        """
        matrix, age = carry.matrix, carry.age
        stale = age == 0 if resample_every is None else age % resample_every == 0
        # drawing for all rows takes the same random numbers whichever rows are stale
        if bool(stale.any()):
            matrix = torch.where(stale[:, None, None], self.matrices(len(age), generator), matrix)
        return NoiseMatrices(matrix, age + 1)

    @staticmethod
    def noise(latent: Tensor, matrices: Tensor) -> Tensor:
        """Compute noise [B, A] from latent [B, L] and matrices [B, L, A]."""
        return torch.bmm(latent.unsqueeze(1), matrices).squeeze(1)


class ActionScale(nn.Module):
    """An affine map between environment units [N, *shape] and unit actions [N, A], where A is the number of elements.

    Records (buffers, rollouts, results of `predict`) contain environment units. Only networks use unit actions.
    """

    center: Tensor
    half_width: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, space: Box) -> None:
        super().__init__()
        if not space.is_bounded or not (space.low < space.high).all():
            raise UnsupportedSpaceError(
                f"the action space needs finite bounds with low < high and at most {LARGEST_BOUND:g}, got low"
                f" {space.low.min()}, high {space.high.max()};"
                " declare them, or wrap the environment with gymnasium.wrappers.TransformAction(env, lambda action: action,"
                " gymnasium.spaces.Box(low, high, shape))"
            )
        if not np.issubdtype(np.dtype(space.dtype), np.floating):
            raise UnsupportedSpaceError(f"the action space must hold floats, got {space.dtype}; declare it as float32")
        # in float64, because high - low of large bounds overflows or rounds in float32
        low, high = (np.asarray(bound, dtype=np.float64).reshape(-1) for bound in (space.low, space.high))
        self.shape, self.size = space.shape, low.size
        for name, value in (
            ("center", (low + high) / 2),
            ("half_width", (high - low) / 2),
            ("low", low),
            ("high", high),
        ):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32), persistent=False)

    def to_environment(self, unit: Tensor) -> Tensor:
        """Convert unit actions [N, A] to environment units [N, *shape]; rounding errors past the bounds are clamped."""
        # environments check the bounds exactly, and the sum may round past them
        action = torch.addcmul(self.center, unit, self.half_width).clamp(self.low, self.high)
        return action.reshape(-1, *self.shape)

    def to_unit(self, action: Tensor) -> Tensor:
        """Convert environment units [N, *shape] to unit actions [N, A]."""
        return (action.reshape(-1, self.size) - self.center) / self.half_width


def within_action_bounds(context: BuildContext, bounds: tuple[float, float] | None) -> BuildContext:
    """Return the context with its Box action space narrowed to `bounds` (low, high) in every dimension; unchanged if
    None.

    Everything built from this context acts only inside these bounds, including exploration and warm-up. An unbounded
    space becomes bounded.

    Raises:
        SettingsError: the bounds are not inside the action space.
    """
    space = context.action_space
    if bounds is None or not isinstance(space, Box):
        return context
    # in the dtype of the space, so that a bound equal to one of the space compares as equal
    low, high = (np.full_like(space.low, bound) for bound in bounds)
    if (low < space.low).any() or (high > space.high).any():
        raise SettingsError(
            f"action_bounds = {list(bounds)} are not inside the action space, which goes from {space.low.max():g} to"
            f" {space.high.min():g}; narrow them"
        )
    return replace(context, action_space=attrs.evolve(space, low=low, high=high))


def epsilon_greedy(
    greedy: Tensor, sizes: tuple[int, ...], epsilon: Tensor, mask: Tensor | None, generator: Generator
) -> Tensor:
    """Replace each row of `greedy` by a random action with probability `epsilon`.

    Args:
        greedy: actions int64 [B, K], K choices counted from 0.
        sizes: the number of values of each choice.
        epsilon: the probability, 0-d.
        mask: allowed values, bool [B, sum(sizes)]; None: all. Random actions are uniform over the allowed values.
        generator: samples the random numbers.
    """
    device = greedy.device
    if mask is None:
        # drawn for every row, also for greedy ones, so that the random numbers do not depend on the values
        drawn = [torch.randint(size, greedy.shape[:1], generator=generator, device=device) for size in sizes]
    else:
        even = (Categorical.of(torch.zeros(m.shape, device=device), m) for m in torch.split(mask, list(sizes), -1))
        drawn = [distribution.sample(generator) for distribution in even]
    explores = torch.rand(greedy.shape[:1], generator=generator, device=device) < epsilon
    other = drawn[0].unsqueeze(-1) if len(drawn) == 1 else torch.stack(drawn, -1)
    return torch.where(explores.unsqueeze(-1), other, greedy)
