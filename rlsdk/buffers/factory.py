"""Builds the replay buffer that the settings of an algorithm choose."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping

from rlsdk.buffers.hindsight import HindsightReplay
from rlsdk.buffers.replay import PrioritizedReplay, ReplayBuffer
from rlsdk.errors import SettingsError, suggest
from rlsdk.interfaces import Buffer, BuildContext
from rlsdk.records import Features, Rollout, Transitions
from rlsdk.runtime.lazy import advice_of_sb3
from rlsdk.settings.off_policy import OffPolicyConfig

TransitionBuffer = Buffer[Rollout[Features, Features], Transitions]
"""A replay buffer whose samples are single transitions."""
BUFFERS: dict[str, Callable[..., TransitionBuffer]] = {
    "uniform": ReplayBuffer,
    "prioritized": PrioritizedReplay,
    "hindsight": HindsightReplay,
}


def build_replay(context: BuildContext, config: OffPolicyConfig) -> TransitionBuffer:
    """Build the replay buffer of `replay_buffer_class`: a name in `BUFFERS`, a class or a function of the user, None: uniform.

    It is called with (context, capacity, gamma, shared_observations=..., **replay_buffer_kwargs), and also with `n_steps` if
    that setting is more than 1.

    Raises:
        SettingsError: the name is unknown, an argument is not accepted, or `buffer_size` is less than one round of collection.
    """
    choice = config.replay_buffer_class or "uniform"
    if isinstance(choice, str) and choice not in BUFFERS:
        raise SettingsError(f"unknown replay_buffer_class {choice!r}; {suggest(choice, BUFFERS)}")
    # the length of a round of episodes is unknown
    rounds = 1 if config.train_freq.unit == "episode" else config.train_freq.count
    if config.buffer_size < rounds * context.num_envs:
        raise SettingsError(
            f"buffer_size = {config.buffer_size} is less than one round of collection,"
            f" train_freq {rounds} x {context.num_envs} environments; enlarge buffer_size"
        )
    make: Callable[..., TransitionBuffer] = BUFFERS[choice] if isinstance(choice, str) else choice
    arguments = dict(config.replay_buffer_kwargs or {})
    # only if it is used, so that buffers of users need not know the argument
    if (ahead := getattr(config, "n_steps", 1)) > 1:
        arguments["n_steps"] = ahead
    shared = config.optimize_memory_usage
    try:
        return make(context, config.buffer_size, config.gamma, shared_observations=shared, **arguments)
    except TypeError as error:
        raise SettingsError(_misfit(choice, arguments, error)) from None


def _misfit(choice: str | Callable[..., TransitionBuffer], arguments: Mapping[str, object], error: TypeError) -> str:
    """The message of an error: why the buffer cannot be built with these arguments, and how to correct them."""
    name, module = getattr(choice, "__name__", ""), getattr(choice, "__module__", "")
    if module.startswith("stable_baselines3") and (same := advice_of_sb3("replay_buffer_class", name)):
        return f"replay_buffer_class = {module}.{name} is a class of another library; give {same!r}"
    for argument in sorted(arguments):
        if why := advice_of_sb3("replay_buffer_kwargs", argument):
            return f"replay_buffer_kwargs: {choice!r} has no {argument!r}; leave it out: {why}"
    unexpected = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unexpected and isinstance(choice, str):
        accepted = {*_named(BUFFERS[choice]), *_named(ReplayBuffer)} - {"shared_observations", "n_steps"}
        return f"replay_buffer_kwargs: {choice!r} has no {unexpected[1]!r}; {suggest(unexpected[1], accepted)}"
    kinds = f"a buffer is {', '.join(map(repr, BUFFERS))}, or a class called as rlsdk.buffers.ReplayBuffer is"
    return f"replay_buffer_kwargs {arguments} do not fit {choice!r}: {error}; {kinds}"


def _named(make: Callable[..., object]) -> list[str]:
    """The arguments that can only be given by name."""
    return [p.name for p in inspect.signature(make).parameters.values() if p.kind is p.KEYWORD_ONLY]
