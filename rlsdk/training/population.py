"""The training loop of population methods: propose candidates, play episodes with them, learn from their scores."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, SupportsFloat

import attrs
import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments.adapters.checks import LARGEST_INT, USUAL, Environment, named, success
from rlsdk.environments.adapters.observations import ObservationBatcher
from rlsdk.environments.vector.connected import seed_spaces
from rlsdk.environments.vector.stepping import Faults, StepResult
from rlsdk.environments.vector.sync_vector import LONG, require_end
from rlsdk.errors import EnvironmentFault, PluginError, UsageError, shown
from rlsdk.interfaces import AlgorithmAbilities, BuildContext, EpisodePlayer, Parts, Training
from rlsdk.interfaces.abilities import ability
from rlsdk.networks.encoders import encoded_slices, encoder_of, flat_vector
from rlsdk.networks.normalizer import Moments, ObservationNormalizer
from rlsdk.records import Cursor, EnvStep, Episode, Observation, Report, Scored
from rlsdk.runtime.process import derive
from rlsdk.spaces import Space
from rlsdk.training.collector import unlike_metrics

__all__ = [
    "PopulationPlan",
    "play",
    "scores",
]


@dataclass(frozen=True, slots=True)
class PopulationPlan:
    """Plays `episodes` episodes with each candidate, several candidates at a time.

    `make_act(parameters [P, D])` returns a function that maps encoded observations [P, F] to P actions. Each action
    must depend on its own row only. `make_act` is pickled for other processes; it and the function it returns use
    numpy.
    """

    make_act: MakeAct
    episodes: int
    alive_bonus_offset: float = 0.0
    """A number that is added to the reward of every step when candidates are scored."""
    normalizer: ObservationNormalizer | None = None
    """The running statistics of observations; None: observations are not normalized."""
    needs_environment: ClassVar[bool] = True
    unit: ClassVar[Literal["steps"]] = "steps"
    log_every: ClassVar[Literal["rounds"]] = "rounds"

    def with_settings(self, config: object, context: BuildContext) -> PopulationPlan:
        """See `rlsdk.interfaces.PlanAbilities`."""
        episodes = getattr(config, "n_eval_episodes", self.episodes)
        offset = getattr(config, "alive_bonus_offset", self.alive_bonus_offset)
        return replace(self, episodes=episodes, alive_bonus_offset=offset)

    def with_normalizer(self, normalizer: ObservationNormalizer | None) -> PopulationPlan:
        """See `rlsdk.interfaces.PlanAbilities`."""
        return replace(self, normalizer=normalizer)

    def check_parts(self, parts: Parts) -> None:
        """See `rlsdk.interfaces.PlanAbilities`."""
        _proposer(parts)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train until `training.end` environment steps; yields after every round.

        The episodes of a candidate depend only on its parameters, the round and its number. The result is therefore the
        same, bit by bit, in every process. A round that a callback cut short is counted, but the algorithm does not
        learn from it.
        """
        algorithm, player = training.parts.algorithm, _episode_player(training.collector)
        proposer = _proposer(training.parts)
        while cursor.env_steps < training.end:
            progress = training.progress(cursor.env_steps)
            candidates = proposer.propose(progress=progress)
            results = play(player, self, candidates, training.streams.seed, cursor.updates)
            training.collector.end_round()
            steps = sum(sum(result.lengths) for result in results)
            metrics, updates = None, cursor.updates
            if len(results) == len(candidates):
                score = scores(self, results)
                metrics = algorithm.update(Scored(candidates, score.to(candidates.device), steps), progress=progress)
                if metrics is None:
                    raise unlike_metrics(metrics)
                updates += 1
                if self.normalizer is not None:
                    for result in results:  # in the order of candidates, wherever they were played
                        self.normalizer.merge(result.moments)
            cursor = Cursor(cursor.env_steps + steps, updates)
            yield cursor, Report(cursor.env_steps, cursor.updates, _episodes(results), metrics)


def _episode_player(collector: object) -> EpisodePlayer:
    """Return the collector as an `EpisodePlayer`.

    Raises:
        UsageError: the collector does not play whole episodes.
    """
    if not isinstance(collector, EpisodePlayer):
        raise UsageError(f"{type(collector).__name__} plays no whole episodes, which population methods need")
    return collector


