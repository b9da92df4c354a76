"""Training on after a divergence, where a callback restores the agent."""

from __future__ import annotations

from torch import Tensor

from rlsdk.errors import DivergenceError
from rlsdk.training.run_record import RunRecord
from rlsdk.training.trained_agent import TrainedAgent
from rlsdk.tree import flatten, unflatten


def copied_parameters(agent: TrainedAgent) -> dict[str, object] | None:
    """A copy of what `get_parameters` gives; None where one is NaN or infinite: a metric shows it only a round later."""
    flat = flatten(agent.get_parameters())
    tensors = {name: value for name, value in flat.items() if isinstance(value, Tensor)}
    if not all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point()):
        return None
    return unflatten({**flat, **{name: tensor.clone() for name, tensor in tensors.items()}})


def recover(run: RunRecord, error: DivergenceError) -> None:
    """Ask the callbacks to restore the agent. Where actions diverged in the middle of episodes, new ones begin.

    Raises:
        DivergenceError: `error`; no callback has restored the agent.
    """
    answers = [handle(run, error) for handle in run.handlers["on_divergence"]]  # all of them are asked
    if not any(answer is True for answer in answers):
        raise error
    # neither weights nor rounds of collectors that are ahead of the learner are used any more
    run.driven.ahead, run.steps_in_round = (), 0
    if run.driven.in_round:
        run.driven.in_round = False
        run.restart_episodes()
