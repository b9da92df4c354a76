"""Agents from files of stable-baselines3 and sb3-contrib: settings and weights are read, nothing in the file is run.

What such a file holds only as a pickle (functions, classes, spaces) is not read: the environment gives the spaces, and settings
that were functions keep their defaults unless they are given.
"""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from torch import Tensor

from rlsdk.environments import connect
from rlsdk.errors import ArtifactError, PluginError, SettingsError, shown
from rlsdk.registry import load as load_plugin
from rlsdk.settings import describe, merge
from rlsdk.spaces import Dict

if TYPE_CHECKING:
    from rlsdk.agent import Agent

OURS = ("policy", "env", "seed", "device", "policy_kwargs", "normalize", "frame_stack", "tensorboard_log")
"""Settings that are not taken from a file."""
MAX_SETTINGS, SMALL, MAX_GROWTH = 16 * 2**20, 2**20, 4
"""Bytes of settings; bytes that weights may have in any case; how many times the file's size they may be."""
_STATED = ("use_expln", "full_std", "clip_mean", "squash_output", "normalize_images")
"""Settings of networks that predictions depend on and weights do not show."""
ACTIVATION = re.compile(r"<class 'torch\.nn\.modules\.activation\.(?P<name>\w+)'>")
MAX_LAYER = 10_000
"""Layers have numbers below this one."""
_LEARNT = {"log_ent_coef": "ent_coef"}
"""Learnt numbers of a file -> the setting they begin with; where that is given, they are not taken."""


@attrs.frozen
class Translated:
    """What a plugin makes of foreign weights: the name of its policy, settings of networks, and parameters as
    `Agent.set_parameters` takes them."""

    policy: str
    networks: Mapping[str, object]
    parameters: Mapping[str, Mapping[str, Tensor]]


@attrs.frozen
class Foreign:
    """What is in a file: settings as JSON has them, those of networks that weights do not show, weights by name, and the
    settings that only a pickle holds."""

    settings: dict[str, object]
    networks: dict[str, object]
    weights: dict[str, Tensor]
    pickled: tuple[str, ...]


def import_sb3(
    path: str | Path, algorithm: str, env: object, *, vecnormalize: str | Path | None = None, **changes: object
) -> Agent:
    """An agent that predicts what the agent in the file does.

    Args:
        path: the `.zip` file.
        algorithm: id of the plugin to load it into, such as `trpo`.
        env: the environment it was trained on, or anything else with its spaces.
        vecnormalize: an `.npz` file with `mean`, `var` and `count` of the observations' statistics, for agents that were
            trained under `VecNormalize` (docs/interchange.md writes one). Other bounds than the defaults go into `changes`:
            `normalize={"clip_obs": 5.0}`.
        changes: settings, over those of the file; for what the file holds only as a pickle.

    Raises:
        ArtifactError: no such file, or its weights do not fit. SettingsError: the plugin imports nothing, or a setting is
        wrong.
    """
    from rlsdk.agent import make
    from rlsdk.agent.construction_limit import ConstructionLimit

    spec = load_plugin(algorithm)
    if spec.from_sb3 is None:
        raise SettingsError(f"{algorithm} has no counterpart in stable-baselines3 or sb3-contrib to import from")
    foreign, envs = read_sb3(path), connect(env)
    weights = {name: weight for name, weight in foreign.weights.items() if _LEARNT.get(name) not in changes}
    try:
        translated = spec.from_sb3(weights, envs.action_space)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError):
        some = ", ".join(sorted(foreign.weights)[:3])
        raise ArtifactError(
            f"{path} holds no {algorithm} agent: its weights are called {some}, ...; name the algorithm it was trained with"
        ) from None
    except ValueError as error:
        raise ArtifactError(f"{path} cannot be imported as {algorithm}: {error}") from None
    if not isinstance(translated, Translated):
        raise PluginError(
            f"{algorithm!r} is broken: its from_sb3 returned {shown(translated, 60)}; return a Translated"
        )
    known = {field.name for field in attrs.fields(spec.config_type)} - set(OURS)
    settings = {name: value for name, value in foreign.settings.items() if name in known}
    networks = {name: value for name, value in foreign.networks.items() if name in _network_settings(spec.config_type)}
    policy = translated.policy.replace("Mlp", "MultiInput" if isinstance(envs.observation_space, Dict) else "Mlp")
    settings = merge(settings, {"policy": policy, "policy_kwargs": {**networks, **translated.networks}})
    if vecnormalize is not None:
        settings["normalize"] = {"norm_reward": False}
    with ConstructionLimit(sum(weight.nbytes for weight in foreign.weights.values())):
        agent = make(spec.id, env=envs, **merge(settings, changes))
    agent.env_name = env if isinstance(env, str) else agent.env_name
    _warn_of_unread(path, sorted((set(foreign.pickled) & known) - set(changes)))
    _set_weights(agent, translated, path)
    if hasattr(type(agent), "exploration_rate") and isinstance(rate := foreign.settings.get("exploration_rate"), float):
        agent.exploration_rate = rate
    if vecnormalize is not None:
        _set_statistics(agent, Path(vecnormalize))
    return agent


