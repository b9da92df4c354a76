"""The internal state of an agent: its settings, parts, environment and random streams, and the cursor of its training.

`Agent` is the user-facing class around one `AssembledAgent`. Most functions of this folder take the `AssembledAgent`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, cast

import attrs
import torch
from torch import Tensor, nn
from typing_extensions import TypeVar

from rlsdk import tree
from rlsdk.environments.adapters.masks import MaskValidator
from rlsdk.environments.adapters.observations import ActionDecoder, ObservationBatcher
from rlsdk.errors import UsageError, fitting
from rlsdk.interfaces import Parts, State
from rlsdk.interfaces.abilities import require_inside
from rlsdk.kernels import function_modes
from rlsdk.kernels.structure import is_hooked
from rlsdk.networks.layers import architecture
from rlsdk.records import ActingState, Cursor, Features, Observation
from rlsdk.runtime.process import count_in, stored_like
from rlsdk.settings.fields import MEMORY
from rlsdk.settings.glossary import SHARED
from rlsdk.spaces import Space
from rlsdk.training.collector import joined
from rlsdk.training.run import Run
from rlsdk.training.trained_agent import ConfigT, DrivenAgent
from rlsdk.tree import leaves

if TYPE_CHECKING:
    from rlsdk.registry import AlgorithmSpec

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


@dataclass(eq=False, kw_only=True)
class AssembledAgent(DrivenAgent[ConfigT]):
    """The internal state of an agent; `rlsdk.agent.assembly.assemble` makes one."""

    spec: AlgorithmSpec
    class_name: str
    """The name of the user-facing class, for messages."""
    env_name: str | None
    """The id that the environment was made from; None if it was not made from an id."""
    seed: int
    device_reason: str
    masks: MaskValidator
    decode_action: ActionDecoder
    stack: ObservationBatcher
    made_as: list[str] = field(init=False)
    """The layers that were built from the settings; see `require_same_layers`."""
    logger_was_set: bool = False
    run: Run | None = None
    """The running training; None if there is none."""
    stored_cursor: StoredCursor | None = None
    """The cursor of a training that is not running and that comes from a file, or whose episodes were ended."""
    stored_log: State | None = None
    pending_replay: Callable[[], State] | None = None
    """A function that reads the replay buffer of the agent's file; None once the buffer has been restored."""
    as_stored: bool = True
    """Whether the settings and the number of environments are those of the file that the agent was loaded from."""
    step_offset: int = 0
    """The number of steps at which `num_timesteps` began to count from 0."""
    fingerprint: object = None
    """The fingerprint of the environments when the last training ended, to detect steps outside training."""
    numpy_env: object = None
    """What `get_env` gave; of a package that the core does not import."""
    policy_transfer: PolicyTransfer | None = None
    """The tensors that `load_policy` copied."""
    met_masks: bool = False
    """Whether an earlier environment, or that of the agent's file, had action masks."""
    notices: set[str] = field(default_factory=set)
    """The notices of `learn` that were given, so that each is given once."""
    calls_without_state: int = 0
    """The number of calls of `predict` with a recurrent policy but without `state` and `episode_start`."""
    start_time: int = 0
    """The time of the last call of `learn`, in nanoseconds since 1970; 0 before the first."""

    @property
    def trains_with_masks(self) -> bool:
        """Whether the agent's actions depend on action masks: it needs masks, or used those of an environment."""
        given = self.met_masks or (self.env is not None and self.env.has_masks)
        return self.masks.required or (self.masks.used and given)

    @property
    def total_steps(self) -> int:
        """The progress since the agent was made, in the unit of its plan: environment steps or updates."""
        return self.counts.count(self.parts.plan.unit)

    @property
    def counts(self) -> Cursor:
        """The cursor of the training, whether it is running or stored; zeros before training began."""
        if self.cursor is not None:
            return self.cursor
        return Cursor() if self.stored_cursor is None else self.stored_cursor.counts

    @counts.setter
    def counts(self, counts: Cursor) -> None:
        if self.cursor is not None:
            self.cursor = counts
        elif self.stored_cursor is not None:
            self.stored_cursor = replace(self.stored_cursor, counts=counts)
        else:
            self.stored_cursor = StoredCursor(counts, {})
        if self.run is not None:
            self.run.cursor = counts

    @property
    def num_timesteps(self) -> int:
        """The number of steps for users: those since `step_offset`, including the steps of the current round."""
        steps = self.total_steps - self.step_offset
        return steps if self.run is None else steps + self.run.steps_in_round

    def described(self) -> str:
        """A description on one line: class, policy, environment, number of steps, seed and device."""
        count, config = self.context.num_envs, self.config
        place = self.env_name or ("a custom environment" if self.env is not None else "no environment")
        envs = "1 environment" if count == 1 else f"{count} environments"
        return (
            f"<{self.class_name} {config.policy} on {place}, {envs}, {self.num_timesteps:,} steps,"
            f" seed {self.seed}, {self.context.device}>"
        )


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A cursor in the form that files store. With `episodes`, training continues the running episodes; without, it begins new
    ones.

    Observations and environments of all groups are joined in order, so that they fit any number of groups.
    """

    counts: Cursor
    carry: Mapping[str, Tensor]
    """The leaves of the carry of the first group, then those of the second, and so on."""
    episodes: Mapping[str, object] | None = None
    """The running episodes: `environments` is the state of the environments; `features`, `is_first` and `mask` are the
    observation to act on next."""

    @staticmethod
    def of(counts: Cursor, acting: tuple[ActingState[object], ...], environments: State | None = None) -> StoredCursor:
        episodes: dict[str, object] | None = None
        if environments is not None:
            seen = joined([state.observation for state in acting])
            mask = {} if seen.action_mask is None else {"mask": seen.action_mask}
            features = tree.number(seen.features)
            episodes = {"environments": environments, "features": features, "is_first": seen.is_first, **mask}
        return StoredCursor(counts, tree.number(tuple(state.carry for state in acting)), episodes)

    @staticmethod
    def from_state(counts: State, state: State) -> StoredCursor:
        """The cursor that `state_dict` returned, with its counts. Raises ValueError if the state is malformed."""
        carry, episodes = state.get("carry", {}), state.get("episodes")
        if not isinstance(carry, Mapping) or not all(isinstance(leaf, Tensor) for leaf in carry.values()):
            raise ValueError("the recurrent state is not a table of tensors")
        if episodes is not None and not isinstance(episodes, Mapping):
            raise ValueError("the running episodes are not a table")
        return StoredCursor(Cursor(count_in(counts, "env_steps"), count_in(counts, "updates")), carry, episodes)

    def state_dict(self) -> dict[str, object]:
        """The carry and the running episodes, without the counts."""
        return {"carry": self.carry} if self.episodes is None else {"carry": self.carry, "episodes": self.episodes}

    def carried_to(self, acting: tuple[ActingState[object], ...]) -> tuple[ActingState[object], ...]:
        """The acting states, one per group, with the stored carry. If its shapes do not fit, `acting` is returned unchanged.

        Raises:
            ArtifactError: the stored carry has another dtype.
        """
        fresh = tuple(state.carry for state in acting)
        leaves = tree.leaves(fresh)
        with fitting("the file's recurrent state does not fit the policy"):
            stored = self._regrouped(acting)
            if [leaf.shape for leaf in stored] != [leaf.shape for leaf in leaves]:
                return acting
            carries = stored_like(fresh, {f"{i:09d}": leaf for i, leaf in enumerate(stored)})
        return tuple(replace(state, carry=carry) for state, carry in zip(acting, carries, strict=True))

    def _regrouped(self, acting: tuple[ActingState[object], ...]) -> list[Tensor]:
        """The leaves of the stored carry, split into the groups of `acting` if it was written with another number of groups.

        All groups get the 0-d leaves of the first group.
        """
        stored, size = tree.numbered(self.carry), len(tree.leaves(acting[0].carry))
        if not size or not stored or len(stored) % size or len(stored) == size * len(acting):
            return stored
        whole = joined([tuple(stored[first : first + size]) for first in range(0, len(stored), size)])
        rows = [len(state.observation.is_first) for state in acting]
        parts = [torch.split(leaf, rows) if leaf.dim() else [leaf] * len(rows) for leaf in whole]
        return [part[group] for group in range(len(rows)) for part in parts]

    def observation(self, like: Features, space: Space, mask: Tensor | None) -> Observation:
        """The stored observation to act on next. Its features must have the form of `like` [B, ..] and be inside `space`; its
        mask must have the form of `mask`, bool [B, A].

        Raises:
            ArtifactError: the stored observation does not fit.
        """
        assert self.episodes is not None
        with fitting("the file's observations do not fit the environments"):
            features = stored_like(like, self.episodes["features"])
            require_inside(space, features, "the file's observations")
            one = tree.leaves(like)[0]
            first = torch.ones(one.shape[:1], dtype=torch.bool, device=one.device)
            first = stored_like(first, {"000": self.episodes["is_first"]})
            if (mask is None) != ("mask" not in self.episodes):
                raise ValueError("action masks are in one of them only")
            if mask is not None:
                mask = stored_like(mask, {"000": self.episodes["mask"]})
            return Observation(features, first, mask)


LISTED = 6


@dataclass(frozen=True, slots=True)
class PolicyTransfer:
    """The result of `load_policy`: which tensors were copied from the file, and which were not."""

    taken: tuple[str, ...]
    """The names of the tensors that were copied."""
    unchanged: Mapping[str, str]
    """Name of a tensor of the agent that was not replaced -> the reason."""
    unused: tuple[str, ...]
    """The names of the file's tensors that the agent does not have."""

    @property
    def partial(self) -> bool:
        """Whether some tensors of the agent were not replaced, or some of the file were not used."""
        return bool(self.unchanged or self.unused)

    def __str__(self) -> str:
        whole = f"{len(self.taken)} of {len(self.taken) + len(self.unchanged)} tensors of the policy come from the file"
        unchanged = [f"{name} ({why})" for name, why in self.unchanged.items()]
        parts = [whole, *_listed("unchanged", unchanged), *_listed("unused in the file", list(self.unused))]
        return "; ".join(parts)


