"""The loop of one call of `learn`: its rounds, their checks, its length, what callbacks watch, and recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from rlsdk.environments.vector.connected import VectorWrapper
from rlsdk.errors import DivergenceError, PluginError, SettingsError, UsageError
from rlsdk.interfaces import Collector, Plan, PlanAbilities, Policy, Training, VectorEnv, VectorEnvAbilities
from rlsdk.interfaces.abilities import ability, plays_episodes, shortcut
from rlsdk.interfaces.environment import StepsInPlace
from rlsdk.kernels.factory import kernel_fault
from rlsdk.records import ActingState, Cursor, EnvStep, Observation, Report, Rollout
from rlsdk.runtime.memory import keep_freed_memory
from rlsdk.runtime.process import limit_to_cores, limited_threads
from rlsdk.storage.tensors import nested_state
from rlsdk.training.collector import LocalCollector, NoCollector, group_generators
from rlsdk.training.off_policy import OffPolicyPlan
from rlsdk.training.run import Run
from rlsdk.training.trained_agent import DrivenAgent, TrainedAgent
from rlsdk.tree import flatten, is_finite

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
ENDED = object()
"""Stands for the round after the last one of a plan."""


def _play(run: Run, env: VectorEnv | None) -> None:
    """Run rounds until the run ends or a callback stops it; `env` is the environment that callbacks watch.

    Raises:
        DivergenceError: a metric is NaN or infinite. PluginError: the plan yields, or a metric is, something else.
    """
    agent, parts, statistics = run.driven, run.driven.parts, run.episode_statistics
    by_episode, cursor = parts.plan.log_every == "episodes", None
    loop: Iterator[object] = iter(())
    while not run.stopping:
        run.notify("on_rollout_start")
        if run.stopping:
            break
        if run.new_episodes:
            run.restart_episodes()
        # at the start and after a restart of episodes, or with new parts, for new settings
        is_current = cursor is run.cursor and run.collector.acting is agent.acting and parts is agent.parts
        if not is_current:
            parts, by_episode = agent.parts, agent.parts.plan.log_every == "episodes"
            run.collector = collector_after(run.collector, run, env)
            loop = rounds_of(parts.plan, run.training(run.collector), run.cursor, run.agent.spec.id)
        # stays True if the round fails: the environments have then made steps that the cursor does not count
        agent.in_round = True
        round_ = next(loop, ENDED)
        agent.in_round = False
        if round_ is ENDED:
            break
        cursor, report = _checked_round(round_, run.cursor, run.agent.spec.id)
        run.advance(cursor, report)
        count = statistics.finished_episodes if by_episode else statistics.reports
        if count - statistics.logged >= run.log_interval:
            statistics.logged = count
            run.log()
        for episode in report.episodes:
            run.notify("on_episode", episode)
        if report.metrics is not None:
            run.notify("on_update", report)
        run.notify("on_report", report)


def _checked_round(yielded: object, before: Cursor, algorithm: str) -> tuple[Cursor, Report]:
    """Check what a plan yielded after a round that began at `before`; return (cursor, report).

    Raises:
        PluginError: it is not (Cursor, Report), or counts are lower than before the round.
    """
    if type(yielded) is tuple and len(yielded) == 2:
        cursor, report = yielded
        whole = isinstance(cursor, Cursor) and isinstance(report, Report)
        if whole and cursor.env_steps >= before.env_steps and cursor.updates >= before.updates:
            return cursor, report
    raise wrong_round(yielded, before, algorithm)


YIELDS = "rounds(training, cursor) yields (rlsdk.training.Cursor, rlsdk.records.Report) after every round"


def rounds_of(plan: Plan, training: Training, cursor: Cursor, algorithm: str) -> Iterator[object]:
    """Return the iterator of a plan's rounds, without checking what it yields.

    Raises:
        PluginError: `rounds` does not return an iterator.
    """
    # typed as object: the plan may be a plugin's, and a return instead of a yield is a frequent mistake
    rounds: object = plan.rounds(training, cursor)
    if not isinstance(rounds, Iterator):
        raise PluginError(
            f"{algorithm!r}: rounds of {type(plan).__name__} returned {type(rounds).__name__}, no iterator; write it with"
            f" `yield`: {YIELDS}"
        )
    return rounds


def wrong_round(yielded: object, before: Cursor, algorithm: str) -> PluginError:
    """The error for a yielded value that is not `(Cursor, Report)`, or whose counts are below those `before` the round."""
    if isinstance(yielded, tuple) and tuple(map(type, yielded)) == (Cursor, Report):
        return PluginError(
            f"{algorithm!r}: counts of its training loop fell from {before} to {yielded[0]}; add to the counts of the cursor"
            " that rounds was given"
        )
    found = f"({', '.join(type(part).__name__ for part in yielded)})" if isinstance(yielded, tuple) else repr(yielded)
    return PluginError(f"{algorithm!r}: its training loop yielded {found[:200]}; {YIELDS}")


def of_algorithm(error: PluginError, algorithm: str) -> PluginError:
    """The same error with the id of the algorithm at its beginning."""
    text = str(error)
    return error if text.startswith(repr(algorithm)) else PluginError(f"{algorithm!r}: {text}")


def train(run: Run, env: VectorEnv | None, *, log_every: int, threads: int | None) -> None:
    """Run the agent's plan until the end of `run`, or until a callback stops it.

    Args:
        run: counts, sinks and callbacks.
        env: the training environment, on the agent's device; None if the plan needs none.
        log_every: finished episodes or rounds between two logs, see `Plan.log_every`.
        threads: threads of torch and numpy while training; None does not change their settings.
    """
    agent = run.driven
    run.log_interval = log_every
    watching = [callback for callback in run.callbacks if callback.watches_steps or callback.watches_rollouts]
    infos = any(callback.needs_infos for callback in watching)
    watched = env if env is None or not watching else Watched(env, run)
    # otherwise pages of freed memory return to the system, and come back at every update
    keep_freed_memory()
    with (
        gathered_infos(agent.env, infos),
        limited_threads(limit_to_cores(threads)),
        # a caller's mode must not reach into the training: tensors made in inference mode cannot be learned from
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        run.notify("on_training_start")
        try:
            diverged = True
            while diverged:
                try:
                    _play(run, watched)
                    diverged = False
                except DivergenceError as error:
                    # raises the error unless a callback has restored the agent; then the training continues
                    recover(run, error)
        except PluginError as error:
            raise of_algorithm(error, run.agent.spec.id) from None
        except Exception as error:
            # a kernel that is known to compute right may fail later, in the middle of a step that cannot be repeated
            if (fault := kernel_fault(error)) is None:
                raise
            raise fault from error
        finally:
            # discard rounds collected ahead; a continued training collects them again with the same weights
            agent.in_round = agent.in_round or not discard_ahead(run.collector)
            run.notify("on_training_end")


def copied_parameters(agent: TrainedAgent) -> dict[str, object] | None:
    """A copy of `agent.get_parameters()`; None if a parameter is NaN or infinite.

    This check is needed because metrics show such a divergence only one round later.
    """
    # checked before they are stored, because the last good copy must not be overwritten
    flat = flatten(agent.get_parameters())
    tensors = {name: value for name, value in flat.items() if isinstance(value, Tensor)}
    if not is_finite(tensors):
        return None
    return nested_state({**flat, **{name: tensor.clone() for name, tensor in tensors.items()}})


def recover(run: Run, error: DivergenceError) -> None:
    """Call `on_divergence` of the callbacks, which may restore the agent.

    New episodes begin if a round was interrupted, or if the carry of the policy had become NaN or infinite.

    Raises:
        DivergenceError: `error`, if no callback has restored the agent.
    """
    _forget_what_diverged(run.driven)
    # all of them, so that every callback learns of it, even after one has restored the agent
    answers = [handle(run, error) for handle in run.handlers["on_divergence"]]
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
    # all rows, because the episodes of all environments end anyway
    return replace(state, carry=driven.parts.behavior_policy.initial_carry(len(state.observation.is_first)))


def collector_after(before: Collector, run: Run, env: VectorEnv | None) -> Collector:
    """Replace the collector `before`.

    New episodes begin if `before` was ahead of the learner and the environments cannot be restored.
    """
    if not discard_ahead(before):
        run.restart_episodes()
    return collector_of(run, env)


def discard_ahead(collector: Collector) -> bool:
    """Discard what a collector collected ahead, by its optional method `leave`. Returns False if the environments then have
    steps that the cursor does not count."""
    # `ability` is for parts, and has no class of a collector's optional methods: `leave` is the only one
    leave: Callable[[], bool] | None = getattr(collector, "leave", None)
    return leave is None or leave()


def collector_of(run: Run, env: VectorEnv | None) -> Collector:
    """Create the collector of the plan, with the agent's acting state. `env`: the environment that callbacks watch."""
    agent, plan = run.driven, run.driven.parts.plan
    if env is None or not plan.needs_environment:
        return NoCollector()
    collector = None if agent.env is None else agent.env.collector(run)
    if collector is None:
        # weights for later rounds are of no use to a collector in this process
        agent.ahead = ()
        generators = group_generators(agent.streams, len(agent.acting))
        normalizer = agent.preprocessing.rollouts(agent.parts)
        collector = LocalCollector(env, agent.acting, generators, normalizer, agent.context.observation_space)
    # updates are counted one by one and need no cut
    if not run.exact or plan.unit != "steps":
        return collector
    return cast("Collector", ExactCollector(collector, (run.end - run.cursor.env_steps) // env.num_envs))


def rounded_up(plan: Plan, num_envs: int, total: int) -> str | None:
    """One line about a training of `total` steps that ends later, because rounds are whole; None if it does not."""
    if not total:
        return None
    remedy = f"; exact_steps=True (--exact-steps) ends at {total:,}"
    episodes = f"training ends with the round of episodes in which step {total:,} falls"
    if isinstance(plan, OffPolicyPlan):
        if plan.episodes:
            return episodes + remedy
        size = plan.train_every * num_envs
    elif plays_episodes(plan):  # exact_steps is refused there
        return episodes
    else:
        rollouts = ability(plan, PlanAbilities, "n_steps")
        size = 1 if rollouts is None or plan.unit != "steps" else rollouts.n_steps * num_envs
    if not total % size:
        return None
    return f"{total:,} steps become {total + -total % size:,}: rounds of {size:,} steps are whole{remedy}"


def require_exact(plan: Plan, num_envs: int, total: int, algorithm: str) -> None:
    """Check that a training can end after exactly `total` steps.

    Raises:
        UsageError: the algorithm plays whole episodes.
        SettingsError: the environments, which are stepped together, cannot make this number of steps.
    """
    if plays_episodes(plan):
        raise UsageError(f"exact_steps: {algorithm} plays whole episodes, which are not cut; leave exact_steps out")
    if plan.unit == "steps" and total % num_envs:
        near = total - total % num_envs
        raise SettingsError(
            f"exact_steps: {num_envs} environments are stepped together and cannot make {total} steps; give"
            f" {f'{near} or ' if near else ''}{near + num_envs}, or leave exact_steps out"
        )


class ExactCollector:
    """Collects a limited number of steps, so that a training ends at the exact count.

    The last rollout is shorter and has `stopped` set, as one that a callback ended. All else is that of the collector
    `inner`.
    """

    def __init__(self, inner: Collector, remaining: int) -> None:
        """`remaining`: the vector steps until the end."""
        self.inner, self.remaining = inner, remaining

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        """See `rlsdk.interfaces.Collector`.

        Raises:
            PluginError: the plan collects again after a rollout with `stopped`.
        """
        if not self.remaining:
            raise PluginError(
                "its training loop collects again after a rollout with `stopped`, so it cannot end exactly; end the round"
                " there, or leave exact_steps out"
            )
        wanted = min(length, self.remaining) if hasattr(length, "__index__") else length
        rollout = self.inner.collect(policy, wanted, on_step=on_step, ends_round=ends_round)
        self.remaining -= len(rollout.steps.reward)
        return rollout if self.remaining else replace(rollout, stopped=True)


@contextmanager
def gathered_infos(env: VectorEnvAbilities | None, wanted: bool) -> Iterator[None]:
    """Make the steps of `env` contain infos inside the `with` block, if `wanted`."""
    if env is None or not wanted:
        yield
        return
    env.keep_infos(True)
    try:
        yield
    finally:
        env.keep_infos(False)


class Watched(VectorWrapper):
    """Calls callbacks after every step and at the end of collecting. All other calls are passed to the environment."""

    def __init__(self, env: VectorEnv, run: Run) -> None:
        super().__init__(env)
        self.run = run

    def __getattr__(self, name: str) -> object:
        return getattr(self.env, name)

    def step(self, action: Tensor) -> EnvStep:
        # callbacks see the action too, which the record of an environment does not have
        step = replace(self.env.step(action), action=action)
        self._notify(step, self.env.num_envs)
        return replace(step, stops=True) if self.run.stopping else step

    def step_in_place(
        self, observation: Observation, action: Tensor, reward: Tensor
    ) -> Callable[[int], EnvStep | None] | None:
        """Prepare steps from `action` [T, B, ..] to `observation` [T + 1, B, ..], with a record of each for callbacks."""
        env = shortcut(self.env, StepsInPlace, "step_in_place", "step")
        if env is None or (inner := env.step_in_place(observation, action, reward)) is None:
            return None
        none = torch.zeros(self.num_envs, dtype=torch.bool)
        valid, mask = ~none, observation.action_mask

        def step(t: int) -> EnvStep | None:
            ended = inner(t)
            if ended is None:
                seen = Observation(observation.features[t + 1], none, None if mask is None else mask[t + 1])
                record = EnvStep(seen, reward[t], none, none, valid, action=action[t])
            else:
                record = replace(ended, action=action[t])
            self._notify(record, self.num_envs)
            return replace(record, stops=True) if self.run.stopping else ended

        return step

    def report(self, step: EnvStep) -> bool:
        """Call the callbacks for a step that the plan has made itself; see `rlsdk.training.LocalCollector`."""
        self._notify(step, len(step.reward))
        return self.run.stopping

    def rollout_ended(self) -> None:
        """Notify callbacks that collecting has ended and the update comes next."""
        self.run.notify("on_rollout_end")

    def _notify(self, step: EnvStep, count: int) -> None:
        self.run.steps_in_round += count
        self.run.episodes_in_round.extend(step.episodes)
        self.run.notify("on_step", step)
