"""IQL: what it learns from data sets, fine-tuning, masks, files, other spaces, and refused data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import MaskError, ResourceError, RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.records import Observation
from rlsdk.tree import flatten
from rlsdk_datasets import Dataset, RecordedEpisode, write_episodes
from rlsdk_envs import FakeImageEnv, SimpleMultiObsEnv
from rlsdk_interchange import export, record_episodes
from rlsdk_iql import IQL
from rlsdk_iql.schedules import cosine
from rlsdk_testing.datasets import random_dataset

SEEN, FORCE = spaces.Box(-9.0, 9.0, (2,)), spaces.Box(-2.0, 2.0, (1,))
SMALL: dict[str, Any] = {"seed": 0, "batch_size": 64, "policy_kwargs": {"net_arch": [32]}, "learning_rate": 3e-3}


def recorded(path: Path, actions: spaces.Space[Any] = FORCE, masks: bool = False, forbidden: int = 2) -> Path:
    """Record episodes of one step. Boxes hold actions of -0.5 +- 0.5, whose reward is largest at 1.

    Of the choices 0, 1 and 2, the first is taken most often, and the second has the largest reward.
    """
    dice, episodes = torch.Generator().manual_seed(0), []
    for _ in range(400):
        seen, draw = torch.randn(2, 2, generator=dice), torch.rand(1, generator=dice)
        if isinstance(actions, spaces.Discrete):
            chosen = (draw > 0.5).long() + (draw > 0.8).long() * (forbidden == -1)
            reward = torch.tensor([0.0, 1.0, -1.0])[chosen]
        else:
            chosen = (torch.randn(1, 1, generator=dice) * 0.5 - 0.5).clamp(-2, 2)
            reward = -((chosen.flatten() - 1.0) ** 2)
        allowed = torch.ones(2, 3, dtype=torch.bool)
        allowed[:, forbidden] = False
        episodes.append(RecordedEpisode(seen, chosen, reward, True, action_masks=allowed if masks else None))
    return write_episodes(path, episodes, to_space(SEEN), to_space(actions))


def learner(data: Path | None, env: Any = None, **settings: Any) -> Any:
    return IQL("MlpPolicy", env, dataset=None if data is None else Dataset.at(data), **{**SMALL, **settings})


def weights(agent: Any) -> dict[str, torch.Tensor]:
    found: dict[str, Any] = flatten(agent.get_parameters())
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def action(agent: Any) -> float:
    return float(np.mean([agent.predict([x, 0.0], deterministic=True)[0] for x in (-1.0, 0.0, 1.0)]))


def test_beta_is_between_cloning_and_the_best_recorded_actions(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    found = [action(learner(data, beta=beta).learn(800)) for beta in (0.0, 1.0, 10.0)]
    assert found[0] == pytest.approx(-0.5, abs=0.15), "without weights it does what the data did on average"
    assert found[0] + 0.1 < found[1] < found[2] < 1.5


def test_the_better_choice_is_learned_and_not_the_usual_one(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", spaces.Discrete(3))
    agent = learner(data, beta=0.0).learn(300)
    seen = torch.zeros(1, 2)
    usual = agent.actor.get_distribution(Observation(seen, torch.ones(1, dtype=torch.bool))).probs[0]
    assert usual.tolist() == pytest.approx([0.5, 0.5, 0.0], abs=0.1)
    assert action(learner(data, beta=10.0).learn(300)) == 1.0


def test_the_expectile_decides_which_value_a_state_has(tmp_path: Path) -> None:
    data, first = recorded(tmp_path / "demo", spaces.Discrete(3)), torch.ones(1, dtype=torch.bool)
    found = []
    for expectile in (0.1, 0.5, 0.9):
        agent = learner(data, expectile=expectile, tau=0.5).learn(400)
        found.append(agent.actor.state_values(Observation(torch.zeros(1, 2), first)).item())
    # rewards 0 and 1 are equally frequent, and the expectile of two such numbers is tau
    assert found == pytest.approx([0.1, 0.5, 0.9], abs=0.1)


def test_masks_are_obeyed_and_data_that_break_them_are_refused(tmp_path: Path) -> None:
    good, bad = (recorded(tmp_path / f"masked{n}", spaces.Discrete(3), True, n) for n in (2, 0))
    agent = learner(good).learn(10)
    distribution = agent.actor.get_distribution(
        Observation(torch.zeros(1, 2), torch.ones(1, dtype=torch.bool), torch.tensor([[True, True, False]]))
    )
    assert distribution.probs[0, 2].item() == 0.0
    with pytest.raises(MaskError, match="masks forbid the action that was recorded at step"):
        learner(bad).learn(10)


def test_it_resumes_bit_for_bit_and_predicts_without_its_data(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    rate = {"actor_learning_rate": cosine(1e-3)}
    whole = learner(data, **rate).learn(30, schedule_until=51)
    whole.save(tmp_path / "agent")
    whole.learn(21, reset_num_timesteps=False)
    again = IQL.load(tmp_path / "agent", dataset=data).learn(21, reset_num_timesteps=False)
    mine, theirs = weights(whole), weights(again)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    data.unlink()
    alone = IQL.load(tmp_path / "agent")
    assert alone.predict([0.0, 0.0], deterministic=True)[0].shape == (1,)
    with pytest.raises(UsageError, match="needs the data set 'demo'"):
        alone.learn(10)


def test_fine_tuning_learns_from_recorded_and_own_steps_and_resumes(tmp_path: Path) -> None:
    recorder = IQL("MlpPolicy", None, dataset=random_dataset(_env(), tmp_path / "random"), **SMALL)
    data = record_episodes(recorder, "Pendulum-v1", 2, tmp_path / "demo", seed=0, deterministic=False)
    learner(data, normalize=True).learn(20).save(tmp_path / "offline")
    tuned = IQL.load(tmp_path / "offline", env="Pendulum-v1", dataset=data, fine_tuning=True, seed=1).learn(30)
    assert (tuned.num_timesteps, len(tuned.parts.buffer)) == (30, 430)
    batch = tuned.parts.sample(20_000, torch.Generator().manual_seed(0))
    share = float((batch.index >= 400).float().mean())
    assert share == pytest.approx(30 / 430, abs=0.01), "all steps are equally likely"
    assert set(batch.index.tolist()) == set(range(430))
    tuned.save(tmp_path / "tuned", include=["replay"])
    tuned.learn(20, reset_num_timesteps=False)
    again = IQL.load(tmp_path / "tuned", env="Pendulum-v1", dataset=data, force_reset=False)
    again.learn(20, reset_num_timesteps=False)
    mine, theirs = weights(tuned), weights(again)
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())


def test_fine_tuning_begins_with_any_number_of_environments(tmp_path: Path) -> None:
    """Recordings fit all of them; collected steps fit the number that collected them."""
    data = random_dataset(_env(), tmp_path / "demo")
    learner(data).learn(5).save(tmp_path / "offline")
    tuned = IQL.load(tmp_path / "offline", env=make_vec_env("Pendulum-v1", 3), dataset=data, fine_tuning=True)
    assert tuned.learn(30).num_timesteps == 30
    assert len(tuned.parts.buffer) == len(tuned.parts.buffer.recorded) + 30
    with pytest.raises(UsageError, match="filled from 3 environments"):
        tuned.set_env(_env())
    tuned.save(tmp_path / "tuned")
    assert IQL.load(tmp_path / "tuned", env=_env(), dataset=data).learn(10).num_timesteps == 10
    for steps in (10**12, 10**18):
        with pytest.raises(ResourceError, match=r"the replay buffer needs .* lower buffer_size"):
            IQL.load(tmp_path / "offline", env=_env(), dataset=data, fine_tuning=True, buffer_size=steps).learn(10)


def _env() -> Any:
    return make_vec_env(lambda: gymnasium.make("Pendulum-v1"), 1)


@pytest.mark.parametrize(("kind", "policy"), [(SimpleMultiObsEnv, "MultiInputPolicy"), (FakeImageEnv, "CnnPolicy")])
def test_other_observations_are_learned_from(kind: Any, policy: str, tmp_path: Path) -> None:
    data = random_dataset(make_vec_env(kind, 1), tmp_path / "demo")
    agent: Any = IQL(policy, None, dataset=data, batch_size=8, seed=0, policy_kwargs={"net_arch": [8]})
    before = {name: value.clone() for name, value in weights(agent).items()}
    agent.learn(3)
    moved = [name for name, value in weights(agent).items() if name in before and not torch.equal(value, before[name])]
    for network in ("policy/head", "policy/value", "critic/"):
        assert any(network in name for name in moved), network
    assert all(bool(value.isfinite().all()) for value in weights(agent).values() if value.is_floating_point())


@pytest.mark.slow
def test_an_exported_policy_acts_as_the_agent(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    agent = learner(recorded(tmp_path / "demo")).learn(20)
    export(agent, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    seen = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    (found, *_) = session.run(None, {session.get_inputs()[0].name: seen})
    np.testing.assert_allclose(found, agent.predict(seen, deterministic=True)[0], atol=1e-5)


def test_one_row_is_enough_for_an_update(tmp_path: Path) -> None:
    agent = learner(recorded(tmp_path / "demo"), batch_size=1).learn(3)
    assert all(bool(value.isfinite().all()) for value in weights(agent).values() if value.is_floating_point())


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    with pytest.raises(SettingsError, match="give dataset=PATH"):
        learner(None, "Pendulum-v1")
    with pytest.raises(UnsupportedSpaceError, match="'demo' was recorded with observations"):
        learner(data, "Pendulum-v1").learn(1)
    nested = spaces.Dict({"force": FORCE})
    rows = [RecordedEpisode(torch.zeros(2, 2), {"force": torch.zeros(1, 1)}, torch.zeros(1), True)]
    hybrid = write_episodes(tmp_path / "hybrid", rows, to_space(SEEN), to_space(nested))
    with pytest.raises(UnsupportedSpaceError, match="IQL cannot act in a Dict action space"):
        learner(hybrid)
    endless = spaces.Box(-np.inf, np.inf, (1,))
    free = write_episodes(
        tmp_path / "free",
        [RecordedEpisode(torch.zeros(2, 2), torch.zeros(1, 1), torch.zeros(1), True)],
        to_space(SEEN),
        to_space(endless),
    )
    with pytest.raises(UnsupportedSpaceError, match="finite bounds"):
        learner(free)
    with pytest.raises(UsageError, match="needs an environment"):
        learner(data, fine_tuning=True)
    pendulum = random_dataset(_env(), tmp_path / "pendulum")
    with pytest.raises(SettingsError, match="no room for one step of 2 environments"):
        learner(pendulum, make_vec_env("Pendulum-v1", 2), fine_tuning=True, buffer_size=1)
    with pytest.raises(SettingsError, match="must be a positive number"):
        cosine(-1.0)
    settings: list[dict[str, Any]] = [
        *({"expectile": value} for value in (0.0, 1.0, float("nan"))),
        *({"beta": value} for value in (-1.0, float("inf"))),
        {"max_weight": 0.0},
        {"batch_size": 0},
        {"gradient_steps": -2},
        {"policy_kwargs": {"net_arch": {"pi": [8], "xf": [8]}}},
    ]
    for wrong in settings:
        with pytest.raises(RlsdkError, match="net_arch" if "policy_kwargs" in wrong else next(iter(wrong))):
            learner(data, **wrong)
