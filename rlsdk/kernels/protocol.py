"""The protocols of kernels, and the descriptions of networks from which kernels are made.

A kernel computes the outputs of a network and their gradients faster than torch's modules and autograd. Callers do not
depend on the kind of kernel; `rlsdk.kernels.reference.Autograd` implements the same protocol with torch's autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Protocol, TypeVar

from torch import Generator, Tensor, nn

from rlsdk.interfaces import ClosedForm, Distribution
from rlsdk.kernels.vector_steps import VectorStep
from rlsdk.records import Act, Observation

InputsT_contra = TypeVar("InputsT_contra", contravariant=True)
OutputsT_co = TypeVar("OutputsT_co", covariant=True)
VjpT_co = TypeVar("VjpT_co", covariant=True)
KeptT_co = TypeVar("KeptT_co", covariant=True)
TransientT_co = TypeVar("TransientT_co", covariant=True)
InPlace = tuple[Callable[[int], None], Tensor]
"""(A function of t that acts on row t of observations [T, B, ..], the storage [T, B, ..] that it writes actions to.)"""


class Kernel(Protocol[InputsT_contra, OutputsT_co, VjpT_co]):
    """Evaluates a network and the gradients of its parameters."""

    @property
    def name(self) -> str:
        """`autograd`, `compiled`, `numpy` or `torch`."""
        ...

    def evaluate(self, inputs: InputsT_contra, /) -> tuple[OutputsT_co, VjpT_co]:
        """Return (outputs without graph, vjp).

        `vjp` takes the gradient of a loss with respect to each output. It writes the gradients with respect to the
        parameters into their `grad`, which it assumes to be zero.
        """
        ...


class DenseNetwork(Kernel[Tensor, Tensor, Callable[[Tensor], None]], Protocol):
    """Evaluates a network [N, I] -> [.., N, O]."""

    def evaluate_inputs(self, inputs: Tensor, /) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return (outputs [.., N, O] without graph, vjp), where `vjp` returns the gradient with respect to the inputs
        [N, I].

        Gradients of parameters are not computed.
        """
        ...

    def outputs_of_several(self, inputs: Tensor, count: int, /) -> Tensor | None:
        """Return the outputs of `count` batches of equal size, which are concatenated in `inputs` [N, I].

        They equal those of `evaluate` for each batch, bit by bit. Returns None if one call per batch is as fast.
        """
        ...


Acting = Callable[[Tensor], Tensor]
"""A function that computes the raw outputs [N, O] of a network for encoded observations [N, I], without graph."""


class GreedyKernel(Protocol):
    """Acts epsilon-greedily on the mean of K values per action. Actions and random numbers equal those of
    `rlsdk.networks.action_heads`."""

    def fits(self, observation: Observation) -> bool:
        """Whether the kernel is the fastest for this observation."""
        ...

    def __call__(self, features: Tensor, epsilon: Tensor | None, generator: Generator) -> Tensor:
        """Return actions int64 [N] for encoded observations [N, F]; each is random with probability `epsilon` (0-d;
        None: 0)."""
        ...

    def in_place(self, features: Tensor, epsilon: Tensor, generator: Generator) -> InPlace | None:
        """Act on encoded observations [T, B, F]; None if the kernel cannot."""
        ...


class NormalizationKernel(Protocol):
    """Computes (values - mean) / deviation as float32, clipped to +-`bound`, with the results of torch bit by bit.

    Values are [.., *shape], without graph. The statistics `mean` and `deviation` are float64 [1, *shape] on the CPU.
    """

    def __call__(self, values: Tensor, mean: Tensor, deviation: Tensor, bound: float) -> Tensor | None:
        """Return the normalized values [.., *shape]; None if the kernel cannot read them."""
        ...

    def by_row(
        self, values: Tensor, into: Tensor, mean: Tensor, deviation: Tensor, bound: float
    ) -> Callable[[int], object] | None:
        """Return a function of t that normalizes `values[t]` to `into[t]`, [T, .., *shape]; None if compiled code cannot.

        It is fast, because addresses are determined once. The statistics may change, but must keep their memory.
        """
        ...


class ReplayedTransition(Protocol[InputsT_contra, KeptT_co, TransientT_co]):
    """The step of environments, whose operations a GPU replays."""

    def __call__(self, inputs: InputsT_contra) -> tuple[KeptT_co, TransientT_co]:
        """Return two trees of tensors [..] for a tree of tensors [..]; the next call may overwrite those of the second."""
        ...

    def forget(self) -> None:
        """Call the step as written before it is replayed again."""
        ...


class ActionValues(Protocol):
    """The functions of `rlsdk.math.values` for float32 tensors without graph."""

    def greedy_target(
        self,
        values: Tensor,
        selector: Tensor,
        mask: Tensor | None,
        rewards: tuple[Tensor, Tensor],
        sizes: tuple[int, ...],
    ) -> Tensor:
        """Return the targets [C, N, K] for values and `selector` [N, A, K], a mask, bool [N, A] or None, and rewards and
        discounts [N] each."""
        ...

    def taken(
        self, values: Tensor, action: Tensor, sizes: tuple[int, ...]
    ) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return (the values [C, N, K] that `action` int64 [N, C] chooses, vjp); see
        `rlsdk.math.values.taken_values`."""
        ...

    def smooth_l1(self, values: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (loss 0-d, gradient [C, N, K]) for values and targets [C, N, K] and the weight of each row, [N] or None."""
        ...


