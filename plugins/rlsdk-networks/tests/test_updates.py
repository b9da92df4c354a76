"""Updates with these networks: against float64 autograd, with and without kernels, after loading, exported."""

from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from rlsdk.errors import SettingsError
from rlsdk.kernels import kernels_off
from rlsdk.records import Observation, Transitions
from rlsdk_crossq import CrossQ
from rlsdk_dqn import DQN
from rlsdk_interchange import export
from rlsdk_ppo import PPO
from rlsdk_qrdqn import QRDQN
from rlsdk_sac import SAC
from rlsdk_td3 import TD3
from rlsdk_testing import clauses
from rlsdk_testing.kit import outcome_of
from rlsdk_tqc import TQC

ROWS, RATE, DECAY = 32, 0.01, 0.1
SMALL: dict[str, Any] = {
    "seed": 0,
    "buffer_size": 200,
    "learning_starts": 10,
    "batch_size": ROWS,
    "learning_rate": RATE,
}
LAYER_NORM = {"critic_class": "mlp", "critic_kwargs": {"net_arch": [12, 8], "layer_norm": True}}
DROPOUT = {"critic_class": "mlp", "critic_kwargs": {"net_arch": [12, 8], "layer_norm": True, "dropout": 0.05}}
SIMBA = {
    "actor_class": "simba",
    "critic_class": "simba",
    "actor_kwargs": {"width": 6},
    "critic_kwargs": {"width": 8},
    "optimizer_class": "adamw",
    "optimizer_kwargs": {"weight_decay": DECAY, "eps": 1e-3},
}
Q_NETWORK = {"network_class": "mlp", "network_kwargs": {"net_arch": [12, 8], "layer_norm": True, "dropout": 0.05}}
PLAIN = {"net_arch": [12, 8]}


def batch(seed: int) -> Transitions:
    """A random batch for Pendulum-v1."""
    rng = np.random.default_rng(seed)
    seen, following = (torch.tensor(rng.normal(size=(ROWS, 3)), dtype=torch.float32) for _ in range(2))
    first, reward = torch.zeros(ROWS, dtype=torch.bool), torch.tensor(rng.normal(size=ROWS), dtype=torch.float32)
    action = torch.tensor(rng.uniform(-2.0, 2.0, (ROWS, 1)), dtype=torch.float32)
    discount = 0.9 * torch.tensor(rng.random(ROWS) < 0.8).float()
    index = torch.arange(ROWS)
    return Transitions(Observation(seen, first), action, reward, discount, Observation(following, first), index)


