"""Values of discrete actions (DQN, QR-DQN): the network, its builder, and the epsilon-greedy policy on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Generator, Tensor, nn

from rlsdk import tree
from rlsdk.distributions import MultiCategorical
from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext, explain_names
from rlsdk.kernels import KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import AUTOGRAD, Acting, Acts, DenseNetwork, GreedyKernel
from rlsdk.kernels.reference import Autograd, require_choice
from rlsdk.math.values import flat_index, greedy_action, mean_values, values_at
from rlsdk.networks.action_heads import epsilon_greedy
from rlsdk.networks.critics import own_network
from rlsdk.networks.encoders import build_encoder, features_dim, is_identity, uses_nature_cnn
from rlsdk.networks.layers import DuelingHead, has_train_mode, mlp
from rlsdk.records import Act, Features, Observation
from rlsdk.settings.actor_critic import widths
from rlsdk.settings.off_policy import DiscreteValueConfig, QLearningConfig
from rlsdk.spaces import Discrete, MultiDiscrete, choices_of

Vjp = Callable[[Tensor], None]
"""A function of the gradient of a loss with respect to outputs.

It writes the gradient with respect to the parameters into their `grad`, which it assumes to be zero.
"""


@explain_names
class DiscreteValuePolicy(nn.Module):
    """A policy: encoder -> hidden layers -> values [N, A, K]. A is the total number of values of all choices, which are
    concatenated.

    K is `values_per_action`: 1 for the mean return of DQN, the number of quantiles for QR-DQN. The greedy action has
    the largest mean over K. With probability `epsilon`, which the algorithm sets, the action is random.
    """

    epsilon: Tensor
    start: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        hidden: Sequence[int],
        activation_fn: str | Callable[[], nn.Module],
        space: Discrete | MultiDiscrete,
        values_per_action: int = 1,
        *,
        choice: KernelChoice = AUTOGRAD,
    ) -> None:
        """`choice` selects the kernel that evaluates the dense layers."""
        super().__init__()
        self.register_buffer("start", torch.tensor(space.start), persistent=False)
        self.register_buffer("epsilon", torch.tensor(1.0))
        self.encoder, self.space, self.values_per_action = encoder, space, values_per_action
        inputs = features_dim(encoder)
        self.body = mlp(inputs, hidden, activation_fn)
        self.sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
        outputs = sum(self.sizes) * values_per_action
        self.head: nn.Module = nn.Linear(hidden[-1] if hidden else inputs, outputs)
        self._starts_at_zero = not bool(self.start.any())
        self.has_train_mode = has_train_mode(encoder, self.body)
        self._choice = choice
        self._kernels = KernelSlot(self._make_kernels, self)

    def _make_kernels(self, hooked: bool) -> tuple[Acts, DenseNetwork, GreedyKernel | None]:
        """Build the kernels for acting, for learning, and for acting on few observations."""
        self.has_train_mode = has_train_mode(self.encoder, self.body, self.head)
        layers, choice = [*self.body, self.head], self._choice
        sizes = self.sizes[0], self.values_per_action
        single = isinstance(self.space, Discrete) and not self.space.start
        greedy = factory.greedy_acting(layers, self.encoder, choice, hooked, *sizes) if single else None
        self._calls_encoder = hooked or not is_identity(self.encoder)
        acting = factory.dense_acting(layers, self.encoder, choice, hooked, self._flat_values)
        learning = factory.dense_network(layers, self.encoder, choice, hooked, Autograd(self._flat_values))
        acts = factory.graphed_acting(partial(self._act, acting), self, choice.setting, hooked or self.has_train_mode)
        return acts, learning, greedy

    def _encoded(self, features: Features) -> Tensor:
        """[N, ..] -> [N, F]. An encoder that returns its input is not called."""
        encoded: Tensor = self.encoder(features) if self._calls_encoder else features
        return encoded

    def _flat_values(self, encoded: Tensor) -> Tensor:
        """[N, F] -> [N, A * K]."""
        return factory.sequential([self.body, self.head], encoded)

    def forward(self, features: Features) -> Tensor:
        """The values of observations [N, ..], nested like their space, in the form that stable-baselines3 documents.

        The shape is [N, A] if K = 1, else [N, K, A].
        """
        values = self.values(features)
        return values.squeeze(-1) if self.values_per_action == 1 else values.transpose(1, 2)

    def values(self, features: Features) -> Tensor:
        """The values [N, A, K] of observations [N, ..], nested like their space."""
        flat = self._flat_values(self.encoder(features))
        return flat.view(flat.shape[0], -1, self.values_per_action)

    def evaluate(self, features: Features) -> tuple[Tensor, Vjp]:
        """Return (values [N, A, K] without graph, their vjp) for observations [N, ..]."""
        kernel = self._kernels()[1]
        flat, vjp = kernel.evaluate(self._encoded(features))
        return flat.view(flat.shape[0], -1, self.values_per_action), lambda grad: vjp(grad.flatten(1))

    def values_of_several(self, features: Features, count: int) -> Tensor:
        """The values [N, A, K] without graph for `count` batches of equal size, concatenated in `features` [N, ..].

        They equal those that `evaluate` returns for each batch.
        """
        kernel = self._kernels()[1]
        with torch.no_grad():
            flat = kernel.outputs_of_several(self._encoded(features), count)
        if flat is not None:
            return flat.view(len(flat), -1, self.values_per_action)
        rows = len(tree.leaves(features)[0]) // count
        return torch.cat([self.evaluate(part)[0] for part in tree.split(features, rows)])

    def initial_carry(self, batch: int) -> tuple[()]:
        return ()

    def act(
        self, observation: Observation, carry: tuple[()], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        """Return the greedy action, [B] or [B, choices]; unless `deterministic`, a random one with probability `epsilon`."""
        acts, _, greedy = self._kernels()
        if self.has_train_mode:
            self.eval()
        if greedy is None or not greedy.fits(observation):
            return acts(observation, carry, deterministic, generator)
        return Act(
            greedy(self._encoded(observation.features), None if deterministic else self.epsilon, generator), (), ()
        )

    def act_in_place(
        self, observation: Observation, carry: tuple[()], generator: Generator, /
    ) -> tuple[Callable[[int], object], Tensor, tuple[()]] | None:
        """Prepare acting on observations [T, B, ..]; see `rlsdk.interfaces.PolicyAbilities`."""
        _, _, greedy = self._kernels()
        if greedy is None or self.has_train_mode or self._calls_encoder or observation.action_mask is not None:
            return None
        prepared = greedy.in_place(observation.features, self.epsilon, generator)
        return None if prepared is None else (*prepared, ())

    @torch.no_grad()
    def _act(
        self, acting: Acting, observation: Observation, carry: tuple[()], deterministic: bool, generator: Generator
    ) -> Act[tuple[()], tuple[()]]:
        flat = acting(self.encoder(observation.features))
        values = flat.view(flat.shape[0], -1, self.values_per_action)
        require_choice(mean_values(values), observation.action_mask)
        action = greedy_action(values, observation.action_mask, self.sizes)
        if not deterministic:
            action = epsilon_greedy(action, self.sizes, self.epsilon, observation.action_mask, generator)
        return Act(self.to_environment(action), carry, ())

    def state_values(self, observation: Observation) -> Tensor:
        """V [N] of the greedy actions, a mean over choices and K; see `rlsdk.interfaces.PolicyAbilities`."""
        values = self.values(observation.features)
        action = greedy_action(values, observation.action_mask, self.sizes)
        return values_at(values, flat_index(action, self.sizes)).mean((0, -1))

    def imitation_loss(self, observation: Observation, action: Tensor, starts: Tensor | None = None) -> Tensor:
        """The cross-entropy [N] of a softmax over the mean values over K, summed over choices; see
        `rlsdk.interfaces.PolicyAbilities`."""
        logits = self.values(observation.features).mean(-1)
        chosen = MultiCategorical.of(logits, self.sizes, observation.action_mask)
        return -chosen.log_prob(self.from_environment(action))

    def to_environment(self, action: Tensor) -> Tensor:
        """Convert choices counted from 0, int64 [N, choices], to environment units, [N] or [N, choices]."""
        return (action.squeeze(-1) if isinstance(self.space, Discrete) else action) + self.start

    def from_environment(self, action: Tensor) -> Tensor:
        """Convert actions in environment units, [N] or [N, choices], to choices counted from 0, int64 [N, choices]."""
        choices = action.long() if self._starts_at_zero else action.long() - self.start
        return choices.unsqueeze(-1) if isinstance(self.space, Discrete) else choices


HIDDEN = (64, 64)


def build_discrete_value_policy(
    context: BuildContext, config: QLearningConfig, values_per_action: int = 1
) -> DiscreteValuePolicy:
    """Build the policy on the context's device: an encoder, the hidden layers `net_arch` and a linear layer.

    By default `net_arch` is `[64, 64]`, and empty after NatureCNN.

    Raises:
        UnsupportedSpaceError, SettingsError: the policy or the settings do not fit the spaces.
    """
    space, networks = context.action_space, config.policy_kwargs
    assert isinstance(space, Discrete | MultiDiscrete)
    if networks.network_class is not None:
        return _own(context, networks, values_per_action).to(context.device)
    encoder = build_encoder(context, config.policy, networks)
    hidden = widths(networks.net_arch, "qf", () if uses_nature_cnn(encoder) else HIDDEN, names=("qf",))
    choice = KernelChoice(networks.kernel, max(hidden, default=1), config.batch_size, context.device)
    policy = DiscreteValuePolicy(encoder, hidden, networks.activation_fn, space, values_per_action, choice=choice)
    if networks.dueling:
        policy.head = DuelingHead((hidden or (features_dim(encoder),))[-1], policy.sizes, values_per_action)
    return policy.to(context.device)


def _own(context: BuildContext, networks: DiscreteValueConfig, values_per_action: int) -> DiscreteValuePolicy:
    """Build the policy around a user's network, which returns [N, A, K] or [N, A * K].

    Raises:
        SettingsError: `dueling` is true, which needs a head that the user's network replaces.
    """
    if networks.dueling:
        raise SettingsError(
            "dueling = true needs a network made by rlsdk; leave network_class out, or set dueling = false"
        )
    space = context.action_space
    assert isinstance(space, Discrete | MultiDiscrete)
    outputs = (sum(choices_of(space)), values_per_action)
    encoder = own_network(
        context, networks, "network", outputs, f"{values_per_action} values for each of {outputs[0]} actions"
    )
    policy = DiscreteValuePolicy(encoder, (), nn.Identity, space, values_per_action)
    policy.head = nn.Identity()
    return policy