def _proposer(parts: Parts) -> AlgorithmAbilities:
    """Return the algorithm. Raises PluginError if it has no `propose`."""
    proposer = ability(parts.algorithm, AlgorithmAbilities, "propose")
    if proposer is None:
        kind = type(parts.algorithm).__name__
        raise PluginError(
            f"its training loop plays candidates, and {kind} has no propose(progress=); see rlsdk.interfaces.AlgorithmAbilities"
        )
    return proposer


def play(
    player: EpisodePlayer, plan: PopulationPlan, candidates: torch.Tensor, seed: int, iteration: int
) -> list[EpisodeResult]:
    """Play the episodes of candidates [P, D]. Seeds depend on `seed`, `iteration` and the number of the candidate."""
    # numpy, because requests go to other processes, which need no torch for them
    requests = [_request(plan, row, seed, iteration, i) for i, row in enumerate(candidates.cpu().numpy())]
    return player.play(partial(play_episodes, plan.make_act, player.observation_space), requests)


def scores(plan: PopulationPlan, results: Sequence[EpisodeResult]) -> torch.Tensor:
    """The score of each candidate, float32 [P]: its mean return with `plan.alive_bonus_offset` added at every step."""
    return torch.tensor([_score(result, plan.alive_bonus_offset) for result in results])


def _request(
    plan: PopulationPlan, parameters: NDArray[np.float32], seed: int, iteration: int, index: int
) -> EpisodeRequest:
    # by number and iteration, so that a result does not depend on which process plays the candidate, or when
    base = derive(seed, f"candidate {index}", iteration)
    seeds = tuple(derive(base, "episode", k) % 2**31 for k in range(plan.episodes))
    if plan.normalizer is None:
        return EpisodeRequest(parameters, seeds)
    mean, factor, clip = plan.normalizer.flat()
    return EpisodeRequest(parameters, seeds, mean, factor, clip)


def _score(result: EpisodeResult, offset: float) -> float:
    """The mean over episodes of the return with `offset` added at every step."""
    totals = [total + offset * length for total, length in zip(result.returns, result.lengths, strict=True)]
    return sum(totals) / len(totals)


def _episodes(results: Sequence[EpisodeResult]) -> tuple[Episode, ...]:
    return tuple(
        Episode(0, *context)
        for result in results
        for context in zip(result.returns, result.lengths, result.successes, strict=True)
    )


Vector = NDArray[np.float64]


Act = Callable[[Vector], Sequence[object] | NDArray[np.generic]]
"""A function: encoded observations [P, F] -> P actions in the form that the environment takes."""
MakeAct = Callable[[NDArray[np.float32]], Act]
"""A function: parameters [P, D] -> an `Act` that uses row p of the parameters for row p of the observations."""


@attrs.frozen(eq=False)
class EpisodeRequest:
    """The parameters to play, the seed of each episode, and the normalization of observations.

    `mean`, `factor` and `clip` have one entry per number of an encoded observation, [F]; None: no normalization.
    """

    parameters: NDArray[np.float32]
    seeds: tuple[int, ...]
    mean: Vector | None = None
    factor: Vector | None = None
    clip: Vector | None = None
    steps: bool = False
    """Whether the result contains every step, for callbacks."""
    infos: bool = False
    """Whether these steps contain the infos."""


@attrs.frozen(eq=False)
class EpisodeStep:
    """One step of a request, as the environment returned it; `observation` is the one after the step."""

    action: object
    observation: object
    reward: SupportsFloat
    terminated: bool
    truncated: bool
    info: Mapping[str, object] | None
    """None unless the request has `infos`."""


