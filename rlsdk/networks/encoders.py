"""Encoders, which convert an observation of any space into a feature vector [N, features_dim]."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.parameter import UninitializedParameter

from rlsdk.errors import PluginError, RlsdkError, SettingsError, UnsupportedSpaceError, message_of, one_line
from rlsdk.interfaces import BuildContext
from rlsdk.kernels import KernelSlot, factory
from rlsdk.kernels.protocol import has_parameters
from rlsdk.records import Features
from rlsdk.registry.loading import extension
from rlsdk.settings.actor_critic import NetworkConfig
from rlsdk.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    choices_of,
    dtype_of,
    leaf_spaces,
    map_leaves,
    map_space,
    shape_of,
)


def features_dim(encoder: nn.Module) -> int:
    """The width of an encoder's output."""
    width: int = cast("Any", encoder).features_dim
    return width


TABLE = 256
"""Up to this number of values, one-hot rows are looked up in a table, which takes a third of the time."""


class FlattenEncoder(nn.Module):
    """Converts an observation to one vector: numbers unchanged, discrete values one-hot, images divided by 255.

    Images are not divided if `normalize_images` is off. The encoder has no parameters.
    """

    hot: Tensor | None

    def __init__(self, space: Space, normalize_images: bool = True) -> None:
        super().__init__()
        self.space = space
        self.divisor = 255.0 if normalize_images and isinstance(space, Box) and space.is_image else None
        if isinstance(space, Discrete):
            self.features_dim = space.n
            self.register_buffer("hot", torch.eye(space.n) if space.n <= TABLE else None, persistent=False)
        elif isinstance(space, MultiDiscrete):
            self.features_dim = sum(space.nvec)
        elif isinstance(space, Box | MultiBinary):
            self.features_dim = math.prod(shape_of(space))
        else:
            raise UnsupportedSpaceError(
                f"a {type(space).__name__} observation needs MultiInputPolicy, not a flat encoder"
            )

    def forward(self, features: Tensor) -> Tensor:
        if isinstance(self.space, Discrete) and self.hot is not None:
            return self.hot[features.long() - self.space.start if self.space.start else features.long()]
        if isinstance(self.space, Discrete):
            return one_hot(features.long() - self.space.start, self.space.n).float()
        if isinstance(self.space, MultiDiscrete):
            parts = zip(features.long().unbind(-1), self.space.start, self.space.nvec, strict=True)
            return torch.cat([one_hot(column - low, n) for column, low, n in parts], dim=-1).float()
        flat = features.reshape(-1, self.features_dim).float()
        return flat if self.divisor is None else flat / self.divisor


class NatureEncoder(nn.Module):
    """Three convolutions and a linear layer. Source: Mnih et al. 2015, doi:10.1038/nature14236, extended data table 1."""

    def __init__(
        self, space: Space, features_dim: int = 512, normalized_image: bool = False, *, normalize_images: bool = True
    ) -> None:
        """Create the layers. With `normalized_image`, images may be floats that are already scaled.

        Raises:
            UnsupportedSpaceError: the observations are not images.
        """
        super().__init__()
        checked = normalize_images and not normalized_image
        if not isinstance(space, Box) or len(space.shape) != 3 or (checked and not space.is_image):
            raise UnsupportedSpaceError(
                f"CnnPolicy needs uint8 images with three dimensions and values 0 ... 255, got {space}; {_way_out(space)}"
            )
        self.channels_last = space.channels_last
        height, width, channels = space.shape if self.channels_last else (*space.shape[1:], space.shape[0])
        if min(height, width) < 36:
            raise UnsupportedSpaceError(f"NatureCNN needs images of at least 36 x 36 pixels, got {height} x {width}")
        self.scale = 1.0 / 255.0 if normalize_images and space.is_image else 1.0
        self.convolutions, self.linear = nature_layers(channels, (height, width), features_dim)
        self.features_dim = features_dim
        self._kernel = KernelSlot(self._make_kernel, self, ("convolutions",))

    def forward(self, features: Tensor) -> Tensor:
        pixels = features.movedim(-1, -3) if self.channels_last else features
        return factory.sequential([self.linear], self._kernel()(pixels))

    def _make_kernel(self, hooked: bool) -> Callable[[Tensor], Tensor]:
        return factory.convolutions(list(self.convolutions), self.scale, hooked, self._convolved)

    def _convolved(self, pixels: Tensor) -> Tensor:
        """[N, channels, height, width] -> [N, features], computed by the modules."""
        return cast("Tensor", self.convolutions(pixels.float() * self.scale))


