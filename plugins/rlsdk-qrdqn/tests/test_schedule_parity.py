"""Exploration and target updates of QRDQN compared with sb3-contrib in every step, with several environments."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from rlsdk.environments import make_vec_env
from rlsdk.updates import TargetNetwork
from rlsdk_envs.toy import IdentityEnv
from rlsdk_qrdqn import QRDQN

sb3_contrib = pytest.importorskip("sb3_contrib")
from sb3_contrib.qrdqn import qrdqn as their_module  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env as make_theirs  # noqa: E402

STEPS = 60


class Asked(IdentityEnv):
    """An environment that records epsilon at each step of the first environment."""

    model: Any = None
    epsilons: list[float] = []  # noqa: RUF012  # shared on purpose
    number = 0

    def step(self, action: Any) -> Any:
        if self.first and Asked.model is not None:
            ours = hasattr(Asked.model, "parts")
            Asked.epsilons.append(float(Asked.model.policy.epsilon if ours else Asked.model.exploration_rate))
        return super().step(action)


def source() -> Any:
    env = Asked(3, episode_length=12)
    env.first = Asked.number == 0  # type: ignore[attr-defined]
    Asked.number += 1
    return env


def noted(make: Any, train: Any) -> list[float]:
    Asked.model, Asked.epsilons, Asked.number = None, [], 0
    Asked.model = make()
    train(Asked.model)
    return Asked.epsilons


@pytest.mark.parametrize("envs", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "settings",
    [
        {"train_freq": 4, "target_update_interval": 10},
        {"train_freq": 1, "target_update_interval": 7, "tau": 0.3},
        {"train_freq": 3, "target_update_interval": 2, "exploration_fraction": 1.0},
        {"train_freq": 8, "target_update_interval": 1, "exploration_fraction": 0.25},
        {"train_freq": (2, "episode"), "target_update_interval": 10},
        {"train_freq": (1, "episode"), "target_update_interval": 5, "exploration_fraction": 1.0, "tau": 0.3},
    ],
)
def test_every_step_explores_and_every_target_moves_as_the_peers(
    envs: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = {"exploration_fraction": 0.5, "learning_starts": 0, "buffer_size": 100, "batch_size": 4, "seed": 0}
    common |= {"policy_kwargs": {"net_arch": [4], "n_quantiles": 3}, "device": "cpu", **settings}
    moved: dict[str, list[int]] = {"ours": [], "theirs": []}

    def update(target: Any, tau: float) -> None:
        assert tau == settings.get("tau", 1.0)
        moved["ours"].append(Asked.model.parts.algorithm.counted)

    monkeypatch.setattr(TargetNetwork, "update", update)
    if isinstance(settings["train_freq"], tuple) and envs > 1:
        pytest.skip("the peer counts episodes of one environment only")
    own = noted(lambda: QRDQN("MlpPolicy", make_vec_env(source, envs, vectorization="sync"), **common), learn)
    ours = Asked.model

    def polyak(parameters: Any, targets: Any, tau: float) -> None:
        if tau == settings.get("tau", 1.0) and (
            not moved["theirs"] or moved["theirs"][-1] != Asked.model._n_calls * envs
        ):
            moved["theirs"].append(Asked.model._n_calls * envs)

    monkeypatch.setattr(their_module, "polyak_update", polyak)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = noted(lambda: sb3_contrib.QRDQN("MlpPolicy", make_theirs(source, envs), **common), learn)
    assert ours.num_timesteps == Asked.model.num_timesteps, "the last round is whole"
    assert moved["ours"] == moved["theirs"]
    assert own[0] == 1.0  # sb3-contrib takes its first step before it evaluates the schedule, with an epsilon of 0
    assert own[1:] == pytest.approx(theirs[1:])
    assert len(set(own)) > 3


def learn(model: Any) -> None:
    model.learn(STEPS)
