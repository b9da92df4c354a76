"""The training loop: whole rollouts, the number of replayed updates, replayed sequences, and exact resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlsdk.errors import SettingsError
from rlsdk.tree import leaves
from rlsdk_acer import ACER
from rlsdk_acer.plan import poisson
from tests.tables import in_one_test

SMALL: dict[str, Any] = {
    "n_steps": 8,
    "buffer_size": 160,
    "replay_start": 32,
    "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6},
    "seed": 0,
}


def recorded(agent: ACER, steps: int) -> list[tuple[int, Any]]:
    """Train, and return (steps in the replay buffer, batch) of every update."""
    update: Any = agent.parts.algorithm
    calls, own = [], update.update

    def spy(batch: Any, *, progress: float) -> Any:
        calls.append((len(agent.parts.buffer or ()), batch))
        return own(batch, progress=progress)

    update.update = spy
    agent.learn(steps)
    return calls


def test_numbers_are_those_of_a_poisson_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = np.array([poisson(4.0, generator) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(4.0, abs=0.15)
    assert drawn.var() == pytest.approx(4.0, abs=0.4)
    assert poisson(0.0, generator) == 0


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_a_memory_gives_back_the_rollouts_that_were_learned_from(policy: str) -> None:
    """Replayed sequences exactly equal the collected ones: steps, probabilities, carries and next observations."""
    agent = ACER(policy, "CartPole-v1", **SMALL, replay_ratio=3.0)
    calls = recorded(agent, 240)
    fresh: dict[bytes, Any] = {}
    replayed = 0
    for _, batch in calls:
        key = batch.steps.observation.features.numpy().tobytes()
        if key not in fresh:
            fresh[key] = batch
            continue
        replayed += 1
        earlier = fresh[key]
        names = ("steps", "next_observation", "discount", "loss_mask", "initial_carry")
        for name in names:
            then, now = getattr(earlier, name), getattr(batch, name)
            if name == "steps":
                assert torch.equal(then.extras["probs"], now.extras["probs"])
                then, now = (
                    (s.action, s.reward, s.terminated, s.truncated, s.observation.is_first) for s in (then, now)
                )
            if name == "next_observation":
                then, now = then.features, now.features
            assert all(map(torch.equal, leaves(then), leaves(now))), name
    assert replayed == len(calls) - 30  # the other 30 updates were of new rollouts
    assert replayed > 50


def test_replay_begins_at_replay_start() -> None:
    calls = recorded(ACER("MlpPolicy", "CartPole-v1", **SMALL, replay_ratio=50.0), 64)
    assert [stored for stored, _ in calls if stored < 32] == [8, 16, 24]
    assert len(calls) > 60


def test_without_replay_each_rollout_is_learned_from_once() -> None:
    assert len(recorded(ACER("MlpPolicy", "CartPole-v1", **SMALL, replay_ratio=0.0), 160)) == 20


def test_a_rollout_as_sequences_has_no_discount_after_a_termination_only() -> None:
    agent = ACER("MlpPolicy", "CartPole-v1", **{**SMALL, "n_steps": 64, "buffer_size": 640})
    (_, batch), *_ = recorded(agent, 64)
    ended = batch.steps.terminated
    assert bool(ended.any())
    assert bool((batch.discount[ended] == 0.0).all())
    assert torch.equal(batch.discount[~ended], torch.full_like(batch.discount[~ended], 0.99))


def test_a_time_limit_leaves_the_discount_of_a_rollout_alone() -> None:
    agent = ACER("MlpPolicy", gymnasium.make("CartPole-v1", max_episode_steps=3), **SMALL)
    (_, batch), *_ = recorded(agent, 8)
    assert bool(batch.steps.truncated.any())
    assert torch.equal(batch.discount, torch.full_like(batch.discount, 0.99))


@pytest.mark.parametrize(("policy", "normalize"), [("MlpPolicy", True), ("MlpLstmPolicy", None)])
def test_a_training_that_was_stopped_continues_to_the_bit(policy: str, normalize: bool | None, tmp_path: Path) -> None:
    settings = {**SMALL, "normalize": normalize, "learning_rate": 1e-3, "replay_ratio": 1.0}
    whole, first = (ACER(policy, "CartPole-v1", **settings) for _ in range(2))
    whole.learn(160)
    first.learn(80).save(tmp_path / "half", include=["replay_buffer"])
    second = ACER.load(tmp_path / "half", env="CartPole-v1", force_reset=False)
    second.learn(80, reset_num_timesteps=False)
    mine: Any
    theirs: Any
    mine, theirs = whole.parts.algorithm, second.parts.algorithm
    for one, other in ((mine.network, theirs.network), (mine.average.network, theirs.average.network)):
        assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
    moments, loaded = mine.optimizer.state_dict(), theirs.optimizer.state_dict()
    assert moments.keys() == loaded.keys()
    assert all(torch.equal(moments[name], loaded[name]) for name in moments)


@in_one_test
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"buffer_size": 7}, "no room for a rollout of n_steps = 8"),
        ({"replay_start": 200}, "replay_start = 200 is never reached"),
        ({"correction_term": 0.0}, "correction_term"),
        ({"replay_ratio": -1.0}, "replay_ratio"),
        ({"delta": -0.1}, "delta"),
        ({"alpha": 1.1}, "alpha"),
        ({"policy_kwargs": {"net_arch": {"vf": [8]}}}, "vf"),
    ],
)
def test_settings_without_meaning_are_refused_in_one_line(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        ACER("MlpPolicy", "CartPole-v1", **{**SMALL, **settings})
    assert "\n" not in str(caught.value)


def test_replay_start_may_be_anything_without_replay() -> None:
    ACER("MlpPolicy", "CartPole-v1", **{**SMALL, "replay_start": 10_000, "replay_ratio": 0.0})