def _listed(what: str, names: list[str]) -> list[str]:
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return [f"{what}: {', '.join(names[:LISTED])}{more}"] if names else []


def networks_of(parts: Parts) -> list[nn.Module]:
    """The networks of the policy, of the algorithm and in `Parts.states`."""
    return [module for part in (parts.policy, parts.algorithm, *parts.states.values()) for module in _networks(part)]


def take_over_modes(now: Parts, before: Parts) -> None:
    """Copy from earlier networks to rebuilt ones which parameters are frozen, and the train or eval mode of layers.

    Hooks are not copied, because they may refer to the earlier networks; a warning reports this.
    """
    networks = zip(networks_of(now), networks_of(before), strict=True)
    pairs = [pair for new, old in networks for pair in zip(new.modules(), old.modules(), strict=True)]
    for layer, old in pairs:
        layer.training = old.training
        for name, parameter in layer.named_parameters(recurse=False):
            parameter.requires_grad_(getattr(old, name).requires_grad)
    if any(is_hooked(old) and not is_hooked(layer) for layer, old in pairs):
        warnings.warn(
            "the networks were built again for another number of environments, without the hooks of the earlier ones; register"
            " the hooks again",
            stacklevel=6,
        )


def require_same_layers(agent: AssembledAgent, what: str) -> None:
    """Check that the settings still describe the networks, before another agent is made from the settings.

    `what` is the beginning of the message.

    Raises:
        UsageError: layers were replaced since the agent was made.
    """
    now = architecture(*networks_of(agent.parts))
    if now != agent.made_as:
        different = next((line for line in now if line not in agent.made_as), "fewer layers")
        raise UsageError(
            f"{what}: its networks are not the layers that the settings describe ({different}), so the result would act"
            " differently; set layers by policy_kwargs (net_arch, features_extractor_class, your own classes), or write the"
            " weights alone: torch.save(model.policy.state_dict(), path)"
        )


