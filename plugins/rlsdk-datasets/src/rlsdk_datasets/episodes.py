"""Recorded episodes: opening a data set, its transitions, sequences and whole episodes, and its summary."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.errors import ArtifactError, MaskError, SettingsError, UnsupportedSpaceError, UsageError, one_line
from rlsdk.interfaces import BuildContext, Frames
from rlsdk.records import Features, Observation, Sequences, StepData, Transitions
from rlsdk.spaces import Space, choice_places
from rlsdk_datasets.dataset import Dataset
from rlsdk_datasets.episode_file import UNSEEDED, EpisodeFile, RecordedEpisode, forbidden_row, read_header

T = TypeVar("T")


def open_episodes(dataset: Dataset | str | Path, context: BuildContext | None = None) -> Episodes:
    """Open the episodes of a data set. Tensors are read at their first use.

    Args:
        dataset: the setting `dataset` of an agent, or a path.
        context: the context that an agent's parts are built from. Its spaces must be those of the recordings. Its device holds
            the tensors of samples, and its frame stacking applies to observations. None: no checks, CPU, no stacking.

    Raises:
        UsageError: the agent was loaded without the data set. ArtifactError: the file is missing, damaged, or not the one of
        the setting. UnsupportedSpaceError: the episodes were recorded with other spaces.
    """
    if not isinstance(dataset, Dataset):
        dataset = Dataset.at(dataset)
    if dataset.path is None:
        raise UsageError(
            f"training needs the data set {dataset.name!r} (digest {dataset.digest[:12]}), whose path is in no file; pass it"
            " again under its setting's name: load(path, dataset=...), or on the command line --dataset FILE"
        )
    header = read_header(dataset.path)
    if header.digest != dataset.digest:
        raise ArtifactError(
            f"{dataset.path} has changed: its digest begins with {header.digest[:12]}, not {dataset.digest[:12]}; give the data"
            " set that the agent was made with, or make a new agent"
        )
    if context is None:
        return Episodes(EpisodeFile(header), None, "cpu", None)
    single = context.observation_space if context.frames is None else context.frames.single
    name = (
        f"{context.algorithm}: the data set {dataset.name!r}" if context.algorithm else f"the data set {dataset.name!r}"
    )
    _require_spaces(name, "observations", header.observation_space, single)
    _require_spaces(name, "actions", header.action_space, context.action_space)
    episodes = Episodes(EpisodeFile(header), None, context.device, context.frames)
    episodes.mask_places = choice_places(context.action_space, header.action_space)
    return episodes


def _require_spaces(name: str, what: str, recorded: Space, wanted: Space) -> None:
    if recorded != wanted:
        which = f"{wanted} with other bounds" if str(recorded) == str(wanted) else str(wanted)
        raise UnsupportedSpaceError(
            f"{name} was recorded with {what} {recorded}, the agent has {which}; record it again, or use an"
            " environment with its spaces"
        )


class Episodes:
    """E episodes of a file, with S steps in total. A position is the number of a step, counted through these episodes in
    order."""

    def __init__(self, file: EpisodeFile, chosen: Tensor | None, device: str, frames: Frames | None) -> None:
        """`chosen`: the numbers of the episodes in the file, int64 [E]; None: all. `frames`: how observations are stacked."""
        self.file, self.device, self.frames = file, device, frames
        self.numbers = torch.arange(file.episodes) if chosen is None else chosen
        self.lengths = file.length[self.numbers]
        """The number of steps of each episode, int64 [E]."""
        self._before = self.lengths.cumsum(0) - self.lengths
        # the row of the first observation of each episode in the file: every episode has one observation more than steps
        self._first_row = file.start + torch.arange(file.episodes)
        # `searchsorted` of numpy takes a fifth of the time of torch's
        self._searched = tuple(f.numpy() for f in (self._before, self.numbers, file.start[self.numbers] - self._before))
        self._ends_checked = False
        self.mask_places: list[int] | None = None
        """The places of the entries of an agent's masks in those of the file, whose keys have another order; None: the same."""

    @property
    def observation_space(self) -> Space:
        return self.file.header.observation_space

    @property
    def action_space(self) -> Space:
        return self.file.header.action_space

    @property
    def steps(self) -> int:
        """S, the number of steps of all episodes."""
        return int(self.lengths.sum())

    def __len__(self) -> int:
        """E, the number of episodes."""
        return len(self.numbers)

    def __iter__(self) -> Iterator[RecordedEpisode]:
        return (self.episode(number) for number in range(len(self)))

    def split(self, share: float, seed: int = 0) -> tuple[Episodes, Episodes]:
        """Split the episodes at random into (first part, rest). The first part has the fraction `share` of the episodes.

        Raises:
            SettingsError: one part would have no episode, or `share` is not a number.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not math.isfinite(share):
            raise SettingsError(f"share = {share!r} must be a number between 0 and 1")
        count = round(share * len(self))
        if not 0 < count < len(self):
            raise SettingsError(
                f"{share:g} of {len(self)} episodes leaves one part empty; record more, or choose another share"
            )
        order = torch.randperm(len(self), generator=Generator().manual_seed(seed))
        parts = (self.numbers[rows.sort().values] for rows in (order[:count], order[count:]))
        first, rest = (Episodes(self.file, part, self.device, self.frames) for part in parts)
        first.mask_places = rest.mask_places = self.mask_places
        return first, rest

    def episode(self, number: int) -> RecordedEpisode:
        """The episode at index `number`; its tensors are views.

        Raises:
            ArtifactError: the file is damaged.
        """
        at = int(self.numbers[number])
        start, length = int(self.file.start[at]), int(self.file.length[at])
        masks, seed = self.file.masks(), int(self.file.seeds()[at])
        rows = slice(start + at, start + at + length + 1)  # every episode has one observation more than steps
        steps = slice(start, start + length)
        return RecordedEpisode(
            observations=_rows(self.file.observations(), rows),
            actions=_rows(self.file.actions(), steps),
            rewards=self.file.step_column("reward")[steps],
            terminated=bool(self._ends("terminated")[start + length - 1]),
            action_masks=None if masks is None else masks[rows],
            seed=None if seed == UNSEEDED else seed,
        )

    def _ends(self, name: str) -> Tensor:
        """The column `terminated` or `truncated` of the file, bool [steps of the file].

        The first call checks that exactly one of the two is set at the last step of every episode, and none elsewhere.
        """
        if not self._ends_checked:
            last = torch.zeros(self.file.steps, dtype=torch.bool)
            last[self.file.start + self.file.length - 1] = True
            if not torch.equal(self.file.step_column("terminated") ^ self.file.step_column("truncated"), last):
                raise ArtifactError(
                    f"{self.file.header.path} is damaged: its episodes do not end with their last steps"
                )
            self._ends_checked = True
        return self.file.step_column(name)

    def transitions(self, positions: Tensor, gamma: float) -> Transitions:
        """The transitions at `positions` int64 [N], which become their `index`.

        Raises:
            ArtifactError: the file is damaged.
        """
        number, step = self._places(positions)
        action, reward = _at(self.file.actions(), step), self.file.step_column("reward")[step]
        discount = gamma * (~self._ends("terminated")[step]).float()
        now, following = self._observations(number, step)
        return self._on_device(Transitions(now, action, reward, discount, following, positions))

    def sequences(self, positions: Tensor, length: int, gamma: float, burn_in: int = 0) -> Sequences[None]:
        """The sequences [T = length, N] that begin at `positions` int64 [N], padded after the end of their episode.

        Raises:
            ArtifactError: the file is damaged.
        """
        number, step = self._places(positions)
        ahead = torch.arange(length).unsqueeze(1)
        left = self.file.start[number] + self.file.length[number] - step
        valid = (ahead < left).to(self.device)
        steps, numbers = step + torch.minimum(ahead, left - 1), number.expand(length, -1)
        columns = self._columns(numbers, steps)
        now, following = self._on_device(self._observations(numbers, steps))
        discount = gamma * (~columns["terminated"]).float()
        extras: Mapping[str, Tensor] = {}
        data = StepData(observation=now, valid=valid, extras=extras, **columns)
        loss_mask = valid & (ahead >= burn_in).to(self.device)
        return Sequences(data, following, discount, loss_mask, None, positions.to(self.device))

    def sequence_starts(self, length: int) -> Tensor:
        """The first positions int64 [N] of sequences of at most `length` steps that together contain every step once."""
        parts = [torch.arange(0, int(steps), length) for steps in self.lengths]
        return torch.cat([begin + part for begin, part in zip(self._before, parts, strict=True)])

    def require_masks(self, *, required: bool, used: bool = True) -> None:
        """Check that an algorithm can use the action masks of the data.

        Args:
            required: whether the algorithm needs masks.
            used: whether the algorithm uses masks that are present.

        Raises:
            MaskError: required masks are missing, or used masks forbid a recorded action. ArtifactError: the file is damaged.
        """
        name, masks = self.file.header.path.stem, self.file.masks()
        if masks is None:
            if required:
                raise MaskError(
                    f"the data set {name!r} has no action masks, which the algorithm needs; record it in an environment with"
                    " masks, or use an algorithm without them"
                )
            return
        if used and (row := forbidden_row(self.action_space, self.file.actions(), self._acted_on(masks))) is not None:
            raise MaskError(
                f"the data set {name!r}: its masks forbid the action that was recorded at step {row}; record it with an agent"
                " that respects masks, or leave the masks out"
            )

    def _acted_on(self, masks: Tensor) -> Tensor:
        """The masks [S, A] at the steps of the file: `masks` [S + E, A] without those of the last observations."""
        is_last = torch.zeros(len(masks), dtype=torch.bool)
        is_last[self.file.start + self.file.length + torch.arange(self.file.episodes)] = True
        return masks[~is_last]

    def _places(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(number of the episode, number of the step), each int64 [N] and counted in the file, of `positions` int64 [N]."""
        before, numbers, shift = self._searched
        wanted = positions.numpy(force=True)
        mine = np.searchsorted(before, wanted, side="right") - 1
        return torch.from_numpy(numbers[mine]), torch.from_numpy(wanted + shift[mine])

    def _columns(self, number: Tensor, step: Tensor) -> dict[str, Features]:
        """Actions, rewards, `terminated` and `truncated` [.., *shape] at steps int64 [..] of the file."""
        ends = {name: self._ends(name)[step] for name in ("terminated", "truncated")}
        found = {"action": _at(self.file.actions(), step), "reward": self.file.step_column("reward")[step], **ends}
        return self._on_device(found)

    def _observations(self, number: Tensor, step: Tensor) -> tuple[Observation, Observation]:
        """(observations [..], next observations [..]) of steps int64 [..] in the episodes `number` int64 [..]."""
        row, begin = step + number, self._first_row[number]
        first = row == begin
        features, masks, places = self.file.observations(), self.file.masks(), self.mask_places

        def observation(rows: Tensor, is_first: Tensor) -> Observation:
            """The observations at rows int64 [..] of the file."""
            seen = _at(features, rows) if self.frames is None else _stacked(self.frames, features, rows, begin)
            mask = None if masks is None else masks[rows]
            return Observation(seen, is_first, mask if mask is None or places is None else mask[..., places])

        return observation(row, first), observation(row + 1, torch.zeros_like(first))

    def _on_device(self, found: T) -> T:
        """Copy a tree [..] from the CPU, where the recordings are, to the device of these episodes."""
        return found if self.device == "cpu" else tree.map_tensors(lambda leaf: leaf.to(self.device), found)


