"""`Agent.pretrain` fits the policy of every algorithm to recorded actions; random streams and optimizers do not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.nn.functional import cross_entropy

import rlsdk
from rlsdk.environments import to_space
from rlsdk.errors import ArtifactError, DivergenceError, MaskError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.registry.discovery import algorithms
from rlsdk.tree import flatten
from rlsdk_datasets import RecordedEpisode, RecordedOnly, open_episodes, write_episodes
from tests.expert_episodes import CHOICE, SEEN, VECTOR, recorded

LARGE_MEMORY = {"buffer_size": 1000}
DISCRETE: dict[str, dict[str, Any]] = {
    "a2c": {},
    "ppo": {},
    "trpo": {},
    "maskable-ppo": {},
    "recurrent-ppo": {"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 16}},
    "acer": {},
    "acktr": {},
    "gail": {},
    "bc": {},
    "iql": {},
    "cql": {},
    "dqn": LARGE_MEMORY,
    "qrdqn": LARGE_MEMORY,
    "pqn": {},
    "discrete-sac": LARGE_MEMORY,
    "ars": {"policy": "LinearPolicy"},
}
CONTINUOUS: dict[str, dict[str, Any]] = {
    "ppo": {"use_sde": True},
    "a2c": {},
    "sac": LARGE_MEMORY,
    "crossq": LARGE_MEMORY,
    "tqc": LARGE_MEMORY,
    "td3": LARGE_MEMORY,
    "ddpg": LARGE_MEMORY,
    "acktr": {},
    "td3-bc": {},
    "iql": {},
    "cql": {},
    "ars": {"policy": "LinearPolicy"},
}


class Masked(gymnasium.Env[np.ndarray, np.int64]):
    """An environment with the spaces of the data and with action masks; every episode has one step."""

    observation_space, action_space = SEEN, CHOICE

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, True, False, {}

    def action_masks(self) -> np.ndarray:
        return np.ones(2, np.bool_)


def agent_for(name: str, action_space: spaces.Space[Any], **settings: Any) -> rlsdk.Agent:
    env = Masked() if name == "maskable-ppo" else RecordedOnly(SEEN, action_space)
    return rlsdk.make(name, env=env, **{"seed": 0, **settings})


def given_to(name: str, data: Path) -> dict[str, Any]:
    """The setting `dataset` for algorithms that have it, otherwise no settings."""
    return {"dataset": data} if name in ("bc", "cql", "gail", "iql", "td3-bc") else {}


def parameters_of(agent: rlsdk.Agent) -> dict[str, Any]:
    return {name: torch.as_tensor(value).clone() for name, value in flatten(agent.policy.state_dict()).items()}


def test_every_algorithm_is_tried() -> None:
    assert {*DISCRETE, *CONTINUOUS} == {found.id for found in algorithms() if found.distribution.startswith("rlsdk-")}


@pytest.mark.parametrize("name", DISCRETE)
def test_choices_are_imitated(name: str, tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE, masks=name == "maskable-ppo")
    agent = agent_for(name, CHOICE, **DISCRETE[name], **given_to(name, data))
    assert agent.pretrain(data, n_epochs=25, learning_rate=2e-2, batch_size=64) is agent
    seen = np.array([[x, 0.3] for x in (-0.8, -0.3, 0.3, 0.8)], np.float32)
    masks = "none" if name == "maskable-ppo" else None
    assert agent.predict(seen, deterministic=True, action_masks=masks)[0].tolist() == [3, 3, 4, 4]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_vectors_are_imitated(name: str, tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", VECTOR)
    agent = agent_for(name, VECTOR, **CONTINUOUS[name], **given_to(name, data))
    agent.pretrain(data, n_epochs=80, learning_rate=1e-2, batch_size=64)
    seen = np.array([[x, -0.3] for x in (-0.5, 0.1, 0.6)], np.float32)
    assert agent.predict(seen, deterministic=True)[0][:, 0] == pytest.approx(1.5 * seen[:, 0], abs=0.2)


def test_the_loss_is_the_mean_of_independent_torch(tmp_path: Path) -> None:
    """One epoch with one batch is one step of Adam. Its first step is minus the learning rate times the gradient's sign."""
    data = recorded(tmp_path / "demo", CHOICE)
    agent = agent_for("ppo", CHOICE)
    before = parameters_of(agent)
    rows = open_episodes(data).transitions(torch.arange(240), 1.0)
    policy = agent.policy
    loss = cross_entropy(policy.head.linear(policy.body(rows.observation.features)), rows.action - 3)
    loss.backward()
    grads = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    agent.pretrain(data, n_epochs=1, learning_rate=1e-3, batch_size=240, train_fraction=1.0)
    after = parameters_of(agent)
    for name, grad in grads.items():
        step = -1e-3 * grad / (grad.abs() + 1e-8)
        torch.testing.assert_close(after[name] - before[name], step, atol=2e-6, rtol=0.0)
    assert torch.equal(after["value.weight"], before["value.weight"]), "the value function is not fitted"


