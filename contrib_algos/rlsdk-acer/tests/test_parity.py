"""One update equals a reference: algorithm 2 of the paper, step by step, with autograd, bisection and float64."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlsdk.records import Observation, Sequences, StepData
from rlsdk_acer import ACER
from rlsdk_acer.algorithm import ActorCriticWithReplay
from rlsdk_acer.network import ACERNetwork

EPSILON = 1e-6
T, N, ACTIONS, INPUTS = 7, 3, 3, 6


def random_batch(seed: int, network: ACERNetwork, *, masks: bool) -> Sequences[Any]:
    """Return random sequences with terminations, truncations, a filler row, and padding."""
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> Tensor:
        return torch.from_numpy(rng.normal(size=shape).astype(np.float32))

    terminated = torch.from_numpy(rng.random((T, N)) < 0.2)
    truncated = torch.from_numpy(rng.random((T, N)) < 0.2) & ~terminated
    valid = torch.ones(T, N, dtype=torch.bool)
    valid[-2:, 0] = False  # padding
    truncated[2, 1], terminated[2, 1], valid[3, 1] = True, False, False  # a filler row after a time limit
    is_first = torch.cat([torch.zeros(1, N, dtype=torch.bool), (terminated | truncated)[:-1]])
    is_first[4, 1] = True
    mask = None
    if masks:
        mask = torch.from_numpy(rng.random((T, N, ACTIONS)) < 0.7)
        mask[..., 0] = True
    behavior = some(T, N, ACTIONS)
    behavior = (behavior if mask is None else behavior.masked_fill(~mask, -1e8)).mul(2).softmax(-1)
    flat = behavior.flatten(0, 1).numpy()
    action = torch.tensor([rng.choice(ACTIONS, p=row.astype(float) / row.astype(float).sum()) for row in flat])
    carry = tuple(part + some(*part.shape) for part in network.initial_carry(N))
    extras: Mapping[str, Tensor] = {"probs": behavior}
    steps = StepData(
        Observation(some(T, N, INPUTS), is_first, mask),
        action.view(T, N),
        some(T, N),
        terminated,
        truncated,
        valid,
        extras,
    )
    after = Observation(some(T, N, INPUTS), torch.ones(T, N, dtype=torch.bool), mask)
    discount = 0.9 * (~terminated).float()
    return Sequences(steps, after, discount, valid, carry, torch.arange(N))


@dataclass
class Seen:
    """What a network returns for one step."""

    probs: Tensor
    q: Tensor
    after: Tensor  # V of the next observation

    @property
    def value(self) -> Tensor:
        return (self.probs * self.q).sum().detach()


def seen_by(network: ACERNetwork, batch: Sequences[Any], n: int) -> list[Seen]:
    """Evaluate the network on sequence n, one step after the other."""
    memory: Any = network.memory
    state = tuple(part[n : n + 1].double() for part in batch.initial_carry or ())
    found = []

    def look(observation: Observation, t: int, before: tuple[Tensor, ...], first: bool) -> tuple[Tensor, Tensor, Any]:
        features = network.encoder(observation.features[t, n : n + 1]).double()
        latent, following = memory.step(features, before, torch.tensor([first]))
        logits = network.head(network.body(latent))[0]
        if observation.action_mask is not None:
            logits = torch.where(observation.action_mask[t, n], logits, -torch.inf)
        return torch.exp(logits - logits.logsumexp(0)), network.qf(latent)[0], following

    for t in range(T):
        probs, q, state = look(batch.steps.observation, t, state, bool(batch.steps.observation.is_first[t, n]))
        later, later_q, _ = look(batch.next_observation, t, state, False)
        found.append(Seen(probs, q, (later * later_q).sum().detach()))
    return found


def targets_of(seen: list[Seen], batch: Sequences[Any], n: int, gamma: float) -> list[float]:
    """Q_ret of each step of sequence n, from the last to the first, as in algorithm 2."""
    steps, result, q_ret = batch.steps, [0.0] * T, 0.0
    for t in reversed(range(T)):
        alone = t + 1 == T or not bool(steps.valid[t + 1, n])
        if bool(steps.terminated[t, n]):
            q_ret = 0.0
        elif bool(steps.truncated[t, n]) or alone:
            q_ret = float(seen[t].after)
        q_ret = float(steps.reward[t, n]) + gamma * q_ret
        result[t] = q_ret
        a = int(steps.action[t, n])
        rho = float(seen[t].probs[a].detach()) / (float(steps.extras["probs"][t, n, a]) + EPSILON)
        q_ret = min(1.0, rho) * (q_ret - float(seen[t].q[a].detach())) + float(seen[t].value)
    return result


def within_the_trust_region(g: Tensor, probs: Tensor, average: Tensor, delta: float) -> Tensor:
    """The closest vector to `g` within the trust region, found by bisection of the multiplier."""
    k = -average / (probs + EPSILON)
    low, high = 0.0, 1e6
    if float(k @ g) <= delta:
        return g
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if float(k @ (g - middle * k)) > delta else (low, middle)
    return g - high * k


def loss_of(network: ACERNetwork, average: ACERNetwork, batch: Sequences[Any], config: Any) -> Tensor:
    """A loss whose gradient is that of the update."""
    loss = torch.zeros((), dtype=torch.float64)
    rows = int(batch.loss_mask.sum())
    for n in range(N):
        seen, before = seen_by(network, batch, n), seen_by(average, batch, n)
        targets = targets_of(seen, batch, n, config.gamma)
        for t, step in enumerate(seen):
            if not bool(batch.loss_mask[t, n]):
                continue
            a = int(batch.steps.action[t, n])
            pi, q, value = step.probs.detach().requires_grad_(), step.q.detach(), step.value
            logs, rho = torch.log(pi + EPSILON), pi.detach() / (batch.steps.extras["probs"][t, n].double() + EPSILON)
            climbed = rho[a].clamp(max=config.correction_term) * (targets[t] - value) * logs[a]
            cut = torch.relu(1 - config.correction_term / (rho + EPSILON)) * pi.detach()
            climbed = climbed + (cut * (q - value) * logs).sum() - config.ent_coef * (pi * logs).sum()
            (g,) = torch.autograd.grad(climbed, pi)
            if config.trust_region:
                g = within_the_trust_region(g, pi.detach(), before[t].probs.detach(), config.delta)
            allowed = step.probs.detach() > 0
            loss = loss - (g[allowed] * step.probs[allowed]).sum() / rows
            loss = loss + config.q_coef * 0.5 * (targets[t] - step.q[a]).square() / rows
    return loss


def one_update_of_both(settings: dict[str, Any], seed: int, *, masks: bool, policy: str) -> tuple[Any, Any]:
    """Return (our algorithm, the reference's network and average network) after one update from perturbed weights."""
    small = {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 5}, "gamma": 0.9, "learning_rate": 1e-2}
    agent = ACER(policy, "Acrobot-v1", seed=seed, n_steps=T, **{**small, **settings})
    update: Any = agent.parts.algorithm
    assert isinstance(update, ActorCriticWithReplay)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for network in (update.network, update.average.network):
            for parameter in network.parameters():
                parameter.add_(0.7 * torch.randn(parameter.shape, generator=generator))
    theirs, average = (deepcopy(network).double() for network in (update.network, update.average.network))
    for network in (theirs, average):
        network.requires_grad_(True)
    batch = random_batch(seed, update.network, masks=masks)
    torch.autograd.backward(loss_of(theirs, average, batch, agent.config))
    gradients = [p.grad for p in theirs.parameters() if p.grad is not None]
    norm = float(torch.sqrt(sum((g.square().sum() for g in gradients), torch.zeros(()))))
    scale = min(1.0, agent.config.max_grad_norm / (norm + 1e-6))
    with torch.no_grad():
        for mine, slow in zip(theirs.parameters(), average.parameters(), strict=True):
            if mine.grad is not None:
                g = mine.grad * scale
                mine.sub_(1e-2 * g / (torch.sqrt((1 - agent.config.rprop_alpha) * g * g) + agent.config.rprop_epsilon))
            slow.add_((1 - agent.config.alpha) * (mine - slow))
    update.update(batch, progress=0.0)
    return update, (theirs, average)