def nature_layers(channels: int, size: Iterable[int], features_dim: int) -> tuple[nn.Sequential, nn.Sequential]:
    """The (convolutions, linear layer) of Mnih et al. for images [N, channels, *size]."""
    convolutions = nn.Sequential(
        nn.Conv2d(channels, 32, kernel_size=8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, kernel_size=3, stride=1),
        nn.ReLU(),
        nn.Flatten(),
    )
    with torch.no_grad():
        flat = convolutions(torch.zeros(1, channels, *size)).shape[1]
    return convolutions, nn.Sequential(nn.Linear(flat, features_dim), nn.ReLU())


def _way_out(space: Space) -> str:
    """What makes an image of observations that are none yet, or another policy."""
    if not isinstance(space, Box) or len(space.shape) not in (2, 3):
        return "use MlpPolicy, or MultiInputPolicy for a Dict"
    if len(space.shape) == 3:
        return (
            "declare such bounds, or use policy_kwargs={'normalize_images': False} for images that are scaled already"
        )
    shape = f"({space.shape[0]}, {space.shape[1]}, 1)"
    return f"add an axis for the color of gray images: gymnasium.wrappers.ReshapeObservation(env, {shape})"


class CombinedEncoder(nn.Module):
    """One encoder per entry of a Dict or Tuple: NatureEncoder for images, FlattenEncoder for others. Their features are
    concatenated."""

    def __init__(
        self,
        space: Space,
        cnn_output_dim: int = 256,
        normalized_image: bool = False,
        *,
        normalize_images: bool = True,
    ) -> None:
        """Create one encoder per entry. With `normalized_image`, float arrays with three dimensions count as images
        too.

        Raises:
            UnsupportedSpaceError: the space is not a Dict or Tuple.
        """
        super().__init__()
        if not isinstance(space, Dict | Tuple):
            raise UnsupportedSpaceError(
                f"MultiInputPolicy needs a Dict or Tuple observation, got {type(space).__name__}"
            )
        encoders: dict[str | int, nn.Module] = {}
        for key, child in space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces):
            if isinstance(child, Box) and (child.is_image or (normalized_image and len(child.shape) == 3)):
                encoders[key] = NatureEncoder(
                    child, cnn_output_dim, normalized_image, normalize_images=normalize_images
                )
            elif isinstance(child, Dict | Tuple):
                encoders[key] = CombinedEncoder(
                    child, cnn_output_dim, normalized_image, normalize_images=normalize_images
                )
            else:
                encoders[key] = FlattenEncoder(child, normalize_images)
        self.keys = tuple(encoders)
        self.encoders = nn.ModuleList(encoders.values())  # a list: module names must not contain dots, keys may
        self.features_dim = sum(features_dim(encoder) for encoder in encoders.values())

    def forward(self, features: Features) -> Tensor:
        return torch.cat(
            [encoder(features[key]) for key, encoder in zip(self.keys, self.encoders, strict=True)], dim=-1
        )


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
    own = getattr(encoder, "extractor", encoder)
    return isinstance(own, NatureEncoder) or getattr(own, "is_nature_cnn", False) is True


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
    if "normalized_image" in _require_arguments(custom, name, arguments, set()) and not config.normalize_images:
        arguments.setdefault("normalized_image", True)
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


def _require_arguments(made: Any, name: str, arguments: dict[str, object], own: set[str]) -> list[str]:
    """The names of the arguments that the class takes. Raises SettingsError if `arguments` do not fit, or are in `own`."""
    try:
        signature = inspect.signature(made)
    except (TypeError, ValueError):
        return []  # a class written in C, whose arguments are unknown
    names = [parameter for parameter in list(signature.parameters)[1:] if parameter not in own]
    try:
        if own & set(arguments):
            raise TypeError(f"got an unexpected keyword argument {sorted(own & set(arguments))[0]!r}")
        signature.bind(None, **arguments)
    except TypeError as error:
        raise SettingsError(f"features_extractor_kwargs do not fit {name}: {error}; it takes {names}") from None
    return names


def is_fixed(encoder: nn.Module) -> bool:
    """Whether an encoder has no parameters, so that it equals every other encoder of its space."""
    return type(encoder) in (FlattenEncoder, CombinedEncoder) and not has_parameters(encoder)


def is_identity(encoder: nn.Module) -> bool:
    """Whether an encoder returns float32 vectors [N, F] unchanged."""
    space = getattr(encoder, "space", None)
    flat = type(encoder) is FlattenEncoder and isinstance(space, Box) and dtype_of(space) == "float32"
    return flat and isinstance(space, Box) and len(space.shape) == 1


Vector = NDArray[np.float64]


def encoded_slices(space: Space, path: str = "observation") -> dict[str, slice]:
    """The position of each leaf of a space in the vector of a `FlattenEncoder`, by the leaf's path."""
    slices, start = dict[str, slice](), 0
    for leaf_path, leaf in leaf_spaces(space, path):
        size = sum(choices_of(leaf)) if isinstance(leaf, Discrete | MultiDiscrete) else math.prod(shape_of(leaf))
        slices[leaf_path] = slice(start, start + size)
        start += size
    return slices