@pytest.mark.parametrize("name", ["recurrent-ppo", "acer"])
def test_a_memory_is_learned_in_order(name: str, tmp_path: Path) -> None:
    """The expert's action depends on the observation of three steps before, so only a recurrent policy can imitate it."""
    dice, made = torch.Generator().manual_seed(0), []
    for seed in range(16):
        seen = torch.randint(0, 2, (71, 2), generator=dice) * 2.0 - 1.0
        action = torch.cat([torch.zeros(3), (seen[:-4, 0] > 0).float()]).long() + 3
        made.append(RecordedEpisode(seen, action, torch.ones(70), terminated=True, seed=seed))
    data = write_episodes(tmp_path / "demo", made, to_space(SEEN), to_space(CHOICE))
    small = {"policy_kwargs": {"net_arch": {"pi": [32]}, "lstm_hidden_size": 32}}
    agent = agent_for(name, CHOICE, policy="MlpLstmPolicy", **small)
    agent.pretrain(data, n_epochs=60, learning_rate=2e-2, batch_size=512)
    episode, state, right = open_episodes(data).episode(0), None, []
    for t in range(70):
        start = np.array([t == 0])
        action, state = agent.predict(episode.observations[t].numpy()[None], state, start, deterministic=True)
        right.append(int(action[0]) == int(episode.actions[t]))
    assert np.mean(right) > 0.95


@pytest.mark.parametrize("name", ["ppo", "dqn", "td3", "acer"])
def test_learning_goes_on_with_the_same_streams_and_optimizer(name: str, tmp_path: Path) -> None:
    space = VECTOR if name == "td3" else CHOICE
    data = recorded(tmp_path / "demo", space)
    agent, other = (agent_for(name, space, **(LARGE_MEMORY if name in ("dqn", "td3") else {})) for _ in range(2))
    agent.pretrain(data, n_epochs=2, batch_size=32)
    ours, theirs = (flatten(a.training_state()["training"]) for a in (agent, other))
    differing = {key for key, value in ours.items() if not _equal(value, theirs[key])}
    assert all("target" in key or "average" in key for key in differing), "nothing but targets, which follow the policy"
    policy = parameters_of(agent)
    target = {"dqn": "algorithm/target", "td3": "algorithm/actor_target", "acer": "algorithm/average"}.get(name)
    for key, value in policy.items() if target else ():
        if f"{target}/{key}" in ours and key != "epsilon":
            assert torch.equal(torch.as_tensor(ours[f"{target}/{key}"]), value)
    assert target is None or any(key.startswith(f"{target}/") for key in ours)


def _equal(one: object, other: object) -> bool:
    return (
        torch.equal(one, other) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) else one == other
    )


