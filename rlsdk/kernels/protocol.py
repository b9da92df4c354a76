"""What a kernel is, and how networks describe themselves to kernels.

A kernel computes what a network computes, and its gradients, faster than torch's modules and autograd. Callers do not
depend on which kernel they get: torch autograd is one of them (`rlsdk.kernels.reference.Autograd`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol, TypeVar

from torch import Generator, Tensor, nn

from rlsdk.interfaces import ClosedForm, Distribution
from rlsdk.records import Observation

InputsT_contra = TypeVar("InputsT_contra", contravariant=True)
OutputsT_co = TypeVar("OutputsT_co", covariant=True)
VjpT_co = TypeVar("VjpT_co", covariant=True)


class Kernel(Protocol[InputsT_contra, OutputsT_co, VjpT_co]):
    """Evaluates a network."""

    @property
    def name(self) -> str:
        """`autograd`, `numpy` or `torch`."""
        ...

    def evaluate(self, inputs: InputsT_contra, /) -> tuple[OutputsT_co, VjpT_co]:
        """(outputs without graph, vjp).

        `vjp` takes the gradient of a loss with respect to each output and writes that with respect to the parameters into their
        `grad`, which is taken to be zero.
        """
        ...


class DenseNetwork(Kernel[Tensor, Tensor, Callable[[Tensor], None]], Protocol):
    """Evaluates [N, I] -> [.., N, O]."""

    def evaluate_inputs(self, inputs: Tensor, /) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """(outputs [.., N, O] without graph, vjp): this `vjp` returns the gradient with respect to the inputs [N, I], and forms
        none of the parameters."""
        ...

    def outputs_of_several(self, inputs: Tensor, count: int, /) -> Tensor | None:
        """What `evaluate` gives for each of `count` batches of equal size, whose rows stand in `inputs` [N, I] one batch after
        the other, to the bit; None: one call for each takes as little time."""
        ...


class Acting(Protocol):
    """Raw outputs [N, O] of a network for encoded observations [N, I], without graph."""

    def __call__(self, features: Tensor, /) -> Tensor: ...


SampledVjp = Callable[[Tensor, Tensor], None]
"""Takes the gradients of a loss with respect to actions [N, A] and log-densities [N]."""


class SquashedPolicy(Kernel[tuple[Tensor, Tensor], tuple[Tensor, Tensor], SampledVjp], Protocol):
    """Evaluates (features [N, F], standard normal noise [N, A]) -> (unit actions [N, A], their log-densities [N])."""

    def act(self, features: Tensor, deterministic: bool, generator: Generator) -> Tensor:
        """Unit actions [N, A] for features [N, F]."""
        ...


class PolicyRows(Protocol):
    """N steps to learn from, see `rlsdk.updates.PolicyBatch`."""

    @property
    def observation(self) -> Observation: ...
    @property
    def action(self) -> Tensor: ...
    @property
    def weight(self) -> Tensor | None: ...
    def __len__(self) -> int: ...


RowsT = TypeVar("RowsT", bound=PolicyRows)
RowsT_contra = TypeVar("RowsT_contra", bound=PolicyRows, contravariant=True)
Product = Callable[[Tensor], Tensor]
"""A matrix times a vector [D]."""


class PolicyVjp(Protocol):
    """Takes the gradients of a loss with respect to log-probabilities, entropies (None: not in the loss) and values, float [N]
    each, and writes that with respect to the parameters into their `grad`, which is taken to be zero."""

    def __call__(self, grad_log_prob: Tensor, grad_entropy: Tensor | None, grad_value: Tensor | None, /) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The network's outputs for N steps; tensors have no graph, except those of the distribution."""

    made: Callable[[], Distribution]
    """Makes `distribution`, which most updates do not need."""
    log_prob: Tensor  # float [N], of the actions taken
    entropy: Tensor  # float [N]
    value: Tensor  # float [N]
    fisher: Callable[[], Product]
    """The policy's Fisher information, averaged over the rows that count, times a direction in `actor_parameters`."""

    @property
    def distribution(self) -> Distribution:
        """Over internal actions."""
        return self.made()


class LossRows(PolicyRows, Protocol):
    """The same as a policy's loss reads them; all float [N]."""

    @property
    def log_prob(self) -> Tensor: ...
    @property
    def value(self) -> Tensor: ...
    @property
    def advantage(self) -> Tensor: ...
    @property
    def target(self) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Of what the loss of an actor-critic method is made."""

    clip: float | None
    """Of the ratio of likelihoods, arXiv:1707.06347, equation 7; None: -A log pi(a|s)."""
    clip_value: float | None
    """How far values may move; None: freely."""
    ent_coef: float
    vf_coef: float
    normalize_advantage: bool


LOSSES = ("policy", "value", "entropy", "approx_kl", "clip_fraction", "loss")
"""The means that a policy's loss gives, float [6]; of entropy the negative one. Without clip 0 for the two of the ratio."""
LossGrads = tuple[Tensor, Tensor | None, Tensor]
"""Of the loss with respect to log-probabilities, entropies (None: not in the loss) and values, float [N] each."""


class PolicyLoss(Protocol):
    """The loss of an actor-critic method: (means [6] called `LOSSES`, gradients [N])."""

    def __call__(self, rows: LossRows, now: Evaluation, terms: LossTerms, /) -> tuple[Tensor, LossGrads]: ...


