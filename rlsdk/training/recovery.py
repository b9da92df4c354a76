"""Continues a training after a divergence, if a callback restores the agent."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from rlsdk.errors import DivergenceError
from rlsdk.records import ActingState
from rlsdk.storage.storable import nested_state
from rlsdk.training.run_record import RunRecord
from rlsdk.training.trained_agent import DrivenAgent, TrainedAgent
from rlsdk.tree import flatten, is_finite


def copied_parameters(agent: TrainedAgent) -> dict[str, object] | None:
    """A copy of `agent.get_parameters()`; None if a parameter is NaN or infinite.

    This check is needed because metrics show such a divergence only one round later.
    """
    flat = flatten(agent.get_parameters())
    tensors = {name: value for name, value in flat.items() if isinstance(value, Tensor)}
    if not is_finite(tensors):
        return None
    return nested_state({**flat, **{name: tensor.clone() for name, tensor in tensors.items()}})


def recover(run: RunRecord, error: DivergenceError) -> None:
    """Call `on_divergence` of the callbacks, which may restore the agent.

    New episodes begin if a round was interrupted, or if the carry of the policy had become NaN or infinite.

    Raises:
        DivergenceError: `error`, if no callback has restored the agent.
    """
    _forget_what_diverged(run.driven)
    answers = [handle(run, error) for handle in run.handlers["on_divergence"]]  # calls every callback
    if not any(answer is True for answer in answers):
        raise error
    # discard weights stored for later rounds and the counts of the interrupted round
    run.driven.ahead, run.steps_in_round, run.episodes_in_round = (), 0, []
    if run.driven.in_round:
        run.driven.in_round = False
        run.restart_episodes()


def _forget_what_diverged(driven: DrivenAgent) -> None:
    """Replace a carry with NaN or infinite numbers by an initial one, and mark the round as interrupted.

    The running episodes are lost: training continues with new ones, now or in a later call of `learn`.
    """
    acting = tuple(_with_finite_carry(driven, state) for state in driven.acting)
    if acting != driven.acting:
        driven.acting, driven.in_round = acting, True


def _with_finite_carry(driven: DrivenAgent, state: ActingState[object]) -> ActingState[object]:
    if is_finite(state.carry):
        return state
    return replace(state, carry=driven.parts.behavior_policy.initial_carry(len(state.observation.is_first)))
