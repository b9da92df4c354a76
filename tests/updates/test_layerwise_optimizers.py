"""Optimizers that look at whole layers get the layers: the results equal those of torch, with every kind of network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rlsdk
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.networks.layers import EnsembleMLP
from rlsdk.updates import FlatOptimizer
from rlsdk.updates.optimizer import CLASSES
from tests.tables import in_one_test

RATE, STEPS = 1e-2, 6


class Lars(torch.optim.Optimizer):
    """SGD with momentum whose step is scaled by the norms of each layer (You et al. 2017, arXiv:1708.03888)."""

    def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "steps": 0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["steps"] += 1  # an optimizer may count in its groups
            for p in group["params"]:
                ratio = 0.01 * p.norm() / (p.grad.norm() + 1e-6) if p.dim() > 1 else 1.0
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.mul_(group["momentum"]).add_(p.grad * ratio)
                p.sub_(group["lr"] * mean / (1.0 - group["momentum"] ** group["steps"]))


class OwnSGD(torch.optim.SGD):
    """An element-wise optimizer that rlsdk does not know."""


def decayed(parameters: Iterable[nn.Parameter], lr: float, **more: Any) -> torch.optim.Optimizer:
    """Adam that lets weights decay, and not biases, which have half the learning rate."""
    every = list(parameters)
    matrices, vectors = [p for p in every if p.dim() > 1], [p for p in every if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "lr": 0.5 * lr}]
    return torch.optim.AdamW(groups, lr=lr, **more)


CHOICES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "lars": Lars,
    "adafactor": torch.optim.Adafactor,
    "groups": decayed,
    "matrices": lambda p, lr: torch.optim.Muon([each for each in p if each.dim() == 2], lr=lr),
    "own": OwnSGD,
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def loss_of(module: nn.Module, step: int) -> Tensor:
    out: Tensor = module(torch.randn(5, 3, generator=torch.Generator().manual_seed(step)))
    return out.square().mean()


def follow(module: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """Make steps as a program of torch does; the rate of every group falls by the same factor."""
    first = [group["lr"] for group in optimizer.param_groups]
    for step in steps:
        optimizer.zero_grad()
        loss_of(module, step).backward()  # type: ignore[no-untyped-call]
        for group, rate in zip(optimizer.param_groups, first, strict=True):
            group["lr"] = rate * (1.0 - step / 10)
        optimizer.step()


def train(module: nn.Module, optimizer: FlatOptimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(module, step).backward()  # type: ignore[no-untyped-call]
        optimizer.step(RATE * (1.0 - step / 10))


@pytest.mark.parametrize("name", CHOICES)
def test_the_steps_are_those_of_torch(name: str) -> None:
    ours, theirs = network(), network()
    train(ours, FlatOptimizer(ours, CHOICES[name], RATE), range(STEPS))
    follow(theirs, CHOICES[name](list(theirs.parameters()), lr=RATE), range(STEPS))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["lars", "groups", "matrices"])
def test_stacked_critics_are_trained_as_separate_networks(name: str) -> None:
    ensemble = EnsembleMLP(2, 3, (8,), 2, "tanh")
    separate = [network() for _ in range(2)]
    for critic, module in enumerate(separate):
        for mine, stacked in ((0, ensemble.layers[0]), (2, ensemble.layers[2])):
            module[mine].weight.data.copy_(stacked.weight[critic].t())  # type: ignore[operator, index]
            module[mine].bias.data.copy_(stacked.bias[critic, 0])  # type: ignore[operator, index]
    optimizer = FlatOptimizer(ensemble, CHOICES[name], RATE)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(step))
        ensemble(x).square().mean((1, 2)).sum().backward()
        optimizer.step(RATE * (1.0 - step / 10))
    for critic, module in enumerate(separate):
        follow(module, CHOICES[name](list(module.parameters()), lr=RATE), range(STEPS))
        found = ensemble.layers[2].weight[critic].t()  # type: ignore[operator, index]
        torch.testing.assert_close(found, module[2].weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", CHOICES)
def test_a_stored_state_continues_to_the_bit(name: str) -> None:
    ours = network()
    optimizer = FlatOptimizer(ours, CHOICES[name], RATE)
    fresh = optimizer.state_dict()
    train(ours, optimizer, range(STEPS))
    again = network()
    other = FlatOptimizer(again, CHOICES[name], RATE)
    other.load_state_dict(fresh)
    again.load_state_dict(ours.state_dict())
    other.load_state_dict(optimizer.state_dict())
    train(ours, optimizer, range(STEPS, 9))
    train(again, other, range(STEPS, 9))
    assert all(map(torch.equal, ours.parameters(), again.parameters()))


@pytest.mark.parametrize("name", ["lars", "groups", "own"])
def test_replaced_and_frozen_layers(name: str) -> None:
    ours = network()
    optimizer = FlatOptimizer(ours, CHOICES[name], RATE)
    train(ours, optimizer, range(3))
    ours[2] = nn.Linear(8, 2)
    ours[0].weight.requires_grad_(False)
    still, other, before = ours[0].weight.clone(), ours[2].weight.clone(), optimizer.state_dict()
    train(ours, optimizer, range(3, 6))
    assert torch.equal(still, ours[0].weight)
    assert not torch.equal(other, ours[2].weight)
    assert set(before) == set(optimizer.state_dict())


@in_one_test
@pytest.mark.parametrize("name", CLASSES)
def test_moments_stay_with_their_parameters(name: str) -> None:
    """If a layer is replaced by a larger one, all others have other places in the vector; new parameters begin with 0."""
    ours = network()
    optimizer = FlatOptimizer(ours, name, RATE, {"momentum": 0.9} if name == "sgd" else None)
    train(ours, optimizer, range(3))
    before, fresh = optimizer.state_dict(), sum(parameter.numel() for parameter in ours[0].parameters())
    ours[0] = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8))
    optimizer.zero_grad()
    added, after = sum(parameter.numel() for parameter in ours[0].parameters()), optimizer.state_dict()
    assert before
    assert before.keys() == after.keys()
    for entry, value in before.items():
        assert isinstance(value, Tensor)
        moments = torch.cat((torch.zeros(added), value[fresh:])) if value.dim() else value
        assert torch.equal(moments, torch.as_tensor(after[entry])), entry


def test_a_state_has_only_what_the_optimizer_changed_in_its_groups() -> None:
    """The rest comes from the settings, which may be others when the state is loaded."""
    ours = network()
    optimizer = FlatOptimizer(ours, Lars, RATE)
    assert optimizer.state_dict()["param_groups"] == [{}]
    train(ours, optimizer, range(3))
    ours[2] = nn.Linear(8, 2)
    optimizer.zero_grad()
    assert optimizer.state_dict()["param_groups"] == [{"steps": 3}]


@in_one_test
@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["state"].pop(1),
        lambda state: state["state"][1].update(mean=torch.zeros(3)),
        lambda state: state["state"][1].update(mean=1.0),
        lambda state: state["param_groups"].append({}),
        lambda state: state.update(param_groups=3),
        lambda state: state.update(state=4),
    ],
)
def test_a_damaged_state_is_refused(change: Callable[[Any], object]) -> None:
    ours = network()
    optimizer = FlatOptimizer(ours, Lars, RATE)
    train(ours, optimizer, range(2))
    state = optimizer.state_dict()
    change(state)
    with pytest.raises(ValueError, match="the optimizer"):
        FlatOptimizer(network(), Lars, RATE).load_state_dict(state)


@pytest.mark.parametrize("name", ["ppo", "tqc", "dqn", "td3"])
@pytest.mark.parametrize("kind", ["lars", "adafactor", "own"])
def test_agents_learn_and_resume_with_them(name: str, kind: str, tmp_path: Path) -> None:
    env = "CartPole-v1" if name in ("ppo", "dqn") else "Pendulum-v1"
    settings: dict[str, Any] = {"n_steps": 16, "batch_size": 8} if name == "ppo" else {"learning_starts": 8}
    networks = {"net_arch": [8], "optimizer_class": CHOICES[kind]}
    model = rlsdk.make(name, env=env, seed=0, policy_kwargs=networks, **settings)
    model.learn(48)
    model.save(tmp_path / "agent", include=() if name == "ppo" else ("replay_buffer",))
    chosen = {"policy_kwargs.optimizer_class": CHOICES[kind]}
    again = rlsdk.load(tmp_path / "agent", env=env, custom_objects=chosen, force_reset=False)
    for each in (model, again):
        each.learn(32, reset_num_timesteps=False)
    pairs = zip(model.policy.parameters(), again.policy.parameters(), strict=True)
    assert all(torch.equal(mine, other) for mine, other in pairs)
    if kind != "own":  # the state of another optimizer; SGD has none
        with pytest.raises(ArtifactError, match="optimizer"):
            rlsdk.load(tmp_path / "agent", env=env, custom_objects={"policy_kwargs.optimizer_class": OwnSGD})


class Averaging(torch.optim.SGD):
    """An optimizer that evaluates averaged weights, as schedule-free ones do."""

    def train(self) -> None: ...

    def eval(self) -> None: ...


@in_one_test
@pytest.mark.parametrize(
    ("networks", "message"),
    [
        (
            {"optimizer_class": torch.optim.Muon},
            "Muon only supports 2D.*may be a function .parameters, lr. that chooses",
        ),
        ({"optimizer_class": Averaging}, "Averaging evaluates averaged weights.*accepted: adadelta"),
        ({"optimizer_class": torch.optim.SparseAdam}, "SparseAdam needs sparse gradients"),
        ({"optimizer_class": lambda p, lr: None}, "returned NoneType; return a torch.optim.Optimizer"),
        ({"optimizer_kwargs": {"fused": True, "foreach": True}}, "do not fit adam: .*cannot be `True` together"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(networks: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        rlsdk.make("ppo", env="CartPole-v1", policy_kwargs=networks)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", [{"foreach": True}, {"fused": False}, {"differentiable": False}, {"amsgrad": True}])
def test_how_torch_computes_the_step_may_be_chosen(how: dict[str, Any]) -> None:
    ours, theirs = network(), network()
    train(ours, FlatOptimizer(ours, "adam", RATE, how), range(STEPS))
    follow(theirs, torch.optim.Adam(theirs.parameters(), lr=RATE, **how), range(STEPS))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
