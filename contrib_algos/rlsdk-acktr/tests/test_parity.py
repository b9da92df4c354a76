"""Updates equal a reference with loops over rows, explicit Kronecker products, dense solves and double precision."""

from __future__ import annotations

import copy
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlsdk.environments import make_vec_env
from rlsdk.updates import policy_batch
from rlsdk_acktr import ACKTR, algorithm, blocks
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_testing.rollouts import rollout_of
from tests.peer_updates import some_in_the_fast_suite

UPDATES = 4


def patches(x: Tensor, layer: nn.Conv2d) -> list[Tensor]:
    """Return the inputs [C k k] of the convolution at every position of one image [C, H, W]."""
    (k, _), (s, _), (p, _) = layer.kernel_size, layer.stride, layer.padding
    channels, height, width = x.shape
    padded = torch.zeros(channels, height + 2 * p, width + 2 * p, dtype=x.dtype)
    padded[:, p : p + height, p : p + width] = x
    places = [(i, j) for i in range(0, height + 2 * p - k + 1, s) for j in range(0, width + 2 * p - k + 1, s)]
    return [padded[:, i : i + k, j : j + k].reshape(-1) for i, j in places]


class Peer:
    """The reference: ACKTR on a copy of the network in double precision."""

    def __init__(self, agent: ACKTR) -> None:
        self.config, self.network = agent.config, copy.deepcopy(agent.policy).double()
        for module in self.network.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = False  # gradients with respect to the outputs of layers are needed
        self.signs = torch.Generator()
        self.signs.set_state(agent.streams["update"].get_state())
        self.layers = [m for m in self.network.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
        owned = {id(p) for layer in self.layers for p in layer.parameters()}
        self.rest = [p for p in self.network.parameters() if id(p) not in owned]
        self.seen: list[list[Any]] = []
        """The statistics of each update: (A, G) of each layer, then a diagonal of each other parameter."""
        self.inverted = 0
        self.momentum: dict[int, np.ndarray] = {}
        self.updates = 0

    def statistics(self, rows: Any, signs: Tensor) -> list[Any]:
        """Compute (A, G) of each layer and the diagonals, with loops over rows, calls and positions."""
        coef, count = self.config.vf_fisher_coef, len(rows)
        firsts = [[0.0, 0.0] for _ in self.layers]
        places = [0 for _ in self.layers]
        total: list[Any] = [0.0 for _ in self.rest]
        for n in range(count):
            calls: list[tuple[int, Tensor, Tensor]] = []
            handles = [
                layer.register_forward_hook(lambda _, given, out, i=i, c=calls: c.append((i, given[0], out)))
                for i, layer in enumerate(self.layers)
            ]
            distribution, value = self.evaluate(rows, slice(n, n + 1))
            for handle in handles:
                handle.remove()
            score = distribution.log_prob(self.network.internal(rows.action[n : n + 1])) + value * coef * 2 * signs[n]
            found = torch.autograd.grad(score.sum(), [out for *_, out in calls] + self.rest, allow_unused=True)
            for (i, given, out), known in zip(calls, found, strict=False):
                grad = torch.zeros_like(out) if known is None else known
                layer = self.layers[i]
                inputs = patches(given[0], layer) if isinstance(layer, nn.Conv2d) else [given[0]]
                outputs = grad[0].reshape(len(grad[0]), -1).T if isinstance(layer, nn.Conv2d) else grad
                for a, g in zip(inputs, outputs, strict=True):
                    extended = np.append(a.detach().numpy(), 1.0)
                    firsts[i][0] = firsts[i][0] + np.outer(extended, extended)
                    firsts[i][1] = firsts[i][1] + np.outer(g.numpy(), g.numpy())
                    places[i] += 1
            total = [t + (0 if g is None else g) for t, g in zip(total, found[len(calls) :], strict=True)]
        factors = [(a / place, g / count) for (a, g), place in zip(firsts, places, strict=True)]
        return [*factors, *(t.numpy() ** 2 / count for t in total)]

    def evaluate(self, rows: Any, chosen: slice) -> tuple[Any, Tensor]:
        latent = rows.observation.features[chosen].double()
        pictures = next((m for m in self.network.modules() if isinstance(m, Pictures)), None)
        latent = latent if pictures is None else pictures.net(latent / 255.0)
        mask = rows.observation.action_mask
        distribution = self.network.head(self.network.body(latent), None if mask is None else mask[chosen])
        return distribution, self.network.value(self.network.critic_body(latent)).squeeze(-1)

    def averaged(self, upto: int, i: int, part: int | None) -> Any:
        """The running average after `upto` updates, as a sum with weights."""
        decay, weights = self.config.stats_decay, np.zeros(upto)
        for t in range(upto):
            own = max(1.0 / (t + 1), 1.0 - decay)
            weights[:t] *= 1.0 - own
            weights[t] = own
        seen = [each[i] if part is None else each[i][part] for each in self.seen[:upto]]
        return sum(w * x for w, x in zip(weights, seen, strict=True))

    def natural(self, grads: dict[int, Tensor]) -> dict[int, np.ndarray]:
        """Return id of parameter -> natural gradient, by solving with the whole matrix of each block."""
        config, now = self.config, len(self.seen)
        if (self.updates - config.cold_iter) % config.kfac_update == 0 or not self.inverted:
            self.inverted = now
        result: dict[int, np.ndarray] = {}
        for i, layer in enumerate(self.layers):
            a, g = self.averaged(self.inverted, i, 0), self.averaged(self.inverted, i, 1)
            weight, bias = grads[id(layer.weight)], grads[id(layer.bias)]
            matrix = np.concatenate([weight.reshape(len(weight), -1).numpy(), bias.numpy()[:, None]], 1)
            if config.factored_damping:
                p = np.sqrt((np.trace(a) / len(a)) / (np.trace(g) / len(g)))
                root = np.sqrt(config.damping)
                whole = np.kron(a + p * root * np.eye(len(a)), g + root / p * np.eye(len(g)))
            else:
                whole = np.kron(a, g) + config.damping * np.eye(a.shape[0] * g.shape[0])
            solved = np.linalg.solve(whole, matrix.reshape(-1, order="F")).reshape(matrix.shape, order="F")
            result[id(layer.weight)] = solved[:, :-1].reshape(weight.shape)
            result[id(layer.bias)] = solved[:, -1]
        for i, parameter in enumerate(self.rest, len(self.layers)):
            result[id(parameter)] = grads[id(parameter)].numpy() / (self.averaged(now, i, None) + config.damping)
        return result

    def update(self, rows: Any, rate: float, *, normalize: bool) -> None:
        config, count = self.config, len(rows)
        signs = torch.empty(count).bernoulli_(0.5, generator=self.signs) * 2 - 1
        self.seen.append(self.statistics(rows, signs))
        advantage, target = rows.advantage.double(), rows.target.double()
        if normalize:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        distribution, value = self.evaluate(rows, slice(None))
        log_prob, entropy = distribution.log_prob(self.network.internal(rows.action)), distribution.entropy()
        loss = (
            -advantage * log_prob + config.vf_coef * (target - value) ** 2 - config.ent_coef * entropy
        ).sum() / count
        parameters = [*(p for layer in self.layers for p in layer.parameters()), *self.rest]
        grads = {id(p): g for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True)}
        if self.updates == config.cold_iter:
            self.momentum = {}
        if self.updates < config.cold_iter:
            norm = np.sqrt(sum(float((g**2).sum()) for g in grads.values()))
            steps = {key: g.numpy() * min(1.0, config.max_grad_norm / norm) for key, g in grads.items()}
        else:
            steps = self.natural(grads)
            length = rate**2 * sum(float((steps[key] * g.numpy()).sum()) for key, g in grads.items())
            steps = {key: step * min(1.0, np.sqrt(config.kfac_clip / length)) for key, step in steps.items()}
        for p in parameters:
            self.momentum[id(p)] = config.momentum * self.momentum.get(id(p), 0.0) + steps[id(p)]
            with torch.no_grad():
                p.sub_(rate * (1 - config.momentum) * torch.as_tensor(self.momentum[id(p)]))
        self.updates += 1