@attrs.frozen(eq=False)
class EpisodeResult:
    """The result of a request: its episodes and, if observations are normalized, the moments of its observations."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[bool | None, ...]
    moments: Moments | None
    steps: tuple[EpisodeStep, ...] = ()
    """All steps in order, if the request has `steps`."""


def play_episodes(
    make_act: MakeAct, space: Space, environments: Sequence[Environment], requests: Sequence[EpisodeRequest]
) -> list[EpisodeResult]:
    """Play one episode per seed of each request, with one request per environment at a time.

    A result depends on its own request only, bit by bit, and not on the requests that are played at the same time.

    Args:
        make_act: parameters [P, D] of the candidates that are playing -> the function that chooses their actions.
        space: the observation space.
        environments: gymnasium environments, all of the same kind.
        requests: the requests; all with the same normalization of observations.

    Raises:
        EnvironmentFault: a return or an observation is not finite, or an observation has another size than its space.
    """
    encode, size = encoder_of(space), max((part.stop for part in encoded_slices(space).values()), default=0)
    waiting, results = deque(enumerate(requests)), dict[int, EpisodeResult]()
    free, slots = list(environments), list[_EpisodeSlot]()
    while len(results) < len(requests):
        while free and waiting:
            # as soon as an environment is free: long episodes do not hold up the others
            slots.append(_EpisodeSlot(free.pop(), encode, size, *waiting.popleft()))
        _play(make_act(np.stack([slot.request.parameters for slot in slots])), slots)
        for slot in slots:
            if slot.finished:
                results[slot.number] = slot.result()
                free.append(slot.environment)
        slots = [slot for slot in slots if not slot.finished]
    return [results[number] for number in range(len(requests))]


class _EpisodeSlot:
    """An environment, the request that it plays, and the state of the current episode."""

    def __init__(
        self,
        environment: Environment,
        encode: Callable[[object], Vector],
        size: int,
        number: int,
        request: EpisodeRequest,
    ) -> None:
        self.environment, self.encode, self.shape = environment, encode, (size,)
        self.number, self.request = number, request
        self.returns, self.lengths, self.successes = list[float](), list[int](), list[bool | None]()
        self.total, self.length = 0.0, 0
        self.steps: list[EpisodeStep] = []
        self.step = self.noting if request.steps else environment.step
        self.seen: list[Vector] = []
        """Arrays [T, F] of consecutive observations; empty if observations are not normalized."""
        self.vector = self.begin()

    def begin(self) -> Vector:
        """Reset the environment and return the first observation of the next episode."""
        seed = self.request.seeds[len(self.returns)]
        # a wrapper that samples actions draws from the space's own generator
        seed_spaces(self.environment, seed)
        observation, _ = self.environment.reset(seed=seed)
        return self.read(observation)

    def noting(self, action: object) -> StepResult:
        """Step the environment and record the result. Arrays are copied, because environments may reuse them."""
        result = observation, reward, terminated, truncated, info = self.environment.step(action)
        infos = None
        if self.request.infos and isinstance(info, dict):
            infos = {name: copied(value) for name, value in info.items()}
        self.steps.append(EpisodeStep(copied(action), copied(observation), reward, terminated, truncated, infos))
        return result

    def read(self, observation: object) -> Vector:
        """Encode an observation as a vector [F]."""
        vector = self.encode(observation)
        if vector.shape != self.shape:
            raise EnvironmentFault(
                f"environment {named(self.environment)}: an observation has {vector.size} numbers, its space {self.shape[0]}"
            )
        return vector

    @property
    def faults(self) -> Faults:
        """What checks the values of the environment, as in environments that are stepped together."""
        return Faults(named(self.environment), ())

    def end(self, total: float, length: int, info: Mapping[str, object]) -> None:
        """Record the end of an episode."""
        if not math.isfinite(total):
            raise EnvironmentFault(
                f"environment {named(self.environment)}: an episode has the return {total}; it must be finite"
            )
        self.successes.append(self.faults.named(0, length, success, info))
        self.returns.append(total)
        self.lengths.append(length)

    @property
    def finished(self) -> bool:
        """Whether every episode of the request has been played."""
        return len(self.returns) == len(self.request.seeds)

    def result(self) -> EpisodeResult:
        """The result of the request."""
        context = tuple(self.returns), tuple(self.lengths), tuple(self.successes)
        return EpisodeResult(*context, _moments(self.seen), tuple(self.steps))


def _play(act: Act, slots: Sequence[_EpisodeSlot]) -> None:
    """Step all slots together, with one call of `act` per step, until a request is finished."""
    mean, factor, clip = slots[0].request.mean, slots[0].request.factor, slots[0].request.clip
    vectors, frames = np.stack([slot.vector for slot in slots]), list[Vector]()
    # lists of Python numbers: for a few slots they are faster than arrays
    totals, began = [slot.total for slot in slots], [-slot.length for slot in slots]
    steps, shape, as_it_is = [slot.step for slot in slots], slots[0].shape, slots[0].encode is flat_vector
    inputs = vectors if mean is None else np.empty_like(vectors)
    clock, finished = 0, False
    while not finished:
        if mean is not None and factor is not None and clip is not None:
            frames.append(vectors.copy())
            np.multiply(np.subtract(vectors, mean, out=inputs), factor, out=inputs)
            np.minimum(np.maximum(inputs, -clip, out=inputs), clip, out=inputs)
        _watch(vectors, slots, clock, began)
        actions = act(inputs)
        clock += 1
        for k, step in enumerate(steps):
            observation, reward, terminated, truncated, info = result = step(actions[k])
            kinds = type(reward), type(terminated), type(truncated), type(info)
            if kinds not in USUAL or (type(reward) is int and abs(reward) > LARGEST_INT):
                reward, terminated, truncated = slots[k].faults.checked(0, clock - began[k], result)
            totals[k] += float(reward)
            if not (terminated or truncated):
                # fast path with the same result as `read`, for observations that need no encoding
                if as_it_is and type(observation) is np.ndarray and observation.shape == shape:
                    vectors[k] = observation
                else:
                    vectors[k] = slots[k].read(observation)
                continue
            slots[k].end(totals[k], clock - began[k], info)
            finished = finished or slots[k].finished
            if not slots[k].finished:
                vectors[k], totals[k], began[k] = slots[k].begin(), 0.0, clock
    history = np.stack(frames) if frames else None
    for k, slot in enumerate(slots):
        slot.vector, slot.total, slot.length = vectors[k], totals[k], clock - began[k]
        if history is not None:
            slot.seen.append(history[:, k])


def _watch(vectors: Vector, slots: Sequence[_EpisodeSlot], clock: int, began: Sequence[int]) -> None:
    """Raises EnvironmentFault where an observation holds NaN or infinity, or an episode does not end; warns of that first."""
    if clock and clock % LONG == 0:
        for slot, start in zip(slots, began, strict=True):
            require_end(slot.environment, named(slot.environment), clock - start)
    if math.isfinite(np.vdot(vectors, vectors)):
        return  # a finite sum of squares proves that all are finite; one that is not may only have overflowed
    for k in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
        raise EnvironmentFault(
            f"environment {named(slots[k].environment)}: an observation holds NaN or infinity: {shown(vectors[k])}"
        )


def copied(value: object) -> object:
    """Copy the arrays, dicts, lists and tuples of a nested value; return other values unchanged."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    if type(value) is list:
        return [copied(child) for child in value]
    return tuple(map(copied, value)) if type(value) is tuple else value


