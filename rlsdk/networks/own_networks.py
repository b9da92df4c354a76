"""Users' networks that replace encoder, hidden layers and output layer of an actor, a critic or a Q-network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError
from rlsdk.interfaces import BuildContext
from rlsdk.kernels.reference import backward
from rlsdk.networks.auxiliary_loss import auxiliary_losses_left_out
from rlsdk.networks.critics import ValueOf, mean_value
from rlsdk.networks.documented_methods import explains_attributes
from rlsdk.networks.preprocessor import Preprocessor, channels_first, example_features
from rlsdk.networks.user_classes import UserClass
from rlsdk.records import Features

ROWS = 2


@dataclass(frozen=True, slots=True)
class OwnNetworkSettings:
    """A user's class with its arguments, and the name of the setting that contains it."""

    setting: str
    """`actor_class`, `critic_class` or `network_class`."""
    kind: Callable[..., nn.Module]
    arguments: Mapping[str, object]
    normalize_images: bool = True


class OwnNetwork(nn.Module):
    """A user's network: observations are preprocessed, then converted to float32 [N, features_dim]."""

    def __init__(self, network: nn.Module, preprocessor: Preprocessor, outputs: int) -> None:
        super().__init__()
        self.network, self.preprocessor, self.features_dim = network, preprocessor, outputs

    def forward(self, features: Features) -> Tensor:
        """Observations [N, ..], nested like their space -> [N, features_dim]. Further axes of the output are flattened."""
        found: Tensor = self.network(self.preprocessor(features))
        return found.flatten(1)


class Columns(nn.Module):
    """Selects columns of a network's output: [N, D] -> [N, stop - start]. It replaces an output layer."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, values: Tensor) -> Tensor:
        """float [N, D] -> [N, stop - start]."""
        return values[:, self.start : self.stop]


@explains_attributes
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
        self, features: Features, unit_action: Tensor, value_of: ValueOf = mean_value
    ) -> tuple[Tensor, Tensor]:
        """Return (`value_of` the critics' outputs, 0-d; its gradient with respect to the action [N, A])."""
        return _with_gradient(lambda leaf: self(features, leaf), unit_action, value_of)

    def first_action_gradient(
        self, features: Features, unit_action: Tensor, value_of: ValueOf = mean_value
    ) -> tuple[Tensor, Tensor]:
        """Return (`value_of` the first critic's outputs, 0-d; its gradient with respect to the action [N, A])."""
        return _with_gradient(lambda leaf: self.ensemble[0](features, leaf), unit_action, value_of)


def _with_gradient(
    values_of: Callable[[Tensor], Tensor], unit_action: Tensor, value_of: ValueOf
) -> tuple[Tensor, Tensor]:
    """(`value_of` the values of actions [N, A], 0-d; its gradient with respect to the actions)."""
    leaf = unit_action.detach().requires_grad_()
    with auxiliary_losses_left_out():
        values = values_of(leaf)
    value, grad = value_of(values.detach())
    (found,) = torch.autograd.grad(values, leaf, grad)
    return value, found


class OwnActorCritic(Protocol):
    """The settings that may replace an actor and critics of Box actions."""

    @property
    def share_features_extractor(self) -> bool: ...
    @property
    def actor_class(self) -> Any: ...
    @property
    def critic_class(self) -> Any: ...


def require_own_features(networks: OwnActorCritic) -> None:
    """Raises SettingsError if features should be shared with a user's network, which has none that can be shared."""
    for name, given in (("actor_class", networks.actor_class), ("critic_class", networks.critic_class)):
        if given is not None and networks.share_features_extractor:
            raise SettingsError(
                f"share_features_extractor = true needs an actor and critics made by rlsdk; leave {name} out, or give"
                " features_extractor_class"
            )


def own_network(context: BuildContext, given: OwnNetworkSettings, outputs: tuple[int, ...], what: str) -> OwnNetwork:
    """Build a user's network: `kind(observation_space, n, **arguments)`, where n is the number of outputs.

    Args:
        context: spaces and device.
        given: the user's class.
        outputs: the shape of a row, such as (A,). The network may also return all outputs on one axis.
        what: a description of the outputs, for the error.

    Raises:
        SettingsError: the class raises an error, takes other arguments or makes no module, or its output is not finite
            or has another shape.
    """
    size, user = torch.Size(outputs).numel(), _user_class(context, given)
    preprocessor = Preprocessor(context.observation_space, normalize_images=given.normalize_images)
    network = user.build(observation_space=_space(context, given), output_dim=size)
    found = _tried(context, user, network, preprocessor)
    if found.shape not in ((ROWS, *outputs), (ROWS, size)):
        raise _misfit(user, found, outputs, what)
    return OwnNetwork(network, preprocessor, size)


def own_critics(context: BuildContext, given: OwnNetworkSettings, actions: int, outputs: int, count: int) -> OwnCritics:
    """Build `count` critics of a user's class, each as `kind(observation_space, actions, outputs, **arguments)`.

    Raises:
        SettingsError: the class raises an error, takes other arguments or makes no module, or its output is not finite
            or not [N, outputs].
    """
    preprocessor = Preprocessor(context.observation_space, normalize_images=given.normalize_images)
    user, space = _user_class(context, given), _space(context, given)
    members = [user.build(observation_space=space, action_dim=actions, output_dim=outputs) for _ in range(count)]
    for member in members:
        found = _tried(context, user, member, preprocessor, torch.zeros(ROWS, actions))
        if found.shape != (ROWS, outputs):
            raise _misfit(user, found, (outputs,), "one value per output")
    return OwnCritics(preprocessor, members)


def _user_class(context: BuildContext, given: OwnNetworkSettings) -> UserClass:
    return UserClass(context.algorithm, given.setting, given.kind, given.arguments)


def _space(context: BuildContext, given: OwnNetworkSettings) -> object:
    """The gymnasium space that a user's network receives. Images have channels first."""
    if context.to_gymnasium is None:
        raise SettingsError(f"{given.setting} needs BuildContext(to_gymnasium=...), which makes its space")
    return context.to_gymnasium(channels_first(context.observation_space))


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
