"""One call of `learn` and of `pretrain`: starts the training, sets up its logs, and cleans up after it."""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import time_ns
from typing import Generic

import attrs
import torch
from torch import Generator, Tensor, nn
from typing_extensions import TypeVar

from rlsdk import tree
from rlsdk.agent import training_state
from rlsdk.agent.assembled import AssembledAgent, require_same_layers
from rlsdk.agent.assembly import assemble, observe_data_set
from rlsdk.agent.attributes import positive
from rlsdk.buffers import Episodes, open_episodes, rows_in_order
from rlsdk.callbacks import Callback
from rlsdk.environments import CollectorsVectorEnv, connect, fingerprint_of
from rlsdk.errors import DivergenceError, SettingsError, UsageError
from rlsdk.interfaces import AlgorithmAbilities, PlanAbilities, PolicyAbilities, VectorEnv
from rlsdk.interfaces.abilities import ability
from rlsdk.kernels.vector_steps import step, without_compiler
from rlsdk.records import Cursor, Features, Observation
from rlsdk.registry import AlgorithmSpec, require_usable
from rlsdk.runtime.output import print_line
from rlsdk.runtime.process import derive, limited_threads
from rlsdk.settings import evolve, flat_scalars
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.load import Dataset, as_dataset
from rlsdk.sinks import ConsoleSink, Logger, MetricSink, TensorBoardSink
from rlsdk.spaces import Space
from rlsdk.training import Training
from rlsdk.training.collector import NoCollector
from rlsdk.training.run import Run, require_exact, rounded_up, train
from rlsdk.training.trained_agent import TrainedAgent

SettingsT = TypeVar("SettingsT", bound=AgentConfig, default=AgentConfig)


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of one call of `learn`."""

    total_timesteps: float
    log_interval: int | None
    name: str
    """The name of the run in the folder `tensorboard_log`."""
    fresh: bool
    """Whether steps are counted from 0 again (`reset_num_timesteps`)."""
    threads: int | None
    schedule_until: float | None = None
    """The agent's count of steps at which schedules end; None: at the end of this call."""
    exact: bool = False
    """Whether the last round is cut at `total_timesteps`."""


def run_training(
    agent: AssembledAgent, request: Request, callbacks: Sequence[Callback], user_facing: TrainedAgent
) -> None:
    """Train the agent; raises like `Agent.learn`. `user_facing` is the agent that callbacks get as `run.agent`."""
    if agent.run is not None:
        raise UsageError(
            "a training of this agent is running; call learn again after it (a callback that returns False ends it), or train a"
            " copy: copy.deepcopy(model).learn(...)"
        )
    env = training_state.training_env(agent)
    agent.start_time = time_ns()
    default = 4 if agent.parts.plan.log_every == "episodes" else 1
    interval = positive(default if request.log_interval is None else request.log_interval, "log_interval")
    total = positive(request.total_timesteps, "total_timesteps", least=0)
    threads = None if request.threads is None else positive(request.threads, "threads")
    until = None if request.schedule_until is None else positive(request.schedule_until, "schedule_until")
    if request.exact:
        require_exact(agent.parts.plan, agent.context.num_envs, total, agent.spec.id)
    elif (line := rounded_up(agent.parts.plan, agent.context.num_envs, total)) and line not in agent.notices:
        agent.notices.add(line)  # a program that calls learn in a loop gets it once
        warnings.warn(f"learn: {line}", stacklevel=4)  # no print: a program that embeds rlsdk can silence a warning
    if request.fresh:
        agent.step_offset = agent.total_steps
    if not total:
        return
    training_state.leave_moved_episodes(agent)
    if agent.cursor is None:
        training_state.require_room(agent)
        training_state.begin(agent, env)
        observe_data_set(agent)
    agent.run = run = _begun(agent, request, Run(user_facing, agent, agent.counts, total, callbacks, until))
    try:
        train(run, env, log_every=interval, threads=threads)
    finally:  # also after an error or Ctrl-C, so that the agent can be saved and `learn` called again
        agent.run, agent.stored_log = None, run.episode_statistics.state_dict()
        # the next `learn` compares it, as somebody may step the environments meanwhile
        agent.fingerprint = None if agent.env is None else fingerprint_of(agent.env)
        if run.new_episodes:
            training_state.leave_episodes(agent)
        if not agent.logger_was_set:
            agent.logger.close()


def _begun(agent: AssembledAgent, request: Request, run: Run) -> Run:
    """Set up the sinks of a run, and if the training continues, the statistics of the last run; return the run."""
    if not agent.logger_was_set:
        agent.logger.use(chosen_sinks(agent.config, request.name, fresh=request.fresh))
    run.copies = lambda: acting_copies(agent)
    run.copies()  # raises an error about agents that cannot be copied before anything is collected
    agent.logger.hyperparameters(flat_scalars(agent.config))
    run.tb_log_name, run.exact = request.name, request.exact
    if not request.fresh and agent.stored_log is not None:
        run.episode_statistics.load_state_dict(agent.stored_log)
    return run


