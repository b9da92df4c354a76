"""The updates of TQC's target network, compared with sb3-contrib, with several environments and gradient steps."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from rlsdk.environments import make_vec_env
from rlsdk.updates import SoftActorCritic
from rlsdk_tqc import TQC
from tests.peer_gsde import Counting

sb3_contrib = pytest.importorskip("sb3_contrib")
from sb3_contrib.tqc import tqc as their_module  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env as make_theirs  # noqa: E402

STEPS = 36


def updates_that_move(model: Any, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int]:
    """(updates, counted from 0, that change the target network; number of all updates) in a training.

    Every update calls `owner.name` once, before it updates the target network.
    """
    seen, original = list[torch.Tensor](), getattr(owner, name)

    def look() -> None:
        seen.append(torch.cat([value.detach().flatten() for value in model.critic_target.parameters()]))

    def noted(*given: Any, **named: Any) -> Any:
        look()
        return original(*given, **named)

    monkeypatch.setattr(owner, name, noted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.learn(STEPS)
    look()
    return [i for i in range(len(seen) - 1) if not torch.equal(seen[i], seen[i + 1])], len(seen) - 1


@pytest.mark.parametrize("envs", [1, 2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        {"train_freq": 1, "gradient_steps": 1, "target_update_interval": 1},
        {"train_freq": 1, "gradient_steps": 4, "target_update_interval": 2, "learning_starts": 7},
        {"train_freq": 3, "gradient_steps": 6, "target_update_interval": 3},
        {"train_freq": 4, "gradient_steps": -1, "target_update_interval": 4},
        {"train_freq": 1, "gradient_steps": 1, "target_update_interval": 5},
        {"train_freq": 2, "gradient_steps": 3, "target_update_interval": 2},
        {"train_freq": 2, "gradient_steps": -1, "target_update_interval": 7},
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_the_target_network_moves_when_the_peers_does(
    envs: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    common: dict[str, Any] = {"learning_starts": 0, "buffer_size": 100, "batch_size": 4, "seed": 0, "device": "cpu"}
    common |= {"learning_rate": 1e-2, "tau": 0.3, **settings}
    common |= {"policy_kwargs": {"net_arch": [4], "n_quantiles": 3, "n_critics": 1}, "top_quantiles_to_drop_per_net": 1}
    model = TQC("MlpPolicy", make_vec_env(Counting, envs, vectorization="sync"), **common)
    mine, updates = updates_that_move(model, SoftActorCritic, "update", monkeypatch)
    model = sb3_contrib.TQC("MlpPolicy", make_theirs(Counting, envs), **common)
    theirs, count = updates_that_move(model, their_module, "quantile_huber_loss", monkeypatch)
    assert updates == count > 10
    interval, steps = settings["target_update_interval"], settings["gradient_steps"]
    assert mine == list(range(0, updates, interval)), "counted over the whole training"
    in_a_round = steps if steps > 0 else settings["train_freq"] * envs
    if in_a_round % interval == 0:
        assert mine == theirs
    else:
        assert mine != theirs, "the peer counts within a round"