class PolicyEvaluator(Kernel[RowsT, Evaluation, PolicyVjp], Protocol[RowsT]):
    """Evaluates a policy and its value function."""

    def prepared(self, rows: RowsT) -> RowsT:
        """Work that is done once for all batches of `rows`; returns the rows to evaluate."""
        ...

    def policy(self, rows: RowsT) -> tuple[Distribution, Tensor]:
        """(distribution, log-probabilities [N] of the actions taken) alone, without graph."""
        ...

    def values(self, rows: RowsT, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        """(values [N] without graph, vjp): `vjp` writes the gradient, given that with respect to the values [N], into the
        `grad` of `critic`, the parameters that no action depends on."""
        ...


class PolicyActor(Protocol):
    """Acts with a policy that has no carry, and evaluates the observations it acted on."""

    def act(self, observation: Observation, deterministic: bool, generator: Generator) -> Tensor:
        """Actions [B, ..] in environment units."""
        ...

    def forward(self, observation: Observation) -> tuple[Callable[[], Distribution], Tensor]:
        """(makes the distribution, which not every update needs; values [N]), without graph."""
        ...

    def values(self, observation: Observation) -> Tensor:
        """[N], without graph."""
        ...


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """What decides which kernel is the fastest for a network."""

    setting: str = "auto"
    """One of "auto", "autograd", "numpy", "torch"."""
    width: int = 1
    """Of the widest layer."""
    rows: int = 1
    """Of a training batch."""
    device: str = "cpu"


AUTOGRAD = KernelChoice("autograd")


@dataclass(frozen=True, slots=True)
class NormalNoise:
    """Actions are raw outputs + exp(`log_std` [A]) * standard normal noise."""

    log_std: Tensor


@dataclass(frozen=True, slots=True)
class GumbelNoise:
    """Actions are where logits + Gumbel noise are largest."""

    forbidden: float
    """Logit of values that a mask forbids."""
    smallest: float
    """Of the exponential numbers that noise is made of; smaller ones count as this."""


class PlainHead(Protocol):
    """An action head that is one linear layer."""

    linear: nn.Linear

    @property
    def own_parameters(self) -> Sequence[nn.Parameter]:
        """Those of no layer, in the order in which the distribution's `vjp` gives their gradients."""
        ...

    @property
    def sampling(self) -> NormalNoise | GumbelNoise | None:
        """How actions are sampled; None: by the distribution."""
        ...

    def of(self, raw: Tensor, mask: Tensor | None) -> ClosedForm:
        """The distribution, given what the linear layer gave [N, O], and bool [N, O] or None."""
        ...

    def to_environment(self, action: Tensor) -> Tensor: ...

    def from_environment(self, action: Tensor) -> Tensor: ...


class Reparameterised(Protocol):
    """What kernels need of a squashed Gaussian, see `rlsdk.distributions.SquashedGaussian`."""

    def transform(self, noise: Tensor) -> tuple[Tensor, Tensor]: ...

    def transform_vjp(
        self, noise: Tensor, action: Tensor, grad_action: Tensor, grad_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, slots=True, eq=False)
class SquashedLayers:
    """A squashed Gaussian policy: body -> mean and log std, on encoded features."""

    body: Sequence[nn.Module]
    mean: nn.Linear
    log_std: nn.Linear
    distribution: Callable[[Tensor, Tensor], Reparameterised]
    """Of mean and log std [N, A]."""
    log_std_range: tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class ActorCriticLayers:
    """A policy and its value function of dense layers, on encoders without parameters that are the same function."""

    encoder: nn.Module
    actor: Sequence[nn.Module]
    """Hidden layers and the head's linear layer."""
    critic: Sequence[nn.Module]
    head: PlainHead
    actor_parameters: Sequence[nn.Parameter]
    """All the distribution depends on, in the order of their entries in a vector [D]."""
    is_vector: bool
    """Whether the encoder only passes float32 vectors on."""
    use_masks: bool

    @property
    def shared(self) -> int:
        """How many modules at the beginning belong to both sides."""
        pairs = zip(self.actor, self.critic, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))

    @property
    def differ_from_there(self) -> bool:
        """Whether no other layer is used twice: only then each gradient is found in one place."""
        own = [*self.actor, *self.critic[self.shared :]]
        parameters = [parameter for module in own for parameter in module.parameters()]
        return len(set(map(id, parameters))) == len(parameters) and is_dense(self.actor[self.shared :])


def is_linear(module: nn.Module) -> bool:
    """Classes derived from them, such as torch's parametrised layers, may compute something else."""
    return type(module) is nn.Linear or bool(type(module).__dict__.get("is_ensemble_linear", False))


ACTIVATIONS = (nn.Identity, nn.ReLU, nn.Tanh)


def is_dense(modules: Sequence[nn.Module]) -> bool:
    """Whether modules are linear layers with bias, each followed by at most one of `ACTIVATIONS`."""
    before_is_linear = False
    for module in modules:
        if is_linear(module):
            own = (getattr(module, name, None) for name in ("weight", "bias"))
            if any(not isinstance(p, nn.Parameter) or not p.is_floating_point() for p in own):
                return False
        elif type(module) not in ACTIVATIONS or not before_is_linear:
            return False
        before_is_linear = is_linear(module)
    return bool(modules)


def has_parameters(module: nn.Module) -> bool:
    """Whether a module, or one inside it, has parameters."""
    return next(iter(module.parameters()), None) is not None
