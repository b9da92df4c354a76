"""Behavior cloning: imitation of all action spaces, the loss, early stopping, and errors for data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.distributions import Categorical, Normal

import rlsdk
from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import ArtifactError, MaskError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk_bc import BC
from rlsdk_datasets import RecordedEpisode, open_episodes, write_episodes
from rlsdk_interchange import record_episodes
from rlsdk_lab.profiling import profiled

SEEN = spaces.Box(-1.0, 1.0, (2,), np.float32)
CHOICE, VECTOR = spaces.Discrete(2, start=3), spaces.Box(-2.0, 2.0, (1,), np.float32)
KINDS: dict[str, spaces.Space[Any]] = {
    "choice": CHOICE,
    "vector": VECTOR,
    "choices": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(2),
    "hybrid": spaces.Dict({"kind": CHOICE, "force": VECTOR}),
}


def right(space: spaces.Space[Any], first: torch.Tensor) -> Any:
    """The expert's actions [T, ..] for the first numbers [T] of its observations."""
    positive = (first > 0).long()
    if isinstance(space, spaces.Dict):
        return {"kind": right(CHOICE, first), "force": right(VECTOR, first)}
    if isinstance(space, spaces.MultiDiscrete):
        return torch.stack([positive, 2 * positive], 1)
    if isinstance(space, spaces.MultiBinary):
        return torch.stack([positive, 1 - positive], 1).to(torch.int8)
    return positive + 3 if isinstance(space, spaces.Discrete) else 1.5 * first.unsqueeze(1)


