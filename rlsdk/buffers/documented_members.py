"""Members that other libraries document for replay buffers and that rlsdk's lack. Using one raises an error with its
replacement."""

from __future__ import annotations

from rlsdk.interfaces.unknown_members import explaining

ROWS = "sample(size, generator) gives batches of its rows"
SPACES = "it is the model's: model.observation_space and model.action_space"


explains_documented_members = explaining(
    {
        **dict.fromkeys(("actions", "dones", "next_observations", "rewards", "timeouts"), ROWS),
        **dict.fromkeys(("action_dim", "action_space", "obs_shape", "observation_space"), SPACES),
        "add": "rlsdk_interchange.remember(model, episodes) adds recorded episodes, and learn the steps it collects",
        "buffer_size": "model.buffer_size is its capacity",
        "device": "it is in the memory of the processor, batches are on model.device",
        "full": "len(buffer) counts its transitions, model.buffer_size is its capacity",
        "goal_selection_strategy": "strategy is the name of the strategy",
        "handle_timeout_termination": "targets bootstrap at time limits in every buffer",
        "her_ratio": "share is the ratio of transitions with another goal",
        "n_envs": "model.n_envs counts the environments",
        "n_sampled_goal": "share is n_sampled_goal / (n_sampled_goal + 1)",
        "pos": "len(buffer) counts its transitions",
        "reset": "make the agent again for an empty one",
        "size": "len(buffer) counts its transitions, over all environments together",
    }
)
"""A class decorator that makes access to these names raise an error which names the replacement."""
