"""Recurrent memories: whole sequences equal single steps, and minibatches cut and reset sequences correctly."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.math import gae
from rlsdk.networks import build_memory
from rlsdk.updates.minibatches import in_order, policy_batch, shuffled
from rlsdk_envs.toy import ChainEnv, TMazeEnv
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_testing.rollouts import rollout_of

T, B, F, H = 20, 3, 4, 5


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_sequence_equals_steps_to_the_gradient(kind: str, layers: int) -> None:
    torch.manual_seed(0)
    memory: Any = build_memory(kind, F, H, layers, {})
    features = torch.randn(T, B, F)
    first = torch.rand(T, B) < 0.25
    state = tuple(torch.randn(B, layers, H) for _ in memory.initial(B))
    latents, before, current = [], [], state
    for t in range(T):
        before.append(current)
        latent, current = memory.step(features[t], current, first[t])
        latents.append(latent)
    stepped = torch.stack(latents)
    stepped.square().sum().backward()
    expected = [p.grad.clone() for p in memory.parameters()]
    memory.zero_grad()

    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1).flatten(0, 1)

    states = tuple(flat(torch.stack([b[k].detach() for b in before])) for k in range(memory.parts))
    starts = first.clone()
    starts[0] = True
    together = memory.sequence(flat(features), states, flat(first), flat(starts))
    assert torch.allclose(together, flat(stepped), atol=1e-6)
    together.square().sum().backward()
    for mine, other in zip(memory.parameters(), expected, strict=True):
        assert torch.allclose(mine.grad, other, atol=1e-4, rtol=1e-4)


def test_generalized_advantages_by_hand() -> None:
    """Three steps of one environment: the first continues, the second is truncated, the third terminates."""
    reward, value = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.5], [0.25], [0.75]])
    following = torch.tensor([[0.25], [4.0], [9.0]])  # the value after each step; the last is not used
    gamma, lam = 0.9, 0.8
    discount = gamma * torch.tensor([[1.0], [1.0], [0.0]])
    trace = gamma * lam * torch.tensor([[1.0], [0.0], [0.0]])
    found = gae(reward, value, following, discount, trace).flatten().tolist()
    third = 3.0 - 0.75
    second = 2.0 + 0.9 * 4.0 - 0.25
    first = 1.0 + 0.9 * 0.25 - 0.5 + 0.9 * 0.8 * second
    assert found == pytest.approx([first, second, third])


class Constant(ChainEnv):
    """Constant reward 1 and observation 0: with time limits only, the value of every state is 1 / (1 - gamma)."""

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return (observation * 0, 1.0, *rest)

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return observation * 0, info


@pytest.mark.full
@pytest.mark.parametrize(("every", "expected"), [(0, 5.0), pytest.param(1, None, marks=pytest.mark.slow)])
def test_time_limits_bootstrap_and_terminations_do_not(every: int, expected: float | None) -> None:
    env = make_vec_env(lambda: Constant(5, terminate_every=every), 2)
    agent = RecurrentPPO(
        "MlpLstmPolicy",
        env,
        gamma=0.8,
        learning_rate=5e-3,
        seed=0,
        policy_kwargs={"lstm_hidden_size": 8, "net_arch": [8]},
    ).learn(10_000)
    rows = policy_batch(rollout_of(agent, 20), agent.policy, gamma=0.8, lam=1.0)
    mean = float(rows.value.mean())
    # with terminations the memory can count: values fall from 3.36 to 1, 2.34 on average
    assert mean == pytest.approx(expected or np.mean([sum(0.8**k for k in range(n)) for n in range(1, 6)]), rel=0.06)


def recurrent(n_envs: int = 3, **settings: Any) -> RecurrentPPO:
    env = make_vec_env("CartPole-v1", n_envs, vectorization="sync")
    kwargs = {"lstm_hidden_size": 8, "net_arch": [8]}
    return RecurrentPPO("MlpLstmPolicy", env, n_steps=16, seed=1, policy_kwargs=kwargs, **settings)


def test_minibatches_cover_every_step_once_and_know_where_pieces_start() -> None:
    agent = recurrent()
    rows = policy_batch(rollout_of(agent, 16), agent.policy, gamma=0.9, lam=0.9)
    for split in (in_order, shuffled):
        pieces = list(split(rows, 10, torch.Generator().manual_seed(3)))
        assert [len(p) for p in pieces] == [10, 10, 10, 10, 8]
        seen = torch.cat([p.value for p in pieces]).sort().values
        assert torch.equal(seen, rows.value.sort().values)
        assert all(bool(p.starts[0]) for p in pieces)
    assert rows.starts[::16].all()
    assert torch.equal(
        rows.starts.clone().index_fill_(0, torch.arange(0, 48, 16), False),
        rows.observation.is_first & (torch.arange(48) % 16 != 0),
    )
    cut = policy_batch(rollout_of(agent, 16), agent.policy, gamma=0.9, lam=0.9, cut_every=5)
    assert cut.starts.view(3, 16)[:, [0, 5, 10, 15]].all()


def test_the_first_steps_of_a_piece_that_goes_on_only_refresh_its_memory() -> None:
    agent = recurrent()
    rows = policy_batch(rollout_of(agent, 16), agent.policy, gamma=0.9, lam=0.9, cut_every=8)
    for piece in in_order(rows, 12, torch.Generator().manual_seed(5), burn_in=3):
        expected, since = [], 0
        # count the steps since the sequence began; a sequence that begins with an episode needs no burn-in
        for row in range(len(piece)):
            if piece.starts[row]:
                since = 3 if piece.observation.is_first[row] else 0
            expected.append(float(since >= 3))
            since += 1
        assert piece.weight is not None
        assert piece.weight.tolist() == expected
        assert 0.0 < piece.weight.mean() < 1.0
    short = list(in_order(rows, 7, torch.Generator().manual_seed(5), burn_in=6))
    assert all(bool(piece.weight.any()) for piece in short if piece.weight is not None)
    assert len(short) < len(list(in_order(rows, 7, torch.Generator().manual_seed(5))))


def test_an_update_with_nothing_left_changes_nothing() -> None:
    agent = recurrent(burn_in=15, batch_size=16, n_epochs=1)
    rollout = rollout_of(agent, 16)
    seeds = (
        g for g in range(99) if 0 < int(torch.randint(48, (), generator=torch.Generator().manual_seed(g))) % 16 < 15
    )
    agent.parts.algorithm.generator.manual_seed(next(seeds))
    # no episode begins, so every sequence has a burn-in; each of them is cut in two
    rollout.steps.observation.is_first.fill_(False)
    before = [p.detach().clone() for p in agent.policy.parameters()]
    metrics = agent.parts.algorithm.update(rollout, progress=0.0)
    assert all(bool(value.isfinite()) for value in metrics.values())
    assert all(torch.equal(a, b) for a, b in zip(before, agent.policy.parameters(), strict=True))


def test_what_is_burnt_in_is_not_learned_from() -> None:
    """Rewards in the burn-in do not change the update. With lambda = gamma = 0 a reward affects only its own step."""
    after = []
    for reward in (0.0, 100.0):
        settings = {"gamma": 0.0, "gae_lambda": 0.0, "batch_size": 16, "n_epochs": 1, "sequence_length": 8}
        agent = recurrent(burn_in=2, **settings)
        rollout = rollout_of(agent, 16)
        agent.parts.algorithm.generator.manual_seed(0)
        place = int(torch.randint(48, (), generator=torch.Generator().manual_seed(0)))
        begins = torch.tensor([(place + 16 * k) % 48 for k in range(3)] + list(range(0, 48, 8)))
        env, time = begins // 16, begins % 16
        goes_on = ~rollout.steps.observation.is_first[time, env]
        rollout.steps.reward[time[goes_on], env[goes_on]] = reward
        agent.parts.algorithm.update(rollout, progress=0.0)
        after.append(torch.cat([p.detach().flatten() for p in agent.policy.parameters()]))
    assert torch.equal(*after)


def test_any_minibatch_recomputes_what_was_collected() -> None:
    agent = recurrent().learn(96)
    rows = policy_batch(rollout_of(agent, 16), agent.policy, gamma=0.9, lam=0.9, cut_every=7)
    for piece in in_order(rows, 11, torch.Generator().manual_seed(5)):
        with torch.no_grad():
            distribution, value = agent.policy.evaluate(piece.observation, piece.memory, piece.starts)
        assert torch.allclose(value, piece.value, atol=1e-5)
        assert torch.allclose(distribution.log_prob(agent.policy.internal(piece.action)), piece.log_prob, atol=1e-5)


def test_the_value_of_a_final_observation_uses_the_memory_of_its_episode() -> None:
    env = make_vec_env(lambda: ChainEnv(4, terminate_every=0), 2)
    kwargs = {"lstm_hidden_size": 8, "net_arch": [8]}
    agent = RecurrentPPO("MlpLstmPolicy", env, n_steps=10, seed=1, gamma=0.5, policy_kwargs=kwargs)
    rollout = rollout_of(agent, 10)
    rows = policy_batch(rollout, agent.policy, gamma=0.5, lam=0.0)
    network, finals = agent.policy, rollout.final_observations
    assert finals is not None
    carry = network.initial_carry(1)
    latents: tuple[Any, ...] = carry.critic
    from rlsdk.records import Observation

    for t in range(4):  # the first episode of environment 0, step by step
        features = rollout.steps.observation.features[t, :1]
        _, latents = network.critic_memory.step(features, latents, torch.tensor([t == 0]))
    final = Observation(torch.tensor([[0.0, 4.0]]), torch.tensor([False]))
    with torch.no_grad():
        expected = network.values_after(final, (carry.actor, latents))
    advantage = 3.0 + 0.5 * float(expected) - float(rollout.steps.extras.value[3, 0])
    assert float(rows.advantage[3]) == pytest.approx(advantage, abs=1e-5)


@pytest.mark.parametrize("policy", ["MlpLstmPolicy", "MlpGruPolicy"])
def test_predict_carries_and_resets_its_state(policy: str) -> None:
    env = make_vec_env(lambda: TMazeEnv(), 1)
    agent = RecurrentPPO(policy, env, n_steps=16, seed=1, policy_kwargs={"lstm_hidden_size": 8})
    space = agent.observation_space
    space.seed(0)
    seen = np.stack([space.sample() for _ in range(4)])
    _, state = agent.predict(seen, deterministic=True)
    assert state is not None
    _, later = agent.predict(seen, state, episode_start=[False] * 4, deterministic=True)
    _, reset = agent.predict(seen, state, episode_start=[True, False, True, False], deterministic=True)
    for fresh, kept, mixed in zip(state.actor, later.actor, reset.actor, strict=True):
        assert torch.allclose(mixed[0], fresh[0])
        assert torch.allclose(mixed[1], kept[1])
        assert not torch.allclose(mixed[1], fresh[1])


@pytest.mark.parametrize("memory", [{"policy": "MlpLstmPolicy"}, {"policy": "MlpLstmPolicy", "frame_stack": 2}])
def test_a_forgotten_state_gives_one_warning(memory: dict[str, Any]) -> None:
    agent = RecurrentPPO(
        env=make_vec_env("CartPole-v1", 1), n_steps=16, policy_kwargs={"lstm_hidden_size": 8}, **memory
    )
    seen = np.zeros((2, 4), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, state = agent.predict(seen)
        for _ in range(3):
            _, state = agent.predict(seen, state)
            agent.predict(seen, episode_start=True)
    with pytest.warns(UserWarning, match="called twice without state") as found:
        agent.predict(seen)
    assert [Path(each.filename).name for each in found] == ["test_recurrent.py"]


@pytest.mark.parametrize("name", ["ppo", "a2c", "trpo", "sac", "tqc"])
def test_deterministic_actions_remember_no_noise(name: str) -> None:
    """The state of gSDE contains only its noise matrices, so deterministic actions need no state and give no warning."""
    agent = rlsdk.make(name, env="Pendulum-v1", use_sde=True, policy_kwargs={"net_arch": [8]})
    seen = np.zeros((2, 3), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (agent.predict(seen, deterministic=True)[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)
    agent.predict(seen)
    with pytest.warns(UserWarning, match="called twice without state"):
        agent.predict(seen)


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(SettingsError, match="shared_lstm = true needs enable_critic_lstm = false"):
        recurrent_with(shared_lstm=True)
    with pytest.raises(SettingsError, match="do not fit lstm"):
        recurrent_with(lstm_kwargs={"dropouts": 0.1})
    with pytest.raises(SettingsError, match="batch_first"):
        recurrent_with(lstm_kwargs={"batch_first": True})
    with pytest.raises(SettingsError, match="use_sde needs a Box"):
        recurrent(use_sde=True)
    with pytest.raises(SettingsError, match="one step per rollout"):
        RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=1)
    with pytest.raises(
        SettingsError, match="burn_in = 8 leaves nothing to learn from: sequence_length is 8; give less"
    ):
        recurrent(burn_in=8, sequence_length=8)
    with pytest.raises(SettingsError, match="burn_in"):
        recurrent(burn_in=-1)


def recurrent_with(**kwargs: Any) -> RecurrentPPO:
    return RecurrentPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs=kwargs)
