"""What the hyper-parameters that several algorithms have mean: a constant describes the settings of its name in lower case.

A config class that gives a field of such a name no text gets this one; see `meaning_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rlsdk.settings.fields import MEMORY, described, needs

LEARNING_RATE = described("learning rate; may be a schedule of the remaining progress, from 1 to 0", tune=(1e-5, 1e-2))
BUFFER_SIZE = described("capacity of the replay buffer, for all environments together", unit="transitions")
LEARNING_STARTS = described("environment steps collected with random actions before the first update", unit="env steps")
BATCH_SIZE = described("batch size of each update", unit="transitions", tune=(32, 1024))
TAU = described("soft-update coefficient: target = tau * online + (1 - tau) * target; 1 = copy", tune=(0.001, 1))
GAMMA = described("discount factor per environment step", tune=(0.9, 0.9999))
TRAIN_FREQ = described('steps of the vector environment between rounds of updates, or a pair such as [1, "episode"]')
GRADIENT_STEPS = described(
    "updates in each round of updates; -1 = one for each environment step collected since the last round"
)
REPLAY_BUFFER_CLASS = described(
    "replay buffer: uniform, prioritized, hindsight, or a class; none = uniform", examples=("prioritized",)
)
REPLAY_BUFFER_KWARGS = described("further arguments of the replay buffer", examples=({"n_steps": 2},))
OPTIMIZE_MEMORY_USAGE = described(
    "store each observation once instead of twice, which halves the memory; targets at time limits stay exact",
    affects="memory",
)
USE_SDE = described("explore with state-dependent noise (gSDE) instead of independent noise", source="arXiv:2005.05719")
SDE_SAMPLE_FREQ = described(
    "gSDE: steps between new noise matrices within a rollout; -1 = a new matrix only when a rollout starts",
    unit="steps",
) | needs("use_sde")
USE_SDE_AT_WARMUP = described(
    "take the first learning_starts steps with gSDE instead of uniformly random actions"
) | needs("use_sde")
LSTM_HIDDEN_SIZE = described("units of each recurrent layer (LSTM or GRU)", unit="units") | needs(MEMORY)
N_LSTM_LAYERS = described("number of recurrent layers (LSTM or GRU)") | needs(MEMORY)
LSTM_KWARGS = described("further arguments of torch.nn.LSTM or torch.nn.GRU", examples=({"bias": False},)) | needs(
    MEMORY
)
N_STEPS = described("steps of each environment per rollout", unit="vector steps", tune=(8, 4096))
N_EPOCHS = described("passes over each rollout", tune=(1, 30))
GAE_LAMBDA = described(
    "lambda of generalized advantage estimation: lower = more bias, less variance",
    source="arXiv:1506.02438",
    tune=(0.8, 1),
)
CLIP_RANGE = described(
    "clipping range of the probability ratio between the new and the collecting policy; may be a schedule",
    tune=(0.1, 0.4),
)
CLIP_RANGE_VF = described(
    "clipping range of the change of values, in units of the (normalized) return; none = no clipping"
)
NORMALIZE_ADVANTAGE = described(
    "normalize advantages to mean 0 and standard deviation 1, in each minibatch if there are minibatches"
)
ENT_COEF = described("weight of the entropy bonus in the loss", tune=(0, 0.1))
VF_COEF = described("weight of the value loss", tune=(0.1, 1))
MAX_GRAD_NORM = described("maximum global norm of gradients; larger gradients are scaled down to it")
TARGET_KL = described(
    "stop the epochs of an update if the approximate KL divergence exceeds 1.5 times this value; none = never"
)
POLICY_KWARGS = described("settings of the networks")
NET_ARCH = described("hidden layer widths: a list, or a table with a list per network")
NETWORK_CLASS = described(
    "torch module that replaces the whole network, called with (gymnasium space, output_dim,"
    " **network_kwargs); maps preprocessed observations to [N, output_dim]; none = features extractor and"
    " net_arch"
)
ACTOR_CLASS = described(
    "torch module that replaces the whole actor, called with (gymnasium space, output_dim, **actor_kwargs);"
    " maps preprocessed observations to [N, output_dim]; none = features extractor and net_arch"
)
CRITIC_CLASS = described(
    "torch module that replaces the whole value function, called with (gymnasium space, 1, **critic_kwargs);"
    " maps preprocessed observations to [N, 1]; none = features extractor and net_arch"
)
NETWORK_KWARGS = ACTOR_KWARGS = CRITIC_KWARGS = MEMORY_KWARGS = described(
    "arguments for the class, such as actor_kwargs for actor_class"
)

SHARED: dict[str, Mapping[str, object]] = {
    name.lower(): value for name, value in list(globals().items()) if name.isupper() and isinstance(value, dict)
}
"""Name of a setting -> its description."""


def meaning_of(field: attrs.Attribute[object]) -> Mapping[str, Any]:
    """The metadata of a field; what it leaves out is taken from the constant of its name. See `described` and `needs`."""
    return {**SHARED.get(field.name, {}), **field.metadata}