def _set_weights(agent: Agent, translated: Translated, path: str | Path) -> None:
    """Raises ArtifactError: weights do not fit, or the policy's are not complete."""
    inner = getattr(agent.policy, "inner", agent.policy)  # without normalisation
    if missing := sorted({name for name, _ in inner.named_parameters()} - set(translated.parameters["policy"])):
        lacks = ", ".join(missing)
        raise ArtifactError(f"{path} holds no {agent.spec.id} agent for this environment: {lacks} missing")
    try:
        agent.set_parameters(translated.parameters, exact_match=False)
    except ArtifactError as error:
        spaces = f"the spaces of {agent.env_name or 'the environment given'}"
        raise ArtifactError(f"the model in {path} was not trained on an environment with {spaces}: {error}") from None


def _network_settings(config_type: type[object]) -> set[str]:
    """Names of the entries of `policy_kwargs`."""
    return {
        entry.name for setting in describe(config_type) if setting.name == "policy_kwargs" for entry in setting.children
    }


def _warn_of_unread(path: str | Path, settings: list[str]) -> None:
    if settings:
        warnings.warn(
            f"{path} holds {', '.join(settings)} only as a pickle, which is not read: defaults are used, or give them",
            stacklevel=3,
        )


def read_sb3(path: str | Path) -> Foreign:
    """Settings and weights of a file.

    Raises:
        ArtifactError: it is not a file of stable-baselines3, or expands to far more than its size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(_member(archive, "data", MAX_SETTINGS))
            most = MAX_GROWTH * Path(path).stat().st_size + SMALL
            stored = set(archive.namelist()) & {"policy.pth", "pytorch_variables.pth"} | {"policy.pth"}
            loaded = [_loaded(_member(archive, name, most)) for name in sorted(stored, reverse=True)]
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {path}") from None
    except Exception as error:  # a foreign file may break in any way; torch's restricted reader raises its own errors
        raise ArtifactError(f"{path} is not a file of stable-baselines3: {type(error).__name__}: {error}") from None
    if not isinstance(data, dict) or not all(isinstance(each, Mapping) for each in loaded):
        raise ArtifactError(f"{path} is not a file of stable-baselines3: it has no settings or no weights")
    pickled = tuple(name for name, value in data.items() if isinstance(value, dict) and ":serialized:" in value)
    plain = {n: v for n, v in data.items() if v is not None and not isinstance(v, dict) and not n.startswith("_")}
    weights = {name: value for each in loaded for name, value in each.items() if isinstance(value, Tensor)}
    return Foreign(plain, _networks(data.get("policy_kwargs")), weights, pickled)


def _loaded(content: bytes) -> Any:
    """A stored object, read by torch's restricted reader; raises ArtifactError for tensors that are not plain."""
    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        if sum(info.file_size for info in inner.infolist()) > len(content):
            raise ArtifactError("its weights are compressed")
    loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    _require_whole(loaded)
    return loaded


def _networks(given: object) -> dict[str, object]:
    """What `policy_kwargs` of a file states of networks and weights do not show. A class is stored as a pickle with its name as
    text beside it; the name is enough for an activation of torch."""
    if not isinstance(given, dict):
        return {}
    found = {name: given[name] for name in _STATED if name in given}
    activation = given.get("activation_fn")
    if isinstance(activation, str):
        named = ACTIVATION.fullmatch(activation)
        found["activation_fn"] = named["name"] if named else activation
    return found


def _member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """A member, unpacked; raises ArtifactError before that when it is longer than `most` bytes."""
    if (size := archive.getinfo(name).file_size) > most:
        raise ArtifactError(f"its {name!r} is {size} bytes long, more than {most}")
    return archive.read(name)


def _require_whole(loaded: object) -> None:
    """Raises ArtifactError for tensors that are not plain, or repeat numbers to seem larger than what the file holds."""
    for name, value in loaded.items() if isinstance(loaded, Mapping) else ():
        if not isinstance(name, str):
            raise ArtifactError("its weights have no names")
        if not isinstance(value, Tensor):
            continue
        if value.layout != torch.strided or value.device.type != "cpu" or value.is_quantized or value.is_nested:
            raise ArtifactError(f"its weight {name!r} is not a plain tensor")
        if value.nbytes > value.untyped_storage().nbytes():
            raise ArtifactError(f"its weight {name!r} of shape {tuple(value.shape)} is larger than what the file holds")
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            raise ArtifactError(f"its weight {name!r} holds something else than finite numbers")


