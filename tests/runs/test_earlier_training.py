"""A training in the folder of an earlier one loses nothing of it, and nothing of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.callbacks import CheckpointCallback, LambdaCallback
from rlsdk.callbacks.checkpoint import set_aside
from rlsdk.errors import ArtifactError
from rlsdk.runs.directory import RunDirectory
from rlsdk.tree import flatten
from rlsdk_dqn import DQN
from rlsdk_envs.toy import ChainEnv
from rlsdk_interchange import RecordEpisodes
from rlsdk_ppo import PPO
from rlsdk_ppo.config import PPOConfig
from rlsdk_sb3 import EvalCallback

MOVED = r"would be replaced by this training; moved to .*earlier_\d"


def on_policy(seed: int | None = 0) -> PPO:
    return PPO("MlpPolicy", ChainEnv(5), n_steps=16, batch_size=16, n_epochs=1, seed=seed)


def off_policy(seed: int) -> DQN:
    small: dict[str, Any] = {"buffer_size": 300, "learning_starts": 10, "policy_kwargs": {"net_arch": [4]}}
    return DQN("MlpPolicy", "CartPole-v1", seed=seed, **small)


def files(folder: Path, pattern: str = "*.rlsdk") -> set[str]:
    """The files below a folder, without the parts of replay buffers."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob(pattern))
    return {name for name in found if "replay/" not in name}


@pytest.fixture
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("keep", [2, None])
@pytest.mark.parametrize("seed", [0, None])
def test_checkpoints_of_an_earlier_training_are_kept_beside_the_new_ones(
    keep: int | None, seed: int | None, tmp_path: Path
) -> None:
    on_policy(seed).learn(64, CheckpointCallback(16, tmp_path, keep=keep))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.rlsdk")}
    with pytest.warns(UserWarning, match=MOVED):
        on_policy(seed).learn(32, CheckpointCallback(16, tmp_path, keep=keep))
    assert {path.name for path in tmp_path.glob("*.rlsdk")} == {"step_000000016.rlsdk", "step_000000032.rlsdk"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "earlier_1").iterdir()} == before
    with pytest.warns(UserWarning, match="earlier_2"):
        on_policy(seed).learn(16, CheckpointCallback(16, tmp_path, keep=keep))
    assert len(list((tmp_path / "earlier_2").iterdir())) == 2


def test_a_resumed_training_goes_on_with_its_own_files(tmp_path: Path, silent: None) -> None:
    on_policy().learn(32, CheckpointCallback(16, tmp_path))
    again = PPO.load(tmp_path / "step_000000032", env=ChainEnv(5))
    again.learn(32, CheckpointCallback(16, tmp_path), reset_num_timesteps=False)
    assert files(tmp_path) == {"step_000000048.rlsdk", "step_000000064.rlsdk"}
    saver = CheckpointCallback(16, tmp_path)
    saver.save(again)  # outside of a training
    assert files(tmp_path) == {"step_000000048.rlsdk", "step_000000064.rlsdk"}


def test_checkpoints_after_the_one_that_is_resumed_are_kept(tmp_path: Path) -> None:
    on_policy().learn(64, CheckpointCallback(16, tmp_path, keep=None))
    again = PPO.load(tmp_path / "step_000000032", env=ChainEnv(5))
    with pytest.warns(UserWarning, match=MOVED):
        again.learn(16, CheckpointCallback(16, tmp_path), reset_num_timesteps=False)
    assert files(tmp_path) == {
        *("step_000000032.rlsdk", "step_000000048.rlsdk"),
        *("earlier_1/step_000000048.rlsdk", "earlier_1/step_000000064.rlsdk"),
    }


def test_prefixes_do_not_meet(tmp_path: Path) -> None:
    savers = [CheckpointCallback(16, tmp_path, name_prefix=name, keep=1) for name in ("a[1]", "b")]
    on_policy().learn(32, savers)
    with pytest.warns(UserWarning, match=MOVED):
        on_policy().learn(16, CheckpointCallback(16, tmp_path, name_prefix="b", keep=1))
    assert files(tmp_path) == {"a[1]_32_steps.rlsdk", "b_16_steps.rlsdk", "earlier_1/b_32_steps.rlsdk"}