AnyAct = Act[Any, Any]
"""An act with the carry and the extras of any policy."""
Acts = Callable[[Observation, Any, bool, Generator], AnyAct]
"""A function that acts: (observation, carry, whether it is deterministic, generator) -> act."""
SampledVjp = Callable[[Tensor, Tensor], None]
"""A function of the gradients of a loss with respect to actions [N, A] and log-densities [N]."""


class SquashedPolicy(Kernel[tuple[Tensor, Tensor], tuple[Tensor, Tensor], SampledVjp], Protocol):
    """Evaluates (features [N, F], standard normal noise [N, A]) -> (unit actions [N, A], their log-densities [N])."""

    def act(self, features: Tensor, deterministic: bool, generator: Generator) -> Tensor:
        """Return unit actions [N, A] for features [N, F]."""
        ...


class PolicyRows(Protocol):
    """N steps to learn from, such as a `rlsdk.updates.PolicyBatch`. Their numbers are float [N]."""

    @property
    def observation(self) -> Observation: ...
    @property
    def action(self) -> Tensor: ...
    @property
    def weight(self) -> Tensor | None: ...
    @property
    def log_prob(self) -> Tensor: ...
    @property
    def value(self) -> Tensor: ...
    @property
    def advantage(self) -> Tensor: ...
    @property
    def target(self) -> Tensor: ...
    def __len__(self) -> int: ...


RowsT = TypeVar("RowsT", bound=PolicyRows)
Product = Callable[[Tensor], Tensor]
"""A function that multiplies a matrix with a vector [D]."""


PolicyVjp = Callable[[Tensor, "Tensor | None", "Tensor | None"], None]
"""A function that backpropagates the gradients of a loss with respect to log-probabilities, entropies and values, float [N]
each.

The gradient of entropies is None if the loss has none. The gradients with respect to the parameters are written into their
`grad`, which is assumed to be zero.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyOutputs:
    """The network's outputs for N steps. Tensors have no graph, except those of the distribution."""

    made: Callable[[], Distribution]
    """Creates `distribution`, which most updates do not need."""
    log_prob: Tensor  # float [N], log-probabilities of the actions taken
    entropy: Tensor  # float [N]
    value: Tensor  # float [N]
    fisher: Callable[[], Product]
    """Returns a function that multiplies the policy's Fisher information with a direction [D] in `actor_parameters`.

    The Fisher information is a weighted mean over the rows.
    """

    @property
    def distribution(self) -> Distribution:
        """The distribution over internal actions."""
        return self.made()


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The coefficients of the loss of an actor-critic method."""

    clip: float | None
    """The clip range of the probability ratio, arXiv:1707.06347, equation 7. None: the loss is -A log pi(a|s)."""
    clip_value: float | None
    """The largest change of values; None: no limit."""
    ent_coef: float
    vf_coef: float
    normalize_advantage: bool


LOSSES = ("policy", "value", "entropy", "approx_kl", "clip_fraction", "loss")
"""The means that `PolicyLoss` returns, float [6]. "entropy" is the negative entropy.

Without `clip`, "approx_kl" and "clip_fraction" are 0.
"""
LossGrads = tuple[Tensor, Tensor | None, Tensor]
"""Gradients of the loss with respect to log-probabilities, entropies (None: not in the loss) and values, float [N] each."""


class PolicyLoss(Protocol):
    """The loss of an actor-critic method: returns (the means named in `LOSSES`, [6]; the gradients [N])."""

    def __call__(self, rows: PolicyRows, now: PolicyOutputs, terms: LossTerms, /) -> tuple[Tensor, LossGrads]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Minibatches:
    """How the rows of a rollout are divided for gradient steps."""

    order: Tensor | None = None  # int64 [E, M], indices of rows in E epochs; None: one minibatch of all rows
    size: int = 1
    """The number of rows of a minibatch; the last one may have fewer."""
    largest_kl: float | None = None
    """A minibatch whose mean KL divergence is above it makes no step, and is the last one; None: no limit."""


class PolicySteps(Protocol):
    """Makes a gradient step for each of several minibatches, in one call."""

    def __call__(
        self, rows: PolicyRows, minibatches: Minibatches, terms: LossTerms, step: VectorStep, /
    ) -> tuple[Tensor, int, bool]:
        """Return (the sum over minibatches of the means named in `LOSSES`, [6]; the number of minibatches evaluated; whether
        the last one was above `largest_kl`)."""
        ...


class PolicyEvaluator(Kernel[RowsT, PolicyOutputs, PolicyVjp], Protocol[RowsT]):
    """Evaluates a policy and its value function on recorded steps."""

    def prepared(self, rows: RowsT) -> RowsT:
        """Do the work that is needed once for all batches of `rows`; return the rows to evaluate."""
        ...

    def policy(self, rows: RowsT) -> tuple[Distribution, Tensor]:
        """Return (distribution, log-probabilities [N] of the actions taken), without values and without graph."""
        ...

    def values(self, rows: RowsT, critic: Sequence[nn.Parameter]) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (values [N] without graph, vjp).

        `vjp` takes the gradient with respect to the values [N]. It writes the gradient with respect to `critic`, the
        parameters that no action depends on, into their `grad`.
        """
        ...