class Pictures(nn.Module):
    """A small encoder of images with a padded convolution, and an activation in place."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.features_dim = 3 * 2 * 2
        self.net = nn.Sequential(nn.Conv2d(1, 3, 3, 3, 1), nn.ReLU(inplace=True), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def settings(rng: np.random.Generator) -> dict[str, Any]:
    shared = {"net_arch": [5, {"pi": [4], "vf": []}]}
    networks = ({"net_arch": [4]}, {"net_arch": []}, {"net_arch": {"pi": [3, 4], "vf": [5]}}, shared)
    return {
        "n_steps": 8,
        "learning_rate": float(rng.uniform(0.05, 0.5)),
        "ent_coef": float(rng.choice([0.0, 0.05])),
        "vf_coef": float(rng.uniform(0.1, 1.0)),
        "vf_fisher_coef": float(rng.choice([0.5, 1.0, 1.5])),
        "max_grad_norm": float(rng.choice([0.1, 0.5])),
        "kfac_clip": float(rng.choice([1e-3, 0.1])),
        "kfac_update": int(rng.integers(1, 4)),
        "gae_lambda": [None, 0.9][rng.integers(2)],
        "normalize_advantage": [None, True, False][rng.integers(3)],
        "momentum": float(rng.choice([0.0, 0.9])),
        "damping": float(rng.choice([0.01, 0.1])),
        "factored_damping": bool(rng.integers(2)),
        "stats_decay": float(rng.choice([0.3, 0.99])),
        "cold_iter": int(rng.integers(3)),
        "policy_kwargs": {**networks[rng.integers(4)], "activation_fn": str(rng.choice(["tanh", "relu"]))},
    }


def distances(agent: ACKTR, *, normalize: bool | None = None) -> Iterator[float]:
    """Yield after each update how far weights differ from the reference, relative to how far they have moved."""
    peer = Peer(agent)
    begin = [p.detach().clone() for p in agent.policy.parameters()]
    given = agent.config.normalize_advantage
    chosen = bool(normalize) if given is None else given
    for number in range(UPDATES):
        rollout, config, progress = rollout_of(agent, agent.config.n_steps, number), agent.config, number / UPDATES
        lam = 1.0 if config.gae_lambda is None else config.gae_lambda
        rows = policy_batch(rollout, agent.policy, gamma=config.gamma, lam=lam)
        agent.parts.algorithm.update(rollout, progress=progress)
        peer.update(rows, config.learning_rate(1.0 - progress), normalize=chosen)
        pairs = list(zip(agent.policy.parameters(), peer.network.parameters(), strict=True))
        with torch.no_grad():
            moved = max(float((p - b).abs().max()) for p, b in zip(agent.policy.parameters(), begin, strict=True))
            yield max(float((mine - other).abs().max()) for mine, other in pairs) / moved


TOLERANCE = 2e-3


def agent_for(seed: int) -> tuple[ACKTR, bool]:
    """(agent, whether its advantages are normalized by default)."""
    env = ("CartPole-v1", "Pendulum-v1")[seed % 2]
    options = settings(np.random.default_rng(seed))
    return ACKTR("MlpPolicy", make_vec_env(env, 2), seed=seed, **options), seed % 2 == 1


@pytest.mark.parametrize("seed", some_in_the_fast_suite(100))
def test_updates_equal_dense_solves(seed: int) -> None:
    agent, continuous = agent_for(seed)
    assert max(distances(agent, normalize=continuous)) < TOLERANCE


def agent_of_pictures() -> ACKTR:
    space = spaces.Box(0, 255, (1, 5, 6), np.uint8)
    env = make_vec_env(lambda: AnySpaceEnv(space, spaces.Discrete(3)), 2)
    networks = {"features_extractor_class": Pictures, "net_arch": [4]}
    return ACKTR("CnnPolicy", env, seed=0, n_steps=6, cold_iter=1, kfac_clip=0.1, policy_kwargs=networks)


def test_updates_of_convolutions_equal_dense_solves() -> None:
    """The environment has action masks too."""
    assert max(distances(agent_of_pictures())) < TOLERANCE


MUTANTS = {
    "the split of the damping upside down": (
        blocks,
        "damped",
        "inputs.mean() / outputs.mean()",
        "outputs.mean() / inputs.mean()",
    ),
    "no split": (blocks, "damped", "if not split:", "if True:"),
    "damping added to the eigenvalues": (
        blocks,
        "damped",
        "torch.outer(outputs, inputs) + damping",
        "torch.outer(outputs + damping, inputs)",
    ),
    "factors in the wrong order": (
        blocks.KroneckerBlock,
        "precondition",
        "outputs.T @ grad @ inputs",
        "outputs @ grad @ inputs.T",
    ),
    "no column for the bias": (blocks.KroneckerBlock, "_inputs", "value=1.0", "value=0.0"),
    "averages without a beginning": (blocks.Averages, "add", "min(1.0 - 1.0 / self.count, decay)", "decay"),
    "averages that forget nothing": (
        blocks.Averages,
        "add",
        "min(1.0 - 1.0 / self.count, decay)",
        "1.0 - 1.0 / self.count",
    ),
    "eigenvectors never found again": (
        blocks.KroneckerBlock,
        "decompose",
        "self.is_decomposed = True",
        "self.decompose = lambda: None",
    ),
    "the value's weight once": (algorithm, "score_of", "2.0 * coef", "coef"),
    "the bound without its root": (algorithm.KroneckerActorCritic, "_step", ".sqrt()", ""),
    "the bound without the rate": (algorithm.KroneckerActorCritic, "_step", "* rate**2", ""),
    "momentum of the cold phase": (
        algorithm.KroneckerActorCritic,
        "_step",
        "self.optimizer.load_state_dict({})",
        "pass",
    ),
    "one cold update more": (
        algorithm.KroneckerActorCritic,
        "_step",
        "self.updates >= config.cold_iter",
        "self.updates > config.cold_iter",
    ),
    "a diagonal that grows with the batch": (blocks.DiagonalBlock, "observe", "/ counting", ""),
}
"""Name -> (module or class, function, correct text, wrong text)."""
SEEDS = (0, 1, 2, 3, 4, 5)


def plant(owner: Any, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert source.count(old) == 1
    module = inspect.getmodule(getattr(owner, name))
    found: dict[str, Any] = {}
    exec(source.replace(old, new), {**vars(module)}, found)
    monkeypatch.setattr(owner, name, found[name])


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(*MUTANTS[mutant], monkeypatch)
    assert any(max(distances(agent, normalize=normalize)) > TOLERANCE for agent, normalize in map(agent_for, SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("observe", "/ (counting * places)", "/ counting"),
        ("observe", "grads.T @ grads / counting", "grads.T @ grads / (counting * places)"),
        ("_outputs", ".transpose(1, 2)", ".reshape(len(grad), -1, grad.shape[1])"),
    ],
)
def test_a_mutant_of_convolutions_is_found(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(blocks.KroneckerBlock, name, old, new, monkeypatch)
    assert max(distances(agent_of_pictures())) > TOLERANCE