def test_two_trainings_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    second, mine = on_policy(2).learn(16), CheckpointCallback(16, tmp_path, keep=1)
    seen: list[bytes] = []

    def meanwhile(run: Any, path: Path) -> None:
        if run.num_timesteps == 16:
            seen.append(path.read_bytes())
            CheckpointCallback(16, tmp_path, keep=1).save(second)

    with pytest.warns(UserWarning, match=MOVED):
        on_policy(1).learn(32, [mine, LambdaCallback(on_checkpoint=meanwhile)])
    assert (tmp_path / "earlier_1" / "step_000000016.rlsdk").read_bytes() == seen[0]
    assert files(tmp_path) == {"earlier_1/step_000000016.rlsdk", "step_000000016.rlsdk", "step_000000032.rlsdk"}
    assert PPO.load(tmp_path / "step_000000016").seed == 2


def test_moved_checkpoints_keep_their_replay_buffer(tmp_path: Path) -> None:
    first = off_policy(1).learn(200, CheckpointCallback(100, tmp_path))
    with pytest.warns(UserWarning, match=MOVED):
        off_policy(2).learn(200, CheckpointCallback(100, tmp_path))
    moved = DQN.load(tmp_path / "earlier_1" / "step_000000200", env="CartPole-v1")
    assert rows(moved, 200) == rows(first, 200)


def rows(agent: Any, count: int) -> list[list[float]]:
    state = agent.training_state(include={"replay"})["replay"]
    leaves = flatten(state)
    return [
        leaf[:count].flatten().tolist() for leaf in leaves.values() if isinstance(leaf, torch.Tensor) and leaf.dim()
    ]


@pytest.mark.parametrize("steps", [50, 150, 210])
def test_one_callback_for_two_agents_mixes_no_rows(steps: int, tmp_path: Path) -> None:
    """The second agent's checkpoints held rows of the first, or could not be written."""
    saver = CheckpointCallback(steps, tmp_path)
    off_policy(1).learn(steps, saver)
    with pytest.warns(UserWarning, match=MOVED):
        second = off_policy(2).learn(210, saver)
    stored = DQN.load(max(tmp_path.glob("*.rlsdk")), env="CartPole-v1")
    assert rows(stored, stored.num_timesteps) == rows(second, stored.num_timesteps)


def test_a_buffer_that_was_loaded_meanwhile_is_written(tmp_path: Path) -> None:
    other = off_policy(3).learn(150)
    other.save_replay_buffer(tmp_path / "rows")
    agent, saver = off_policy(1), CheckpointCallback(100, tmp_path)
    agent.learn(100, saver)
    agent.load_replay_buffer(tmp_path / "rows")
    saver.save(agent)
    stored = DQN.load(tmp_path / "step_000000100", env="CartPole-v1")
    assert rows(stored, 150) == rows(other, 150)


def evaluator(folder: Path, *, log: bool = True, n: int = 2) -> EvalCallback:
    return EvalCallback(
        ChainEnv(5),
        eval_freq=16,
        n_eval_episodes=n,
        best_model_save_path=folder,
        log_path=folder if log else None,
        verbose=0,
    )


def steps_in(folder: Path) -> list[int]:
    with np.load(folder / "evaluations.npz") as found:
        return [int(step) for step in found["timesteps"]]


def test_a_new_evaluation_keeps_the_best_agent_of_an_earlier_training(tmp_path: Path) -> None:
    first = evaluator(tmp_path)
    on_policy().learn(32, first)
    best = (tmp_path / "best.rlsdk").read_bytes()
    with pytest.warns(UserWarning, match=MOVED) as caught:
        on_policy().learn(16, evaluator(tmp_path))
    assert len([one for one in caught if "earlier_" in str(one.message)]) == 1
    assert (tmp_path / "earlier_1" / "best.rlsdk").read_bytes() == best
    assert (steps_in(tmp_path), steps_in(tmp_path / "earlier_1")) == ([16], [16, 32])
    assert (tmp_path / "best.rlsdk").exists()


