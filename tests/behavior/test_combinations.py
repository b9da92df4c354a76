"""Combinations of features: every memory, mask, observation, action space and noise, with the updates of PPO and TRPO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments import make_vec_env
from rlsdk.interfaces import BuildContext
from rlsdk.networks import build_actor_critic
from rlsdk.networks.layers import initialization
from rlsdk.runtime.process import Streams
from rlsdk.settings.actor_critic import RecurrentConfig
from rlsdk.training import begin_acting
from rlsdk.training.collector import collect
from rlsdk.tree import map_tensors
from rlsdk.updates import ClippedPolicy
from rlsdk.updates.minibatches import policy_batch
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_recurrent_ppo.config import RecurrentPPOConfig
from rlsdk_trpo.algorithm import TrustRegionPolicy
from rlsdk_trpo.config import TRPOConfig

IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
OBSERVATIONS = {
    "vector": ("Mlp", VECTOR),
    "image": ("Cnn", IMAGE),
    "table": ("MultiInput", spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3, start=1), "c": IMAGE})),
    "nested": ("MultiInput", spaces.Tuple([VECTOR, spaces.Dict({"x": spaces.MultiBinary(2)})])),
}
BOX = spaces.Box(-2.0, 1.0, (2,), np.float32)
ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "box": BOX,
    "multi": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3),
    "hybrid": spaces.Dict({"which": spaces.Discrete(3), "how": BOX}),
}
CASES = [
    pytest.param(seen, action, memory, sde, marks=() if (i + j + k) % 3 == 0 else pytest.mark.slow)
    for i, seen in enumerate(OBSERVATIONS)
    for j, action in enumerate(ACTIONS)
    for k, memory in enumerate((None, "lstm", "gru"))
    for sde in ((False, True) if action == "box" else (False,))
]
"""The fast suite covers all pairs of features, the slow one all triples."""
SMALL = {"net_arch": [8], "features_extractor_kwargs": {}}


@pytest.mark.parametrize("update", ["ppo", "trpo"])
@pytest.mark.parametrize(("seen", "action", "memory", "sde"), CASES)
def test_one_update_runs_and_starts_at_ratio_one(update: str, seen: str, action: str, memory: Any, sde: bool) -> None:
    prefix, observations = OBSERVATIONS[seen]
    masked = action not in ("box",)
    env = make_vec_env(lambda: AnySpaceEnv(observations, ACTIONS[action], 5, strict=True), 2, vectorization="sync")
    streams = Streams(0)
    context = BuildContext(env.observation_space, env.action_space, 2, "cpu", streams)
    extractor = {"features_dim": 8} if seen == "image" else {"cnn_output_dim": 8} if prefix == "MultiInput" else {}
    networks = RecurrentConfig(net_arch=[8], lstm_hidden_size=6, features_extractor_kwargs=extractor)
    kind = RecurrentPPOConfig if update == "ppo" else TRPOConfig
    config = kind(policy=f"{prefix}Policy", n_steps=8, batch_size=6, policy_kwargs=networks)
    with initialization(0):
        network = build_actor_critic(context, config, memory=memory, use_sde=sde, sde_every=3)
    make: Any = ClippedPolicy if update == "ppo" else TrustRegionPolicy
    algorithm = make(network, config, streams["update"])
    rollout = collect(env, network, begin_acting(env, network, 0), 8, generator=streams["action"])
    assert (rollout.steps.observation.action_mask is not None) == masked
    rows = policy_batch(rollout, network, gamma=0.9, lam=0.9)
    with torch.no_grad():
        distribution, value = network.evaluate(rows.observation, rows.memory, rows.starts)
    ratio = (distribution.log_prob(network.internal(rows.action)) - rows.log_prob).exp()
    assert torch.allclose(ratio, torch.ones_like(ratio), atol=1e-5)
    assert torch.allclose(value, rows.value, atol=1e-5)
    before = map_tensors(torch.clone, dict(network.state_dict()))
    metrics = algorithm.update(rollout, progress=0.0)
    assert all(bool(value.isfinite()) for value in metrics.values())
    assert any(not torch.equal(value, before[name]) for name, value in network.state_dict().items())
