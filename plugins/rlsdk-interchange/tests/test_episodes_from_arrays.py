"""Recorded episodes from arrays of users: wrong data are refused before anything is written or stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import to_space
from rlsdk.errors import ArtifactError, ObservationError, SettingsError
from rlsdk_datasets import RecordedEpisode, RecordedOnly, open_episodes, write_episodes
from rlsdk_interchange import RecordEpisodes, export_minari, import_minari, record_episodes, remember
from tests.tables import in_one_test

SEEN, CHOICE = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)
PICTURE = spaces.Box(0, 255, (6, 6, 1), np.uint8)


def episode(**changes: Any) -> RecordedEpisode:
    fields = {
        "observations": np.zeros((6, 3), np.float32),
        "actions": np.zeros(5, int),
        "rewards": np.zeros(5),
        "terminated": True,
    }
    return RecordedEpisode(**{**fields, **changes})


def test_arrays_and_lists_are_taken(tmp_path: Path) -> None:
    found = open_episodes(
        write_episodes(tmp_path / "x", [episode(actions=[0, 1, 1, 0, 1])], to_space(SEEN), to_space(CHOICE))
    ).episode(0)
    assert found.actions.tolist() == [0, 1, 1, 0, 1]
    assert found.observations.dtype == torch.float32


@in_one_test
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"observations": np.zeros((5, 3))},
            r"observations: an array of shape \(5, 3\), expected \(6, 3\): one row more",
        ),
        ({"observations": np.full((6, 3), np.nan)}, "observations: not all numbers are finite"),
        ({"observations": np.full((6, 3), np.inf)}, "observations: not all numbers are finite"),
        ({"observations": np.full((6, 3), 1e300)}, "observations: numbers of type float64 .* do not fit"),
        ({"observations": [["a"] * 3] * 6}, "observations: values of type <U1, expected numbers"),
        ({"observations": [[0, 0, 0], [0]]}, "observations: .*one row for each step"),
        ({"observations": {"a": np.zeros((6, 3))}}, "observations are not nested as the space"),
        ({"actions": np.full(5, 7)}, r"actions lie outside Discrete\(n=2"),
        ({"actions": np.full(5, 0.5)}, "actions: numbers of type float64 from 0.5 to 0.5 do not fit the space's int64"),
        ({"actions": np.zeros((5, 1), int)}, r"actions: an array of shape \(5, 1\), expected \(5,\)$"),
        ({"rewards": np.full(5, np.nan)}, "rewards of shape .* must be finite"),
        ({"rewards": np.zeros((5, 1))}, r"rewards of shape \(5, 1\) must be finite numbers, one for each step"),
        ({"rewards": np.zeros(0)}, "at least one"),
        ({"terminated": None}, "terminated = None must be True or False"),
        ({"action_masks": np.ones((5, 2), bool)}, r"action masks of shape \(5, 2\), expected \(6, 2\)"),
        ({"seed": -5}, "seed = -5 must be a whole number"),
        ({"seed": 2**63}, "seed = .* must be a whole number"),
    ],
)
def test_an_episode_that_could_not_be_read_is_not_written(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ObservationError, match=message) as error:
        write_episodes(tmp_path / "x", [episode(), episode(**changes)], to_space(SEEN), to_space(CHOICE))
    assert str(error.value).startswith("episode 1")
    assert "\n" not in str(error.value)
    assert not any(tmp_path.iterdir())


def test_pictures_of_another_scale_are_refused(tmp_path: Path) -> None:
    half = np.full((6, 6, 6, 1), 0.5)
    with pytest.raises(ObservationError, match=r"from 0\.5 to 0\.5 do not fit the space's uint8; scale or round them"):
        write_episodes(tmp_path / "x", [episode(observations=half)], to_space(PICTURE), to_space(CHOICE))
    whole = write_episodes(tmp_path / "x", [episode(observations=half * 2)], to_space(PICTURE), to_space(CHOICE))
    assert open_episodes(whole).episode(0).observations.max() == 1


def test_spaces_of_gymnasium_are_converted(tmp_path: Path) -> None:
    ours = write_episodes(tmp_path / "ours", [episode()], to_space(SEEN), to_space(CHOICE))
    theirs = write_episodes(tmp_path / "theirs", [episode()], SEEN, CHOICE)
    assert theirs.read_bytes() == ours.read_bytes()


@in_one_test
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.full(5, 7)}, "episode 0, actions lie outside"),
        ({"actions": np.full(5, 1.7)}, "episode 0, actions: numbers of type float64"),
        ({"rewards": ["a"] * 5}, "episode 0, rewards: values of type <U1"),
        ({"rewards": 1.0}, "terminations of shape .* for each of the rewards"),
        ({"terminations": [0, 0, 0, 0, 2]}, "terminations of shape .* must be True or False"),
        ({"truncations": ["False"] * 5}, "truncations of shape .* must be True or False"),
        ({"terminations": None}, "has no 'terminations'; an episode has observations, actions"),
    ],
)
def test_a_replay_buffer_takes_what_fits_only(changes: dict[str, Any], message: str) -> None:
    agent = rlsdk.make("dqn", env=RecordedOnly(SEEN, CHOICE), buffer_size=100, seed=0)
    given = {
        "observations": np.zeros((6, 3)),
        "actions": np.zeros(5, int),
        "rewards": np.zeros(5),
        "terminations": [False] * 4 + [True],
        "truncations": [False] * 5,
    }
    assert remember(agent, [given]) == 5
    with pytest.raises(ObservationError, match=message):
        remember(agent, [{**given, **changes}])


def test_what_is_not_a_data_set_is_named(tmp_path: Path) -> None:
    anything: Any = [1]
    with pytest.raises(SettingsError, match="list is not a data set of Minari"):
        import_minari(anything, tmp_path / "x")
    data = write_episodes(tmp_path / "x", [episode(), episode()], to_space(SEEN), to_space(CHOICE))
    agent = rlsdk.make("ppo", env=RecordedOnly(SEEN, CHOICE))
    for given in (open_episodes(data), None):
        anything = given
        with pytest.raises(SettingsError, match="is not a data set; give the path"):
            agent.pretrain(anything)
    for share in ("half", float("nan"), True):
        anything = share
        with pytest.raises(SettingsError, match=r"share = .* must be a number between 0 and 1"):
            open_episodes(data).split(anything)


def test_the_place_is_checked_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.safetensors").mkdir()

    def never(observation: object) -> Any:
        raise AssertionError

    for place in ("/", ".", ""):  # no names of files
        with pytest.raises(ArtifactError, match=r"cannot write .* is a folder"):
            record_episodes(never, "CartPole-v1", 1, place)
    for place in ("file/x", "folder"):
        with pytest.raises(ArtifactError, match="cannot write"):
            record_episodes(never, "CartPole-v1", 1, tmp_path / place)
        agent = rlsdk.make("ppo", env="CartPole-v1", n_steps=32)
        with pytest.raises(ArtifactError, match="cannot write"):
            agent.learn(32, callback=RecordEpisodes(tmp_path / place))
        assert agent.num_timesteps == 0


def test_a_training_without_a_whole_episode_gives_a_warning(tmp_path: Path) -> None:
    agent = rlsdk.make("ppo", env="Pendulum-v1", n_steps=32)
    with pytest.warns(UserWarning, match="no episode began and ended in this training, so .* is not written"):
        agent.learn(32, callback=RecordEpisodes(tmp_path / "x"))
    assert not any(tmp_path.iterdir())


def test_actions_outside_their_box_are_clipped_as_environments_clip_them(tmp_path: Path) -> None:
    bounds = to_space(spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 3.0], np.float32)))
    given = np.array([[0.5, 1.0], [-9.0, 9.0], [1.0, -0.5], [0.0, 3.0], [2.0, 2.0]], np.float32)
    with pytest.warns(UserWarning, match="recorded actions outside the Box"):
        path = write_episodes(tmp_path / "x", [episode(actions=given)], to_space(SEEN), bounds)
    expected = [[0.5, 1.0], [-1.0, 3.0], [1.0, 0.0], [0.0, 3.0], [1.0, 2.0]]
    assert open_episodes(path).episode(0).actions.tolist() == expected


def test_all_episodes_are_remembered_or_none() -> None:
    agent = rlsdk.make("dqn", env=RecordedOnly(SEEN, CHOICE), buffer_size=100)
    good = {"observations": np.zeros((6, 3)), "actions": np.zeros(5, int), "rewards": np.zeros(5)}
    good |= {"terminations": np.arange(5) == 4, "truncations": np.zeros(5, bool)}
    bad = good | {"rewards": np.full(5, np.nan)}
    with pytest.raises(ObservationError, match="episode 1: rewards"):
        remember(agent, [good, bad])
    assert agent.parts.buffer is not None
    assert len(agent.parts.buffer) == 0
    assert remember(agent, [good]) == 5


@pytest.mark.parametrize("name", ["episodes.npz", "episodes.hdf5", "agent.rlsdk"])
def test_files_of_other_formats_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ArtifactError, match=r"is not a data set of rlsdk; read its arrays, and write them with"):
        open_episodes(tmp_path / name)


def test_names_of_minari_have_a_version(tmp_path: Path) -> None:
    path = write_episodes(tmp_path / "x", [episode()], to_space(SEEN), to_space(CHOICE))
    with pytest.raises(SettingsError, match=r"name = 'hello' has no version; .* 'demo/cart-pole-v0'"):
        export_minari(path, "hello")
