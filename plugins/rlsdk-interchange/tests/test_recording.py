"""Recording episodes: by commands, and by a callback during training; and summaries of data sets."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import RlsdkError, SettingsError, UsageError
from rlsdk.tree import flatten, leaves
from rlsdk_datasets import open_episodes
from rlsdk_envs import ActionMasker
from rlsdk_envs.toy import AnySpaceEnv, IdentityEnv
from rlsdk_interchange import RecordEpisodes, record_episodes

SMALL: dict[str, Any] = {"seed": 0, "n_steps": 32, "batch_size": 32, "policy_kwargs": {"net_arch": [8]}}


def weights(agent: Any) -> dict[str, Any]:
    return flatten(agent.get_parameters()["policy"])


@pytest.mark.parametrize(("algorithm", "n_envs"), [("ppo", 1), ("ppo", 3), ("dqn", 1)])
def test_recording_does_not_change_a_training(algorithm: str, n_envs: int, tmp_path: Path) -> None:
    settings = SMALL if algorithm == "ppo" else {"seed": 0, "learning_starts": 20, "buffer_size": 500}

    def trained(*callbacks: Any) -> Any:
        agent = rlsdk.make(algorithm, env=make_vec_env("CartPole-v1", n_envs), normalize=True, **settings)
        return agent.learn(192, callback=list(callbacks))

    alone, watched = trained(), trained(RecordEpisodes(tmp_path / "demo"))
    mine, theirs = weights(alone), weights(watched)
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    assert alone.num_timesteps == watched.num_timesteps
    episodes = open_episodes(tmp_path / "demo")
    assert len(episodes) > 1
    assert episodes.file.header.environment == "CartPole-v1"
    assert 192 * 0.5 < episodes.steps <= 192 + n_envs
    for episode in episodes:
        assert float(episode.rewards.sum()) == len(episode.rewards), "rewards as the environment gives them"
        seen = leaves(episode.observations)[0]
        assert seen.shape == (len(episode.rewards) + 1, 4)
        assert float(seen[0].abs().max()) <= 0.05, "CartPole begins there: observations are not normalized"
        assert episode.terminated == bool((seen[-1, 0].abs() > 2.4) | (seen[-1, 2].abs() > 0.2095))


def test_the_callback_records_what_fits(tmp_path: Path) -> None:
    agent = rlsdk.make("ppo", env="CartPole-v1", **SMALL)
    agent.learn(128, callback=RecordEpisodes(tmp_path / "two", n_episodes=2))
    assert len(open_episodes(tmp_path / "two")) == 2
    with pytest.raises(SettingsError, match="n_episodes = 0"):
        RecordEpisodes(tmp_path / "none", n_episodes=0)
    with pytest.raises(UsageError, match="plays whole episodes"):
        rlsdk.make("ars", env="CartPole-v1", n_delta=1, seed=0).learn(50, callback=RecordEpisodes(tmp_path / "a"))
    stacked = rlsdk.make("ppo", env="CartPole-v1", frame_stack=2, **SMALL)
    with pytest.raises(UsageError, match="frame_stack"):
        stacked.learn(32, callback=RecordEpisodes(tmp_path / "b"))


def masked() -> Any:
    return ActionMasker(IdentityEnv(4), lambda env: np.array([True, False, True, False]))


def test_random_actions_respect_masks_and_seeds(tmp_path: Path) -> None:
    for name in ("one", "again"):
        record_episodes("random", masked(), 3, tmp_path / name, seed=5)
    episodes = open_episodes(tmp_path / "one")
    actions = torch.cat([leaves(episode.actions)[0] for episode in episodes])
    assert set(actions.tolist()) == {0, 2}
    assert episodes.file.masks() is not None
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()


def test_random_actions_of_any_space_respect_masks(tmp_path: Path) -> None:
    space = spaces.Dict(
        {"bits": spaces.MultiBinary(2), "far": spaces.Box(-np.inf, 2.0, (1,)), "which": spaces.Discrete(3)}
    )
    env = AnySpaceEnv(spaces.Box(-1.0, 1.0, (2,)), space, 5, strict=True)
    record_episodes("random", env, 4, tmp_path / "any", seed=1)
    episodes = open_episodes(tmp_path / "any")
    assert episodes.file.masks() is not None
    far = torch.cat([episode.actions["far"] for episode in episodes])  # type: ignore[call-overload,index]
    assert bool((far <= 2.0).all())
    assert far.unique().numel() > 10


def test_the_command_line(cli: Any) -> None:
    code, out, err = cli("record-episodes", "--random", "--env", "CartPole-v1", "--episodes", "6", "--n-envs", "2")
    assert (code, err) == (0, "")
    assert out.startswith("demo.safetensors: 6 episodes")
    code, out, _ = cli("inspect", "demo")
    assert code == 0
    rows = {line.partition(":")[0]: line.partition(":")[2].strip() for line in out.splitlines()}
    assert (rows["environment"], rows["action masks"]) == ("CartPole-v1", "no")
    assert rows["episodes"].startswith("6: 6 terminated, 0 truncated")
    code, out, _ = cli("inspect", "demo.safetensors", "--json")
    table = json.loads(out)
    assert (table["episodes"], len(table["returns"]), sum(table["lengths"])) == (6, 6, table["steps"])
    code, out, err = cli("plot", "demo", "--out", "demo.png")
    assert code == 0, err
    assert Path("demo.png").stat().st_size > 1000
    assert b"Histograms of 6 episodes" in Path("demo.png").read_bytes()
    found = list(csv.DictReader(Path("demo.csv").read_text().splitlines()))
    assert [float(row["return"]) for row in found] == table["returns"]


def test_an_agent_is_recorded(cli: Any) -> None:
    rlsdk.make("ppo", env="CartPole-v1", **SMALL).learn(32).save("agent")
    code, out, err = cli("record-episodes", "agent.rlsdk", "--episodes", "2", "-o", "mine", "--deterministic")
    assert code == 0, err
    assert out.startswith("mine.safetensors: 2 episodes")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "give one of: an agent file, --random, --human"),
        (("agent", "--random"), "give one of"),
        (("--random",), "--random needs an environment"),
        (("--random", "--env", "Nothing-v9"), "Nothing"),
        (("--random", "--env", "CartPole-v1", "-o", "taken"), "taken.safetensors exists"),
        (("--random", "--env", "CartPole-v1", "-o", "folder.safetensors"), "is a folder"),
        (("--random", "--env", "CartPole-v1", "--keys", "left=0"), "--keys belongs to --human"),
        (("--human", "--env", "CartPole-v1", "--keys", "left"), "is not KEY=ACTION"),
        (("--human", "--env", "CartPole-v1", "--keys", "left="), "is not KEY=ACTION"),
        (("--human", "--env", "CartPole-v1", "--keys", "a=0", "--keys", "a=1"), "give each key once"),
        (("--human", "--env", "CartPole-v1", "--keys", "left=2"), "has the actions 0 to 1"),
        (("--human", "--env", "Pendulum-v1", "--keys", "left=1:0"), "has the dimensions 0 to 0"),
        (("--human", "--env", "CartPole-v1"), "needs a display"),
        (("missing.rlsdk",), "missing.rlsdk"),
    ],
)
def test_what_is_wrong_is_one_line(
    cli: Any, options: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    Path("taken.safetensors").write_text("mine")
    Path("folder.safetensors").mkdir()
    code, _, err = cli("record-episodes", *options)
    assert code == 1
    assert words in err
    assert err.count("\n") == 1
    assert Path("taken.safetensors").read_text() == "mine"
    assert not Path("demo.safetensors").exists()


def test_no_episodes_are_refused(cli: Any) -> None:
    code, _, err = cli("record-episodes", "--random", "--env", "CartPole-v1", "--episodes", "0")
    assert code != 0
    assert "'--episodes'" in err
    with pytest.raises(RlsdkError, match="n_episodes = 0"):
        record_episodes("random", "CartPole-v1", 0, "demo")


@pytest.mark.parametrize("how", ["agent", "random", "callback", "async"])
def test_a_reset_with_the_recorded_seed_gives_the_recorded_observation(how: str, tmp_path: Path) -> None:
    envs = make_vec_env("CartPole-v1", 3, vectorization="async" if how == "async" else "sync")
    agent = rlsdk.make("ppo", env=envs, **SMALL)
    if how == "callback":
        agent.learn(300, callback=RecordEpisodes(tmp_path / "demo"))
    else:
        record_episodes("random" if how == "random" else agent, envs, 6, tmp_path / "demo", seed=7)
    envs.close()
    seeded = [episode for episode in open_episodes(tmp_path / "demo") if episode.seed is not None]
    assert len({episode.seed for episode in seeded}) == 3, "the first episode of each environment"
    env = gymnasium.make("CartPole-v1")
    for episode in seeded:
        assert (episode.observations[0].numpy() == env.reset(seed=episode.seed)[0]).all()


@pytest.mark.parametrize("reset", [False, True])
def test_a_second_training_has_no_false_seeds(reset: bool, tmp_path: Path) -> None:
    """The seeds of the first training do not reproduce the episodes of the second one, so they have no seed."""
    agent = rlsdk.make("ppo", env=IdentityEnv(2, episode_length=8), **{**SMALL, "n_steps": 8, "batch_size": 8}).learn(
        64
    )
    agent.learn(128, callback=RecordEpisodes(tmp_path / "demo"), reset_num_timesteps=reset)
    assert all(episode.seed is None for episode in open_episodes(tmp_path / "demo"))