class Twin:
    """A float64 copy of SAC's networks and optimizers, which are updated by the formulas of the papers and autograd."""

    def __init__(self, model: SAC, subset_size: int | None) -> None:
        algorithm: Any = model.parts.algorithm
        self.actor, self.critics, self.target = (
            deepcopy(network).double() for network in (model.actor, model.critic, model.critic_target)
        )
        self.generator, self.subset_size = Generator(), subset_size
        self.generator.set_state(model.streams["update"].get_state())
        self.log_alpha = nn.Parameter(algorithm.entropy.log_alpha.detach().double().clone())
        arguments = {"lr": RATE, "eps": 1e-3, "weight_decay": DECAY}
        self.optimizers = [torch.optim.AdamW(each.parameters(), **arguments) for each in (self.critics, self.actor)]
        self.optimizers.append(torch.optim.Adam([self.log_alpha], lr=RATE))

    def sampled(self, seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(actions [N, 1], log-densities [N])."""
        # without the preprocessor, which rounds to float32
        network: Any = getattr(self.actor.encoder, "network", nn.Identity())
        chosen = self.actor.distribution(network(seen))
        raw = chosen.mean + chosen.log_std.exp() * noise
        normal = -0.5 * noise.square() - chosen.log_std - 0.5 * math.log(2.0 * math.pi)
        return raw.tanh(), (normal - 2.0 * (math.log(2.0) - raw - softplus(-2.0 * raw))).sum(-1)

    def update(self, given: Transitions, *, trains_actor: bool) -> None:
        noise = torch.randn(2, ROWS, 1, generator=self.generator).double()
        members = list(range(len(self.critics.ensemble)))  # type: ignore[arg-type]
        if self.subset_size is not None:
            members = torch.randperm(len(members), generator=self.generator).tolist()[: self.subset_size]
        alpha, seen = self.log_alpha.detach().exp(), given.observation.features.double()  # type: ignore[union-attr]
        critics, following = self.critics.ensemble, given.next_observation.features.double()  # type: ignore[union-attr]
        sampled = self.sampled(seen, noise[0])
        if trains_actor:
            self.step(2, -(self.log_alpha * (sampled[1].detach() - 1.0)).sum() / ROWS)
        with torch.no_grad():
            action, log_prob = self.sampled(following, noise[1])
            values = torch.stack([self.target.ensemble[k](following, action)[:, 0] for k in members])  # type: ignore[index, operator]
            wanted = given.reward + given.discount * (values.amin(0) - alpha * log_prob)
        unit = given.action.double() / 2.0
        errors = [critic(seen, unit)[:, 0] - wanted for critic in critics]  # type: ignore[union-attr]
        self.step(0, sum(0.5 * error.square().mean() for error in errors))
        if trains_actor:
            action, log_prob = sampled
            best = torch.stack([critic(seen, action)[:, 0] for critic in critics])  # type: ignore[union-attr]
            value = best.amin(0) if self.subset_size is None else best.mean(0)
            self.step(1, (alpha * log_prob - value).mean())
        for mine, theirs in zip(self.target.parameters(), self.critics.parameters(), strict=True):
            mine.data.lerp_(theirs.data, 0.05)

    def step(self, number: int, loss: Any) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        self.optimizers[number].step()


@pytest.mark.parametrize("network", ["mlp", "simba"])
@pytest.mark.parametrize(("subset_size", "policy_delay"), [(None, 1), (2, 1), (2, 3), (5, 2)])
def test_updates_equal_the_formulas_in_float64(network: str, subset_size: int | None, policy_delay: int) -> None:
    own = {"critic_class": "mlp", "critic_kwargs": LAYER_NORM["critic_kwargs"]} if network == "mlp" else SIMBA
    optimizer = {name: SIMBA[name] for name in ("optimizer_class", "optimizer_kwargs")}
    networks = {**own, **optimizer, "n_critics": 5, "subset_size": subset_size, "net_arch": {"pi": [8], "qf": [8]}}
    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs=networks, policy_delay=policy_delay, tau=0.05, **SMALL)
    twin = Twin(model, subset_size)
    for number in range(1, 7):
        trains_actor = number % policy_delay == 0
        metrics = model.parts.algorithm.update(batch(number), progress=0.0)
        assert ("train/actor_loss" in metrics) is trains_actor
        twin.update(batch(number), trains_actor=trains_actor)
    for mine, theirs in ((model.actor, twin.actor), (model.critic, twin.critics), (model.critic_target, twin.target)):
        for (name, found), wanted in zip(mine.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(
                found.double(), wanted, atol=2e-4, rtol=1e-3, msg=lambda text, name=name: name + text
            )  # type: ignore[misc]


@pytest.mark.parametrize("subset_size", [None, 1, 3])
def test_the_target_of_td3_is_the_minimum_of_the_chosen_critics(subset_size: int | None) -> None:
    networks = {**LAYER_NORM, "n_critics": 3, "subset_size": subset_size}
    model = TD3("MlpPolicy", "Pendulum-v1", policy_kwargs=networks, **SMALL)
    algorithm: Any = model.parts.algorithm
    twin, given = Generator(), batch(0)
    twin.set_state(model.streams["update"].get_state())
    noise = torch.randn(ROWS, 1, generator=twin)
    chosen = torch.arange(3) if subset_size is None else torch.randperm(3, generator=twin)[:subset_size]
    found: Tensor = algorithm._target(given, noise, None if subset_size is None else chosen)
    actor, critics = (
        deepcopy(target.network).double() for target in (algorithm.actor_target, algorithm.trained.target)
    )
    following = given.next_observation.features.double()  # type: ignore[union-attr]
    action = (actor.unit_action(following) + (0.2 * noise).clamp(-0.5, 0.5)).clamp(-1.0, 1.0)
    smallest = critics(following, action)[chosen, :, 0].amin(0)
    torch.testing.assert_close(found[:, 0].double(), given.reward + given.discount * smallest, atol=1e-5, rtol=1e-5)
    algorithm.update(given, progress=0.0)
    assert torch.equal(model.streams["update"].get_state(), twin.get_state()), "an update draws noise and the critics"


def test_tqc_leaves_out_the_share_of_the_chosen_critics() -> None:
    networks = {"n_critics": 4, "subset_size": 3, "n_quantiles": 5, **PLAIN}
    model = TQC("MlpPolicy", "Pendulum-v1", policy_kwargs=networks, top_quantiles_to_drop_per_net=2, **SMALL)
    algorithm: Any = model.parts.algorithm
    seen = list[Tensor]()
    plain = algorithm.objective.target

    def target(values: Tensor, *others: Any) -> Tensor:
        wanted: Tensor = plain(values, *others)
        seen.extend([values, wanted])
        return wanted

    algorithm.objective.target = target
    algorithm.update(batch(0), progress=0.0)
    assert (seen[0].shape, seen[1].shape) == ((3, ROWS, 5), (ROWS, 3 * (5 - 2)))


@pytest.mark.parametrize(("kind", "networks"), [(SAC, LAYER_NORM), (TQC, LAYER_NORM), (TD3, LAYER_NORM), (SAC, SIMBA)])
def test_kernels_compute_the_updates_of_plain_torch(kind: Any, networks: dict[str, Any]) -> None:
    def trained() -> list[Tensor]:
        # SGD, because Adam would divide rounding errors by their own size
        own = {**networks, "optimizer_class": "sgd", "optimizer_kwargs": {}, "net_arch": [8, 8]}
        model = kind("MlpPolicy", "Pendulum-v1", policy_kwargs=own, **SMALL)
        for number in range(10):
            model.parts.algorithm.update(batch(number), progress=0.0)
        return [*model.actor.parameters(), *model.critic.parameters()]

    with kernels_off():
        wanted = trained()
    for found, expected in zip(trained(), wanted, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


CHECKED = (
    "agent.save-load-predict",
    "policy.deterministic",
    "seeds.",
    "resume.equals-uninterrupted",
    "training.parameters-move",
)
"""Clauses that a network can break: its state in files, its modes, its random numbers."""
CASES = {
    "sac, dropout": ("sac", {**DROPOUT, "n_critics": 3, "subset_size": 2}),
    "sac, simba": ("sac", SIMBA),
    "td3": ("td3", DROPOUT),
    "tqc": ("tqc", {**DROPOUT, "n_critics": 3, "subset_size": 2}),
    "crossq": ("crossq", {**DROPOUT, "n_critics": 3, "subset_size": 2}),
    "dqn": ("dqn", Q_NETWORK),
    "qrdqn": ("qrdqn", Q_NETWORK),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case.startswith("sac") else pytest.mark.full) for case in CASES]
)
def test_algorithms_with_these_networks_pass_clauses(case: str) -> None:
    algorithm, networks = CASES[case]
    for each in clauses():
        if each.id.startswith(CHECKED):
            outcome = outcome_of(each, algorithm, {"policy_kwargs": networks})
            assert outcome.status != "failed", (each.id, outcome.detail)


@pytest.mark.parametrize("kind", [DQN, QRDQN])
@pytest.mark.parametrize("name", ["mlp", "simba"])
def test_q_networks_of_a_file_need_no_class(kind: Any, name: str, tmp_path: Path) -> None:
    arguments = Q_NETWORK["network_kwargs"] if name == "mlp" else {"width": 8}
    networks = {"network_class": name, "network_kwargs": arguments}
    model = kind("MlpPolicy", "CartPole-v1", policy_kwargs=networks, **{**SMALL, "train_freq": 1}).learn(60)
    model.save(tmp_path / "agent")
    again = kind.load(tmp_path / "agent")
    seen = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    np.testing.assert_array_equal(
        model.predict(seen, deterministic=True)[0], again.predict(seen, deterministic=True)[0]
    )


def test_ppo_accepts_the_names_too() -> None:
    networks = {"actor_class": "simba", "critic_class": "mlp", "critic_kwargs": {"layer_norm": True}}
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, n_epochs=1, policy_kwargs=networks, seed=0)
    before = [each.clone() for each in model.policy.parameters()]
    model.learn(64)
    assert not any(map(torch.equal, before, model.policy.parameters()))


def test_normalization_of_crossq_leaves_these_critics_alone() -> None:
    model = CrossQ("MlpPolicy", "Pendulum-v1", policy_kwargs=LAYER_NORM, **SMALL).learn(40)
    kinds = {type(module).__name__ for module in model.critic.modules()}
    assert ("LayerNorm" in kinds, "BatchRenorm" in kinds) == (True, False)


@pytest.mark.parametrize(
    ("networks", "wanted"),
    [
        (
            {"critic_class": "mpl"},
            r"sac: policy_kwargs\.critic_class mpl: no installed plugin offers 'mpl' \(networks\)",
        ),
        (
            {"critic_class": "mlp", "critic_kwargs": {"rate": 1}},
            "critic_class mlp cannot be made: .*'rate'; it is called",
        ),
        ({"critic_class": 3}, "3 is not a class; give a class .*, or a name such as 'mlp'"),
        ({"subset_size": 3}, "subset_size = 3 of n_critics = 2; raise n_critics"),
        ({"subset_size": 0}, "subset_size = 0 is outside"),
    ],
)
def test_wrong_settings_are_one_error(networks: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SettingsError, match=wanted) as error:
        SAC("MlpPolicy", "Pendulum-v1", policy_kwargs=networks)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_an_exported_actor_computes_the_same(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs=SIMBA, **SMALL).learn(40)
    export(model, tmp_path / "actor.onnx")
    session = runtime.InferenceSession(str(tmp_path / "actor.onnx"))
    seen = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    (found, *_) = session.run(None, {session.get_inputs()[0].name: seen})
    np.testing.assert_allclose(found, model.predict(seen, deterministic=True)[0], atol=1e-5)
