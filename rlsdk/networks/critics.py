"""Critics of continuous actions: an ensemble evaluated together, networks of users, auxiliary losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError, UsageError, shown
from rlsdk.interfaces import BuildContext, explain_names
from rlsdk.kernels import KernelChoice, KernelSlot, factory
from rlsdk.kernels.protocol import AUTOGRAD, DenseNetwork
from rlsdk.kernels.reference import Autograd, backward
from rlsdk.networks.encoders import Preprocessor, UserClass, channels_first, example_features
from rlsdk.networks.layers import EnsembleMLP
from rlsdk.records import Features
from rlsdk.settings.actor_critic import ActorAndCriticsConfig, NetworkConfig

T = TypeVar("T")

ValueOf = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A function: outputs of the critics [C, N, outputs] -> (the value to maximize, 0-d; its gradient with respect to them)."""


def mean_value(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return (mean over critics, rows and outputs, 0-d; its gradient), for values float [C, N, K]."""
    return values.mean(), torch.full_like(values, 1.0 / values.numel())


def mean_of_smallest(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return (the mean over rows of the smallest of C values, 0-d; its gradient), for values float [C, N, 1]."""
    # the gradient belongs to the critic that is the smallest for this row
    smallest, chosen = values.min(0, keepdim=True)
    return smallest.mean(), torch.zeros_like(values).scatter_(0, chosen, 1.0 / smallest.numel())


@explain_names
class ContinuousCritics(nn.Module):
    """C critics of (observation features, unit action): [N, F], [N, A] -> [C, N, outputs].

    `outputs` is 1 for a value, and the number of quantiles for a distributional critic. The encoder may be shared with
    the actor.
    """

    def __init__(self, encoder: nn.Module, ensemble: EnsembleMLP, choice: KernelChoice = AUTOGRAD) -> None:
        """`choice` selects the kernel that evaluates the critics."""
        super().__init__()
        self.encoder, self.ensemble = encoder, ensemble
        self._choice = choice
        self._kernels = KernelSlot(self._make_kernels, self)

    def _make_kernels(self, hooked: bool) -> tuple[DenseNetwork, DenseNetwork]:
        """Build the kernels of all critics and of the first critic alone."""
        layers, reference = list(self.ensemble.layers), Autograd(self.ensemble)
        # `first` reads weights without calling the layers, which would skip their hooks
        alone = Autograd((lambda inputs: self.ensemble(inputs)[0]) if hooked else self.ensemble.first)
        every = factory.dense_network(layers, self.encoder, self._choice, hooked, reference)
        return every, factory.dense_network(layers, self.encoder, self._choice, hooked, alone, 0)

    def evaluate(self, features: Tensor, unit_action: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (values [C, N, outputs] without graph, vjp) for features [N, F] and actions [N, A].

        `vjp(grad)` takes the gradient of a loss with respect to the values. It writes the gradient with respect to the
        parameters into their `grad`, which it assumes to be zero.
        """
        return self._kernels()[0].evaluate(torch.cat([features, unit_action], dim=-1))

    def action_gradient(
        self, features: Tensor, unit_action: Tensor, value_of: ValueOf = mean_value, *, first: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return (`value_of` the critics' outputs, 0-d; its gradient with respect to the action [N, A]).

        The gradients of the critics' parameters are not computed, as autograd would do. With `first`, only the first critic
        is evaluated.
        """
        values, vjp = self._kernels()[first].evaluate_inputs(torch.cat([features, unit_action], dim=-1))
        value, grad = value_of(values)
        # the inputs are features and action in this order, and only the action's part is needed
        return value, vjp(grad)[:, features.shape[-1] :]

    def forward(self, features: Tensor, unit_action: Tensor) -> Tensor:
        result: Tensor = self.ensemble(torch.cat([features, unit_action], dim=-1))
        return result


ROWS = 2


class OwnNetwork(nn.Module):
    """A user's network: observations are preprocessed, then converted to float32 [N, features_dim]."""

    def __init__(self, network: nn.Module, preprocessor: Preprocessor, outputs: int) -> None:
        super().__init__()
        self.network, self.preprocessor, self.features_dim = network, preprocessor, outputs

    def forward(self, features: Features) -> Tensor:
        """Observations [N, ..], nested like their space -> [N, features_dim]. Further axes of the output are flattened."""
        found: Tensor = self.network(self.preprocessor(features))
        return found.flatten(1)


class OutputColumns(nn.Module):
    """Selects columns of a network's output: [N, D] -> [N, stop - start]. It replaces an output layer."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, values: Tensor) -> Tensor:
        """float [N, D] -> [N, stop - start]."""
        return values[:, self.start : self.stop]


@explain_names
class OwnCritics(nn.Module):
    """C critics of a user's class: (preprocessed observations, unit actions [N, A]) -> [C, N, outputs]."""

    def __init__(self, encoder: Preprocessor, members: list[nn.Module]) -> None:
        super().__init__()
        self.encoder, self.ensemble = encoder, nn.ModuleList(members)

    def forward(self, features: Features, unit_action: Tensor) -> Tensor:
        """The values [C, N, outputs] of preprocessed observations [N, ..] and actions [N, A]."""
        return torch.stack([member(features, unit_action) for member in self.ensemble])

    def evaluate(self, features: Features, unit_action: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return (values [C, N, outputs] without graph, vjp) for preprocessed observations and actions [N, A].

        `vjp(grad)` takes the gradient of a loss with respect to the values. It writes the gradient with respect to the
        parameters into their `grad`, which it assumes to be zero.
        """
        values = self(features, unit_action)
        return values.detach(), lambda grad: backward((values,), (grad,))

    def action_gradient(
        self, features: Features, unit_action: Tensor, value_of: ValueOf = mean_value, *, first: bool = False
    ) -> tuple[Tensor, Tensor]:
        """See `ContinuousCritics.action_gradient`; for actions [N, A]."""
        # a leaf, so that autograd stops at the action and does not reach the actor
        leaf = unit_action.detach().requires_grad_()
        # auxiliary losses train the critics, and here only the action is differentiated
        with auxiliary_losses_left_out():
            values = (self.ensemble[0] if first else self)(features, leaf)
        value, grad = value_of(values.detach())
        (found,) = torch.autograd.grad(values, leaf, grad)
        return value, found


def require_own_features(networks: ActorAndCriticsConfig) -> None:
    """Raises SettingsError if features should be shared with a user's network, which has none that can be shared."""
    for name, given in (("actor_class", networks.actor_class), ("critic_class", networks.critic_class)):
        if given is not None and networks.share_features_extractor:
            raise SettingsError(
                f"share_features_extractor = true needs an actor and critics made by rlsdk; leave {name} out, or give"
                " features_extractor_class"
            )


def own_network(
    context: BuildContext, networks: NetworkConfig, name: str, outputs: tuple[int, ...], what: str
) -> OwnNetwork:
    """Build a user's network: `class(observation_space, n, **arguments)`, where n is the number of outputs.

    Args:
        context: spaces and device.
        networks: the settings with `<name>_class` and `<name>_kwargs`.
        name: `actor`, `critic` or `network`.
        outputs: the shape of a row, such as (A,). The network may also return all outputs on one axis.
        what: a description of the outputs, for the error.

    Raises:
        SettingsError: the class raises an error, takes other arguments or makes no module, or its output is not finite
            or has another shape.
    """
    size = torch.Size(outputs).numel()
    user, space, preprocessor = _user_class(context, networks, name)
    # tried before the training, because an error in the first update would come after minutes of collecting
    network = user.build(observation_space=space, output_dim=size)
    found = _tried(context, user, network, preprocessor)
    # two rows: one would hide a network that averages over the batch or drops its axis
    if found.shape not in ((ROWS, *outputs), (ROWS, size)):
        raise _misfit(user, found, outputs, what)
    return OwnNetwork(network, preprocessor, size)


def own_critics(context: BuildContext, networks: ActorAndCriticsConfig, actions: int, outputs: int) -> OwnCritics:
    """Build `n_critics` critics of `critic_class`, each as `class(observation_space, actions, outputs, **arguments)`.

    Raises:
        SettingsError: the class raises an error, takes other arguments or makes no module, or its output is not finite
            or not [N, outputs].
    """
    user, space, preprocessor = _user_class(context, networks, "critic")
    members = [
        user.build(observation_space=space, action_dim=actions, output_dim=outputs) for _ in range(networks.n_critics)
    ]
    for member in members:
        found = _tried(context, user, member, preprocessor, torch.zeros(ROWS, actions))
        if found.shape != (ROWS, outputs):
            raise _misfit(user, found, (outputs,), "one value per output")
    return OwnCritics(preprocessor, members)


def _user_class(context: BuildContext, networks: NetworkConfig, name: str) -> tuple[UserClass, object, Preprocessor]:
    """(the class of the setting `<name>_class`, the gymnasium space that it gets, the converter of its observations)."""
    setting, space = f"{name}_class", context.observation_space
    if context.to_gymnasium is None:
        raise SettingsError(f"{setting} needs BuildContext(to_gymnasium=...), which makes its space")
    user = UserClass(context.algorithm, setting, getattr(networks, setting), getattr(networks, f"{name}_kwargs"))
    preprocessor = Preprocessor(space, normalize_images=networks.normalize_images)
    return user, context.to_gymnasium(channels_first(space)), preprocessor


@torch.no_grad()
def _tried(
    context: BuildContext, user: UserClass, network: nn.Module, preprocessor: Preprocessor, *further: Tensor
) -> Tensor:
    """Evaluate the network for two observations in evaluation mode, which does not change batch statistics: [2, ..]."""
    seen = preprocessor(example_features(context.observation_space, ROWS))
    training = network.training
    remedy = "images come with channels first, Discrete values one-hot, everything float32"
    try:
        with user.errors(f"{user} failed on {ROWS} preprocessed observations, {_shapes(seen)}", remedy):
            # batch norm in training mode would take the zeros of this trial into its statistics
            found: object = network.eval()(seen, *further)
    finally:
        network.train(training)
    if not isinstance(found, Tensor):
        raise SettingsError(
            f"{user} must give a tensor, not {type(found).__name__}; return the outputs alone from forward"
        )
    if not bool(found.isfinite().all()):
        raise SettingsError(
            f"{user} gave numbers that are not finite for {ROWS} observations; check its initial weights, and divisions and"
            " logarithms in its forward"
        )
    return found


def _misfit(user: UserClass, found: Tensor, outputs: tuple[int, ...], what: str) -> SettingsError:
    wanted = ", ".join(map(str, (ROWS, *outputs)))
    return SettingsError(
        f"{user} gave {list(found.shape)} for {ROWS} observations; expected [{wanted}]: {what}; give its last layer"
        f" output_dim = {torch.Size(outputs).numel()} outputs"
    )


def _shapes(seen: Features) -> str:
    if isinstance(seen, Tensor):
        return str(list(seen.shape))
    named = seen.items() if isinstance(seen, dict) else enumerate(seen)
    return ", ".join(f"{key}: {_shapes(value)}" for key, value in named)


# context variables, because `forward` of a user has no argument for them, and threads may train several agents
_left_out: ContextVar[bool] = ContextVar("left_out", default=False)
_refused: ContextVar[str] = ContextVar("refused", default="")


class _Attached(torch.autograd.Function):
    """Returns `outputs` unchanged. In the backward pass `loss` receives the gradient 1."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, loss: Tensor) -> Tensor:
        return outputs.view_as(outputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        # always 1, independent of the gradient of the outputs: the loss is added to that of the algorithm
        return grad, grad.new_ones(())


def with_auxiliary_loss(outputs: Tensor, loss: Tensor) -> Tensor:
    """Return `outputs` unchanged, and add the gradient of `loss` when an update backpropagates through them.

    Call it in the `forward` of a features extractor or of a whole network.

    Args:
        outputs: the result of `forward`, float [N, ..].
        loss: float [], a mean over rows times its weight.

    Raises:
        UsageError: `loss` is not a single number, or the algorithm cannot use it (TRPO, ACKTR).
    """
    if not isinstance(loss, Tensor) or loss.dim() or not loss.is_floating_point():
        raise UsageError(
            f"with_auxiliary_loss(outputs, loss): loss is {shown(loss)}; it must be a 0-d float tensor, a mean"
        )
    # while acting and for targets nothing is differentiated, so nothing is attached
    if not torch.is_grad_enabled() or not loss.requires_grad or _left_out.get():
        return outputs
    if algorithm := _refused.get():
        raise UsageError(
            f"{algorithm} steps along natural gradients, which an auxiliary loss has no part in; leave out with_auxiliary_loss,"
            " or use PPO or A2C"
        )
    attached: Tensor = _Attached.apply(outputs, loss)  # type: ignore[no-untyped-call]
    return attached


def auxiliary_losses_left_out() -> AbstractContextManager[None]:
    """Ignore auxiliary losses inside the `with` block, in which networks are differentiated with respect to their inputs."""
    return _inside(_left_out, True)


@contextmanager
def auxiliary_losses_refused(algorithm: str) -> Iterator[None]:
    """Make `with_auxiliary_loss` raise an error inside the `with` block, for updates that do not follow the gradient of
    a loss."""
    with _inside(_refused, algorithm):
        yield


@contextmanager
def _inside(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
