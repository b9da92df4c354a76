"""TD3+BC: accepted data sets, the effect of `alpha`, normalization of states, and exact resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import to_space
from rlsdk.errors import RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.tree import flatten, leaves
from rlsdk_datasets import Dataset, RecordedEpisode, open_episodes, write_episodes
from rlsdk_td3_bc import TD3BC

SEEN, FORCE = spaces.Box(-9.0, 9.0, (2,)), spaces.Box(-2.0, 2.0, (1,))
SMALL: dict[str, Any] = {"seed": 0, "batch_size": 64, "policy_kwargs": {"net_arch": [32]}, "learning_rate": 1e-3}


def recorded(path: Path, actions: spaces.Space[Any] = FORCE, best: float = 1.0) -> Path:
    """Record episodes of one step with actions of -0.5 +- 0.5; the action with the largest reward is `best`."""
    dice, episodes = torch.Generator().manual_seed(0), []
    for _ in range(400):
        seen = torch.randn(2, 2, generator=dice)
        chosen = (torch.randn(1, 1, generator=dice) * 0.5 - 0.5).clamp(-2, 2)
        if isinstance(actions, spaces.Discrete):
            chosen = torch.zeros(1, dtype=torch.int64)
        episodes.append(RecordedEpisode(seen, chosen, -((chosen.flatten() - best) ** 2), True))
    return write_episodes(path, episodes, to_space(SEEN), to_space(actions))


def learner(data: Path | None, env: str | None = None, **settings: Any) -> Any:
    return TD3BC("MlpPolicy", env, dataset=None if data is None else Dataset.at(data), **{**SMALL, **settings})


def weights(agent: Any) -> dict[str, torch.Tensor]:
    found: dict[str, Any] = flatten(agent.get_parameters()["policy"])
    return found


def action(agent: Any) -> float:
    return float(np.mean([agent.predict([x, 0.0], deterministic=True)[0][0] for x in (-1.0, 0.0, 1.0)]))


def test_alpha_is_between_cloning_and_what_the_critic_likes(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    found = [action(learner(data, alpha=alpha).learn(600)) for alpha in (0.0, 2.5)]
    assert found[0] == pytest.approx(-0.5, abs=0.15), "without the critic it does what the data did on average"
    assert found[1] > found[0] + 0.3, "with it, it moves towards the best action"


def test_states_are_normalized_over_the_whole_data_set(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    agent = learner(data)
    agent.learn(10)
    statistics = agent.preprocessing.normalizer.observations
    rows = torch.cat([leaves(episode.observations)[0][:-1] for episode in open_episodes(data)])
    moments: dict[str, Any] = flatten(statistics.state_dict())
    assert any(torch.allclose(v.float().flatten(), rows.mean(0), atol=1e-4) for v in moments.values() if v.numel() == 2)
    assert agent.preprocessing.normalizer.settings.norm_reward is False


def test_it_goes_on_to_the_bit_and_predicts_without_its_data(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    whole = learner(data).learn(30)
    whole.save(tmp_path / "agent")
    whole.learn(21, reset_num_timesteps=False)
    again = TD3BC.load(tmp_path / "agent", dataset=data).learn(21, reset_num_timesteps=False)
    mine, theirs = weights(whole), weights(again)
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    data.unlink()
    alone = TD3BC.load(tmp_path / "agent")
    assert alone.predict([0.0, 0.0], deterministic=True)[0].shape == (1,)
    with pytest.raises(UsageError, match="needs the data set 'demo'"):
        alone.learn(10)


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    choices = recorded(tmp_path / "choices", spaces.Discrete(2))
    with pytest.raises(UnsupportedSpaceError, match="TD3\\+BC"):
        learner(choices)
    with pytest.raises(SettingsError, match="give dataset=PATH"):
        learner(None, "Pendulum-v1")
    data = recorded(tmp_path / "demo")
    with pytest.raises(UnsupportedSpaceError, match="'demo' was recorded with observations"):
        learner(data, "Pendulum-v1")
    settings: list[dict[str, Any]] = [{"alpha": -1.0}, {"policy_delay": 0}, {"alpha": float("nan")}, {"batch_size": 0}]
    for wrong in settings:
        with pytest.raises(RlsdkError, match=next(iter(wrong))):
            learner(data, **wrong)
