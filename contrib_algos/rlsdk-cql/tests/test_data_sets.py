"""CQL: values of actions that were not recorded, imitation at first, masks, files, other spaces, and refused data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import MaskError, RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.tree import flatten
from rlsdk_cql import CQL
from rlsdk_datasets import Dataset, RecordedEpisode, write_episodes
from rlsdk_envs import FakeImageEnv, SimpleMultiObsEnv
from rlsdk_interchange import export
from rlsdk_testing.datasets import random_dataset

SEEN, FORCE = spaces.Box(-9.0, 9.0, (2,)), spaces.Box(-2.0, 2.0, (1,))
SMALL: dict[str, Any] = {"seed": 0, "batch_size": 64, "policy_kwargs": {"net_arch": [32]}, "learning_rate": 3e-3}


def recorded(path: Path, actions: spaces.Space[Any] = FORCE, masks: bool = False, forbidden: int = 2) -> Path:
    """Record episodes of one step. Boxes hold actions of -0.5 +- 0.5, whose reward is the action itself.

    Of the choices 0, 1 and 2, the first two are taken, and the second has the larger reward; all rewards are negative.
    """
    dice, episodes = torch.Generator().manual_seed(0), []
    for _ in range(400):
        seen, draw = torch.randn(2, 2, generator=dice), torch.rand(1, generator=dice)
        if isinstance(actions, spaces.Discrete):
            chosen = (draw > 0.7).long()
            reward = torch.tensor([-2.0, -1.0])[chosen]
        else:
            chosen = (torch.randn(1, 1, generator=dice) * 0.5 - 0.5).clamp(-2, 2)
            reward = chosen.flatten().clone()
        allowed = torch.ones(2, 3, dtype=torch.bool)
        allowed[:, forbidden] = False
        episodes.append(RecordedEpisode(seen, chosen, reward, True, action_masks=allowed if masks else None))
    return write_episodes(path, episodes, to_space(SEEN), to_space(actions))


def learner(data: Path | None, env: Any = None, **settings: Any) -> Any:
    return CQL("MlpPolicy", env, dataset=None if data is None else Dataset.at(data), **{**SMALL, **settings})


def weights(agent: Any) -> dict[str, torch.Tensor]:
    found: dict[str, Any] = flatten(agent.get_parameters())
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def action(agent: Any) -> float:
    return float(np.mean([agent.predict([x, 0.0], deterministic=True)[0] for x in (-1.0, 0.0, 1.0)]))


def test_the_penalty_prevents_choices_that_were_not_recorded(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", spaces.Discrete(3))
    found = {alpha: learner(data, alpha=alpha).learn(300) for alpha in (0.0, 0.1, 30.0)}
    assert action(found[0.0]) == 2.0, (
        "without the penalty, the value of the unknown choice stays near 0, above the others"
    )
    assert action(found[0.1]) == 1.0, "the better of the recorded choices"
    assert action(found[30.0]) == 0.0, "with a large weight, values are logarithms of the frequencies"
    values = found[0.1].critic(torch.zeros(1, 2))[0]
    assert values[2].item() < values[:2].min().item() - 1.0


def test_the_penalty_keeps_box_actions_near_the_recorded_ones(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    found = [action(learner(data, alpha=alpha, n_actions=4).learn(500)) for alpha in (0.0, 20.0)]
    assert found[0] > 1.5, "without it, the actor follows the critics as far as the bounds"
    assert found[1] < 0.8


def test_a_threshold_is_approached(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", spaces.Discrete(3))
    agent = learner(data, alpha=1.0, threshold=0.5, batch_size=400)
    agent.learn(800)
    metrics = agent.train(50)
    assert metrics["train/penalty"] == pytest.approx(0.5, abs=0.15)
    assert metrics["train/alpha"] != 1.0


def test_the_first_updates_imitate(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    settings: dict[str, Any] = {"alpha": 0.0, "ent_coef": 0.0, "n_actions": 2}
    cloned = learner(data, cloning_updates=10_000, **settings).learn(300)
    assert action(cloned) == pytest.approx(-0.5, abs=0.15)
    assert action(learner(data, cloning_updates=0, **settings).learn(300)) > 1.5


def test_masks_are_obeyed_and_data_that_break_them_are_refused(tmp_path: Path) -> None:
    good, bad = (recorded(tmp_path / f"masked{n}", spaces.Discrete(3), True, n) for n in (2, 0))
    agent = learner(good, alpha=0.1).learn(300)
    before = agent.critic(torch.zeros(1, 2))[0, 2].item()
    assert before > -1.0, "the penalty does not push down what no mask allows"
    masks = np.array([False, True, False])
    assert agent.predict([0.0, 0.0], deterministic=True, action_masks=masks)[0] == 1
    with pytest.raises(MaskError, match="masks forbid the action that was recorded at step"):
        learner(bad).learn(10)


@pytest.mark.parametrize("space", [FORCE, spaces.Discrete(3)], ids=["box", "choice"])
def test_it_resumes_bit_for_bit_and_predicts_without_its_data(space: spaces.Space[Any], tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", space)
    settings: dict[str, Any] = {"threshold": 0.5, "n_actions": 2, "cloning_updates": 40}
    whole = learner(data, **settings).learn(30)
    whole.save(tmp_path / "agent")
    whole.learn(21, reset_num_timesteps=False)
    again = CQL.load(tmp_path / "agent", dataset=data).learn(21, reset_num_timesteps=False)
    mine, theirs = weights(whole), weights(again)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    data.unlink()
    alone = CQL.load(tmp_path / "agent")
    alone.predict([0.0, 0.0], deterministic=True)
    with pytest.raises(UsageError, match="needs the data set 'demo'"):
        alone.learn(10)


def test_settings_change_between_two_calls_of_learn(tmp_path: Path) -> None:
    agent = learner(recorded(tmp_path / "demo"), n_actions=2).learn(5)
    agent.alpha, agent.n_actions, agent.ent_coef = 2.0, 3, 0.1
    agent.learn(5)
    agent.threshold = 1.0
    agent.learn(5)
    assert agent.parts.algorithm.weight.learned is not None
    assert agent.train(1)["train/alpha"] == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(("kind", "policy"), [(SimpleMultiObsEnv, "MultiInputPolicy"), (FakeImageEnv, "CnnPolicy")])
def test_other_observations_are_learned_from(kind: Any, policy: str, tmp_path: Path) -> None:
    data = random_dataset(make_vec_env(kind, 1), tmp_path / "demo")
    agent: Any = CQL(policy, None, dataset=data, batch_size=8, seed=0, n_actions=2, policy_kwargs={"net_arch": [8]})
    before = {name: value.clone() for name, value in weights(agent).items()}
    agent.learn(3)
    moved = [name for name, value in weights(agent).items() if name in before and not torch.equal(value, before[name])]
    assert any("policy/" in name for name in moved)
    assert any("encoder" in name for name in moved) or policy == "MultiInputPolicy"
    assert all(bool(value.isfinite().all()) for value in weights(agent).values() if value.is_floating_point())


@pytest.mark.slow
@pytest.mark.parametrize("space", [FORCE, spaces.Discrete(3)], ids=["box", "choice"])
def test_an_exported_policy_acts_as_the_agent(space: spaces.Space[Any], tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    agent = learner(recorded(tmp_path / "demo", space), n_actions=2).learn(20)
    export(agent, tmp_path / "policy.onnx")
    session = runtime.InferenceSession(str(tmp_path / "policy.onnx"))
    seen = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    (found, *_) = session.run(None, {session.get_inputs()[0].name: seen})
    np.testing.assert_allclose(found, agent.predict(seen, deterministic=True)[0], atol=1e-5)


def test_one_row_is_enough_for_an_update(tmp_path: Path) -> None:
    agent = learner(recorded(tmp_path / "demo"), batch_size=1, n_actions=1).learn(3)
    assert all(bool(value.isfinite().all()) for value in weights(agent).values() if value.is_floating_point())


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    with pytest.raises(SettingsError, match="give dataset=PATH"):
        learner(None, "Pendulum-v1")
    bits = spaces.MultiBinary(2)
    rows = [RecordedEpisode(torch.zeros(2, 2), torch.zeros(1, 2, dtype=torch.int8), torch.zeros(1), True)]
    with pytest.raises(UnsupportedSpaceError, match="CQL cannot act in a MultiBinary action space"):
        learner(write_episodes(tmp_path / "bits", rows, to_space(SEEN), to_space(bits)))
    endless = spaces.Box(-np.inf, np.inf, (1,))
    rows = [RecordedEpisode(torch.zeros(2, 2), torch.zeros(1, 1), torch.zeros(1), True)]
    with pytest.raises(UnsupportedSpaceError, match="finite bounds"):
        learner(write_episodes(tmp_path / "free", rows, to_space(SEEN), to_space(endless)))
    with pytest.raises(UnsupportedSpaceError, match="'demo' was recorded with observations"):
        learner(data, "Pendulum-v1").learn(1)
    settings: list[dict[str, Any]] = [
        *({"alpha": value} for value in (-1.0, float("nan"))),
        {"threshold": float("inf")},
        {"alpha": 0.0, "threshold": 1.0},
        {"n_actions": 0},
        {"cloning_updates": -1},
        {"ent_coef": "sometimes"},
        {"target_entropy": "low"},
        {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [8]}}},
    ]
    for wrong in settings:
        with pytest.raises(RlsdkError, match="net_arch" if "policy_kwargs" in wrong else next(iter(wrong))):
            learner(data, **wrong)
    # with choices it has no effect, but a file could not store it
    choices = recorded(tmp_path / "choices", spaces.Discrete(3))
    for coefficient in ("sometimes", float("nan"), float("inf"), -1.0):
        with pytest.raises(SettingsError, match="ent_coef"):
            learner(choices, ent_coef=coefficient)
    agent = learner(choices).learn(1)
    with pytest.raises(SettingsError, match="ent_coef"):
        agent.ent_coef = float("nan")
    agent.save(tmp_path / "agent")
    assert CQL.load(tmp_path / "agent").ent_coef == "auto"
