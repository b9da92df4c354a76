"""The networks of discrete SAC: a categorical policy, and critics with one value per action."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn

from rlsdk.distributions import Categorical, MultiCategorical
from rlsdk.interfaces import BuildContext, explain_names
from rlsdk.kernels import KernelChoice
from rlsdk.networks import (
    ContinuousCritics,
    EnsembleMLP,
    Layers,
    build_encoder,
    features_dim,
    has_train_mode,
    mlp,
    uses_nature_cnn,
)
from rlsdk.records import Act, Observation
from rlsdk.settings import widths
from rlsdk.spaces import Discrete, MultiDiscrete, choices_of
from rlsdk_discrete_sac.config import DiscreteSACConfig

HIDDEN = (256, 256)
NAMES = ("pi", "qf")
Distribution = Categorical | MultiCategorical


@explain_names
class CategoricalActor(nn.Module):
    """A policy: encoder -> hidden layers -> logits [N, A]. A is the total number of values of all choices of an action."""

    start: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        hidden: Sequence[int],
        activation_fn: str | Callable[[], nn.Module],
        space: Discrete | MultiDiscrete,
    ) -> None:
        super().__init__()
        self.encoder, self.space, self.sizes = encoder, space, choices_of(space)
        inputs = features_dim(encoder)
        # the same names as in other actors, so that `load_policy` finds these layers in their files
        self.body = mlp(inputs, hidden, activation_fn)
        last = nn.Linear(hidden[-1] if hidden else inputs, sum(self.sizes))
        self.head = nn.Sequential(OrderedDict(linear=last))
        self._layers = Layers(self, "body", "head")
        self.register_buffer("start", torch.tensor(space.start), persistent=False)
        self.is_single, self._starts_at_zero = isinstance(space, Discrete), not bool(self.start.any())
        self.has_train_mode = has_train_mode(*self.children())

    # --- acting ------------------------------------------------------------------------------------------------------

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    @torch.no_grad()
    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        """Return a sample of the policy, [B] or [B, choices]; with `deterministic` the most likely action."""
        if self.has_train_mode:
            self.eval()
        chosen = self.distribution_of(observation)
        action = chosen.mode() if deterministic else chosen.sample(generator)
        return Act(action if self._starts_at_zero else action + self.start, carry, ())

    # --- learning ----------------------------------------------------------------------------------------------------

    def distribution(self, logits: Tensor, mask: Tensor | None) -> Distribution:
        """The distribution over actions, numbered from 0, for logits [N, A]. `mask`, bool [N, A], is False for forbidden
        values."""
        return Categorical.of(logits, mask) if self.is_single else MultiCategorical.of(logits, self.sizes, mask)

    def distribution_of(self, observation: Observation) -> Distribution:
        """The distribution over actions, numbered from 0, of observations [N]."""
        return self.distribution(self._layers(self.encoder(observation.features)), observation.action_mask)

    def evaluate(self, observation: Observation) -> tuple[Distribution, Callable[[Tensor], None]]:
        """Return (distribution without graph, vjp) of observations [N].

        `vjp` takes the gradient of a loss with respect to the logits, [N, A]. It adds the gradients with respect to
        parameters to their `grad`.
        """
        encoded = self.encoder(observation.features)
        logits, vjp = self._layers.evaluate(encoded)

        def backward(grad: Tensor) -> None:
            if (grad_encoded := vjp(grad)) is not None:
                torch.autograd.backward(encoded, grad_encoded)

        return self.distribution(logits, observation.action_mask), backward

    def per_choice(self, values: Tensor) -> Tensor:
        """The sums of `values`, float [.., A], over the values of each choice, float [.., choices]."""
        if self.is_single:
            return values.sum(-1, keepdim=True)
        return torch.stack([part.sum(-1) for part in torch.split(values, list(self.sizes), -1)], -1)

    def per_value(self, numbers: Tensor) -> Tensor:
        """Repeat the number of each choice, float [N, choices], for all values of the choice, float [N, A] or [N, 1]."""
        return (
            numbers
            if self.is_single
            else torch.cat(
                [one.expand(-1, size) for one, size in zip(torch.split(numbers, 1, -1), self.sizes, strict=True)], -1
            )
        )

    def largest_entropy(self, mask: Tensor | None) -> Tensor | float:
        """The sum over choices of the logarithm of the number of allowed values, float [N]; a number without a mask."""
        if mask is None:
            return sum(map(math.log, self.sizes))
        return self.per_choice(mask.float()).log().sum(-1)

    def imitation_loss(self, observation: Observation, action: Tensor, starts: Tensor | None = None) -> Tensor:
        """-log pi(a|s) [N]; see `rlsdk.interfaces.PolicyAbilities`."""
        return -self.distribution_of(observation).log_prob(self.from_environment(action))

    def from_environment(self, action: Tensor) -> Tensor:
        """Convert actions in environment units to choices numbered from 0, int64 [N] or [N, choices]."""
        return action.long() if self._starts_at_zero else action.long() - self.start


def values_of(critics: ContinuousCritics, features: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
    """Return (values [C, N, A] without graph, vjp) of C critics for encoded features [N, F].

    `vjp(grad)` takes the gradient of a loss with respect to the values. It writes the gradient with respect to the
    parameters into their `grad`, which it assumes to be zero.
    """
    # critics of observations alone: the part of their inputs that holds an action has no columns
    return critics.evaluate(features, features.new_zeros(len(features), 0))


def build_networks(context: BuildContext, config: DiscreteSACConfig) -> tuple[CategoricalActor, ContinuousCritics]:
    """Build (actor, `n_critics` critics with one value per action) on the context's device.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    space, networks = context.action_space, config.policy_kwargs
    assert isinstance(space, Discrete | MultiDiscrete)
    encoder = build_encoder(context, config.policy, networks)
    default: tuple[int, ...] = () if uses_nature_cnn(encoder) else HIDDEN
    hidden = widths(networks.net_arch, "pi", default, names=NAMES)
    actor = CategoricalActor(encoder, hidden, networks.activation_fn, space).to(context.device)
    shared = networks.share_features_extractor
    encoder = actor.encoder if shared else build_encoder(context, config.policy, networks)
    hidden = widths(networks.net_arch, "qf", default, names=NAMES)
    actions, width = sum(choices_of(space)), max(hidden, default=1)
    ensemble = EnsembleMLP(networks.n_critics, features_dim(encoder), hidden, actions, networks.activation_fn)
    choice = KernelChoice(networks.kernel, width, config.batch_size, context.device)
    return actor, ContinuousCritics(encoder, ensemble, choice).to(context.device)
