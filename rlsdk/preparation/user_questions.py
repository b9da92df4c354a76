"""Values, likelihoods and distributions that users ask a policy for, with observations as the environment gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlsdk.errors import UnknownAttributeError

if TYPE_CHECKING:
    from rlsdk.preparation.policy import PreparedPolicy


def get_distribution(policy: PreparedPolicy, observation: Any, *memory: Any, **given: Any) -> Any:
    """As the inner policy's, of observations as the environment gives them."""
    return ask_inner(policy, "get_distribution", observation, (), memory, given)


def predict_values(policy: PreparedPolicy, observation: Any, *memory: Any, **given: Any) -> Any:
    """As the inner policy's, of observations as the environment gives them."""
    return ask_inner(policy, "predict_values", observation, (), memory, given)


def evaluate_actions(policy: PreparedPolicy, observation: Any, action: Any, *memory: Any, **given: Any) -> Any:
    """As the inner policy's, of observations as the environment gives them."""
    taken = action if policy.reader is None else policy.reader.action(action)
    return ask_inner(policy, "evaluate_actions", observation, (taken,), memory, given)


def ask_inner(
    policy: PreparedPolicy,
    question: str,
    observation: Any,
    actions: tuple[Any, ...],
    memory: tuple[Any, ...],
    given: Mapping[str, Any],
) -> Any:
    """The answer of the inner policy's method `question`; frames are stacked and observations normalised before.

    Raises:
        UnknownAttributeError: the inner policy has no such method. ObservationError, MaskError: as `InputReader`.
    """
    method = getattr(policy.inner, question, None)
    if method is None:
        raise UnknownAttributeError(
            f"{type(policy.inner).__name__} has no method {question!r}: it has no value function"
        )
    masks, states = given.get("action_masks"), memory[0] if memory else given.get("memory")
    if (
        states is not None
        and not isinstance(states, tuple)
        and not hasattr(states, "actor")
        and not hasattr(states, "frames")
    ):  # an array in this place is meant as action_masks
        states, masks = None, states
    starts = given.get("episode_starts", None if states is None else False)
    seen = observation if policy.reader is None else policy.reader.observation(observation, masks, starts)
    features, inner = seen.features, getattr(states, "inner", states)
    if policy.frames is not None:
        frames = getattr(states, "frames", None)
        frames = policy.frames.initial(len(seen.is_first), policy.device) if frames is None else frames
        features, _ = policy.frames.push(frames, features, seen.is_first)
    if policy.normalizer is not None:
        features = policy.normalizer.normalized(features)
    return method(replace(seen, features=features), *actions, *(() if inner is None else (inner,)))