def test_a_continued_training_replaces_its_best_agent_only_by_a_better_one(tmp_path: Path, silent: None) -> None:
    agent = on_policy()
    agent.learn(16, evaluator(tmp_path))
    with np.load(tmp_path / "evaluations.npz") as found:
        arrays = dict(found)
    arrays["results"][:] = 1e6
    np.savez(tmp_path / "evaluations.npz", **arrays)
    best, again = (tmp_path / "best.rlsdk").read_bytes(), evaluator(tmp_path)
    agent.learn(16, again, reset_num_timesteps=False)
    assert (tmp_path / "best.rlsdk").read_bytes() == best
    assert (again.best_mean_reward, steps_in(tmp_path)) == (1e6, [16, 32])
    arrays["results"][:] = -1e6
    np.savez(tmp_path / "evaluations.npz", **arrays)
    agent.learn(16, evaluator(tmp_path), reset_num_timesteps=False)
    assert (tmp_path / "best.rlsdk").read_bytes() != best


def test_results_that_do_not_go_on_are_kept(tmp_path: Path) -> None:
    agent = on_policy()
    agent.learn(32, evaluator(tmp_path))
    agent.save(tmp_path / "at_32")
    agent.learn(16, evaluator(tmp_path), reset_num_timesteps=False)
    with pytest.warns(UserWarning, match=MOVED):  # other numbers of episodes do not fit one array
        agent.learn(16, evaluator(tmp_path, n=3), reset_num_timesteps=False)
    assert (steps_in(tmp_path), steps_in(tmp_path / "earlier_1")) == ([64], [16, 32, 48])
    back = PPO.load(tmp_path / "at_32", env=ChainEnv(5))
    with pytest.warns(UserWarning, match=MOVED):  # the file knows more than the resumed training
        back.learn(16, evaluator(tmp_path, n=3), reset_num_timesteps=False)
    assert (steps_in(tmp_path), steps_in(tmp_path / "earlier_2")) == ([48], [64])
    with pytest.warns(UserWarning, match=MOVED):  # without a log the return of the best agent is not known
        back.learn(16, evaluator(tmp_path, log=False), reset_num_timesteps=False)
    assert (tmp_path / "earlier_3" / "best.rlsdk").exists()


def test_recorded_episodes_are_kept(tmp_path: Path) -> None:
    on_policy().learn(64, RecordEpisodes(tmp_path / "demo"))
    before = (tmp_path / "demo.safetensors").read_bytes()
    with pytest.warns(UserWarning, match=MOVED):
        on_policy(5).learn(64, RecordEpisodes(tmp_path / "demo"))
    assert (tmp_path / "earlier_1" / "demo.safetensors").read_bytes() == before


def test_metrics_of_a_run_without_agent_are_kept(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.csv.write_text("step\n1\n")
    directory.record.write_text("{}")
    with pytest.warns(UserWarning, match=MOVED), directory.created():
        pass
    assert (tmp_path / "earlier_1" / "metrics.csv").read_text() == "step\n1\n"
    assert not directory.record.exists()


def test_settings_that_a_user_wrote_are_kept(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.config.write_text("# mine\ngamma = 0.9\n")
    with pytest.warns(UserWarning, match=MOVED):
        directory.write_config(PPOConfig, {"gamma": 0.9}, "of the run")
    directory.write_config(PPOConfig, {"gamma": 0.9}, "of the run")
    assert not (tmp_path / "earlier_2").exists()
    assert (tmp_path / "earlier_1" / "config.toml").read_text() == "# mine\ngamma = 0.9\n"


def test_a_file_that_cannot_be_moved_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_policy().learn(16, CheckpointCallback(16, tmp_path))
    before = (tmp_path / "step_000000016.rlsdk").read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("rlsdk.callbacks.checkpoint.os.replace", refuse)
    with pytest.raises(ArtifactError, match="cannot be moved aside: Permission denied; choose another folder"):
        on_policy().learn(16, CheckpointCallback(16, tmp_path))
    assert (tmp_path / "step_000000016.rlsdk").read_bytes() == before
    set_aside([tmp_path / "none"])  # nothing to move
