"""The search for a situation in which a setting has an effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import attrs

from rlsdk.agent import agent_class
from rlsdk.settings import AgentConfig
from rlsdk.settings.dataset import dataset_names
from rlsdk.settings.schedules import Constant
from rlsdk.testing.alternatives import KEEP, Question, Setting, questions, words
from rlsdk.testing.trials import Left, Place, Refused, Trials, left_by, quietly, same

ALONE = frozenset({"batch_size", "gamma", "learning_rate", "n_epochs", "seed", "tau"})
"""Settings that have an effect with any values of the others."""
OF_EVERY_ALGORITHM = frozenset(field.name for field in attrs.fields(AgentConfig))
"""Settings with which others have an effect that the plugin does not make."""
MOST_SITUATIONS, MOST_CHANGES = 48, 2
"""Situations that are looked at, and changes tried in each but the usual one."""
MOST_REFUSALS = 10
"""Situations that are looked at where all values are refused."""
NEAREST, PARTNERS = 16, 12
"""Situations that are looked at before pairs, and those that a pair is made from."""


@attrs.frozen
class Situation:
    """Where a change is tried: a kind of environment, other settings, and times the usual length."""

    place: Place
    changes: Mapping[str, object]
    times: int = 1

    def __str__(self) -> str:
        others = [f"{name} = {shown(value)}" for name, value in self.changes.items()]
        return ", ".join([*([] if others else [self.place.name]), *others, *(["longer"] if self.times > 1 else [])])


@attrs.frozen
class Search:
    """What became of one question."""

    effective: tuple[object, object] | None
    """The change that had an effect; None: none had."""
    situations: tuple[Situation, ...]
    """All that were looked at; the last is where the change had its effect."""
    tried: tuple[object, ...]
    refused: str
    """The last reason why a value was refused, where all were."""


def shown(value: object) -> str:
    """A value as a settings file or a caller writes it."""
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
    """Trainings that are continued from the middle, each in a situation of its own."""

    def __init__(self, trials: Trials, folder: Path) -> None:
        self.trials, self.folder = trials, folder
        self._begun: dict[str, Path] = {}
        self._datasets: dict[Path, dict[str, object]] = {}
        """Data sets of each training by setting; agent files do not have their paths."""
        self._unchanged: dict[str, Left] = {}

    def unchanged(self, situation: Situation) -> Left:
        """What the training leaves with the settings it had."""
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
        """What a training leaves that is loaded with new settings, or loaded and then assigned some."""
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
        """An agent in the middle of its training, with its memory."""
        if (key := str(situation)) not in self._begun:
            with quietly():
                agent = self.trials.agent(situation.place, situation.changes).learn(self.trials.steps)
                memory = ["replay"] if agent.replay_buffer is not None else None
                self._begun[key] = self.folder / f"{len(self._begun)}.rlsdk"
                agent.save(self._begun[key], include=memory)
                names = dataset_names(type(agent.config))
                self._datasets[self._begun[key]] = {name: getattr(agent.config, name) for name in names}
        return self._begun[key]


def _situations(trials: Trials, setting: Setting, others: list[Setting]) -> Iterator[Situation]:
    """The usual one; then each other environment or other value of another setting, those first whose description has words in
    common with the setting's, switches before numbers; then pairs of these."""
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
    """How much two descriptions have in common; a word counts less where many settings have it."""
    return sum(1.0 / max(1, count[word]) for word in setting.words & other)


def _extremes(trials: Trials, other: Setting) -> list[object]:
    """Other values of another setting: the largest and the smallest number, or the first two."""
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
