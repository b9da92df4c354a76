"""Descriptions of the hyper-parameters that several algorithms have."""

from __future__ import annotations

from rlsdk.settings.fields import MEMORY, described, needs

LEARNING_RATE = described("step size of the optimisers; may be a schedule of the remaining progress", tune=(1e-5, 1e-2))
BUFFER_SIZE = described("transitions the replay buffer holds, over all environments", unit="transitions")
LEARNING_STARTS = described("environment steps collected with random actions before the first update", unit="env steps")
BATCH_SIZE = described("transitions per update", unit="transitions", tune=(32, 1024))
TAU = described("share of the online network that moves into the target network at each target update", tune=(0.001, 1))
GAMMA = described("discount per environment step", tune=(0.9, 0.9999))
TRAIN_FREQ = described('vector steps between rounds of updates, or a pair such as [1, "episode"]')
GRADIENT_STEPS = described("updates per round; -1 = one for each collected environment step")
REPLAY_BUFFER_CLASS = described(
    "uniform, prioritized, hindsight, or a class; none = uniform", examples=("prioritized",)
)
REPLAY_BUFFER_KWARGS = described("further arguments of the replay buffer", examples=({"n_steps": 2},))
N_STEP_TARGETS = described("steps of rewards in a target before it bootstraps", tune=(1, 5))
OPTIMIZE_MEMORY_USAGE = described(
    "store each observation once; half the memory, exact also at time limits", affects="memory"
)
USE_SDE = described("explore with state-dependent noise (gSDE) instead of independent noise", source="arXiv:2005.05719")
SDE_SAMPLE_FREQ = described(
    "steps between new noise matrices within a rollout; -1 = only when a rollout starts", unit="steps"
) | needs("use_sde")
USE_SDE_AT_WARMUP = described("warm up with gSDE instead of uniformly random actions") | needs("use_sde")
LSTM_HIDDEN_SIZE = described("units of the memory", unit="units") | needs(MEMORY)
N_LSTM_LAYERS = described("layers of the memory") | needs(MEMORY)
LSTM_KWARGS = described("further arguments of the torch module of the memory", examples=({"bias": False},)) | needs(
    MEMORY
)
N_STEPS = described("vector steps per rollout", unit="vector steps", tune=(8, 4096))
MINIBATCH_SIZE = described("steps per minibatch; none = the whole rollout", unit="steps", tune=(32, 2048))
N_EPOCHS = described("passes over each rollout", tune=(1, 30))
GAE_LAMBDA = described("weighs bias against variance of advantages", source="arXiv:1506.02438", tune=(0.8, 1))
CLIP_RANGE = described(
    "how far probabilities may move from the collecting policy's; may be a schedule", tune=(0.1, 0.4)
)
CLIP_RANGE_VF = described("how far values may move, depends on the scale of rewards; none = freely")
NORMALIZE_ADVANTAGE = described("normalise advantages, per minibatch where there are minibatches")
ENT_COEF = described("weight of the entropy in the loss", tune=(0, 0.1))
VF_COEF = described("weight of the value loss", tune=(0.1, 1))
MAX_GRAD_NORM = described("global norm gradients are scaled down to")
EARLY_STOP_KL = described("stop the epochs once the policy has moved 1.5 times this far (approximate KL); none = never")
POLICY_KWARGS = described("settings of the networks")
NET_ARCH = described("hidden layer widths: a list for all networks, or a table of lists")
NETWORK_CLASS = described(
    "your whole network, called with (gymnasium space, output_dim, **network_kwargs), from preprocessed observations to"
    " [N, output_dim]; none = features extractor and net_arch"
)
ACTOR_CLASS = described(
    "your whole actor, called with (gymnasium space, output_dim, **actor_kwargs), from preprocessed observations to"
    " [N, output_dim]; none = features extractor and net_arch"
)
CRITIC_CLASS = described(
    "your whole value function, called with (gymnasium space, 1, **critic_kwargs), from preprocessed observations to"
    " [N, 1]; none = features extractor and net_arch"
)
CONTINUOUS_CRITIC_CLASS = described(
    "your whole critic, called with (gymnasium space, action_dim, output_dim, **critic_kwargs) n_critics times, from"
    " preprocessed observations and actions in [-1, 1] to [N, output_dim]; none = features extractor and net_arch"
)
OWN_KWARGS = described("further arguments of your class")