class PolicyActor(Protocol):
    """Acts with a policy that has no carry, and evaluates observations."""

    acts_in_place: bool
    """Whether `act_in_place` may prepare anything."""

    def act(self, observation: Observation, deterministic: bool, generator: Generator) -> Tensor:
        """Return actions [B, ..] in environment units."""
        ...

    def act_in_place(self, observation: Observation, generator: Generator) -> InPlace | None:
        """Sample actions for observations [T, B, ..] in environment units; None if `act` must be called."""
        ...

    def forward(self, observation: Observation) -> tuple[Callable[[], Distribution], Tensor]:
        """Return (function that creates the distribution, which not every update needs; values [N]), without graph."""
        ...

    def values(self, observation: Observation) -> Tensor:
        """The values [N], without graph."""
        ...


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The properties of a network that determine its fastest kernel."""

    setting: str = "auto"
    """One of "auto", "autograd", "numpy", "torch"."""
    width: int = 1
    """The width of the widest layer."""
    rows: int = 1
    """The number of rows of a training batch."""
    device: str = "cpu"


AUTOGRAD = KernelChoice("autograd")


@dataclass(frozen=True, slots=True)
class NormalNoise:
    """Actions are sampled as raw outputs + exp(`log_std` [A]) * standard normal noise."""

    log_std: Tensor


@dataclass(frozen=True, slots=True)
class GumbelNoise:
    """Actions are sampled as the index of the largest sum of logit and Gumbel noise."""

    forbidden: float
    """The log-probability of values that a mask forbids."""
    smallest: float
    """Lower bound of the exponential random numbers from which the noise is computed."""


class PlainHead(Protocol):
    """An action head that is one linear layer."""

    linear: nn.Linear

    @property
    def own_parameters(self) -> Sequence[nn.Parameter]:
        """The parameters outside of the linear layer, in the order of their gradients in the distribution's `vjp`."""
        ...

    @property
    def sampling(self) -> NormalNoise | GumbelNoise | None:
        """How actions are sampled; None: by the distribution."""
        ...

    def of(self, raw: Tensor, mask: Tensor | None) -> ClosedForm:
        """Return the distribution, given the output of the linear layer [N, O] and a mask, bool [N, O] or None."""
        ...

    def to_environment(self, action: Tensor) -> Tensor: ...

    def from_environment(self, action: Tensor) -> Tensor: ...


class Reparameterized(Protocol):
    """The members of a squashed Gaussian that kernels use; see `rlsdk.distributions.SquashedGaussian`."""

    def transform(self, noise: Tensor) -> tuple[Tensor, Tensor]: ...

    def transform_vjp(
        self, noise: Tensor, action: Tensor, grad_action: Tensor, grad_log_prob: Tensor
    ) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, slots=True, eq=False)
class SquashedLayers:
    """The layers of a squashed Gaussian policy for encoded features: body -> mean and log std."""

    body: Sequence[nn.Module]
    mean: nn.Linear
    log_std: nn.Linear
    distribution: Callable[[Tensor, Tensor], Reparameterized]
    """Returns the distribution, given mean and log std [N, A]."""
    log_std_range: tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class ActorCriticLayers:
    """The dense layers of a policy and its value function. Their encoders have no parameters and compute the same function."""

    encoder: nn.Module
    actor: Sequence[nn.Module]
    """The hidden layers and the head's linear layer."""
    critic: Sequence[nn.Module]
    head: PlainHead
    actor_parameters: Sequence[nn.Parameter]
    """All parameters that the distribution depends on, in the order of their entries in a vector [D]."""
    is_vector: bool
    """Whether the encoder returns float32 vectors unchanged."""
    use_masks: bool

    @property
    def shared(self) -> int:
        """The number of modules at the beginning that actor and critic share."""
        pairs = zip(self.actor, self.critic, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))

    @property
    def differ_from_there(self) -> bool:
        """Whether actor and critic share no parameters after the first `shared` modules, and the rest of the actor is
        dense.

        Only then is the gradient of each parameter computed in one place.
        """
        own = [*self.actor, *self.critic[self.shared :]]
        parameters = [parameter for module in own for parameter in module.parameters()]
        return len(set(map(id, parameters))) == len(parameters) and is_dense(self.actor[self.shared :])


def is_linear(module: nn.Module) -> bool:
    """Whether a module is exactly an `nn.Linear` or an `EnsembleLinear`.

    Derived classes, such as torch's parametrized layers, may compute other values.
    """
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


Learned = tuple[dict[str, Tensor], Tensor | None]
"""The metrics of an update, 0-d, and the TD errors [N] if the batch has importance weights."""
