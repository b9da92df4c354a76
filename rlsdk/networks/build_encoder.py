"""Builds the encoder of a policy: one of rlsdk, or the user's features extractor with preprocessed observations."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from rlsdk.errors import SettingsError, UnsupportedSpaceError
from rlsdk.interfaces import BuildContext
from rlsdk.networks.combined_encoder import CombinedEncoder
from rlsdk.networks.encoders import FlattenEncoder
from rlsdk.networks.features_extractors import CombinedExtractor, NatureCNN
from rlsdk.networks.nature_encoder import NatureEncoder
from rlsdk.networks.preprocessor import Preprocessor, channels_first
from rlsdk.networks.user_classes import UserClass
from rlsdk.records import Features
from rlsdk.settings.networks import NetworkConfig
from rlsdk.spaces import Dict, Space, Tuple

DEFAULTS: dict[str, type[nn.Module]] = {"Mlp": FlattenEncoder, "Cnn": NatureEncoder, "MultiInput": CombinedEncoder}
OWN = {"FlattenExtractor": FlattenEncoder, "NatureCNN": NatureEncoder, "CombinedExtractor": CombinedEncoder}
"""Names of the features extractors of stable-baselines3 -> encoders that compute the same, faster."""


class ExtractorEncoder(nn.Module):
    """Calls a user's features extractor with preprocessed observations."""

    def __init__(self, extractor: nn.Module, space: Space, *, normalize_images: bool) -> None:
        super().__init__()
        self.extractor = extractor
        self.preprocessor = Preprocessor(space, normalize_images=normalize_images)
        self.features_dim = int(extractor.features_dim)  # type: ignore[arg-type]

    def forward(self, features: Features) -> Tensor:
        found: Tensor = self.extractor(self.preprocessor(features))
        if found.dim() != 2 or found.shape[1] != self.features_dim:
            raise SettingsError(
                f"features_extractor_class {type(self.extractor).__name__} returned {tuple(found.shape)}; its features_dim"
                f" is {self.features_dim}, so it must return [N, {self.features_dim}]"
            )
        return found


def uses_nature_cnn(encoder: nn.Module) -> bool:
    """Whether an encoder is NatureCNN, after which policies have no hidden layers by default."""
    return isinstance(getattr(encoder, "extractor", encoder), NatureEncoder | NatureCNN)


def build_encoder(context: BuildContext, policy: str, config: NetworkConfig) -> nn.Module:
    """Build the encoder for a policy named Mlp..., Cnn... or MultiInput..., or use the user's features extractor.

    Raises:
        UnsupportedSpaceError: the policy does not fit the space; the message names the policy that does.
        SettingsError: the user's class does not create a module with `features_dim`, or does not take its arguments.
    """
    space, custom = context.observation_space, config.features_extractor_class
    kind = next((prefix for prefix in DEFAULTS if policy.startswith(prefix)), "Mlp")
    if custom is None and kind != "MultiInput" and isinstance(space, Dict | Tuple):
        wanted = policy.replace(kind, "MultiInput", 1)
        raise UnsupportedSpaceError(f"a {type(space).__name__} observation needs {wanted}, not {policy}")
    if custom is None or isinstance(custom, str):
        default = DEFAULTS[kind] if custom is None else OWN[custom]
        arguments = dict(config.features_extractor_kwargs)
        _require_arguments(default, custom or default.__name__, arguments, {"normalize_images"})
        encoder: nn.Module = default(space, **arguments, normalize_images=config.normalize_images)
        return encoder
    return _user_encoder(context, custom, config)


def _user_encoder(context: BuildContext, custom: Any, config: NetworkConfig) -> nn.Module:
    arguments, name = dict(config.features_extractor_kwargs), getattr(custom, "__name__", repr(custom))
    if context.to_gymnasium is None:
        raise SettingsError(
            f"features_extractor_class {name} needs BuildContext(to_gymnasium=...), which makes its space"
        )
    if isinstance(custom, type) and issubclass(custom, NatureCNN | CombinedExtractor) and not config.normalize_images:
        arguments.setdefault("normalized_image", True)
    _require_arguments(custom, name, arguments, set())
    user = UserClass(context.algorithm, "features_extractor_class", custom, arguments)
    extractor = user.build(observation_space=context.to_gymnasium(channels_first(context.observation_space)))
    width = getattr(extractor, "features_dim", None)
    if not isinstance(width, int | np.integer) or width < 1:
        raise SettingsError(f"features_extractor_class {name} must give a torch module with an int `features_dim`")
    if any(isinstance(parameter, UninitializedParameter) for parameter in extractor.parameters()):
        raise SettingsError(
            f"features_extractor_class {name} has lazy layers, whose sizes are unknown; give sizes, or run the layers once"
            " on observation_space.sample() in the constructor"
        )
    return ExtractorEncoder(extractor, context.observation_space, normalize_images=config.normalize_images)


def _require_arguments(made: Any, name: str, arguments: dict[str, Any], own: set[str]) -> None:
    """Raises SettingsError if the class does not take these arguments. Users must not give those in `own`."""
    try:
        signature = inspect.signature(made)
    except (TypeError, ValueError):
        return  # a class written in C, whose arguments are unknown
    names = [parameter for parameter in list(signature.parameters)[1:] if parameter not in own]
    try:
        if own & set(arguments):
            raise TypeError(f"got an unexpected keyword argument {sorted(own & set(arguments))[0]!r}")
        signature.bind(None, **arguments)
    except TypeError as error:
        raise SettingsError(f"features_extractor_kwargs do not fit {name}: {error}; it takes {names}") from None
