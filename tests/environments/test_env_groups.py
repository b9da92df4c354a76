"""Groups of environments: random numbers per group, the same result wherever environments run, files with all groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.tree import leaves
from rlsdk_envs.toy import BitFlippingEnv
from tests.agent.test_resume import assert_equal, assert_resumes, everything

SMALL_REPLAY = {"learning_starts": 40, "buffer_size": 400, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}
SMALL_ROLLOUTS = {"n_steps": 16, "batch_size": 32}
CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "tqc": ("tqc", "Pendulum-v1", 240, SMALL_REPLAY),
    "tqc-gsde": ("tqc", "Pendulum-v1", 240, {**SMALL_REPLAY, "use_sde": True, "train_freq": 4, "normalize": True}),
    "qrdqn": ("qrdqn", "CartPole-v1", 240, SMALL_REPLAY),
    "maskable-ppo": ("maskable-ppo", "rlsdk/InvalidActionEnvDiscrete-v0", 256, SMALL_ROLLOUTS),
    "recurrent-ppo": ("recurrent-ppo", "rlsdk/CartPoleNoVel-v1", 256, {**SMALL_ROLLOUTS, "normalize": True}),
    "trpo": ("trpo", "Pendulum-v1", 256, {**SMALL_ROLLOUTS, "frame_stack": 2}),
}


def made(name: str, groups: int, vectorization: str = "sync", **changes: Any) -> Any:
    algorithm, env, _, settings = CASES[name]
    envs = make_vec_env(env, 4, vectorization=vectorization)
    return rlsdk.make(algorithm, env=envs, seed=3, env_groups=groups, **{**settings, **changes})


@pytest.mark.parametrize("name", ["tqc", "maskable-ppo", "recurrent-ppo"])
def test_the_result_depends_on_the_groups_and_not_on_where_environments_are(name: str) -> None:
    steps = CASES[name][2] // 2
    here = made(name, 2).learn(steps)
    elsewhere = made(name, 2, "async").learn(steps)
    assert_equal(everything(elsewhere), everything(here))
    assert len(here.acting) == 2
    assert "action 1" in here.streams.state_dict()
    elsewhere.env.close()
    alone = made(name, 1).learn(steps)
    policies = [leaves(agent.get_parameters()["policy"]) for agent in (here, alone)]
    assert not all(torch.equal(a, b) for a, b in zip(*policies, strict=True))


def test_each_group_acts_as_if_it_were_alone() -> None:
    """The first group samples the actions that a single group of its size samples."""
    both, half = made("trpo", 2, normalize=None), made("trpo", 1)
    half.set_env(make_vec_env("Pendulum-v1", 2, vectorization="sync"))
    taken: list[torch.Tensor] = []
    for agent in (both, half):
        actions: list[torch.Tensor] = []
        agent.learn(64, callback=lambda values, _, actions=actions: actions.append(torch.tensor(values["actions"][:2])))
        taken.append(torch.stack(actions[:16]))
    assert taken[0].shape[0] == 16
    torch.testing.assert_close(taken[0], taken[1], rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_a_training_with_groups_resumes_to_the_bit(name: str, tmp_path: Path) -> None:
    algorithm, env, total, settings = CASES[name]
    del algorithm, settings
    assert_resumes(
        lambda: made(name, 2), lambda: make_vec_env(env, 4, vectorization="sync"), tmp_path, total, total // 2
    )


@pytest.mark.parametrize("groups", [1, 4])
def test_a_file_goes_on_with_another_number_of_groups(groups: int, tmp_path: Path) -> None:
    agent = made("recurrent-ppo", 2).learn(128)
    agent.save(tmp_path / "agent")
    envs = make_vec_env("rlsdk/CartPoleNoVel-v1", 4, vectorization="sync")
    again = rlsdk.load(tmp_path / "agent", env=envs, env_groups=groups, force_reset=False)
    again.learn(0 + 1, callback=lambda *_: False, reset_num_timesteps=False)
    assert len(again.acting) == groups


def test_carries_are_split_and_joined_with_their_rows(tmp_path: Path) -> None:
    from rlsdk.agent.training_state import begin, training_env

    agent = made("recurrent-ppo", 2).learn(128)
    agent.save(tmp_path / "agent")
    wanted = [torch.cat(pair) for pair in zip(*(leaves(state.carry) for state in agent.acting), strict=True)]
    assert any(bool(leaf.any()) for leaf in wanted)
    for groups in (1, 2, 4):
        envs = make_vec_env("rlsdk/CartPoleNoVel-v1", 4, vectorization="sync")
        again = rlsdk.load(tmp_path / "agent", env=envs, env_groups=groups, force_reset=False)
        begin(again._assembled, training_env(again._assembled))
        found = [torch.cat(parts) for parts in zip(*(leaves(state.carry) for state in again.acting), strict=True)]
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_warm_up_counts_the_actions_of_all_groups() -> None:
    agent = made("tqc", 2, learning_starts=24).learn(40)
    assert [int(state.carry.taken) for state in agent.acting] == [24, 24]


def test_groups_must_divide_the_environments() -> None:
    with pytest.raises(SettingsError, match="env_groups = 3 does not divide the 4 environments; choose a divisor"):
        made("tqc", 3)
    agent = made("tqc", 2)
    with pytest.raises(SettingsError, match="env_groups = 2 does not divide the 3 environments"):
        agent.set_env(make_vec_env("Pendulum-v1", 3, vectorization="sync"))
    assert agent.n_envs == 4
    agent.learn(8)


def test_algorithms_that_play_whole_episodes_have_no_groups() -> None:
    with pytest.raises(SettingsError, match="env_groups = 2 is for algorithms that collect step by step; ars does not"):
        rlsdk.make("ars", env=make_vec_env("CartPole-v1", 2, vectorization="sync"), env_groups=2)


def test_hindsight_takes_rollouts_of_groups(tmp_path: Path) -> None:
    def envs() -> Any:
        return make_vec_env(lambda: BitFlippingEnv(4, continuous=True), 4, vectorization="sync")

    settings = {**SMALL_REPLAY, "replay_buffer_class": "hindsight"}
    assert_resumes(
        lambda: rlsdk.make("tqc", env=envs(), policy="MultiInputPolicy", seed=1, env_groups=2, **settings),
        envs,
        tmp_path,
        200,
        100,
    )