def _moments(seen: list[Vector]) -> Moments | None:
    if not seen:
        return None
    rows = np.concatenate(seen)
    # per request, so that a result does not depend on the others; merged later in the order of candidates
    mean = rows.mean(0)
    return Moments(len(rows), mean, np.square(rows - mean).sum(0))


def steps_of(result: EpisodeResult, space: Space) -> Iterator[EnvStep]:
    """Yield one record [1] per environment step of a request, in the order of play.

    If a step ended an episode, its `observation` is the last one of that episode, not the first one of the next.
    """
    stack, number = ObservationBatcher(space), 0
    for step in result.steps:
        ended = bool(step.terminated or step.truncated)
        observation = Observation(stack([step.observation]), torch.tensor([ended]))
        episodes: tuple[Episode, ...] = ()
        if ended:
            context = result.returns[number], result.lengths[number], result.successes[number]
            episodes, number = (Episode(0, *context),), number + 1
        yield EnvStep(
            observation,
            torch.tensor([float(step.reward)]),
            torch.tensor([bool(step.terminated)]),
            torch.tensor([bool(step.truncated)]),
            torch.ones(1, dtype=torch.bool),
            Observation(observation.features, torch.tensor([False])) if ended else None,
            episodes,
            None if step.info is None else [step.info],
            _row(step.action),
        )


def _row(action: object) -> object:
    """Return one action as a batch of size one."""
    if isinstance(action, dict):
        return {key: _row(value) for key, value in action.items()}
    return tuple(map(_row, action)) if isinstance(action, tuple) else torch.as_tensor(np.asarray(action)).unsqueeze(0)
