"""Clauses about counts, seen from outside: steps of optimizers, updates, samples, moves of target networks and episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.interfaces import plays_episodes
from rlsdk.kernels import kernels_off
from rlsdk.records import Report, Rollout
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.alternatives import Setting, settings_of
from rlsdk_testing.batches import EPISODE, is_scored, recording, wrapping
from rlsdk_testing.dose_clauses import moves_of_copies
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.noted_env import NotedEnv, NotedEpisode
from rlsdk_testing.subject import ACTIONS, Subject, equal_values
from rlsdk_testing.trials import quietly
from rlsdk_testing.watched import Observed, Step, watched

LENGTH = 48
"""The environment steps of a training in which things are counted: a multiple of 1, 2, 3, 4 and 16."""
UPDATES = 6
"""The same for trainings that count updates."""
SAMPLES, CALLS = "samples of the buffer", "calls of update()"
Counts = Mapping[str, int]
"""What was counted -> how often it happened."""


@clause(
    "count.whole-numbers",
    "A whole-number setting counts exactly: with 1, 2 and 3 the steps of optimizers, updates, samples, moves of"
    " target networks and episodes grow by equal amounts, shrink as 1, 1/2 and 1/3, or stay. With a float number of episodes"
    " the steps of a round grow in proportion.",
    "update(), rounds(): use the setting as it is in range(...), topk(...) or the comparison of a counter. Look for + 1,"
    " - 1, // 2 and max(1, ..).",
)
def whole_numbers(subject: Subject) -> str:
    tried, failures = [], []
    for setting in settings_of(subject.agent().config):
        if _is_number_of_episodes(setting):
            tried.append(setting.name)
            failures += list(_faults_of_rounds(subject, setting))
        if not _counts_something(setting):
            continue
        found = {
            value: counts for value in (0, 1, 2, 3) if (counts := _counts(subject, setting.name, value)) is not None
        }
        if not {1, 2, 3} <= found.keys():
            continue
        tried.append(setting.name)
        failures += list(_faults(setting.name, found))[:1]
    require(not failures, "\n".join(failures))
    if not tried:
        raise NotApplicable("it has no whole-number setting that accepts 1, 2 and 3")
    return ""


def _counts_something(setting: Setting) -> bool:
    value = setting.value
    whole = isinstance(value, int) or (value is None and int in setting.members)
    return (
        whole
        and not isinstance(value, bool)
        and setting.doc.affects == "training"
        and "." not in setting.name
        and setting.name != "seed"
    )


def _counts(subject: Subject, name: str, value: int) -> Counts | None:
    """Return what was counted in a short training with one environment; None if the plugin refuses the value."""
    counter: Counter[str] = Counter()
    episodes: list[NotedEpisode] = []
    try:
        with quietly(), kernels_off():
            envs = make_vec_env(lambda: subject.with_info(NotedEnv(subject, episodes)), 1)
            given: dict[str, Any] = {name: value}
            agent = subject.agent(envs, **given)
            plan, algorithm = agent.parts.plan, agent.parts.algorithm
            population = plays_episodes(plan)
            length = 1 if population else LENGTH if plan.unit == "steps" else UPDATES
            moves: list[tuple[str, float, int]] = []

            def step(made: Step) -> None:
                counter[f"steps of {made.optimizer}"] += 1

            with ExitStack() as stack:
                stack.enter_context(recording(algorithm, lambda _: counter.update([CALLS])))
                stack.enter_context(_one_by_one(algorithm, "update"))
                stack.enter_context(watched(agent, step, hold=False))
                stack.enter_context(moves_of_copies(agent, Found(agent).copies(), moves))
                if agent.parts.buffer is not None:
                    stack.enter_context(_counting_samples(agent.parts.buffer, counter))
                    stack.enter_context(_one_by_one(agent.parts.buffer, "sample"))
                agent.learn(length)
    except Exception:  # any error of a validator, or of an update with this value
        return None
    counter.update(f"moves of {path}" for path, _, _ in moves)
    if population:
        counter["episodes"] = sum(bool(episode.rewards) for episode in episodes)
        counter |= _rows_used(subject, name, value)
    return counter


@contextmanager
def _one_by_one(part: object, name: str) -> Iterator[None]:
    """Inside the `with` statement, plans call the method `name` each time, not `name_several`: the object overrides it."""
    try:
        setattr(part, name, getattr(part, name))
    except AttributeError:  # it has slots
        yield
        return
    try:
        yield
    finally:
        delattr(part, name)


@contextmanager
def _counting_samples(memory: object, counter: Counter[str]) -> Iterator[None]:
    """Inside the `with` statement, count the samples that are drawn from the buffer."""

    def counted(method: Callable[..., object], *sizes: object) -> object:
        counter[SAMPLES] += 1
        return method(*sizes)

    with wrapping(memory, counted, "sample"):
        yield


def _rows_used(subject: Subject, name: str, value: int) -> Counter[str]:
    """Return how many candidates an update of a population method depends on."""
    given: dict[str, Any] = {name: value}
    observed = Observed(subject, **given)
    batch = observed.batch
    if not is_scored(batch):
        return Counter()
    before = observed.effect(batch)
    used = 0
    for row in range(len(batch.score)):
        mark = torch.zeros_like(batch.score)
        mark[row] = 1.0
        others = (
            replace(batch, parameters=batch.parameters + mark.unsqueeze(1)),
            replace(batch, score=batch.score + 1e-3 * mark * batch.score.std()),
        )
        used += any(not equal_values(dict(before), dict(observed.effect(other))) for other in others)
    return Counter({"candidates that the update depends on": used})


def _faults(name: str, found: Mapping[int, Counts]) -> Iterator[str]:
    """Yield a text for each thing that is not counted as a whole-number setting promises."""
    kinds = sorted({kind for counts in found.values() for kind in counts})
    table = {kind: {value: counts.get(kind, 0) for value, counts in found.items()} for kind in kinds}
    rising = {kind: row for kind, row in table.items() if row[1] < row[3]}
    for kind, row in table.items():
        text = f"{name} = {', '.join(map(str, row))}: {', '.join(map(str, row.values()))} {kind} in a training of equal length"
        if row[1] < row[3] and not _on_a_line(row):
            yield f"{text}; they should grow by equal amounts"
        begins_later = row[1] >= row[2] >= row[3] and row[1] - row[3] <= 2
        if row[1] > row[3] and not (_on_a_line(row) or _shares(row) or begins_later):
            yield f"{text}; they should shrink as 1, 1/2 and 1/3, or by equal amounts"
    nearest = SAMPLES if SAMPLES in rising else CALLS if CALLS in rising else ""
    chosen = {kind: row for kind, row in rising.items() if not nearest or kind == nearest}
    bases = {kind: row[1] - (row[2] - row[1]) for kind, row in chosen.items()}
    steps = {kind: row[2] - row[1] for kind, row in chosen.items()}
    if chosen and all(_on_a_line(row) for row in chosen.values()):
        kind = min(bases, key=lambda each: abs(bases[each]))
        whole = nearest or kind.startswith(("episodes", "candidates")) or 0 not in found
        allowed = {0} if whole else {0, steps[kind]}  # with 0, an update may still have one step of its own
        if bases[kind] not in allowed:
            yield (
                f"{name} = 1, 2, 3: {', '.join(str(chosen[kind][value]) for value in (1, 2, 3))} {kind} in a training of equal"
                f" length; 2 should give double the number of 1"
            )


def _on_a_line(row: Mapping[int, int]) -> bool:
    values = [value for value in (0, 1, 2, 3) if value in row and not (value == 0 and row[1] > row[3])]
    differences = {row[b] - row[a] for a, b in pairwise(values)}
    return len(differences) == 1


def _shares(row: Mapping[int, int]) -> bool:
    return all(abs(row[value] * value - row[1]) <= value * max(2.0, 0.15 * row[value]) for value in (2, 3))


@clause(
    "count.minibatches",
    "An epoch over a rollout has a step for each minibatch: with `batch_size` of all rows, of half and of a quarter of them"
    " there are 1, 2 and 4 times as many.",
    "update(): make one step for every minibatch of `shuffled(rows, batch_size, generator)`, also for the first and the last.",
)
def minibatches(subject: Subject) -> None:
    observed = Observed(subject, n_epochs=1)
    if not isinstance(observed.batch, Rollout) or not any(
        each.name == "batch_size" for each in settings_of(observed.agent.config)
    ):
        raise NotApplicable("it does not divide rollouts into minibatches of `batch_size` rows")
    rows = observed.batch.steps.valid.numel()
    counts: dict[int, Counter[str]] = {}
    for parts in (1, 2, 4):
        variant = observed.variant(batch_size=rows // parts)
        if rows % 4 or variant is None:
            raise NotApplicable(f"it refuses to divide its {rows} rows into {parts} minibatches")
        counts[parts] = Counter(step.optimizer for step in variant.update(observed.batch))
    for path in counts[4]:
        once, *others = (counts[parts][path] for parts in (1, 2, 4))
        require(
            others == [once, once] or (once > 0 and others == [2 * once, 4 * once]),
            f"1, 2 and 4 minibatches of {rows} rows: {once}, {others[0]} and {others[1]} steps of {path}",
        )


def _faults_of_rounds(subject: Subject, setting: Setting) -> Iterator[str]:
    """Yield a text if the steps of a round do not grow in proportion to a setting that is a number of episodes."""
    lengths = {value: _steps_of_round(subject, setting.name, value) for value in (4.0, 4.5, 8.0)}
    known = {value: steps for value, steps in lengths.items() if steps}
    if len(known) < 3 or len(set(known.values())) == 1:
        return
    if any(abs(steps - value * known[8.0] / 8.0) > 1.0 for value, steps in known.items()):
        yield (
            f"{setting.name} = {', '.join(f'{value:g}' for value in known)}: rounds of"
            f" {', '.join(map(str, known.values()))} steps, with episodes of equal length; they should grow in proportion"
        )


def _is_number_of_episodes(setting: Setting) -> bool:
    text = str(setting.field.metadata.get("help", ""))
    return isinstance(setting.value, float) and "number of episodes" in text and "." not in setting.name


def _steps_of_round(subject: Subject, name: str, value: float) -> int:
    """Return the steps of the last of several rounds with one environment, whose episodes are equally long; 0 if refused."""
    given: dict[str, Any] = {"n_steps": 1, name: value}
    ends = [0]
    with quietly(), suppress(Exception):  # any error of a validator
        env = make_vec_env(
            lambda: subject.with_info(AnySpaceEnv(subject.seen, ACTIONS[subject.action_kind], EPISODE)), 1
        )
        watch = LambdaCallback(on_report=lambda run, report: ends.append(report.env_steps))
        subject.agent(env, **given).learn(4 * LENGTH, watch)
    return ends[-1] - ends[-2] if len(ends) > 2 else 0


@clause(
    "count.stopped-rounds",
    "If a callback stops a training within a round, the steps of that round are counted, and no update follows.",
    "rounds(): update only if the rollout has its full length; count its steps in any case.",
)
def stopped_rounds(subject: Subject) -> None:
    ends, _, _ = _stopped(subject, 0)
    asked = next((step for step in range(2, LENGTH) if step not in ends and step < max(ends, default=0)), None)
    if asked is None:
        raise NotApplicable("its rounds have one step")
    ends, made, late = _stopped(subject, asked)
    require(
        not late, f"a callback stopped the training at step {asked}, within a round, and update() was called after it"
    )
    require(
        made == asked and ends[-1:] in ([], [asked]),
        f"a callback stopped the training at step {asked}: {ends[-1:]} counted",
    )


def _stopped(subject: Subject, asked: int) -> tuple[list[int], int, bool]:
    """Train with one environment until step `asked` (0: to the end).

    Returns:
        the steps at the ends of rounds, the steps made, and whether an update followed the stop.
    """
    made, late, reports = 0, False, list[Report]()

    def step(run: object, step: object) -> bool:
        nonlocal made
        made += 1
        return made != asked

    def updated(batch: object) -> None:
        nonlocal late
        late = late or made == asked

    with quietly(), kernels_off():
        agent = subject.agent(make_vec_env(lambda: subject.with_info(NotedEnv(subject, [])), 1))
        if not agent.parts.plan.needs_environment or plays_episodes(agent.parts.plan):
            raise NotApplicable("it collects no steps in environments")
        with recording(agent.parts.algorithm, updated):
            agent.learn(2 * LENGTH, LambdaCallback(on_step=step, on_report=lambda run, report: reports.append(report)))
    return [report.env_steps for report in reports], made, late


@clause(
    "count.training-ends",
    "A training ends with the round in which its steps are made: not a round earlier, and not one later.",
    "rounds(): while cursor.env_steps < training.end (or cursor.updates, if the training loop counts updates).",
)
def training_ends(subject: Subject) -> None:
    for number, asked in enumerate((LENGTH, LENGTH + 7, 2 * LENGTH)):
        reports: list[Report] = []
        with quietly():
            agent = subject.agent(make_vec_env(lambda: subject.with_info(NotedEnv(subject, [])), 1 + number % 2))
            agent.learn(asked, LambdaCallback(on_report=lambda run, report: reports.append(report)))  # noqa: B023
        counted = [each.env_steps if agent.parts.plan.unit == "steps" else each.updates for each in reports]
        what = f"learn({asked}) made rounds that end at {counted[-3:]} {agent.parts.plan.unit}"
        require(bool(counted) and counted[-1] >= asked, f"{what}: it ends too early")
        require(len(counted) < 2 or counted[-2] < asked, f"{what}: it makes a round too many")


@clause(
    "count.episodes",
    "The episodes of all reports are those that the environments finished: each once, with its length and its return.",
    "rounds(): give Report the episodes of every rollout of the round, `rollout.episodes`, each once.",
)
def episodes_reported(subject: Subject) -> None:
    played: list[NotedEpisode] = []
    reports: list[Report] = []
    with quietly():
        agent = subject.agent(make_vec_env(lambda: subject.with_info(NotedEnv(subject, played)), 2))
        if not agent.parts.plan.needs_environment or plays_episodes(agent.parts.plan):
            raise NotApplicable("it collects no steps in environments")
        played.clear()
        agent.learn(4 * LENGTH, LambdaCallback(on_report=lambda run, report: reports.append(report)))
    reported = Counter((each.length, round(each.episode_return, 3)) for report in reports for each in report.episodes)
    seen = Counter((len(each.rewards), round(sum(each.rewards), 3)) for each in played if each.rewards)
    many = reported.total(), len([each for each in played if each.rewards])
    strange = list(reported - seen)
    require(not strange, f"episodes are reported that no environment played, as (length, return): {strange[:3]}")
    require(many[1] - many[0] <= 2, f"{many[0]} episodes are reported, and 2 environments played {many[1]}")


@clause(
    "count.progress",
    "The progress that update() gets is that of its round: above the share of the steps before it, and at most that after it.",
    "rounds(): training.progress(steps) with the count after the steps of this round, which the report has too.",
)
def progress_of_round(subject: Subject) -> None:
    seen: list[tuple[int, float]] = []
    reports: list[Report] = []
    with quietly(), kernels_off():
        agent = subject.agent(make_vec_env(lambda: subject.with_info(NotedEnv(subject, [])), 1))
        if agent.parts.plan.unit != "steps":
            raise NotApplicable("it makes no steps in environments")
        with _noting_progress(agent.parts.algorithm, lambda progress: seen.append((len(reports), progress))):
            agent.learn(4 * LENGTH, LambdaCallback(on_report=lambda run, report: reports.append(report)))
    for number, progress in seen:
        before = 0 if number == 0 else reports[number - 1].env_steps
        after = reports[min(number, len(reports) - 1)].env_steps
        low, high = before / (4 * LENGTH), min(1.0, after / (4 * LENGTH))
        require(
            low < progress <= high + 1e-6 or plays_episodes(agent.parts.plan),
            f"an update after the steps {before + 1} to {after} of {4 * LENGTH} has progress {progress:.4g}, which is not"
            f" in ({low:.4g}, {high:.4g}]",
        )


@contextmanager
def _noting_progress(algorithm: object, note: Callable[[float], object]) -> Iterator[None]:
    def noted(method: Callable[..., object], batch: object, *, progress: float) -> object:
        note(progress)
        return method(batch, progress=progress)

    with wrapping(algorithm, noted, "update"):
        yield
