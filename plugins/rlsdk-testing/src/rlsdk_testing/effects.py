"""Searches for a situation, that is an environment and other settings, in which a setting has an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import attrs

from rlsdk.agent import agent_class
from rlsdk.settings import AgentConfig, Constant, data_settings
from rlsdk_testing.alternatives import KEEP, Question, Setting, questions, words
from rlsdk_testing.trials import Left, Place, Refused, Trials, left_by, quietly, same

ALONE = frozenset({"batch_size", "gamma", "learning_rate", "n_epochs", "seed", "tau"})
"""Settings that must have an effect for all values of the other settings, so that no others are tried with them."""
OF_EVERY_ALGORITHM = frozenset(field.name for field in attrs.fields(AgentConfig))
"""Settings of the SDK. They are not varied in situations: an effect that appears with them may come from the SDK."""
MOST_SITUATIONS, MOST_CHANGES = 48, 2
"""The largest number of situations to try, and of changes to try in each situation except the first."""
MOST_REFUSALS = 10
"""The number of situations after which the search ends if all values were refused in them."""
NEAREST, PARTNERS = 16, 12
"""The number of single situations to try before pairs, and of the situations from which pairs are made."""


@attrs.frozen
class Situation:
    """Where a change is tried: a kind of environment, values of other settings, and the length in multiples of the usual."""

    place: Place
    changes: Mapping[str, object]
    times: int = 1

    def __str__(self) -> str:
        others = [f"{name} = {shown(value)}" for name, value in self.changes.items()]
        return ", ".join([*([] if others else [self.place.name]), *others, *(["longer"] if self.times > 1 else [])])


@attrs.frozen
class Search:
    """The result of the search for one question."""

    effective: tuple[object, object] | None
    """The change that had an effect; None if no change had one."""
    situations: tuple[Situation, ...]
    """All situations that were tried; in the last one the effective change had its effect."""
    tried: tuple[object, ...]
    """The values that were accepted and tried."""
    refused: str
    """The reason why the last refused value was refused; empty if a change had an effect."""


def shown(value: object) -> str:
    """Return a value as text, in the form that is written in a settings file or in Python."""
    if isinstance(value, type):
        return value.__name__
    form = getattr(value, "to_setting", None)
    return repr(form() if callable(form) else value)


def search(trials: Trials, setting: Setting, question: Question, others: list[Setting]) -> Search:
    """Try the changes of a question in one situation after another, until one has an effect."""
    looked: list[Situation] = []
    tried: list[object] = []
    refused = ""
    for situation in islice(_situations(trials, setting, others), MOST_SITUATIONS):
        if len(looked) == MOST_REFUSALS and not tried:
            break
        looked.append(situation)
        for start, end in question if len(looked) == 1 else question[:MOST_CHANGES]:
            before = situation.changes if start is KEEP else {**situation.changes, setting.name: start}
            one = trials.left(situation.place, before, situation.times)
            if isinstance(one, Refused):
                continue
            other = trials.left(situation.place, {**situation.changes, setting.name: end}, situation.times)
            if isinstance(other, Refused):
                refused = other.why
                continue
            tried.append(end)
            if not same(one, other):
                return Search((start, end), tuple(looked), tuple(tried), "")
    return Search(None, tuple(looked), tuple(tried), refused)


class MidTrainings:
    """Trainings that are saved in the middle and continued with changed settings, one for each situation."""

    def __init__(self, trials: Trials, folder: Path) -> None:
        self.trials, self.folder = trials, folder
        self._begun: dict[str, Path] = {}
        self._datasets: dict[Path, dict[str, object]] = {}
        """Agent file -> setting -> data set of that training; agent files do not contain the paths of data sets."""
        self._unchanged: dict[str, Left] = {}

    def unchanged(self, situation: Situation) -> Left:
        """Continue the training with unchanged settings, and return what it leaves."""
        if (key := str(situation)) not in self._unchanged:
            self._unchanged[key] = self.continued(situation)
        return self._unchanged[key]

    def continued(
        self,
        situation: Situation,
        *,
        load: Mapping[str, object] | None = None,
        assign: Mapping[str, object] | None = None,
    ) -> Left:
        """Continue the training and return what it leaves (see `Left`).

        Settings in `load` are changed when the agent is loaded; settings in `assign` are assigned to the loaded agent.
        """
        trials, path = self.trials, self._file(situation)
        with quietly():
            kind = agent_class(trials.subject.spec)
            given = {**self._datasets[path], **(load or {})}
            agent = kind.load(path, env=situation.place.make(), force_reset=False, custom_objects=given)
            for name, value in (assign or {}).items():
                setattr(agent, name, value)
            agent.learn(situation.times * trials.steps, reset_num_timesteps=False)
            return left_by(trials.subject, agent)

    def _file(self, situation: Situation) -> Path:
        """Return the file of an agent in the middle of its training, with its replay buffer."""
        if (key := str(situation)) not in self._begun:
            with quietly():
                agent = self.trials.agent(situation.place, situation.changes).learn(self.trials.steps)
                memory = ["replay"] if agent.replay_buffer is not None else None
                self._begun[key] = self.folder / f"{len(self._begun)}.rlsdk"
                agent.save(self._begun[key], include=memory)
                names = data_settings(type(agent.config))
                self._datasets[self._begun[key]] = {name: getattr(agent.config, name) for name in names}
        return self._begun[key]


def _situations(trials: Trials, setting: Setting, others: list[Setting]) -> Iterator[Situation]:
    """Yield the usual situation, then situations with another environment or another value of one other setting, then pairs.

    Situations whose description has words in common with that of the setting come first, and switches before numbers. The
    pairs and a longer training follow the first `NEAREST` situations; the other situations come last.
    """
    home = trials.places[0]
    yield Situation(home, {})
    count = Counter(word for each in others for word in each.words)
    single = [(4 * _near(setting, words(place.about), count), Situation(place, {})) for place in trials.places[1:]]
    if setting.name not in ALONE:
        for other in others:
            if other.name not in {setting.name, *OF_EVERY_ALGORITHM}:
                near, values = _near(setting, other.words, count), _extremes(trials, other)
                is_number = isinstance(other.value, int | float) and not isinstance(other.value, bool)
                single += [(near if is_number else 2 * near, Situation(home, {other.name: each})) for each in values]
    ranked = [situation for _, situation in sorted(single, key=lambda pair: -pair[0])]
    yield from ranked[:NEAREST]
    yield Situation(home, {}, times=4)
    yield from _pairs(ranked)
    yield from ranked[NEAREST:]


def _near(setting: Setting, other: frozenset[str], count: Counter[str]) -> float:
    """Return how many words two descriptions have in common. A word counts less if many settings have it."""
    return sum(1.0 / max(1, count[word]) for word in setting.words & other)


def _extremes(trials: Trials, other: Setting) -> list[object]:
    """Return two accepted other values of a setting: the largest and the smallest number, or the first two values."""
    values = [end for question in questions(other) for start, end in question if start is KEEP]
    accepted = [value for value in values if trials.accepts(other.name, value)]
    numbers = [value for value in accepted if isinstance(value, int | float | Constant)]
    return accepted[:2] if len(numbers) < 3 else [max(numbers, key=_level), min(numbers, key=_level)]


def _level(value: float | Constant) -> float:
    return value.value if isinstance(value, Constant) else value


def _pairs(ranked: list[Situation]) -> Iterator[Situation]:
    for number, first in enumerate(ranked[:2]):
        for second in ranked[number + 1 : PARTNERS]:
            apart = not first.changes.keys() & second.changes.keys()
            if apart and (first.changes or second.changes):
                place = second.place if first.changes else first.place
                yield Situation(place, {**first.changes, **second.changes})
