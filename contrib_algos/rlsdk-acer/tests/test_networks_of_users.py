"""Networks with a train mode, and networks that are frozen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlsdk.environments import make_vec_env
from rlsdk_acer import ACER

SMALL: dict[str, Any] = {"n_steps": 8, "buffer_size": 160, "replay_start": 32, "seed": 0}


class Normed(nn.Module):
    """A features extractor with batch normalization and dropout; `calls` lists its calls."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.features_dim = 6
        self.net = nn.Sequential(nn.Linear(space.shape[0], 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.calls: list[tuple[int, bool]] = []
        """(number of rows, whether in train mode) of each call."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((len(x), self.training))
        found: Tensor = self.net(x)
        return found


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_only_the_rows_that_are_learned_from_are_evaluated_in_train_mode(policy: str, envs: int) -> None:
    """Bootstrapped values have a separate batch, with one row if one environment's episode continues."""
    networks = {"net_arch": [8], "lstm_hidden_size": 6, "features_extractor_class": Normed}
    agent = ACER(policy, make_vec_env("CartPole-v1", envs), policy_kwargs=networks, **SMALL).learn(240)
    encoder = next(module for module in agent.policy.modules() if isinstance(module, Normed))
    batches = [rows for rows, training in encoder.calls if training]
    assert len(batches) > 30
    assert set(batches) == {8 * envs}


@pytest.mark.parametrize("trained", [(), ("qf",), ("body", "head")])
def test_frozen_networks_stay(trained: tuple[str, ...]) -> None:
    agent = ACER("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, **SMALL).learn(80)
    for name, parameter in agent.policy.named_parameters():
        parameter.requires_grad_(name.startswith(trained) if trained else False)
    before = {name: parameter.detach().clone() for name, parameter in agent.policy.named_parameters()}
    agent.learn(80, reset_num_timesteps=False)
    for name, parameter in agent.policy.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name