CASES: list[tuple[str, dict[str, Any], bool]] = [
    ("MlpPolicy", {}, False),
    ("MlpPolicy", {"correction_term": 0.7, "ent_coef": 0.2}, True),
    ("MlpPolicy", {"trust_region": False, "correction_term": 1.0, "max_grad_norm": 0.1}, False),
    ("MlpPolicy", {"delta": 0.0, "alpha": 0.5, "q_coef": 2.0}, True),
    ("MlpLstmPolicy", {"correction_term": 1.5, "delta": 0.2}, False),
    ("MlpGruPolicy", {"delta": 0.2, "alpha": 0.9}, True),
]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{'-'.join(case[1])}")
def test_an_update_is_that_of_the_paper(case: tuple[str, dict[str, Any], bool], seed: int) -> None:
    policy, settings, masks = case
    ours, theirs = one_update_of_both({"rprop_epsilon": 0.1, **settings}, seed, masks=masks, policy=policy)
    for mine, other in zip((ours.network, ours.average.network), theirs, strict=True):
        for found, expected in zip(mine.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-6)


def test_what_follows_a_termination_or_an_invalid_row_changes_nothing() -> None:
    """Padding, filler rows and the observations after terminations do not affect the update."""
    found = []
    for noise in (0.0, 5.0):
        agent = ACER("MlpPolicy", "Acrobot-v1", seed=0, n_steps=T)
        update: Any = agent.parts.algorithm
        batch = random_batch(1, update.network, masks=False)
        batch.steps.observation.features[~batch.steps.valid] += noise
        batch.next_observation.features[batch.steps.terminated | ~batch.steps.valid] += noise
        batch.steps.reward[~batch.steps.valid] += noise
        update.update(batch, progress=0.0)
        found.append([parameter.detach().clone() for parameter in update.network.parameters()])
    assert all(map(torch.equal, *found))


