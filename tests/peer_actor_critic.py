"""Our actor-critics beside those of sb3-contrib: equal weights, equal rollouts, and how far apart they end up."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def _pairs(ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
    """(our parameter, theirs) of everything that is learnt."""
    head = ours.head if ours.sde is None else ours.head.head
    modules = [(head.linear, theirs.action_net), (ours.value, theirs.value_net)]
    for mine, other in (
        (ours.body, theirs.mlp_extractor.policy_net),
        (ours.critic_body, theirs.mlp_extractor.value_net),
    ):
        modules += [(mine[i], other[i]) for i in range(0, len(mine), 2)]
    if hasattr(theirs, "lstm_actor"):
        modules.append((ours.memory.cells, theirs.lstm_actor))
        if theirs.lstm_critic is not None:
            modules.append((ours.critic_memory.cells, theirs.lstm_critic))
        if theirs.critic is not None:
            modules.append((ours.critic_memory.linear, theirs.critic))
    found = [(dict(m.named_parameters())[name], value) for m, o in modules for name, value in o.named_parameters()]
    if hasattr(theirs, "log_std"):
        found.append(((ours.sde or ours.head).log_std, theirs.log_std))
    return found


def transplant(ours: Any, theirs: Any) -> None:
    """Put their weights into our network."""
    with torch.no_grad():
        for mine, other in _pairs(ours, theirs):
            mine.copy_(other)


def distance(ours: Any, theirs: Any) -> float:
    """The largest difference between two parameters."""
    return float(torch.stack([(mine - other).abs().max() for mine, other in _pairs(ours, theirs)]).max())


def fill(buffer: Any, rollout: Any, theirs: Any, ours: Any) -> None:
    """Our rollout as sb3 would have stored it: the value of a time limit's last observation is added to the reward."""
    steps, extras = rollout.steps, ours.estimates(rollout.steps)
    reward, finals = steps.reward.clone(), rollout.final_observations
    length, envs = reward.shape
    if finals is not None:
        with torch.no_grad():
            values = theirs.policy.predict_values(finals.observation.features).squeeze(-1)
        cut = steps.truncated[finals.time, finals.env] & ~steps.terminated[finals.time, finals.env]
        reward[finals.time, finals.env] += theirs.gamma * values * cut
    buffer.reset()
    for t in range(length):
        mask = steps.observation.action_mask
        more = {} if mask is None else {"action_masks": mask[t].numpy()}
        row = (steps.observation.features[t].numpy(), steps.action[t].numpy().reshape(envs, -1), reward[t].numpy())
        buffer.add(*row, steps.observation.is_first[t].numpy(), extras.value[t], extras.log_prob[t], **more)
    with torch.no_grad():
        last = theirs.policy.predict_values(rollout.last_observation.features)
    buffer.compute_returns_and_advantage(last, rollout.last_observation.is_first.numpy())


def same_order(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numpy shuffle as our generator is about to."""
    import numpy as np

    twin = torch.Generator()
    twin.set_state(ours.streams["update"].get_state())
    monkeypatch.setattr(np.random, "permutation", lambda count: torch.randperm(count, generator=twin).numpy())
    monkeypatch.setattr(np.random, "randint", lambda count: int(torch.randint(count, (), generator=twin)))