def test_the_same_seed_gives_the_same_policy_to_the_bit(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    found = [parameters_of(agent_for("ppo", CHOICE, seed=s).pretrain(data, n_epochs=3)) for s in (1, 1, 2)]
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert any(not torch.equal(found[0][name], found[2][name]) for name in found[0])


def test_observations_are_normalized_by_the_data(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    agent = agent_for("ppo", CHOICE, normalize=True).pretrain(data, n_epochs=1, train_fraction=1.0)
    rows = open_episodes(data).transitions(torch.arange(240), 1.0).observation.features
    assert agent.normalizer is not None
    normalized = agent.normalizer.observations(rows)
    assert float(normalized.std()) == pytest.approx(1.0, abs=0.05)


def test_validation_is_on_whole_episodes_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    agent_for("ppo", CHOICE, verbose=1).pretrain(data, n_epochs=4, val_interval=2)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("pretrain")]
    assert [line.split(",")[0] for line in lines] == ["pretrain: epoch 2 of 4", "pretrain: epoch 4 of 4"]
    assert all("validation loss" in line for line in lines)


def test_one_episode_is_learned_from_with_a_warning(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE, episodes=1)
    with pytest.warns(UserWarning, match="one episode, so none is left to validate on; train_fraction=1 asks for that"):
        agent_for("ppo", CHOICE).pretrain(data, n_epochs=1)


def test_a_gaussian_keeps_a_least_deviation(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", VECTOR)
    agent = agent_for("ppo", VECTOR).pretrain(data, n_epochs=200, learning_rate=3e-2, batch_size=240)
    assert -2.3 < float(agent.policy.head.log_std.detach()) < -1.8


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo", CHOICE)
    agent = agent_for("ppo", CHOICE)
    with pytest.raises(ArtifactError, match="there is no data set"):
        agent.pretrain(tmp_path / "missing")
    with pytest.raises(UnsupportedSpaceError, match="'demo' was recorded with actions"):
        agent_for("ppo", VECTOR).pretrain(data)
    with pytest.raises(MaskError, match="'demo' has no action masks, which the algorithm needs; record it"):
        agent_for("maskable-ppo", CHOICE).pretrain(data)
    for wrong in ({"n_epochs": 0}, {"learning_rate": 0.0}, {"train_fraction": 1.5}, {"batch_size": 0}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            agent.pretrain(data, **wrong)  # type: ignore[arg-type]
    vectors = agent_for("ppo", VECTOR)
    before = parameters_of(vectors)
    with pytest.raises(DivergenceError, match="the policy is what it was before; lower learning_rate"):
        vectors.pretrain(recorded(tmp_path / "vectors", VECTOR), n_epochs=3, learning_rate=1e30)
    normalized = agent_for("ppo", VECTOR, normalize=True)
    seen = normalized.normalizer.normalize_obs(np.ones(SEEN.shape, np.float32))  # type: ignore[union-attr]
    with pytest.raises(DivergenceError, match="the policy is what it was before"):
        normalized.pretrain(tmp_path / "vectors", n_epochs=3, learning_rate=1e30)
    assert np.array_equal(normalized.normalizer.normalize_obs(np.ones(SEEN.shape, np.float32)), seen)  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r"all parameters of the policy are 0, .* zero_policy=False"):
        agent_for("ars", CHOICE, policy="MlpPolicy").pretrain(data)
    assert all(torch.equal(value, before[name]) for name, value in parameters_of(vectors).items())
    damaged = bytearray(data.read_bytes())
    damaged[-40] ^= 255
    (tmp_path / "damaged.safetensors").write_bytes(damaged)
    with pytest.raises(ArtifactError, match="damaged"):
        agent.pretrain(tmp_path / "damaged")


@pytest.mark.parametrize("masks", [False, True])
def test_an_agent_without_masking_needs_no_masks_and_uses_none(masks: bool, tmp_path: Path) -> None:
    """Masks of the data forbid the recorded actions, which an agent that uses no masks does not notice."""
    seen = np.linspace(-1, 1, 12).reshape(6, 2).astype(np.float32)
    forbidden = torch.tensor([[True, False]]).expand(6, 2) if masks else None
    episode = RecordedEpisode(seen, torch.full((5,), 4), torch.ones(5), terminated=True, action_masks=forbidden)
    data = write_episodes(tmp_path / "demo", [episode], to_space(SEEN), to_space(CHOICE))
    agent = rlsdk.make("maskable-ppo", env=RecordedOnly(SEEN, CHOICE), use_masking=False, seed=0)
    agent.pretrain(data, n_epochs=60, learning_rate=0.01, train_fraction=1.0)
    assert agent.predict(seen, deterministic=True)[0].tolist() == [4] * 6


def test_masks_that_forbid_what_was_done_are_found(tmp_path: Path) -> None:
    seen, allowed = torch.zeros(6, 2), torch.ones(6, 2, dtype=torch.bool)
    allowed[2, 1] = False
    episode = RecordedEpisode(seen, torch.full((5,), 4), torch.ones(5), terminated=True, action_masks=allowed)
    data = write_episodes(tmp_path / "demo", [episode], to_space(SEEN), to_space(CHOICE))
    with pytest.raises(MaskError, match="its masks forbid the action that was recorded at step 2"):
        agent_for("maskable-ppo", CHOICE).pretrain(data)
