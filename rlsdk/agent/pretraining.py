"""Fits a policy to recorded actions before or between trainings (`Agent.pretrain`)."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Generator, Tensor, nn

from rlsdk import tree
from rlsdk.agent.arguments import positive
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.buffers import Episodes, open_episodes, rows_in_order
from rlsdk.errors import DivergenceError, SettingsError, UsageError
from rlsdk.interfaces import FollowsPolicy, Imitates
from rlsdk.interfaces.abilities import ability
from rlsdk.kernels.compiler_import import step, without_compiler
from rlsdk.records import Features, Observation
from rlsdk.runtime.output import print_line
from rlsdk.runtime.seeding import derive
from rlsdk.runtime.threads import limited_threads
from rlsdk.settings.dataset import Dataset, as_dataset

SEQUENCE = 64
"""The length in steps of the sequences that recurrent policies are fitted to."""
Source = str | PathLike[str] | Dataset


@dataclass(frozen=True, slots=True)
class Pretraining:
    """The arguments of `pretrain`."""

    n_epochs: int
    learning_rate: float
    adam_epsilon: float
    val_interval: int | None
    batch_size: int
    train_fraction: float

    def __post_init__(self) -> None:
        """Raise SettingsError if an argument is out of range."""
        for name in ("n_epochs", "batch_size"):
            positive(getattr(self, name), name)
        if self.val_interval is not None:
            positive(self.val_interval, "val_interval")
        for name in ("learning_rate", "adam_epsilon"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0.0 < value <= 1e30:
                raise SettingsError(f"{name} = {value!r} must be a positive number, at most 1e30")
        if not isinstance(self.train_fraction, int | float) or not 0.0 < self.train_fraction <= 1.0:
            raise SettingsError(f"train_fraction = {self.train_fraction!r} must be above 0, and at most 1")

    @property
    def interval(self) -> int:
        """The number of epochs between two validations."""
        return self.val_interval or max(1, self.n_epochs // 10)


def pretrain(agent: AssembledAgent, source: Source, wanted: Pretraining) -> None:
    """See `Agent.pretrain`."""
    policy = ability(agent.parts.policy, Imitates)
    if policy is None or not isinstance(policy, nn.Module):
        raise UsageError(
            f"pretrain: the policy of {agent.spec.id} has no imitation_loss (rlsdk.interfaces.Imitates); clone the data with"
            " bc, or with an algorithm whose policy has one"
        )
    dataset = as_dataset(source)
    episodes = open_episodes(dataset, agent.preprocessing.build_context)
    episodes.require_masks(required=agent.masks.required, used=agent.masks.used)
    training, held_out = _split(episodes, wanted.train_fraction, dataset.name)
    with _unchanged_after_errors(agent, policy), limited_threads(1), torch.inference_mode(False), torch.enable_grad():
        _observe(agent, training)
        _Fitting(agent, policy, wanted).fit(training, held_out)
    if (algorithm := ability(agent.parts.algorithm, FollowsPolicy)) is not None:
        algorithm.policy_replaced()


def _split(episodes: Episodes, share: float, name: str) -> tuple[Episodes, Episodes | None]:
    """(episodes for training, episodes for validation or None). `share` is the fraction for training."""
    if share == 1.0:
        return episodes, None
    if len(episodes) == 1:
        warnings.warn(
            f"pretrain: the data set {name!r} has one episode, so none is left to validate on; train_fraction=1 asks for that",
            stacklevel=6,
        )
        return episodes, None
    count = min(max(round(share * len(episodes)), 1), len(episodes) - 1)
    return episodes.split(count / len(episodes))


def _observe(agent: AssembledAgent, episodes: Episodes) -> None:
    """Update the observation statistics of `normalize` from the data, if the agent has not been trained yet."""
    normalizer = agent.preprocessing.normalizer
    if normalizer is None or agent.counts.env_steps or agent.counts.updates:
        return
    for places in torch.split(torch.arange(episodes.steps), 4096):
        normalizer.observations.update(episodes.transitions(places, 1.0).observation.features)


@contextlib.contextmanager
def _unchanged_after_errors(agent: AssembledAgent, policy: nn.Module) -> Iterator[None]:
    """Put the policy and the normaliser back to what they were before the block if it raises."""
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
    """Minimises the loss of recorded actions with Adam. The optimiser and random streams of training are not used."""

    def __init__(self, agent: AssembledAgent, policy: Imitates, wanted: Pretraining) -> None:
        assert isinstance(policy, nn.Module)
        self.agent, self.policy, self.wanted, self.module = agent, policy, wanted, policy
        self.device = agent.context.device
        self.generator = Generator().manual_seed(derive(agent.seed, "pretrain") % 2**63)
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
            step(self.optimizer)
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