def recorded(path: Path, space: spaces.Space[Any], episodes: int = 6, *, noise: float = 0.0) -> Path:
    dice, made = torch.Generator().manual_seed(0), []
    for seed in range(episodes):
        seen = torch.rand(41, 2, generator=dice) * 2 - 1
        shown = seen[:-1, 0] + noise * torch.randn(40, generator=dice)
        made.append(RecordedEpisode(seen, right(space, shown), torch.ones(40), terminated=seed % 2 == 0, seed=seed))
    return write_episodes(path, made, to_space(SEEN), to_space(space))


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpGruPolicy"])
@pytest.mark.parametrize(
    ("kind", "loss"),
    [*((kind, "likelihood") for kind in KINDS), ("vector", "squared_error"), ("hybrid", "squared_error")],
)
def test_every_kind_of_action_is_imitated(kind: str, loss: str, policy: str, tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", KINDS[kind])
    small = {"policy_kwargs": {"lstm_hidden_size": 16, "net_arch": [32]}, "sequence_length": 8}
    agent = BC(policy, None, dataset=data, seed=0, loss=loss, learning_rate=1e-2, **small).learn(250)
    first = torch.tensor([-0.8, -0.4, 0.4, 0.8])
    found = agent.predict(np.stack([first.numpy(), np.full(4, 0.3)], 1).astype(np.float32), deterministic=True)[0]
    wanted = right(KINDS[kind], first)
    if kind == "hybrid":
        assert [int(one["kind"]) for one in found] == wanted["kind"].tolist()
        found, wanted = np.stack([one["force"] for one in found]), wanted["force"]
    np.testing.assert_allclose(found, wanted.numpy(), atol=0.3)


@pytest.mark.parametrize("space", [CHOICE, VECTOR], ids=["choice", "vector"])
@pytest.mark.parametrize("loss", ["likelihood", "squared_error"])
def test_an_update_is_that_of_independent_torch(space: spaces.Space[Any], loss: str, tmp_path: Path) -> None:
    """The loss, and the parameters after one step of Adam, equal a reference in torch."""
    data = recorded(tmp_path / "demo", space)
    coefficients = {"ent_coef": 0.1, "l2_coef": 0.02, "vf_coef": 0.3, "gamma": 0.9}
    agent = BC("MlpPolicy", None, dataset=data, seed=0, loss=loss, learning_rate=0.01, **coefficients)
    policy, rows = agent.policy, open_episodes(data).transitions(torch.arange(0, 240, 5), 0.9)
    seen = rows.observation.features
    raw, value = policy.head.linear(policy.body(seen)), policy.value(policy.critic_body(seen))[:, 0]
    if isinstance(space, spaces.Discrete):
        chosen = Categorical(logits=raw)
        imitation, entropy = -chosen.log_prob(rows.action - 3).mean(), chosen.entropy().mean()
    else:
        normal = Normal(raw, policy.head.log_std.exp())
        squared = loss == "squared_error"
        error = (rows.action - raw).square().sum(1).mean()
        imitation = error if squared else -normal.log_prob(rows.action).sum(1).mean()
        entropy = torch.tensor(0.0) if squared else normal.entropy().sum(1).mean()
    weights = [p for part in (policy.body, policy.head) for p in part.parameters()]
    left = 40 - torch.arange(0, 240, 5) % 40
    returns = (1 - 0.9**left) / (1 - 0.9)
    total = imitation - 0.1 * entropy + 0.01 * sum(p.square().sum() for p in weights)
    total = total + 0.3 * (value - returns).square().mean()
    parameters = dict(policy.named_parameters())
    grads = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    before = {name: p.detach().clone() for name, p in parameters.items()}
    metrics = agent.parts.algorithm.update(rows, progress=0.0)
    assert float(metrics["train/loss"]) == pytest.approx(float(total.detach()), abs=1e-5)
    for (name, p), grad in zip(parameters.items(), grads, strict=True):
        step = torch.zeros_like(p) if grad is None else -0.01 * grad / (grad.abs() + 1e-5)
        torch.testing.assert_close(p.detach() - before[name], step, atol=1e-5, rtol=1e-3)


def test_a_linear_expert_is_recovered(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", VECTOR, episodes=10)
    settings: dict[str, Any] = {"policy_kwargs": {"net_arch": []}, "loss": "squared_error", "learning_rate": "lin_0.05"}
    agent = BC("MlpPolicy", None, dataset=data, seed=0, batch_size=128, **settings).learn(600)
    torch.testing.assert_close(agent.policy.head.linear.weight.detach(), torch.tensor([[1.5, 0.0]]), atol=1e-3, rtol=0)


def test_the_deviation_is_bounded(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", VECTOR)
    agent = BC("MlpPolicy", None, dataset=data, seed=0, learning_rate=0.02, log_std_min=-1.0).learn(300)
    assert float(agent.policy.head.log_std.detach()) == -1.0


def test_training_stops_with_the_weights_of_the_lowest_loss(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE, episodes=4, noise=1.0)
    settings: dict[str, Any] = {"held_out": 0.5, "patience": 20, "learning_rate": 0.02, "batch_size": 80}
    agent = BC("MlpPolicy", None, dataset=data, seed=0, **settings).learn(5000)
    assert 20 <= agent.num_timesteps < 1000, "noise is not learned for ever"
    plan, algorithm = agent.parts.plan, agent.parts.algorithm
    assert float(algorithm.held_out_loss()) == pytest.approx(plan.lowest.loss, abs=1e-6)


def test_a_profile_does_not_change_the_training(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    plain, measured = (BC("MlpPolicy", None, dataset=data, held_out=0.5, seed=0) for _ in range(2))
    plain.learn(40)
    with profiled(measured):
        measured.learn(40)
    assert torch.equal(plain.parts.algorithm.optimizer.flat, measured.parts.algorithm.optimizer.flat)


def test_what_is_held_out_are_whole_episodes(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE, episodes=10)
    agent = BC("MlpPolicy", None, dataset=data, held_out=0.3, seed=0)
    memory = agent.parts.buffer
    assert (len(memory.episodes), len(memory.held_out)) == (7, 3)
    assert not set(memory.episodes.numbers.tolist()) & set(memory.held_out.numbers.tolist())


def test_prediction_needs_no_data_set(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    agent = BC("MlpPolicy", None, dataset=data, seed=0).learn(20)
    agent.save(tmp_path / "agent")
    data.unlink()
    alone = BC.load(tmp_path / "agent")
    assert alone.predict([0.5, 0.5], deterministic=True)[0] == agent.predict([0.5, 0.5], deterministic=True)[0]
    with pytest.raises(UsageError, match=r"needs the data set 'demo'"):
        alone.learn(10)


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    one = recorded(tmp_path / "one", CHOICE, episodes=1)
    with pytest.raises(SettingsError, match=r"0.8 of 1 episodes leaves one part empty; record more"):
        BC("MlpPolicy", None, dataset=one, held_out=0.2).learn(1)
    BC("MlpPolicy", None, dataset=one, seed=0).learn(1)
    with pytest.raises(SettingsError, match="patience = 3 needs held_out above 0"):
        BC("MlpPolicy", None, dataset=one, patience=3)
    with pytest.raises(SettingsError, match="there is no data set"):
        BC("MlpPolicy", None, dataset=tmp_path / "missing")
    with pytest.raises(UnsupportedSpaceError, match="'one' was recorded with observations"):
        BC("MlpPolicy", "CartPole-v1", dataset=one)
    with pytest.raises(SettingsError, match="at least one episode"):
        write_episodes(tmp_path / "empty", [], to_space(SEEN), to_space(CHOICE))
    with pytest.raises(SettingsError, match="'bc': it learns from recorded episodes: give dataset=PATH"):
        BC("MlpPolicy", "CartPole-v1")
    with pytest.raises(UsageError, match="that learn from a data set: give theirs"):
        BC("MlpPolicy", None)


def test_data_that_are_not_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # another program could write such a file
    monkeypatch.setattr("rlsdk_datasets.episode_file.checked_episode", lambda spaces, episode, where: episode)
    seen = torch.zeros(6, 2)
    seen[2, 0] = torch.nan
    episode = RecordedEpisode(seen, torch.full((5,), 3), torch.ones(5), terminated=True)
    data = write_episodes(tmp_path / "demo", [episode], to_space(SEEN), to_space(CHOICE))
    with pytest.raises(ArtifactError, match="its observations hold NaN or infinite"):
        BC("MlpPolicy", None, dataset=data, seed=0).learn(5)
    damaged = bytearray(recorded(tmp_path / "whole", CHOICE).read_bytes())
    damaged[-40] ^= 255
    (tmp_path / "damaged.safetensors").write_bytes(damaged)
    with pytest.raises(ArtifactError, match="is damaged"):
        BC("MlpPolicy", None, dataset=tmp_path / "damaged", seed=0).learn(5)


def test_masks_of_the_data_are_used_and_checked(tmp_path: Path) -> None:
    seen, allowed = torch.zeros(6, 2), torch.ones(6, 2, dtype=torch.bool)
    allowed[:, 0] = False
    for name, action in (("fits", 4), ("forbidden", 3)):
        actions = torch.full((5,), action)
        episode = RecordedEpisode(seen, actions, torch.ones(5), terminated=True, action_masks=allowed)
        write_episodes(tmp_path / name, [episode], to_space(SEEN), to_space(CHOICE))
    agent = BC("MlpPolicy", None, dataset=tmp_path / "fits", ent_coef=0.0, vf_coef=0.0, seed=0).learn(2)
    assert agent.predict([0.0, 0.0], action_masks=[True, False], deterministic=True)[0] == 3
    with pytest.raises(MaskError, match="its masks forbid the action that was recorded at step 0"):
        BC("MlpPolicy", None, dataset=tmp_path / "forbidden", seed=0).learn(2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_ten_episodes_of_cartpole_are_enough(seed: int, tmp_path: Path) -> None:
    zoo = pytest.importorskip("rlsdk_zoo.installed")
    expert = zoo.load("ppo/CartPole-v1")
    data = record_episodes(expert, "CartPole-v1", 10, tmp_path / "demo", deterministic=True, seed=1000 * seed)
    agent = rlsdk.make("bc", env=None, dataset=data, seed=seed).learn(1500)
    envs = make_vec_env("CartPole-v1", 10)
    assert run_episodes(agent, envs, 20, seed=10_000).mean >= 475