@attrs.frozen
class ActingCopy(Generic[SettingsT]):
    """A function that a collector calls to make an agent with the same settings for the collector's environments."""

    spec: AlgorithmSpec
    config: SettingsT
    num_envs: int
    """The number of environments of all collectors, because steps are counted over all of them."""
    spaces: tuple[Space, Space]
    """The spaces of the learner, whose weights belong to the entries of Dicts in its order."""

    def __call__(self, env: VectorEnv) -> AssembledAgent[SettingsT]:
        """The agent for the environments of one collector; the learner sends its weights at the start of every round."""
        require_usable(self.spec)  # the collector may be on a machine with another version
        return assemble(self.spec, self.config, self.spaces, self.num_envs, connect(env))


def acting_copies(agent: AssembledAgent) -> ActingCopy | None:
    """The function that makes agents in the collectors of `agent`; None if its environments are not in collectors.

    Raises:
        UsageError: layers were replaced, so that the settings no longer describe the networks.
    """
    if not isinstance(agent.env, CollectorsVectorEnv):
        return None
    require_same_layers(agent, "collectors cannot have copies of the policy")
    context, config = agent.context, evolve(agent.config, {"env_groups": 1})
    return ActingCopy(agent.spec, config, context.num_envs, (context.observation_space, context.action_space))


def chosen_sinks(config: AgentConfig, name: str, *, fresh: bool) -> list[MetricSink]:
    """The sinks that `verbose` and `tensorboard_log` choose; `name` is the name of the run in TensorBoard.

    Raises:
        SettingsError: tensorboard is not installed.
    """
    sinks: list[MetricSink] = [ConsoleSink()] if config.verbose else []
    if config.tensorboard_log:
        sinks.append(TensorBoardSink(Path(config.tensorboard_log), name, continue_last=not fresh))
    return sinks


def as_logger(given: object) -> Logger:
    """`given` itself if it is a logger, or a logger that writes to `given` if it is a sink.

    Raises:
        SettingsError: it is neither.
    """
    if isinstance(given, Logger):
        return given
    if (
        isinstance(given, type)
        or not isinstance(given, MetricSink)
        or not callable(given.write)
        or not callable(given.close)
    ):
        raise SettingsError(
            f"{given!r} is not a logger; pass what rlsdk_sb3.configure(folder, formats) returns, or an object with"
            " write(step, values) and close()"
        )
    return Logger(output_formats=[given])


def dump_logs(agent: AssembledAgent, iteration: int) -> None:
    """Write the metrics of the running training, or the recorded values if none is running."""
    if iteration > 0:
        agent.logger.record("time/iterations", iteration, exclude="tensorboard")
    if agent.run is not None:
        agent.run.log()
    else:
        agent.logger.dump()


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
    policy = ability(agent.parts.policy, PolicyAbilities, "imitation_loss")
    if policy is None or not isinstance(policy, nn.Module):
        raise UsageError(
            f"pretrain: the policy of {agent.spec.id} has no imitation_loss (rlsdk.interfaces.PolicyAbilities); clone the data"
            " with bc, or with an algorithm whose policy has one"
        )
    dataset = as_dataset(source)
    episodes = open_episodes(dataset, agent.preprocessing.build_context)
    episodes.require_masks(required=agent.masks.required, used=agent.masks.used)
    training, held_out = _split(episodes, wanted.train_fraction, dataset.name)
    # one thread: small batches are slower with more, and results must not depend on their number
    with _unchanged_after_errors(agent, policy), limited_threads(1), torch.inference_mode(False), torch.enable_grad():
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

    def __init__(self, agent: AssembledAgent, policy: PolicyAbilities, wanted: Pretraining) -> None:
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


def update_from_memory(
    agent: AssembledAgent, gradient_steps: int | None, batch_size: int | None
) -> Mapping[str, float]:
    """See `Agent.train`."""
    if agent.parts.buffer is None:
        raise UsageError(
            f"{agent.spec.id} stores no experience to train from; learn(total_timesteps) collects and trains"
        )
    training_state.restore_replay(agent)
    if gradient_steps is None:
        raise SettingsError("train needs the number of updates, train(gradient_steps=100)")
    if not len(agent.parts.buffer):
        raise UsageError("train needs a filled replay buffer; call learn, or load_replay_buffer, first")
    plan = ability(agent.parts.plan, PlanAbilities, "learn_offline")
    if plan is None:
        raise UsageError(
            f"{type(agent.parts.plan).__name__}, the plan of {agent.spec.id}, has no learn_offline; call learn"
        )
    size = None if batch_size is None else positive(batch_size, "batch_size")
    count, steps = positive(gradient_steps, "gradient_steps"), agent.total_steps
    collector = NoCollector(agent.context.num_envs)
    training = Training(collector, agent.parts, agent.streams, steps, steps, agent.context.device)
    with limited_threads(1), torch.inference_mode(False), torch.enable_grad():
        metrics = plan.learn_offline(training, count, size)
    agent.counts = Cursor(agent.counts.env_steps, agent.counts.updates + count)
    return {name: float(value) for name, value in metrics.items()}