LONGEST = 300
"""The maximum number of characters of a user's error in an error of rlsdk."""


def named(hook: str, given: str | Callable[..., object], what: str) -> Callable[..., object]:
    """Return what a package offers by the name `given`; a class or function is returned unchanged. `what` is for the error.

    Raises:
        SettingsError: no package offers the name, or more than one, or the package cannot be used.
    """
    try:
        return extension(hook, given) if isinstance(given, str) else given
    except PluginError as error:
        raise SettingsError(f"{what}: {message_of(error)}") from None


@dataclass(frozen=True, slots=True)
class UserClass:
    """A class, or a function that makes a module, from a user's settings."""

    algorithm: str
    """The id of the algorithm, for errors; may be empty."""
    setting: str
    """The name of the setting in `policy_kwargs`; it ends with `_class`."""
    kind: str | Callable[..., nn.Module]
    """A name is that of the hook `networks` of a package."""
    arguments: Mapping[str, object]

    def __str__(self) -> str:
        """The algorithm, the setting and the class, for errors."""
        where = f"{self.algorithm}: policy_kwargs.{self.setting}" if self.algorithm else f"policy_kwargs.{self.setting}"
        return f"{where} {self.kind if isinstance(self.kind, str) else getattr(self.kind, '__name__', repr(self.kind))}"

    def build(self, **first: object) -> nn.Module:
        """Create the module with the values of `first`, in order, and the user's arguments.

        Raises:
            SettingsError: the class takes other arguments, raises an error, or makes no module.
        """
        kind = named("networks", self.kind, str(self))
        called = f"it is called with ({', '.join(first)}) and {self.setting.removesuffix('class')}kwargs {dict(self.arguments)}"
        with self.errors(f"{self} cannot be made", called):
            module: object = kind(*first.values(), **self.arguments)
        if not isinstance(module, nn.Module):
            raise SettingsError(f"{self} must give a torch.nn.Module, not {type(module).__name__}; {called}")
        return module

    @contextmanager
    def errors(self, what: str, remedy: str) -> Iterator[None]:
        """Inside the `with` block, convert every error of the user's code to SettingsError. Errors of rlsdk are not
        converted."""
        try:
            yield
        except RlsdkError:
            raise
        except Exception as error:  # code of the user
            cause = one_line(error, LONGEST) if str(error) else type(error).__name__
            raise SettingsError(f"{what}: {cause}; {remedy}") from error


class Preprocessor(nn.Module):
    """Converts observations to float32: images with channels first, Discrete and MultiDiscrete values one-hot.

    With `normalize_images`, images are divided by 255. There are no parameters.
    """

    def __init__(self, space: Space, *, normalize_images: bool) -> None:
        super().__init__()
        self.space, self.normalize_images = space, normalize_images
        own = {path: leaf for path, leaf in leaf_spaces(space) if isinstance(leaf, Discrete | MultiDiscrete)}
        self._one_hot = {path: i for i, path in enumerate(own)}
        self.one_hot = nn.ModuleList(FlattenEncoder(leaf) for leaf in own.values())

    def forward(self, features: Features) -> Features:
        """Preprocess observations [N, ..]; both input and output are nested like the space."""
        return map_leaves(self.space, self._preprocessed, features)

    def _preprocessed(self, path: str, leaf: Space, values: Tensor) -> Tensor:
        if path in self._one_hot:
            return cast("Tensor", self.one_hot[self._one_hot[path]](values))
        if not isinstance(leaf, Box) or not leaf.is_image:
            return values.float()
        pixels = (values.movedim(-1, -3) if leaf.channels_last else values).float()
        return pixels / 255.0 if self.normalize_images else pixels


def channels_first(space: Space) -> Space:
    """The space with images whose first axis is the channels."""

    def leaf(given: Space) -> Space:
        if not isinstance(given, Box) or not given.is_image or not given.channels_last:
            return given
        low, high = (np.moveaxis(bound, -1, 0) for bound in (given.low, given.high))
        return Box(low, high, low.shape, given.dtype)

    return map_space(space, leaf)


def example_features(space: Space, rows: int) -> Features:
    """Return valid observations [rows, ..] of the space (its first values), to examine the output of a network."""

    def leaf(path: str, given: Space) -> Tensor:
        values = torch.zeros((rows, *shape_of(given)), dtype=getattr(torch, dtype_of(given)))
        return values + torch.tensor(given.start) if isinstance(given, Discrete | MultiDiscrete) else values

    return map_leaves(space, leaf)
