"""`Agent.pretrain`: fits the policy of any algorithm to recorded actions."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import torch
from torch import Tensor, nn

from rlsdk import tree
from rlsdk.buffers import rows_in_order
from rlsdk.errors import DivergenceError, UsageError
from rlsdk.interfaces import AlgorithmAbilities, PolicyAbilities, ability
from rlsdk.kernels import step_optimizer, without_compiler
from rlsdk.records import Features, Observation
from rlsdk.runtime import Streams, limited_threads, print_line
from rlsdk.settings import in_range, structure
from rlsdk_datasets.dataset import Dataset
from rlsdk_datasets.episodes import Episodes, open_episodes

if TYPE_CHECKING:
    from rlsdk.agent import Agent

SEQUENCE = 64
"""The length in steps of the sequences that recurrent policies are fitted to."""
MOST = 1e30
"""The largest learning rate."""


@attrs.frozen
class _Pretraining:
    """The arguments of `pretrain`."""

    n_epochs: int = attrs.field(validator=in_range(1))
    learning_rate: float = attrs.field(validator=in_range(0, MOST, open_low=True))
    adam_epsilon: float = attrs.field(validator=in_range(0, MOST, open_low=True))
    val_interval: int | None = attrs.field(validator=in_range(1))
    batch_size: int = attrs.field(validator=in_range(1))
    train_fraction: float = attrs.field(validator=in_range(0, 1, open_low=True))

    @property
    def interval(self) -> int:
        """The number of epochs between two validations."""
        return self.val_interval or max(1, self.n_epochs // 10)


def pretrain(agent: Agent, dataset: str | Path | Dataset, **arguments: object) -> None:
    """Do what `Agent.pretrain` describes. `arguments`: all of its others, by name. Raises as that method."""
    wanted = structure(arguments, _Pretraining)
    policy = ability(agent.parts.policy, PolicyAbilities, "imitation_loss")
    if policy is None or not isinstance(policy, nn.Module):
        raise UsageError(
            f"pretrain: the policy of {agent.spec.id} has no imitation_loss (rlsdk.interfaces.PolicyAbilities); clone the data"
            " with bc, or with an algorithm whose policy has one"
        )
    data = Dataset.of(dataset)
    episodes = open_episodes(data, agent.preprocessing.build_context)
    episodes.require_masks(required=agent.masks.required, used=agent.masks.used)
    training, held_out = _split(episodes, wanted.train_fraction, data.name)
    # one thread: small batches are slower with more, and results must not depend on their number
    with _unchanged_after_errors(agent, policy), limited_threads(1):
        _observe(agent, training)
        _Fitting(agent, policy, wanted).fit(training, held_out)
    if (algorithm := ability(agent.parts.algorithm, AlgorithmAbilities, "policy_replaced")) is not None:
        algorithm.policy_replaced()


def _split(episodes: Episodes, share: float, name: str) -> tuple[Episodes, Episodes | None]:
    """(episodes for training, episodes for validation or None). `share` is the fraction for training."""
    if share == 1.0:
        return episodes, None
    if len(episodes) == 1:
        warnings.warn(
            f"pretrain: the data set {name!r} has one episode, so none is left to validate on; train_fraction=1 asks for that",
            stacklevel=5,
        )
        return episodes, None
    count = min(max(round(share * len(episodes)), 1), len(episodes) - 1)
    return episodes.split(count / len(episodes))


def _observe(agent: Agent, episodes: Episodes) -> None:
    """Update the observation statistics of `normalize` from the data, if the agent has not been trained yet."""
    normalizer = agent.preprocessing.normalizer
    trained = agent.cursor is not None and (agent.cursor.env_steps or agent.cursor.updates)
    if normalizer is None or trained:
        return
    for places in torch.split(torch.arange(episodes.steps), 4096):
        normalizer.observations.update(episodes.transitions(places, 1.0).observation.features)


@contextlib.contextmanager
def _unchanged_after_errors(agent: Agent, policy: nn.Module) -> Iterator[None]:
    """Put the policy and the normalizer back to what they were before the block if it raises."""
    normalizer = agent.preprocessing.normalizer
    values = [*policy.parameters(), *policy.buffers()]
    before = [value.detach().clone() for value in values]
    statistics = None if normalizer is None else copy.deepcopy(normalizer.observations.state_dict())
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for value, old in zip(values, before, strict=True):
                value.copy_(old)
        if normalizer is not None and statistics is not None:
            normalizer.observations.load_state_dict(statistics)
        raise


class _Fitting:
    """Minimizes the loss of recorded actions with Adam. The optimizer and random streams of training are not used."""

    def __init__(self, agent: Agent, policy: PolicyAbilities, wanted: _Pretraining) -> None:
        assert isinstance(policy, nn.Module)
        self.agent, self.policy, self.wanted, self.module = agent, policy, wanted, policy
        self.device = agent.context.device
        self.generator = Streams(agent.seed)["pretrain"]  # a stream of its own: those of training are not used
        self.parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
        if sum(value.dim() > 1 for value in self.parameters) > 1 and not any(value.any() for value in self.parameters):
            raise UsageError(
                "pretrain: all parameters of the policy are 0, where hidden layers have no gradient; begin with others, as with"
                " zero_policy=False, or use a linear policy"
            )
        with without_compiler():
            self.optimizer = torch.optim.Adam(self.parameters, lr=wanted.learning_rate, eps=wanted.adam_epsilon)
        self.sequences = bool(tree.leaves(agent.parts.policy.initial_carry(1)))
        """Whether the policy is recurrent, so that it is fitted to sequences instead of single steps."""

    def fit(self, training: Episodes, held_out: Episodes | None) -> None:
        """Fit the policy for `n_epochs` epochs.

        Raises:
            DivergenceError: the loss became NaN or infinite.
        """
        try:
            for epoch in range(1, self.wanted.n_epochs + 1):
                loss = self._epoch(training)
                if epoch % self.wanted.interval == 0 or epoch == self.wanted.n_epochs:
                    self._report(epoch, loss, None if held_out is None else self.loss_of(held_out))
        finally:
            self.optimizer.zero_grad(set_to_none=False)
            self.module.eval()

    def _epoch(self, episodes: Episodes) -> float:
        """Make one pass over all steps in random order, and return the mean loss."""
        self.module.train()
        total, size = 0.0, min(self.wanted.batch_size, episodes.steps)  # no batch has more steps
        for losses in self._losses(episodes, shuffle=True):
            # dividing a smaller last batch by `size` too gives every step the same weight
            loss = losses.sum() / max(size, len(losses))
            self.optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(loss)
            step_optimizer(self.optimizer)
            total += float(losses.detach().sum())
        if not math.isfinite(total):
            raise DivergenceError(
                f"pretrain: the loss became {total}; the policy is what it was before; lower learning_rate"
                f" ({self.wanted.learning_rate:g})"
            )
        return total / episodes.steps

    def loss_of(self, episodes: Episodes) -> float:
        """The mean loss over all steps."""
        self.module.eval()
        with torch.no_grad():
            return float(sum(losses.sum() for losses in self._losses(episodes, shuffle=False))) / episodes.steps

    def _losses(self, episodes: Episodes, *, shuffle: bool) -> Iterator[Tensor]:
        """Yield the losses [N] of each batch, under the masks of the data if the agent uses masks."""
        masks = self.agent.masks.used
        for observation, action, starts in self._batches(episodes, shuffle=shuffle):
            seen = self.agent.preprocessing.build_context.observation_normalizer(observation.features)
            features = Observation(seen, observation.is_first, observation.action_mask if masks else None)
            yield self.policy.imitation_loss(features, action, starts)

    def _batches(self, episodes: Episodes, *, shuffle: bool) -> Iterator[tuple[Observation, Features, Tensor | None]]:
        """Yield batches (observations [N, ..], actions [N, ..], starts of sequences bool [N] or None) with every step once."""
        first = episodes.sequence_starts(SEQUENCE) if self.sequences else torch.arange(episodes.steps)
        order = torch.randperm(len(first), generator=self.generator) if shuffle else torch.arange(len(first))
        size = max(1, self.wanted.batch_size // SEQUENCE) if self.sequences else self.wanted.batch_size
        for places in torch.split(first[order], min(size, max(1, len(first)))):
            if self.sequences:
                steps, starts, _ = rows_in_order(episodes.sequences(places, SEQUENCE, 1.0))
                yield steps.observation, steps.action, starts
            else:
                rows = episodes.transitions(places, 1.0)
                yield rows.observation, rows.action, None

    def _report(self, epoch: int, loss: float, validation: float | None) -> None:
        if self.agent.config.verbose:
            held_out = "" if validation is None else f", validation loss {validation:.4g}"
            print_line(f"pretrain: epoch {epoch} of {self.wanted.n_epochs}, loss {loss:.4g}{held_out}")