def test_what_follows_a_time_limit_does() -> None:
    found = []
    for noise in (0.0, 5.0):
        agent = ACER("MlpPolicy", "Acrobot-v1", seed=0, n_steps=T)
        update: Any = agent.parts.algorithm
        batch = random_batch(1, update.network, masks=False)
        batch.next_observation.features[batch.steps.truncated] += noise
        update.update(batch, progress=0.0)
        found.append([parameter.detach().clone() for parameter in update.network.parameters()])
    assert not all(map(torch.equal, *found))


def test_metrics_are_means_over_the_rows_that_count() -> None:
    """Of the first update, whose losses are those of the network before it."""
    agent = ACER("MlpPolicy", "Acrobot-v1", seed=0, n_steps=T, policy_kwargs={"net_arch": [8]}, gamma=0.9)
    update: Any = agent.parts.algorithm
    batch = random_batch(0, update.network, masks=False)
    before = deepcopy(update.network).double()
    metrics = update.update(batch, progress=0.0)
    losses, entropies, ratios = [], [], []
    for n in range(N):
        seen = seen_by(before, batch, n)
        targets = targets_of(seen, batch, n, 0.9)
        for t, step in enumerate(seen):
            if bool(batch.loss_mask[t, n]):
                a, probs = int(batch.steps.action[t, n]), step.probs.detach()
                losses.append(0.5 * (targets[t] - float(step.q[a].detach())) ** 2)
                entropies.append(float((probs * torch.log(probs + EPSILON)).sum()))
                ratios.append(float(probs[a]) / (float(batch.steps.extras["probs"][t, n, a]) + EPSILON))
    for name, values in (("q_loss", losses), ("entropy_loss", entropies), ("ratio", ratios)):
        assert float(metrics[f"train/{name}"]) == pytest.approx(np.mean(values), rel=1e-4), name
    assert "train/divergence" in metrics