def _set_statistics(agent: Agent, path: Path) -> None:
    """The observations' running statistics from an `.npz` file."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.file_size > MAX_SETTINGS:
                    raise ValueError(f"its {info.filename!r} is {info.file_size} bytes long, more than {MAX_SETTINGS}")
        with np.load(path, allow_pickle=False) as stored:
            given = {name: torch.as_tensor(np.asarray(stored[name], np.float64)) for name in ("mean", "var", "count")}
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{path} holds no statistics (mean, var, count): {error}") from None
    normalizer = agent.preprocessing.normalizer
    assert normalizer is not None
    state = normalizer.state_dict()
    if set(state["observation"]) != {"000"}:
        raise SettingsError(
            "statistics of one array are not statistics of these observations, which have several parts"
        )
    moments = {"mean": given["mean"], "variance": given["var"], "count": given["count"]}
    try:
        normalizer.load_state_dict({**state, "observation": {"000": moments}})
    except ValueError as error:
        raise ArtifactError(f"{path}: {error}") from None


# --- what plugins translate with ---------------------------------------------------------------------------------------


def renamed(weights: Mapping[str, Tensor], names: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """Weights [..] whose name begins with the first of a pair, under one that begins with the second; others are left out."""
    return {
        new + name.removeprefix(old): w for old, new in names for name, w in weights.items() if name.startswith(old)
    }


def require_names(weights: Mapping[str, Tensor], *starts: str) -> None:
    """Raises LookupError: no weight [..] has a name that begins so; the file is that of another algorithm."""
    for start in starts:
        if not any(name.startswith(start) for name in weights):
            raise LookupError(start)


def layers_of(weights: Mapping[str, Tensor], prefix: str) -> list[Tensor]:
    """The weight matrices [outputs, inputs] called prefix + number + ".weight", in order."""
    numbers = sorted(
        int(name.removeprefix(prefix).removesuffix(".weight"))
        for name in weights
        if name.startswith(prefix) and name.removeprefix(prefix).removesuffix(".weight").isdecimal()
    )
    return [weights[f"{prefix}{number}.weight"] for number in numbers]


def hidden(weights: Mapping[str, Tensor], prefix: str, *, output: bool = False) -> list[int]:
    """Widths of hidden layers, from matrices [outputs, inputs]; with `output` the last one is not hidden."""
    found = [len(weight) for weight in layers_of(weights, prefix)]
    return found[:-1] if output else found


IMAGES = (("features_extractor.cnn.", "encoder.convolutions."), ("features_extractor.linear.", "encoder.linear."))
_UNSHARED = tuple((f"vf_{theirs}", f"critic_{ours}") for theirs, ours in IMAGES)
_PARTS = {f"{layer}.{part}" for layer in ("cnn.0", "cnn.2", "cnn.4", "linear.0") for part in ("weight", "bias")}
"""Weights of the documented encoder of images."""


def image_encoder(weights: Mapping[str, Tensor], prefix: str = "") -> tuple[str, dict[str, object]]:
    """("Cnn" or "Mlp", settings of the encoder), from weights [..] called prefix + "features_extractor." + ...

    Raises:
        ValueError: a features extractor that this does not know.
    """
    start = f"{prefix}features_extractor."
    found = {name.removeprefix(start) for name in weights if name.startswith(start)}
    if any(name.startswith("extractors.") for name in found):
        raise ValueError("encoders of Dict observations with images are not imported")
    if found - _PARTS:
        raise ValueError("a custom features extractor is not imported")
    if not found:
        return "Mlp", {}
    width = len(weights[f"{start}linear.0.weight"])
    return "Cnn", {} if width == 512 else {"features_extractor_kwargs": {"features_dim": width}}


def actor_critic(weights: Mapping[str, Tensor], memory: str = "") -> Translated:
    """Policies of the on-policy algorithms, vectors [F] or images [C, H, W]; `memory` is in the policy's name, "" or "Lstm".

    Raises:
        ValueError: an encoder this does not know. LookupError: weights of another algorithm.
    """
    require_names(weights, "action_net.", "value_net.", *(["lstm_actor."] if memory else []))
    if not memory and any(name.startswith("lstm_actor.") for name in weights):
        raise LookupError("lstm_actor.")
    kind, networks = image_encoder(weights)
    pairs = [(weights[name], weights.get(f"vf_{name}")) for name in weights if name.startswith("features_extractor.")]
    own = any(two is not None and not torch.equal(one, two) for one, two in pairs)
    gsde = "log_std" in weights and weights["log_std"].dim() == 2  # [latent, actions]; one number per action without
    names = [
        ("mlp_extractor.policy_net.", "body."),
        ("mlp_extractor.value_net.", "critic_body."),
        ("action_net.", "head.head.linear." if gsde else "head.linear."),
        ("value_net.", "value."),
        ("log_std", "head.noise.log_std" if gsde else "head.log_std"),
        ("lstm_actor.", "memory.cells."),
        ("lstm_critic.", "critic_memory.cells."),
        ("critic.", "critic_memory.linear."),
        *IMAGES,
        *(_UNSHARED if own else ()),
    ]
    arch = {own: hidden(weights, f"mlp_extractor.{theirs}_net.") for own, theirs in (("pi", "policy"), ("vf", "value"))}
    networks |= {"net_arch": arch} | ({"share_features_extractor": False} if own else {})
    return Translated(f"{kind}{memory}Policy", networks, {"policy": renamed(weights, names)})


def require_plain(weights: Mapping[str, Tensor]) -> None:
    """Raises ValueError: observations of these weights [..] go through a features extractor, which is not imported."""
    if any("features_extractor" in name for name in weights):
        raise ValueError("encoders of images and custom features extractors are not imported")


def critic_count(weights: Mapping[str, Tensor]) -> int:
    """Critics of an off-policy algorithm with Box actions, whose weights are [out, in]."""
    return sum(name.startswith("critic.qf") and name.endswith(".0.weight") for name in weights)


def stacked_critics(weights: Mapping[str, Tensor], network: str) -> dict[str, Tensor]:
    """Those of `network` (critic, critic_target) side by side: weights [out, in] of each become [critics, in, out]."""
    found = {}
    for i in range(0, 2 * len(layers_of(weights, f"{network}.qf0.")), 2):
        names = [f"{network}.qf{member}.{i}." for member in range(critic_count(weights))]
        found[f"ensemble.layers.{i}.weight"] = torch.stack([weights[f"{name}weight"].T for name in names])
        found[f"ensemble.layers.{i}.bias"] = torch.stack([weights[f"{name}bias"].unsqueeze(0) for name in names])
    return found


def deterministic_actor_critic(weights: Mapping[str, Tensor]) -> Translated:
    """Actor, critics and the targets of both, of TD3 and DDPG, from weights [out, in].

    Raises:
        ValueError: observations go through a features extractor. LookupError: weights of another algorithm.
    """
    require_names(weights, "actor.mu.", "actor_target.mu.", "critic.qf0.")
    require_plain(weights)
    last = 2 * len(layers_of(weights, "actor.mu.")) - 2

    def actor(network: str) -> dict[str, Tensor]:
        """Weights [out, in] of the actor or its target."""
        layers = [(f"{network}.mu.{i}.", f"body.{i}.") for i in range(0, last, 2)]
        return renamed(weights, [*layers, (f"{network}.mu.{last}.", "mean.")])

    widths = {"pi": hidden(weights, "actor.mu.", output=True), "qf": hidden(weights, "critic.qf0.", output=True)}
    parameters = {
        "policy": actor("actor"),
        "actor_target": actor("actor_target"),
        **{network: stacked_critics(weights, network) for network in ("critic", "critic_target")},
    }
    return Translated("MlpPolicy", {"net_arch": widths, "n_critics": critic_count(weights)}, parameters)


def soft_actor_critic(weights: Mapping[str, Tensor]) -> Translated:
    """The actor of SAC and TQC, and their critics side by side, from weights [out, in].

    Raises:
        ValueError: observations go through a features extractor. LookupError: weights of another algorithm.
    """
    gsde = "actor.log_std" in weights  # a table; without, a layer gives deviations
    require_names(weights, "actor.mu.", "actor.log_std" if gsde else "actor.log_std.", "critic.qf0.")
    require_plain(weights)
    clipped = "actor.mu.0.weight" in weights  # the layer stands before a clip of the mean
    heads = [
        ("actor.mu.0." if clipped else "actor.mu.", "mean."),
        ("actor.log_std", "sde.log_std" if gsde else "log_std"),
    ]
    actor = renamed(weights, [("actor.latent_pi.", "body."), *heads])
    critics = {network: stacked_critics(weights, network) for network in ("critic", "critic_target")}
    widths = {"pi": hidden(weights, "actor.latent_pi."), "qf": hidden(weights, "critic.qf0.", output=True)}
    networks = {"net_arch": widths, "n_critics": critic_count(weights)}
    learnt = {"entropy": {"log_alpha": weights["log_ent_coef"]}} if "log_ent_coef" in weights else {}
    return Translated("MlpPolicy", networks, {"policy": actor, **critics, **learnt})
