"""Episodes of a person: key maps of Discrete and Box spaces, the window with its keyboard and gamepad, and the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym_spaces

from rlsdk.environments.vector.connected import seed_of
from rlsdk.errors import SettingsError
from rlsdk.spaces import Box, Discrete, MultiBinary
from rlsdk.tree import leaves
from rlsdk_datasets import open_episodes
from rlsdk_interchange.controls import player_of
from rlsdk_interchange.human import Window, record_human
from rlsdk_interchange.recording import PlayerLeftError

PICTURE = np.zeros((20, 30, 3), np.uint8)


def box(low: Any, high: Any, dtype: str = "float32") -> Box:
    ends = np.array(low, dtype), np.array(high, dtype)
    return Box(*ends, shape=ends[0].shape, dtype=dtype)


class Script:
    """A simulated player: it returns what is held at each picture, in turn. If `leaves`, it stops after the last one."""

    def __init__(self, *held: Mapping[str, float], leaves: bool = False) -> None:
        self.script, self.leaves, self.at = held, leaves, 0

    def held(self, picture: Any) -> Mapping[str, float]:
        assert picture.shape[2] == 3
        self.at += 1
        if self.leaves and self.at > len(self.script):
            raise PlayerLeftError
        return self.script[(self.at - 1) % len(self.script)]


RIGHT: Mapping[str, float] = {"right": 1.0}


def test_a_person_plays(tmp_path: Path) -> None:
    keys = {"left": 0, "right": 1, "none": 0}
    record_human("CartPole-v1", 2, tmp_path / "demo", controls=Script(RIGHT, {}), actions=keys, seed=3)
    episodes = open_episodes(tmp_path / "demo")
    first = episodes.episode(0)
    assert leaves(first.actions)[0].tolist() == [1 - step % 2 for step in range(len(first.rewards))]
    assert (len(episodes), first.seed) == (2, seed_of(3, 0))
    whole = Script(*[RIGHT] * 15, leaves=True)
    record_human("CartPole-v1", 9, tmp_path / "left", controls=whole, actions=keys, seed=3)
    assert len(open_episodes(tmp_path / "left")) == 1, "whole episodes are stored"
    with pytest.raises(SettingsError, match="no episode was played to its end"):
        record_human("CartPole-v1", 9, tmp_path / "none", controls=Script({}, leaves=True), seed=3)
    assert not (tmp_path / "none.safetensors").exists()


def test_a_person_plays_a_box(tmp_path: Path) -> None:
    env = "Pendulum-v1?max_episode_steps=4"
    held = Script({"left": 1.0}, {}, {"axis0": 0.25}, {"right": 1.0, "left": 1.0})
    moves = {"left": "0:-1", "right": "0", "axis0": "0", "none": "0:0.5"}
    record_human(env, 2, tmp_path / "demo", controls=held, actions=moves, seed=1)
    episodes = open_episodes(tmp_path / "demo")
    played = [leaves(episode.actions)[0] for episode in episodes]
    assert [(rows.dtype, rows.shape) for rows in played] == [(torch.float32, (4, 1))] * 2
    # rest 0.5; the axis goes a quarter of the way from 0.5 to 2; both keys: 0.5 + (2 - 0.5) + (-1 - 0.5)
    assert played[0].flatten().tolist() == pytest.approx([-1.0, 0.5, 0.875, 0.5])
    # what is recorded is what the environment got
    again = gymnasium.make("Pendulum-v1")
    observation, _ = again.reset(seed=episodes.episode(0).seed)
    for row, action in enumerate(played[0]):
        assert np.allclose(observation, episodes.episode(0).observations[row].numpy(), atol=1e-6)
        observation, *_ = again.step(action.numpy())


def acts(space: Any, held: Mapping[str, float], given: Mapping[str, int | str] | None = None) -> list[Any]:
    player, _ = player_of(space, given or {}, {})
    return np.asarray(player(held, True)).tolist()


def test_keys_and_gamepads_choose_discrete_actions() -> None:
    space, keys = Discrete(3, -1), {"left": -1, "hat-left": "-1", "button0": "1", "axis0+": "1", "none": "0"}
    for held, action in (
        ({}, 0), ({"left": 1}, -1), ({"hat-left": 1}, -1), ({"button0": 1}, 1), ({"axis0+": 0.6}, 1), ({"axis0+": 0.4}, 0),
        ({"axis0": 0.9, "z": 1}, 0),
    ):  # fmt: skip
        assert acts(space, held, keys) == [action]
    assert acts(space, {"2": 1}) == [1], "digits, if nothing else is given"
    assert player_of(space, {}, {"up": 1})[1] == "none=1, up=1"


def test_the_usual_keys_of_a_box_reach_every_bound() -> None:
    space = box([-2.0, 0.0, -np.inf, -0.5], [1.0, 1.0, np.inf, np.inf])
    assert acts(space, {}) == [[0, 0, 0, 0]]
    assert acts(space, {"left": 1, "up": 1, "d": 1, "s": 1}) == [[-2, 1, 1, -0.5]]
    assert acts(space, {"right": 1, "down": 1, "a": 1, "w": 1}) == [[1, 0, -1, 1]]
    assert acts(space, {"axis0-": 0.5, "axis1-": 0.5, "axis2+": 1, "axis3-": 1}) == [[-1, 0.5, 1, 1]], "pushed up is up"
    assert acts(space, {"axis0+": 0.5, "axis1+": 1}) == [[0.5, 0, 0, 0]]
    table = player_of(space, {}, {})[1]
    assert table.startswith("left=0:-2, right=0:1, axis0-=0:-2, axis0+=0:1, up=1:1, axis1-=1:1"), table
    assert "down" not in table, "a key that changes nothing"


@pytest.mark.parametrize(
    ("space", "given", "held", "action"),
    [
        (box([-1.0], [1.0]), {"axis1": "0:-1"}, {"axis1": 0.5}, [[-0.5]]),
        (box([-1.0], [1.0]), {"axis1": "0:-1"}, {"axis1": -0.5}, [[0.5]]),
        (box([-1.0, 0.0], [1.0, 3.0]), {"a": "0:-1, 1:3"}, {"a": 1}, [[-1, 3]]),
        (box([0.0], [1.0]), {"trigger5": "0"}, {"trigger5": 0.25}, [[0.25]]),
        (box([1.0], [2.0]), {"space": "0"}, {}, [[1]]),  # rest is the bound next to 0
        (box([0], [255], "uint8"), {"a": "0:99.6"}, {"a": 1}, [[100]]),
        (box([[-1.0], [-1.0]], [[1.0], [1.0]]), {"a": "1:.5"}, {"a": 1}, [[[0], [0.5]]]),
        (box([-np.inf], [np.inf]), {"a": "0:1e3", "b": "0:1e3"}, {"a": 1, "b": 1}, [[2000]]),
        (box([-1.0], [1.0]), {"a": "0:1", "b": "0:1"}, {"a": 1, "b": 1}, [[1]]),
    ],
)
def test_moves_of_a_box(space: Box, given: dict[str, str], held: dict[str, float], action: list[Any]) -> None:
    assert acts(space, held, given) == action


def test_steps_stay_until_the_episode_ends() -> None:
    player, table = player_of(box([-1.0], [1.0]), {"right": "0+0.4", "left": "0-0.4", "space": "0:1"}, {})
    assert table == "right=0+0.4, left=0-0.4, space=0:1"

    def at(held: Mapping[str, float], begins: bool = False) -> float:
        return float(player(held, begins)[0, 0])

    assert [at(RIGHT, True), at(RIGHT), at({}), at(RIGHT), at({"left": 1})] == pytest.approx([0.4, 0.8, 0.8, 1.0, 0.6])
    assert at({"space": 1}) == 1
    assert at({}) == pytest.approx(0.6), "keys that do not stay move nothing for good"
    assert at({}, True) == 0


@pytest.mark.parametrize(
    ("space", "given", "words"),
    [
        (Discrete(2), {"left": 7}, "has the actions 0 to 1"),
        (Discrete(2), {"left": "9" * 5000}, "has the actions 0 to 1"),
        (Discrete(2), {"left": "0:1"}, "has the actions 0 to 1"),
        (Discrete(2), {"smile": 0}, "keys are left, right"),
        (Discrete(2), {"escape": 0}, "keys are left, right"),
        (Discrete(2), {"axis0x": 0}, "axis0, axis0"),
        (box([-1.0], [1.0]), {"left": "1:0"}, "has the dimensions 0 to 0"),
        (box([-1.0], [1.0]), {"left": "0:-2"}, "dimension 0 goes from -1 to 1"),
        (box([-1.0], [np.inf]), {"left": "0:1e999"}, "dimension 0 goes from -1 to inf"),
        (box([-1.0], [1.0]), {"left": "0:x"}, "is not left=DIMENSION, DIMENSION:VALUE or DIMENSION"),
        (box([-1.0], [1.0]), {"none": "0"}, "is not none=DIMENSION:VALUE"),
        (MultiBinary((2,)), {}, "plays Discrete and Box actions"),
        (box(np.zeros((0,)), np.zeros((0,))), {}, "plays Discrete and Box actions"),
    ],
)
def test_wrong_key_maps_are_one_line(space: Any, given: dict[str, int | str], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as raised:
        player_of(space, given, {})
    assert len(str(raised.value)) < 600
    assert "\n" not in str(raised.value)


class Declares(gymnasium.Env[Any, Any]):
    """An environment that declares keys, one of them with an action that no Discrete space has."""

    observation_space = gym_spaces.Box(-1.0, 1.0, (1,))
    action_space = gym_spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  # as gymnasium declares it

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def get_keys_to_action(self) -> dict[Any, Any]:
        return {(): 1, (ord("a"),): 0, "d": 2, ("a", "d"): 1, ("w",): np.zeros(2)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, True, {}

    def render(self) -> Any:
        return PICTURE


def test_an_environment_declares_its_keys(tmp_path: Path) -> None:
    gymnasium.register("Declares-v0", Declares)
    try:
        record_human("Declares-v0", 3, tmp_path / "demo", controls=Script({"a": 1}, {"d": 1}, {}))
    finally:
        del gymnasium.registry["Declares-v0"]
    assert [leaves(e.actions)[0].tolist() for e in open_episodes(tmp_path / "demo")] == [[0], [2], [1]]


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    made = Window(fps=0)
    post(made, "KEYDOWN", key=pygame.K_z)
    post(made, "KEYUP", key=pygame.K_z)
    assert made.held(PICTURE) == {"z": 1.0}
    yield made
    pygame.quit()


def post(window: Window, kind: str, **values: Any) -> None:
    window.pygame.event.post(window.pygame.event.Event(getattr(window.pygame, kind), values))


def test_keys_of_the_window(window: Window) -> None:
    pygame = window.pygame
    post(window, "KEYDOWN", key=pygame.K_LEFT)
    post(window, "KEYDOWN", key=pygame.K_RETURN)
    assert set(window.held(PICTURE)) == {"left", "return"}
    assert set(window.held(PICTURE)) == {"left", "return"}, "held until it is released"
    post(window, "KEYUP", key=pygame.K_LEFT)
    assert set(window.held(PICTURE)) == {"return"}
    post(window, "KEYDOWN", key=pygame.K_a)
    post(window, "KEYUP", key=pygame.K_a)
    assert "a" in window.held(PICTURE), "a tap between two pictures is not lost"
    assert "a" not in window.held(PICTURE)


def test_the_first_key_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    made, waited = Window(fps=0), list[int]()

    def tick(fps: float) -> None:
        waited.append(1)
        if len(waited) == 5:
            post(made, "KEYDOWN", key=pygame.K_SPACE)

    monkeypatch.setattr(made, "clock", SimpleNamespace(tick=tick))
    assert made.held(PICTURE) == {"space": 1.0}
    assert len(waited) == 5
    post(made, "KEYUP", key=pygame.K_SPACE)
    made.held(PICTURE)
    assert made.held(PICTURE) == {}, "later pictures do not wait"
    assert len(waited) == 7
    pygame.quit()


@pytest.mark.parametrize("how", ["escape", "close"])
def test_leaving_the_window(window: Window, how: str) -> None:
    if how == "escape":
        post(window, "KEYDOWN", key=window.pygame.K_ESCAPE)
    else:
        post(window, "QUIT")
    with pytest.raises(PlayerLeftError):
        window.held(PICTURE)


def test_a_gamepad(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    monkeypatch.setattr(
        window.pygame, "joystick", SimpleNamespace(Joystick=lambda index: opened.append(index) or object())
    )
    post(window, "JOYDEVICEADDED", device_index=0)
    post(window, "JOYDEVICEADDED", device_index=1)
    assert window.held(PICTURE) == {}
    assert opened == [0], "the first gamepad is used"
    post(window, "JOYAXISMOTION", axis=1, value=-0.75)
    post(window, "JOYBUTTONDOWN", button=3)
    post(window, "JOYHATMOTION", hat=0, value=(-1, 1))
    held = dict(window.held(PICTURE))
    assert held == {
        "axis1": -0.75, "axis1-": 0.75, "trigger1": 0.125, "button3": 1.0, "hat-left": 1.0, "hat-up": 1.0,
    }  # fmt: skip
    post(window, "JOYHATMOTION", hat=0, value=(0, 0))
    post(window, "JOYBUTTONUP", button=3)
    post(window, "JOYAXISMOTION", axis=1, value=0.5)
    post(window, "JOYAXISMOTION", axis=1, value=-0.05)
    window.held(PICTURE)
    assert set(window.held(PICTURE)) == {"trigger1"}, "sticks at rest report small values"
    post(window, "JOYAXISMOTION", axis=5, value=-1.0)
    assert "trigger5" not in window.held(PICTURE), "a trigger rests at -1"
    post(window, "JOYAXISMOTION", axis=5, value=1.2)
    assert window.held(PICTURE)["trigger5"] == 1
    post(window, "JOYDEVICEREMOVED", instance_id=0)
    assert window.held(PICTURE) == {}, "what a lost gamepad held is released"
    post(window, "JOYDEVICEADDED", device_index=0)
    window.held(PICTURE)
    assert opened == [0, 0]


def test_the_command_plays_in_a_window(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: `--keys`, the window of pygame with its dummy driver, and events."""
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shown = Window.held

    def with_events(self: Window, picture: Any) -> Any:
        self.fps = 0
        post(self, "KEYDOWN", key=pygame.K_LEFT)
        if self.screen is not None:
            post(self, "KEYUP", key=pygame.K_LEFT)
            post(self, "KEYDOWN", key=pygame.K_RIGHT)
        return shown(self, picture)

    monkeypatch.setattr(Window, "held", with_events)
    place = ("--env", "Pendulum-v1", "--env-kwargs", "max_episode_steps=3")
    code, out, err = cli(
        "record-episodes", "--human", *place, "--episodes", "2", "--keys", "left=0:-1.5", "--keys", "right=0:0.5"
    )
    pygame.quit()
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "keys: left=0:-1.5, right=0:0.5; the first key starts, escape stops"
    first, second = (leaves(episode.actions)[0].flatten().tolist() for episode in open_episodes("demo"))
    assert (first, second) == ([-1.5, -1.0, -1.0], [-1.0] * 3)