def _networks(part: object) -> list[nn.Module]:
    """The modules of a part: the part itself or the part that it wraps, or else the networks in its attributes, with target
    networks."""
    while not isinstance(part, nn.Module) and (inner := getattr(part, "inner", None)) is not None:
        # for example the policy inside exploration
        part = inner
    if isinstance(part, nn.Module):
        return [part]
    values = getattr(part, "__dict__", {}).values()
    held = [value if isinstance(value, nn.Module) else getattr(value, "network", value) for value in values]
    return [value for value in held if isinstance(value, nn.Module)]


def warn_of_unused_settings(agent: AssembledAgent) -> None:
    """Warn of each changed setting that has no effect, because the setting or recurrent policy that it `needs` is missing."""
    remembers = bool(leaves(agent.parts.policy.initial_carry(1)))
    for name, needs in _changed(agent.config):
        if needs == MEMORY and not remembers:
            what = f"the policy {agent.config.policy!r} has no memory; choose one with a memory, or leave it out"
        elif needs != MEMORY and not getattr(agent.config, needs, True):
            what = f"it needs {needs} = true; set that too, or leave it out"
        else:
            continue
        warnings.warn(f"{name} has no effect: {what}", stacklevel=5)


def _changed(config: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, needed setting or `MEMORY`) for the settings with `needs` that differ from their defaults."""
    for setting in attrs.fields(cast("type[attrs.AttrsInstance]", type(config))):
        value, default = getattr(config, setting.name), setting.default
        if attrs.has(type(value)):
            yield from _changed(value, f"{prefix}{setting.name}.")
        # not `meaning_of`, which merges two tables: every constructor comes here for every setting
        elif needs := setting.metadata.get("needs") or SHARED.get(setting.name, {}).get("needs"):
            usual = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
            if value != usual:
                yield f"{prefix}{setting.name}", str(needs)


def in_plain_modes(function: Callable[P, ResultT]) -> Callable[P, ResultT]:
    """A decorator that runs a function with gradients enabled, outside inference mode and autocast.

    Raises:
        UsageError: at a call, if new tensors of torch are not float32 on the CPU by default.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> ResultT:
        require_defaults()
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            for device in ("cpu", "cuda"):
                if torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return run


def modes_are_plain() -> bool:
    """Whether `in_plain_modes` would change nothing and raise no error; inference mode and gradients are not considered."""
    autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return not autocast and torch.get_default_dtype() is torch.float32 and not function_modes()


def require_defaults() -> None:
    """Raise UsageError unless new tensors are float32 on the CPU by default."""
    if torch.get_default_dtype() is not torch.float32:
        raise UsageError(
            f"torch's default dtype is {torch.get_default_dtype()}, and agents compute in float32; call"
            " torch.set_default_dtype(torch.float32) first"
        )
    if torch.get_default_device().type != "cpu":
        raise UsageError(
            f"torch's default device is {torch.get_default_device()}; call torch.set_default_device('cpu') first, and give the"
            " agent its device: device='cuda'"
        )
