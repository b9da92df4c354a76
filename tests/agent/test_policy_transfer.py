"""`load_policy` and `rlsdk run --from`: a new agent starts with the policy in a file of another algorithm."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.agent.persistence import _chosen
from rlsdk.errors import ArtifactError, NetArchError, SettingsError, UsageError
from rlsdk.registry import load
from rlsdk.tree import flatten
from rlsdk_acer import ACER
from rlsdk_bc import BC
from rlsdk_dqn import DQN
from rlsdk_ppo import PPO
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_td3 import TD3
from tests.expert_episodes import CHOICE, recorded

SHOWN = np.array([[x, 0.3] for x in (-0.8, -0.3, 0.3, 0.8)], np.float32)


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a behavior-cloning agent with 24 units per layer and normalized observations."""
    folder = tmp_path_factory.mktemp("cloned")
    data = recorded(folder / "demo", CHOICE)
    agent = BC("MlpPolicy", None, dataset=data, seed=0, normalize=True, policy_kwargs={"net_arch": [24]})  # type: ignore[arg-type]
    agent.learn(200).save(folder / "bc")
    return folder / "bc"


@pytest.mark.parametrize("name", ["ppo", "a2c", "trpo", "maskable-ppo"])
def test_on_policy_agents_act_as_the_clone_does(name: str, cloned: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent = rlsdk.agent.agent_class(load(name)).load_policy(cloned)
    assert agent.predict(SHOWN, deterministic=True, action_masks="none")[0].tolist() == [3, 3, 4, 4]
    mine, theirs = (flatten(a.get_parameters()["policy"]) for a in (agent, rlsdk.load(cloned)))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(torch.as_tensor(mine[key]), torch.as_tensor(value)) for key, value in theirs.items())
    assert not agent.policy_transfer.unchanged
    assert not agent.policy_transfer.unused


def test_acer_takes_the_policy_and_has_its_own_values(cloned: Path) -> None:
    with pytest.warns(UserWarning, match=r"unchanged: qf\.0\.weight"):
        agent = ACER.load_policy(cloned)
    assert agent.predict(SHOWN, deterministic=True)[0].tolist() == [3, 3, 4, 4]


def test_what_does_not_fit_is_listed(cloned: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"tensors of the policy come from the file; unchanged: body.0.weight \(shape"
    ) as seen:
        agent = PPO.load_policy(cloned, policy_kwargs={"net_arch": {"pi": [16], "vf": [24]}})
    assert seen[0].filename == __file__
    assert agent.policy_transfer is not None
    unchanged = {"body.0.weight", "body.0.bias", "head.linear.weight"}
    assert unchanged == set(agent.policy_transfer.unchanged)
    assert agent.policy_transfer.unchanged["body.0.weight"] == "shape (16, 2), the file's has (24, 2)"


def test_what_cannot_go_on_is_one_line(cloned: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError, match="the policy of the file, of bc, has no tensor that fits dqn: their networks"
    ):
        DQN.load_policy(cloned, buffer_size=100, policy_kwargs={"net_arch": [7]})
    with pytest.raises(
        SettingsError, match=r"the file of bc has 'MlpPolicy', which recurrent-ppo has not; .*MlpLstmPolicy"
    ):
        RecurrentPPO.load_policy(cloned)
    with pytest.raises(ArtifactError, match="missing"):
        PPO.load_policy(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"load_policy makes a new agent: write agent = PPO\.load_policy"):
        PPO.load_policy(cloned).load_policy(cloned)


def test_a_policy_of_other_networks_is_named(tmp_path: Path) -> None:
    sizes = {"net_arch": {"pi": [8], "qf": [8]}}
    file = tmp_path / "critics"
    TD3("MlpPolicy", "Pendulum-v1", buffer_size=100, policy_kwargs=sizes).save(file)
    wanted = r"the file .*critics, of td3, has no policy that ppo can take: its net_arch names \['qf'\]"
    for env in (None, "Pendulum-v1"):
        with pytest.raises(SettingsError, match=wanted):
            PPO.load_policy(file, env)
    with pytest.raises(NetArchError, match=r"^net_arch names"):
        PPO.load_policy(file, policy_kwargs={"net_arch": {"qf": [8]}})


@pytest.mark.parametrize("quiet", [(), ("--quiet",), ("--json",)])
def test_a_run_warns_of_what_it_did_not_take(tmp_path: Path, cli: Any, quiet: tuple[str, ...]) -> None:
    PPO("MlpPolicy", "rlsdk/IdentityEnv-v0", policy_kwargs={"net_arch": {"pi": [8], "vf": [8]}}).save(tmp_path / "it")
    run = ("run", "ppo", "--from", "it", "--env", "rlsdk/IdentityEnv-v0", "--steps", "8", "--set", "n_steps=8")
    run += ("--set", "batch_size=8", "--set", "policy_kwargs.net_arch.vf=[4]", "--eval-every", "0")
    with pytest.warns(UserWarning, match=r"policy from it.rlsdk: 5 of 8 tensors .* unchanged: critic_body"):
        assert cli(*run, "--set", "policy_kwargs.net_arch.pi=[8]", *quiet)[0] == 0


def test_an_entry_of_the_file_is_taken_if_it_fits() -> None:
    own, file = torch.zeros(2), {"a": torch.ones(2), "b": torch.ones(3), "c": "text", "d": 7}
    assert torch.equal(_chosen(own, file, "a")[0], torch.ones(2))
    assert _chosen(own, file, "b") == (own, "shape (2,), the file's has (3,)")
    assert _chosen(own, file, "c") == (own, "shape (2,), the file's has none")
    assert _chosen(3, file, "d") == (7, "")
    assert _chosen(3, file, "e") == (3, "not in the file")


TARGETS = {
    "dqn": ("CartPole-v1", "target"),
    "qrdqn": ("CartPole-v1", "target"),
    "td3": ("Pendulum-v1", "actor_target"),
    "ddpg": ("Pendulum-v1", "actor_target"),
    "acer": ("CartPole-v1", "average"),
}
"""Algorithm -> an environment, and the algorithm's attribute with the slow copy of the policy."""


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_copies_of_the_new_policy(name: str, tmp_path: Path) -> None:
    """The targets of the first updates would else be those of random networks."""
    env, attribute = TARGETS[name]
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [4]}, "buffer_size": 2000}
    rlsdk.make(name, env=env, seed=1, **small).save(tmp_path / "first")
    agent = type(rlsdk.make(name, env=env, seed=2, **small)).load_policy(tmp_path / "first", env, seed=2, **small)
    target: Any = getattr(agent.parts.algorithm, attribute)
    copies, wanted = flatten(target.network.state_dict()), flatten(target.online.state_dict())
    assert wanted
    assert all(torch.equal(torch.as_tensor(copies[key]), torch.as_tensor(value)) for key, value in wanted.items())
