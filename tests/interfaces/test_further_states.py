"""Networks, optimizers, memories and states that a plugin only lists are saved, resumed and moved without further code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rlsdk
from rlsdk.agent.agent_file import KIND
from rlsdk.callbacks import CheckpointCallback
from rlsdk.errors import ArtifactError, PluginError, UsageError
from rlsdk.interfaces import BuildContext, Parts, Training
from rlsdk.interfaces.abilities import load_state_of, state_of
from rlsdk.records import Cursor, Report, Rollout
from rlsdk.registry import AlgorithmSpec, Manifest, unregister
from rlsdk.registry.discovery import register
from rlsdk.storage.archive import read_archive, write_archive
from rlsdk.storage.tensors import nested_state
from rlsdk.training import OnPolicyPlan
from rlsdk.tree import flatten
from tests.small_algorithms import Config, Softmax


class Past:
    """A memory that stores rewards."""

    def __init__(self) -> None:
        self.rewards = torch.zeros(0)

    def __len__(self) -> int:
        return len(self.rewards)

    def bytes_required(self) -> int:
        return 0

    def extend(self, item: Rollout[Any, Any]) -> None:
        self.rewards = torch.cat([self.rewards, item.steps.reward.flatten()])

    def sample(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return self.rewards[torch.randint(len(self.rewards), (size,), generator=generator)]

    def state_dict(self) -> dict[str, Any]:
        return {"rewards": self.rewards}

    def load_state_dict(self, state: Any, /) -> None:
        self.rewards = state["rewards"]


class Curious:
    """An algorithm that learns from stored rewards, with its own network, optimizer, count and random generator."""

    def __init__(self, policy: Softmax, curiosity: nn.Linear, optimizer: torch.optim.Optimizer, past: Past) -> None:
        self.policy, self.curiosity, self.curiosity_optimizer, self.past = policy, curiosity, optimizer, past
        self.value = nn.Linear(1, 1)
        self.optimizer = torch.optim.Adam([*policy.parameters(), *self.value.parameters()], lr=0.05)
        self.seen = torch.zeros((), dtype=torch.int64)
        self.generator = torch.Generator().manual_seed(3)

    def update(self, batch: Rollout[Any, Any], *, progress: float) -> dict[str, torch.Tensor]:
        self.past.extend(batch)
        self.seen += batch.steps.reward.numel()
        rewards = self.past.sample(8, self.generator)
        loss = ((self.curiosity(rewards[:, None]) + self.value(rewards[:, None])) ** 2).mean()
        loss = loss + self.policy.linear.weight.square().sum() * self.seen / 100
        for optimizer in (self.optimizer, self.curiosity_optimizer):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (self.optimizer, self.curiosity_optimizer):
            optimizer.step()
        return {"train/loss": loss.detach()}

    def state_dict(self) -> dict[str, Any]:
        return state_of(self, without=LISTED)

    def load_state_dict(self, state: Any, /) -> None:
        load_state_of(self, state, without=LISTED)


LISTED = ("policy", "curiosity", "curiosity_optimizer", "past")


class Slowing:
    """A plan with a state: every round is one step longer than the one before."""

    needs_environment, unit, log_every = True, "steps", "rounds"

    def __init__(self, n_steps: int) -> None:
        self.n_steps = n_steps
        self.rounds_done = torch.zeros((), dtype=torch.int64)

    def rounds(self, training: Training, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        while cursor.env_steps < training.end:
            one = replace(training, end=cursor.env_steps + 1)
            plan = OnPolicyPlan(self.n_steps + int(self.rounds_done))
            cursor, report = next(plan.rounds(one, cursor))
            self.rounds_done += 1
            yield cursor, report

    def state_dict(self) -> dict[str, Any]:
        return state_of(self)

    def load_state_dict(self, state: Any, /) -> None:
        load_state_of(self, state)


def build(context: BuildContext, config: Config) -> Parts:
    policy, curiosity, past = Softmax(context), nn.Linear(1, 1), Past()
    optimizer = torch.optim.Adam(curiosity.parameters(), lr=config.rate)
    algorithm = Curious(policy, curiosity, optimizer, past)
    states = {"curiosity": curiosity, "curiosity optimizer": optimizer, "past": past}
    return Parts(policy=policy, algorithm=algorithm, plan=Slowing(config.n_steps), states=states)


def known(build: Any, **more: Any) -> None:
    words: dict[str, Any] = {"title": "Curious", "summary": "for tests", "sdk": ">=0.1"}
    common: dict[str, Any] = {"id": "curious", "family": "on-policy", "policies": ("MlpPolicy",)}
    manifest = Manifest(actions=("Discrete",), observations=("Box", "Discrete"), **common, **words)
    register(AlgorithmSpec(config_type=Config, build=build, **common, **more), manifest)


@pytest.fixture
def curious() -> Iterator[None]:
    known(build)
    yield
    unregister("curious")


def made() -> Any:
    return rlsdk.make("curious", env="CartPole-v1", n_steps=4, seed=1)


def everything(agent: Any) -> dict[str, Any]:
    algorithm, plan = agent.parts.algorithm, agent.parts.plan
    return {
        "policy": [p.clone() for p in agent.policy.parameters()],
        "curiosity": [p.clone() for p in algorithm.curiosity.parameters()],
        "moments": [v["exp_avg"].clone() for v in algorithm.curiosity_optimizer.state_dict()["state"].values()],
        "value": [p.clone() for p in algorithm.value.parameters()],
        "rest": [
            algorithm.seen.clone(),
            plan.rounds_done.clone(),
            algorithm.generator.get_state(),
            algorithm.past.rewards,
        ],
    }


def require_equal(one: Any, other: Any) -> None:
    for name, tensors in everything(one).items():
        found = everything(other)[name]
        assert len(tensors) == len(found), name
        assert all(torch.equal(a, b) for a, b in zip(tensors, found, strict=True)), name


def test_a_training_resumes_to_the_bit(curious: None, tmp_path: Path) -> None:
    whole = made().learn(60)
    made().learn(30).save(tmp_path / "half", include=["replay"])
    again = rlsdk.load(tmp_path / "half", env="CartPole-v1", force_reset=False)
    again.learn(60 - again.num_timesteps, reset_num_timesteps=False)
    assert int(again.parts.plan.rounds_done) > 4
    require_equal(again, whole)


def test_checkpoints_hold_them(curious: None, tmp_path: Path) -> None:
    whole = made().learn(60, CheckpointCallback(30, tmp_path, keep=None))
    first = min(tmp_path.glob("*.rlsdk"))
    again = rlsdk.load(first, env="CartPole-v1", force_reset=False)
    again.learn(60 - again.num_timesteps, reset_num_timesteps=False)
    require_equal(again, whole)


def test_memories_wait_for_an_environment_and_are_left_out_unless_asked_for(curious: None, tmp_path: Path) -> None:
    agent = made().learn(12)
    agent.save(tmp_path / "with", include=["replay"])
    agent.save(tmp_path / "without")
    for name, count in (("with", len(agent.parts.states["past"])), ("without", 0)):
        found = rlsdk.load(tmp_path / name)
        assert len(found.parts.states["past"]) == 0
        found.set_env("CartPole-v1")
        assert len(found.parts.states["past"]) == count
        assert torch.equal(found.parts.states["curiosity"].weight, agent.parts.states["curiosity"].weight)  # type: ignore[attr-defined]


def test_a_plugin_that_changes_its_files_gets_all_sections_each_time(tmp_path: Path) -> None:
    """It may compute one from another. Memories are read later than the rest, when they are needed."""
    seen: list[set[str]] = []

    def upgrade(settings: Any, state: Any, version: str) -> tuple[Any, Any]:
        seen.append(set(state))
        return settings, state

    known(build, upgrade=upgrade)
    try:
        agent = made().learn(12)
        agent.save(tmp_path / "agent", include=["replay"])
        found = rlsdk.load(tmp_path / "agent")
        found.set_env("CartPole-v1")
        assert len(found.parts.states["past"]) == len(agent.parts.states["past"]) > 0
    finally:
        unregister("curious")
    assert len(seen) == 2
    assert seen[1] == {"policy", "training", "memories"}


def test_parameters_have_them_too(curious: None) -> None:
    agent, other = made().learn(12), made()
    assert set(agent.get_parameters()["states"]) == {"curiosity", "curiosity optimizer"}
    other.set_parameters(agent.get_parameters())
    assert torch.equal(other.parts.states["curiosity"].weight, agent.parts.states["curiosity"].weight)
    broken = {**agent.get_parameters(), "states": {"curiosity": {"weight": torch.zeros(2, 2), "bias": torch.zeros(1)}}}
    with pytest.raises(ArtifactError, match="shape"):
        other.set_parameters(broken, exact_match=False)


def test_no_tensor_of_a_file_may_be_nan(curious: None, tmp_path: Path) -> None:
    """Training would end at its first update, far from the file that was the cause."""
    agent = made().learn(12)
    agent.save(path := tmp_path / "agent.rlsdk")
    document, sections = read_archive(path, kind=KIND)
    sections["training"]["ahead"] = {"000": {"env_steps": 12, "policy": agent.parts.behavior_policy.state_dict()}}
    write_archive(path, document, sections)
    rlsdk.load(path)
    learned = [f"policy/{name}" for name in sections["policy"]] + [
        f"training/{name}"
        for name, value in flatten(sections["training"]).items()
        if name.startswith(("algorithm/", "states/", "ahead/")) and torch.is_tensor(value) and value.is_floating_point()
    ]
    assert {name.split("/")[1] for name in learned} >= {"algorithm", "states", "ahead"}
    for name in learned:
        damaged = flatten(sections)
        damaged[name] = torch.full_like(damaged[name], torch.nan)  # type: ignore[call-overload]
        write_archive(path, document, nested_state(damaged))
        with pytest.raises(ArtifactError, match="NaN or infinity"):
            pytest.fail(f"{name}: {rlsdk.load(path)} was loaded")


@pytest.mark.parametrize("count", [-1, 1.5, "x", None, True, 2**70])
def test_the_steps_of_policies_ahead_are_counts(count: Any, curious: None, tmp_path: Path) -> None:
    agent = made().learn(12)
    agent.save(path := tmp_path / "agent.rlsdk")
    document, sections = read_archive(path, kind=KIND)
    sections["training"]["ahead"] = {"000": {"env_steps": count, "policy": agent.parts.behavior_policy.state_dict()}}
    write_archive(path, document, sections)
    with pytest.raises(ArtifactError, match="env_steps"):
        rlsdk.load(path)


def test_replaced_layers_among_them_are_no_file(curious: None, tmp_path: Path) -> None:
    agent = made()
    agent.parts.states["curiosity"].add_module("more", nn.Linear(1, 1))
    with pytest.raises(UsageError, match="not the layers that the settings describe"):
        agent.save(tmp_path / "agent")


def test_networks_among_them_move(curious: None) -> None:
    made_parts = build(made().context, Config("MlpPolicy", n_steps=4))
    from rlsdk.agent.training_state import move

    move(made_parts, "meta")
    network: Any = made_parts.states["curiosity"]
    assert network.weight.device.type == "meta"


@pytest.mark.parametrize("state", [3, nn.Linear, {"a": 1}])
def test_what_has_no_state_is_refused(state: Any) -> None:
    known(lambda context, config: replace(build(context, config), states={"odd": state}))
    try:
        with pytest.raises(PluginError, match=r"states\['odd'\].* has state_dict\(\) and load_state_dict"):
            made()
    finally:
        unregister("curious")


def test_a_damaged_state_is_refused(curious: None) -> None:
    part = made().parts.algorithm
    for state in ({}, {**part.state_dict(), "seen": torch.zeros(2)}, {**part.state_dict(), "optimizer": {"9": {}}}):
        with pytest.raises(ValueError, match=r"state|tensor"):
            part.load_state_dict(state)
