"""Learning from recorded episodes without an environment; replay buffers on disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env
from rlsdk.errors import ObservationError, ResourceError, RlsdkError, SettingsError, UsageError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.runtime import memory
from rlsdk_datasets import RecordedOnly
from rlsdk_envs.toy import AnySpaceEnv, IdentityEnv, IdentityEnvBox
from rlsdk_interchange.recorded_data import remember
from rlsdk_qrdqn import QRDQN
from rlsdk_tqc import TQC
from rlsdk_trpo import TRPO

SMALL: dict[str, Any] = {"buffer_size": 5000, "batch_size": 32, "seed": 0}


def recorded(env: Any, episodes: int) -> list[Any]:
    """Return episodes of random actions, with the attributes of Minari's episodes."""
    env.action_space.seed(0)
    found = []
    for number in range(episodes):
        seen, actions, rewards, ends = [env.reset(seed=number)[0]], [], [], []
        while not ends or not any(ends[-1]):
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(action)
            seen.append(observation)
            actions.append(action)
            rewards.append(reward)
            ends.append((terminated, truncated))
        ended = np.array(ends)
        stacked = _stacked(env.observation_space, seen)
        found.append(
            SimpleNamespace(
                observations=stacked,
                actions=np.array(actions),
                rewards=np.array(rewards),
                terminations=ended[:, 0],
                truncations=ended[:, 1],
            )
        )
    return found