def _rows(features: Features, rows: slice) -> Features:
    return tree.map_tensors(lambda leaf: leaf[rows], features)


def _stacked(frames: Frames, features: Features, rows: Tensor, first: Tensor) -> Features:
    """The stacked frames up to each of `rows` int64 [..]; the first row of the episode, `first` int64 [..], is repeated."""
    back = torch.arange(frames.count - 1, -1, -1)
    history = torch.maximum(rows.flatten().unsqueeze(1) - back, first.flatten().unsqueeze(1))  # [N, count]
    joined = frames.joined(_at(features, history))
    return tree.map_tensors(lambda leaf: leaf.unflatten(0, rows.shape), joined)


def _at(features: Features, index: Tensor) -> Features:
    """The rows [.., *shape] of leaves [S, *shape] at `index` int64 [..]."""
    return tree.map_tensors(lambda leaf: leaf[index], features)


QUARTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@attrs.frozen(eq=False)
class DataSetSummary:
    """The summary of a data set with E episodes."""

    path: Path
    digest: str
    environment: str | None
    observation_space: str
    action_space: str
    returns: NDArray[np.float64]
    """[E]: the sum of the rewards of each episode."""
    lengths: NDArray[np.int64]
    """[E]: the number of steps of each episode."""
    terminated: int
    """Number of terminated episodes. The others were truncated."""
    masks: bool
    seeds: tuple[int, ...]
    """The known seeds of episodes."""

    @property
    def episodes(self) -> int:
        return len(self.lengths)

    @property
    def steps(self) -> int:
        return int(self.lengths.sum())

    def as_table(self) -> dict[str, object]:
        """Return the summary as a table for JSON."""
        numbers = {"returns": self.returns.tolist(), "lengths": self.lengths.tolist(), "seeds": list(self.seeds)}
        counts = {"episodes": self.episodes, "steps": self.steps, "path": str(self.path)}
        return {**attrs.asdict(self), **counts, **numbers}

    def rows(self) -> dict[str, str]:
        """Return name -> text for each row of a table that people read."""
        known = f"{len(self.seeds)} known, from {min(self.seeds)} to {max(self.seeds)}" if self.seeds else "not known"
        return {
            "data set": f"{self.path}, digest {self.digest[:12]}",
            "environment": self.environment or "not named",
            "observation": self.observation_space,
            "action": self.action_space,
            "episodes": f"{self.episodes:,}: {self.terminated:,} terminated, {self.episodes - self.terminated:,} truncated",
            "steps": f"{self.steps:,}",
            "returns": f"mean {self.returns.mean():.2f}; least, quartiles, largest {_quartiles(self.returns)}",
            "lengths": f"mean {self.lengths.mean():.1f}; least, quartiles, largest {_quartiles(self.lengths)}",
            "action masks": "yes" if self.masks else "no",
            "seeds": known,
        }


def _quartiles(values: NDArray[np.float64] | NDArray[np.int64]) -> str:
    return ", ".join(f"{value:g}" for value in np.quantile(values, QUARTILES).round(2))


def summary_of(path: str | Path) -> DataSetSummary:
    """Return the summary of a data set. Observations and actions are not read.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    file = open_episodes(path).file
    header = file.header
    rewards = file.step_column("reward").double().numpy()
    seeds = file.seeds()
    return DataSetSummary(
        path=header.path,
        digest=header.digest,
        environment=header.environment,
        observation_space=str(header.observation_space),
        action_space=str(header.action_space),
        returns=np.add.reduceat(rewards, file.start.numpy()),
        lengths=file.length.numpy(),
        terminated=int(file.step_column("terminated").sum()),
        masks=file.masks() is not None,
        seeds=tuple(seeds[seeds != UNSEEDED].tolist()),
    )


def inspect(path: Path, as_json: bool) -> str:
    """Return what `rlsdk inspect` prints of a data set. Raises as `summary_of`."""
    found = summary_of(path)
    if as_json:
        return json.dumps(found.as_table(), indent=1)
    return "\n".join(f"{name + ':':<14}{one_line(text)}" for name, text in found.rows().items())