def _stacked(space: Any, rows: list[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _stacked(child, [row[key] for row in rows]) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_stacked(child, [row[i] for row in rows]) for i, child in enumerate(space.spaces))
    return np.array(rows)


def test_an_agent_learns_from_recordings_alone() -> None:
    env = IdentityEnv(4)
    quick = {"gamma": 0.0, "learning_rate": 3e-3, "target_update_interval": 50, "policy_kwargs": {"n_quantiles": 10}}
    model = QRDQN("MlpPolicy", RecordedOnly(env.observation_space, env.action_space), **quick, **SMALL)
    assert remember(model, recorded(env, 20)) == 2000 == len(model.replay_buffer)
    model.train(600)
    assert model.parts.algorithm.target_updates == 600 * 4 // 50, "as if the steps of every update had been made"  # type: ignore[attr-defined]
    assert run_episodes(model, IdentityEnv(4), 5, seed=1).mean > 95.0
    with pytest.raises(UsageError, match="only recordings"):
        model.learn(10)
    model.set_env(IdentityEnv(4))
    model.learn(600)
    assert model.parts.algorithm.counted == 600, "counting continues with the environment's own steps"  # type: ignore[attr-defined]


def test_continuous_actions_and_normalization() -> None:
    env = IdentityEnvBox(episode_length=20)
    only = RecordedOnly(env.observation_space, env.action_space)
    model = TQC("MlpPolicy", only, policy_kwargs={"net_arch": [16]}, normalize=True, **SMALL)
    episodes = recorded(env, 10)
    remember(model, episodes)
    values = np.concatenate([episode.observations[:-1] for episode in episodes])
    (moments,) = model.preprocessing.normalizer.moments.values()
    assert moments.mean == pytest.approx(values.mean(0), abs=1e-3)
    assert all(np.isfinite(value) for value in model.train(20).values())


def test_what_was_recorded_is_what_is_sampled() -> None:
    """The sampled batch has the recorded Dict observations, actions, rewards and ends of episodes."""
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float64), "b": spaces.Discrete(3)})
    env = AnySpaceEnv(space, spaces.Discrete(2), 6)
    episodes = recorded(env, 5)
    for i, episode in enumerate(episodes):
        episode.terminations[-1], episode.truncations[-1] = i % 2 == 0, False
    model = QRDQN("MultiInputPolicy", RecordedOnly(env.observation_space, env.action_space), **SMALL)
    count = remember(model, [vars(episode) for episode in episodes])
    batch = model.replay_buffer.at(torch.arange(count))
    row = 0
    for i, episode in enumerate(episodes):
        for t in range(len(episode.rewards)):
            assert batch.observation.features["a"][row].numpy() == pytest.approx(episode.observations["a"][t])
            assert int(batch.next_observation.features["b"][row]) == episode.observations["b"][t + 1]
            assert int(batch.action[row]) == episode.actions[t]
            assert float(batch.reward[row]) == pytest.approx(episode.rewards[t])
            ended = t == len(episode.rewards) - 1 and i % 2 == 0
            assert float(batch.discount[row]) == pytest.approx(0.0 if ended else 0.99)
            assert bool(batch.observation.is_first[row]) == (t == 0)
            row += 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observations": np.zeros((3, 1), np.float32)}, "expected \\(6, 1\\)"),
        ({"observations": {"x": 1}}, "shape|nested"),
        ({"actions": np.zeros((5, 2), np.float32)}, "expected \\(5, 1\\)"),
        ({"actions": np.full((5, 1), np.nan, np.float32)}, "finite"),
        ({"rewards": np.array([1, 2, np.inf, 4, 5])}, "finite"),
        ({"rewards": None}, "has no 'rewards'"),
        ({"terminations": np.zeros(4, bool)}, "must be True or False for each"),
        ({"terminations": np.array([0, 1, 0, 0, 0], bool)}, "after its end"),
    ],
)
def test_bad_recordings_name_the_episode(change: dict[str, Any], words: str) -> None:
    env = IdentityEnvBox(episode_length=5)
    good, bad = recorded(env, 2)
    model = TQC("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, **SMALL)
    with pytest.raises(ObservationError, match=f"episode 1.*({words})"):
        remember(model, [good, {**vars(bad), **change}])


def test_recordings_that_cannot_be_used() -> None:
    env = IdentityEnvBox(episode_length=5)
    with pytest.raises(UsageError, match="no replay buffer"):
        remember(TRPO("MlpPolicy", env), [])
    two = make_vec_env(lambda: IdentityEnvBox(episode_length=5), 2, vectorization="sync")
    with pytest.raises(UsageError, match="one environment"):
        remember(TQC("MlpPolicy", two, **SMALL), [])
    with pytest.raises(SettingsError, match="buffer_size = 40"):
        remember(TQC("MlpPolicy", env, **{**SMALL, "buffer_size": 40}), recorded(env, 9))


def test_a_minari_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    from minari.data_collector import EpisodeBuffer

    env = gymnasium.make("CartPole-v1")
    episodes = recorded(env, 3)
    buffers = [EpisodeBuffer(**vars(episode)) for episode in episodes]
    minari.create_dataset_from_buffers("rlsdk/cart-v0", buffers, env=env)
    dataset = minari.load_dataset("rlsdk/cart-v0")
    model = QRDQN("MlpPolicy", RecordedOnly(dataset.observation_space, dataset.action_space), **SMALL)
    steps = sum(len(episode.rewards) for episode in episodes)
    assert remember(model, dataset.iterate_episodes()) == steps
    first = model.replay_buffer.at(torch.arange(len(episodes[0].rewards)))
    assert first.next_observation.features[-1].numpy() == pytest.approx(episodes[0].observations[-1])
    model.train(5)


@pytest.mark.parametrize("memory", ["uniform", "prioritized"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_memory_on_disk_is_the_same_memory(tmp_path: Path, memory: str, shared: bool) -> None:
    trained = []
    for options in ({}, {"directory": str(tmp_path / "new" / "folder")}):
        settings = {**SMALL, "buffer_size": 300, "learning_starts": 50, "optimize_memory_usage": shared}
        model = QRDQN("MlpPolicy", IdentityEnv(3), replay_buffer_class=memory, replay_buffer_kwargs=options, **settings)
        model.learn(500)
        trained.append(torch.cat([p.detach().flatten() for p in model.policy.parameters()]))
        files = list((tmp_path / "new" / "folder").rglob("0*")) if options else []
        assert bool(files) == bool(options)
        assert (model.replay_buffer.bytes_required() < 9000) == bool(options), "what is left is the tree of priorities"
    assert torch.equal(*trained)
    path = tmp_path / "kept"
    model.save_replay_buffer(path)
    model.load_replay_buffer(path)
    assert len(model.replay_buffer) == 300
    del model
    import gc

    gc.collect()
    assert not list((tmp_path / "new" / "folder").iterdir()), "the files go with the agent"


def test_a_place_that_cannot_hold_a_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(directory: Path, size: int = 1000) -> RlsdkError:
        kwargs = {"replay_buffer_kwargs": {"directory": str(directory)}}
        with pytest.raises(RlsdkError) as caught:
            QRDQN("MlpPolicy", IdentityEnv(3), **{**SMALL, "buffer_size": size}, **kwargs)
        return caught.value

    (tmp_path / "file").write_text("")
    assert "cannot be used" in str(make(tmp_path / "file"))
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    error = make(tmp_path / "full")
    assert isinstance(error, ResourceError)
    assert "lower buffer_size" in str(error)
