"""Names that stable-baselines3 and sb3-contrib document, and what rlsdk has for each: a part, or advice.

`known` and `advice` are what the core calls. This module imports neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any, NoReturn

from rlsdk.errors import UnknownAttributeError, UnknownNameError, UsageError

_OUTPUT = (
    "rlsdk_sb3.configure(folder, formats) makes a logger; an object with write(step, values) is a logger of your own"
)
_SCHEDULE = "rlsdk.settings has Constant, Linear and as_schedule; settings take numbers and functions as they are"
_WRAPPERS = "model.get_env().env_is_wrapped(kind); for one environment, search env, env.env and so on with isinstance"
_ONE_MODEL = "the agent normalizes its inputs itself: the setting normalize, model.get_vec_normalize_env()"
_VECTOR = "rlsdk.environments.make_vec_env makes vector environments; rlsdk_sb3.NumpyVectorEnv around one takes arrays"
_PREPARED = "networks prepare observations themselves: rlsdk.networks.build_encoder makes the encoder of a space"
_TORCH = "predict, get_distribution and the other questions take numpy or torch as they are"
_HEAD = "rlsdk.networks.build_action_head makes the layers of a space, which return one of rlsdk.distributions"
_DEVICE = "give a name, such as device='cuda:1'; 'auto' chooses"
_ROLLOUT = "rollouts are records: rlsdk.records.Rollout"
_POLICY = (
    "a policy is chosen by its name, policy='MlpPolicy'; rlsdk.networks has the networks, a new policy needs a plugin"
)
_ALGORITHM = "derive from an algorithm's class, or write a plugin: rlsdk new my-algo"
_ATARI = "rlsdk_envs.make_atari_env and rlsdk_envs.AtariWrapper are in the package rlsdk-envs"
OF_PACKAGES = {
    **dict.fromkeys(("KVWriter", "SeqWriter", "make_output_format", "filter_excluded_keys"), _OUTPUT),
    **dict.fromkeys(("get_schedule_fn", "get_linear_fn", "constant_fn", "FloatSchedule"), _SCHEDULE),
    **dict.fromkeys(("LinearSchedule", "ConstantSchedule"), _SCHEDULE),
    **dict.fromkeys(("is_wrapped", "unwrap_wrapper", "is_vecenv_wrapped", "unwrap_vec_wrapper"), _WRAPPERS),
    **dict.fromkeys(("VecNormalize", "RunningMeanStd", "sync_envs_normalization", "unwrap_vec_normalize"), _ONE_MODEL),
    **dict.fromkeys(("DummyVecEnv", "SubprocVecEnv", "VecEnv", "VecEnvWrapper", "VecMonitor"), _VECTOR),
    **dict.fromkeys(("preprocess_obs", "is_image_space", "maybe_transpose", "get_flattened_obs_dim"), _PREPARED),
    **dict.fromkeys(("get_obs_shape", "get_action_dim", "VecTransposeImage"), _PREPARED),
    **dict.fromkeys(("obs_as_tensor", "is_vectorized_observation"), _TORCH),
    **dict.fromkeys(("make_proba_distribution", "make_masked_proba_distribution"), _HEAD),
    **dict.fromkeys(
        ("RolloutBuffer", "DictRolloutBuffer", "MaskableRolloutBuffer", "RecurrentRolloutBuffer"), _ROLLOUT
    ),
    **dict.fromkeys(("BasePolicy", "ActorCriticPolicy", "BaseModel", "ActorCriticCnnPolicy"), _POLICY),
    **dict.fromkeys(("BaseAlgorithm", "OnPolicyAlgorithm", "OffPolicyAlgorithm"), _ALGORITHM),
    **dict.fromkeys(("make_atari_env", "AtariWrapper"), _ATARI),
    "BernoulliDistribution": "rlsdk.distributions.Bernoulli is it",
    "CategoricalDistribution": "rlsdk.distributions.Categorical is it",
    "ConvertCallback": "rlsdk_sb3.FunctionCallback is it; learn takes the function itself",
    "DiagGaussianDistribution": "rlsdk.distributions.Gaussian is it",
    "DictReplayBuffer": "rlsdk.buffers.ReplayBuffer takes Dict observations too",
    "Distribution": "rlsdk.interfaces.Distribution is the protocol, rlsdk.distributions has the classes",
    "HerReplayBuffer": "give replay_buffer_class='hindsight'",
    "MaskableCategoricalDistribution": "masks are part of the distributions: rlsdk.distributions.Categorical",
    "MultiCategoricalDistribution": "rlsdk.distributions.MultiCategorical is it",
    "ResultsWriter": "rlsdk_envs.Monitor writes the file",
    "SquashedDiagGaussianDistribution": "rlsdk.distributions.SquashedGaussian is it",
    "StateDependentNoiseDistribution": "give use_sde=True",
    "TimeFeatureWrapper": "rlsdk_envs.TimeFeature is it",
    "VecCheckNan": "rlsdk_envs.CheckNan is it, around each environment",
    "VecFrameStack": "the setting frame_stack stacks observations",
    "VecVideoRecorder": "rlsdk record FILE writes videos; gymnasium.wrappers.RecordVideo records each environment",
    "VectorizedActionNoise": "give action_noise itself: each environment has noise of its own",
    "create_mlp": "rlsdk.networks.mlp makes the layers",
    "explained_variance": "the metric train/explained_variance has it",
    "get_device": _DEVICE,
    "get_latest_run_id": "TensorBoard folders are numbered by themselves; tb_log_name is their beginning",
    "get_parameters_by_name": "model.get_parameters() has them by name",
    "kl_divergence": "distribution.kl_divergence(other) is it",
    "load_from_pkl": "nothing is pickled; load_replay_buffer and load read files",
    "load_from_zip_file": "rlsdk import FILE converts files of stable-baselines3, rlsdk.load reads those of rlsdk",
    "polyak_update": "rlsdk.updates.TargetNetwork holds a target network and updates it",
    "safe_mean": "numpy.mean; model.ep_info_buffer has the last episodes",
    "save_to_pkl": "nothing is pickled; save_replay_buffer and save write files",
    "save_to_zip_file": "model.save writes the file",
    "set_random_seed": "the setting seed, or model.set_random_seed(seed): global random states are never changed",
    "sum_independent_dims": "log_prob and entropy of rlsdk.distributions are sums over dimensions",
    "update_learning_rate": "assign model.learning_rate",
    "zip_strict": "zip(..., strict=True)",
}
"""Name in stable-baselines3 or sb3-contrib that no package here has -> what to use instead."""

METHODS_OF_POLICIES = {
    "predict": "model.predict(observation) acts",
    "extract_features": "networks are the parts of the policy: print(model.policy) lists them",
    "obs_to_tensor": "get_distribution, predict_values and evaluate_actions take observations in numpy as they are; networks,"
    " such as model.q_net, take batches of tensors",
    "reset_noise": "policies draw their noise themselves, see sde_sample_freq",
    "set_training_mode": "parts switch their modes themselves",
    "load_from_vector": "torch.nn.utils.vector_to_parameters(vector, model.policy.parameters()) does it",
    "parameters_to_vector": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) gives them",
    "scale_action": "model.predict gives actions in the units of the environment",
    "unscale_action": "model.predict gives actions in the units of the environment",
    "save": "model.save(path) writes the agent, torch.save(model.policy.state_dict(), path) the weights alone",
}
OF_VALUES = ("get_distribution", "predict_values", "evaluate_actions")
"""Methods that exist only in policies with a value function."""
PARTS = {
    "action_net": ("head",),
    "features_extractor": ("encoder",),
    "latent_pi": ("body",),
    "log_std": ("head.log_std",),
    "lstm_actor": ("memory.cells",),
    "lstm_critic": ("critic_memory.cells",),
    "mu": ("mean",),
    "pi_features_extractor": ("encoder",),
    "value_net": ("value",),
    "vf_features_extractor": ("critic_encoder", "encoder"),
}
"""Documented name of a part -> its paths here; the first that exists is given."""
_MADE = "networks are made from policy_kwargs"
_SETTING = "a setting of the networks: model.config.policy_kwargs.{name}"
_SPACE = "it is the model's: model.{name}"
_OTHERS = "model.{name} is it, where the algorithm has one"
OF_NETWORKS = {
    **dict.fromkeys(("actor_target", "critic", "critic_target", "q_net_target", "quantile_net_target"), _OTHERS),
    **dict.fromkeys(("action_space", "observation_space", "lr_schedule", "use_sde"), _SPACE),
    **dict.fromkeys(("init_weights", "make_actor", "make_critic", "make_features_extractor", "make_q_net"), _MADE),
    **dict.fromkeys(
        (
            "activation_fn",
            "enable_critic_lstm",
            "features_extractor_class",
            "features_extractor_kwargs",
            "log_std_init",
            "lstm_hidden_size",
            "n_critics",
            "n_lstm_layers",
            "n_quantiles",
            "net_arch",
            "normalize_images",
            "optimizer_class",
            "optimizer_kwargs",
            "ortho_init",
            "share_features_extractor",
            "use_expln",
        ),
        _SETTING,
    ),
    "action_dist": "get_distribution(observation) gives it",
    "actor": "the policy is the actor: its body and head act",
    "critic_features_extractor": "encoder is shared unless share_features_extractor=False gives a critic_encoder",
    "features_dim": "rlsdk.networks.features_dim(model.policy.encoder) is it",
    "mlp_extractor": "body has the hidden layers of the policy, critic_body those of the values",
    "optimizer": "model.get_parameters() has the states of optimizers, optimizer_class chooses them",
    "q_net": "only policies of values, such as DQN's, have one",
    "q_networks": "each layer of the critics holds all networks: outputs are [critics, N, 1]",
    "quantile_net": "only QR-DQN's policy has one",
    "squash_output": "model.predict gives actions within their bounds",
}
"""Documented attribute without a counterpart -> what to use instead; `{name}` is its name."""

OF_AGENTS = {
    "rollout_buffer": "rollouts are records: an algorithm's `update` gets one, and see rlsdk.training.collector",
    "collect_rollouts": "collecting is rlsdk.training.collector.collect, which needs an environment and a policy",
    "n_envs": "give another environment with set_env(env)",
    "lr_schedule": "assign learning_rate",
    "policy_class": "networks are chosen when the agent is made",
    "delta_std_schedule": "delta_std is the schedule",
    "ent_coef_optimizer": "model.get_parameters()['entropy']['optimizer'] is its state",
    "ent_coef_tensor": "ent_coef is the setting, the metric train/ent_coef what is learned",
    "exploration_schedule": "exploration_initial_eps, exploration_final_eps and exploration_fraction are the schedule,"
    " exploration_rate its value",
    "log_ent_coef": "model.get_parameters()['entropy']['log_alpha'] is the logarithm where ent_coef is learned",
    "n_params": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) has one entry for each",
    "weights": "torch.nn.utils.parameters_to_vector(model.policy.parameters()) gives them",
    "_last_obs": "end_episodes() begins new episodes",
    "_last_episode_starts": "end_episodes() begins new episodes",
    "_last_lstm_states": "end_episodes() begins new episodes; predict gives and takes states, a session keeps them",
    "_logger": "logger is it, set_logger(logger) replaces it",
    "_setup_model": "an agent is complete when it is made",
    "_total_timesteps": "callbacks find it in self.locals['total_timesteps']",
    "_vec_normalize_env": "get_vec_normalize_env() is it",
    "action_probability": "model.policy.get_distribution(observation) is the distribution of actions",
    "get_policy": "model.policy is it",
    "load_parameters": "set_parameters(path_or_parameters) loads them",
    "parameters": "model.policy.parameters() are those of the policy, get_parameters() all",
    "state_dict": "get_parameters() has all tensors, save(path) writes them",
    "load_state_dict": "set_parameters(parameters) loads them",
    "value": "model.policy.predict_values(observation) predicts values",
    **dict.fromkeys(
        ("act", "choose_action", "compute_single_action", "get_action", "sample_action", "select_action", "step"),
        "predict(observation) acts",
    ),
    **dict.fromkeys(("evaluate", "test"), "rlsdk.evaluation.evaluate_policy(model) evaluates"),
}
"""Attribute that is absent or cannot be assigned -> what to use instead."""

OF_CALLBACKS = {
    **dict.fromkeys(
        (
            *("evaluations_timesteps", "evaluations_results", "evaluations_length", "evaluations_successes"),
            "log_path",
        ),
        "rlsdk_sb3.EvalCallback has it; history of an EvalCallback has the steps and the result of each evaluation",
    ),
    **dict.fromkeys(
        ("globals", "locals", "update_child_locals", "update_locals"),
        "derive from rlsdk_sb3.BaseCallback: it has locals",
    ),
    "callback": "pass several callbacks to learn as a list",
    "init_callback": "on_training_start(run) is called first",
    "logger": "run.agent.logger is it: every event gets the run",
    "model": "run.agent is it: every event gets the run",
    "n_calls": "run.num_timesteps counts environment steps; on_step counts calls where a callback needs them",
    "num_timesteps": "run.num_timesteps is it: every event gets the run",
    "parent": "no callback calls another here: run.notify(event, ...) calls the other callbacks of the run",
    "training_env": "run.agent.get_env() is it: every event gets the run",
}
"""Member of a `BaseCallback` that a `Callback` lacks -> what to use instead."""
ROWS = "sample(size, generator) gives batches of its rows"
SPACES = "it is the model's: model.observation_space and model.action_space"
OF_BUFFERS = {
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
"""Member of replay buffers -> what to use instead."""
SCALE = "log_std.exp() is the standard deviation of a Gaussian"
OF_DISTRIBUTIONS = {
    "distribution": "it is the distribution itself: probs, or mean and log_std, are its own",
    "get_actions": "mode() is the deterministic action, sample(generator) draws one",
    "logits": "log_probs are the normalized logits of a Categorical, probs their exponentials",
    "scale": SCALE,
    "stddev": SCALE,
    "variance": SCALE,
}
"""Member of distributions -> what to use instead."""
OF_NORMALIZERS = {
    "get_original_obs": "observations of model.get_env() are the environment's own",
    "get_original_reward": "rewards of model.get_env() are the environment's own",
    "obs_rms": "moments['observation'] has mean, variance and count; with Dict observations there is an entry for each part",
    "reset": "step model.get_env()",
    "ret_rms": "rewards.moments has the statistics of returns",
    "save": "model.save(path) stores the statistics with the agent",
    "step": "step model.get_env()",
    "venv": "model.get_env() is the environment",
}
"""Member of `VecNormalize` -> what to use instead."""
IN_LOOPS = "rlsdk_sb3.NumpyVectorEnv(env), or model.get_env(), has it"
OF_ENVIRONMENTS = dict.fromkeys(
    ("envs", "env_is_wrapped", "get_images", "render", "seed", "step_async", "step_wait", "unwrapped"), IN_LOOPS
)
"""Member of `VecEnv` that vector environments for algorithms lack -> what to use instead."""
OF_MAKE_VEC_ENV = {
    "env_id": "env, the first argument",
    "wrapper_class": "wrappers=[...], functions or names, innermost first",
    "wrapper_kwargs": "wrappers=[functools.partial(Wrapper, ...)]",
    "monitor_kwargs": "monitor_dir, or wrappers=[functools.partial(Monitor, ...)]",
    "vec_env_cls": "vectorization='sync' for DummyVecEnv, 'async' for SubprocVecEnv",
    "vec_env_kwargs": "workers, timeout, restart and start_method",
    "start_index": "seed: each copy has a stream of its own",
}
"""Argument of `make_vec_env` -> the argument that replaces it."""
OF_REPLAY = {
    "copy_info_dict": "compute_reward is given an empty info for each goal",
    "handle_timeout_termination": "targets bootstrap at time limits, with optimize_memory_usage too",
    "max_episode_length": "episodes have any length",
    "online_sampling": "goals are exchanged when batches are sampled",
}
"""Argument of replay buffers -> why it is not needed."""
MEMORIES = {"HerReplayBuffer": "hindsight", "ReplayBuffer": "uniform", "DictReplayBuffer": "uniform"}
"""Class of replay buffers -> the name of the replay buffer here that does the same."""
ATTRIBUTES = (
    *("n_envs", "lr_schedule", "policy_class", "ep_info_buffer", "ep_success_buffer"),
    *("_n_updates", "_episode_num", "_current_progress_remaining", "_last_obs"),
)
"""The attributes of agents that are computed when they are read; see `rlsdk_sb3.agents.DERIVED`."""
COMPUTED = "the agent computes it"
OF_ASSIGNMENTS = {**dict.fromkeys(ATTRIBUTES, COMPUTED), **OF_AGENTS}
"""Attribute of an agent that cannot be assigned -> why, or what to do instead."""


def advice(topic: str, name: str) -> str:
    """What to use instead of `name`; an empty text for an unknown name.

    Args:
        topic: what has the name: "assignment", "make_vec_env", "replay_buffer_kwargs" or "replay_buffer_class".
        name: an attribute, argument or class that stable-baselines3 documents.
    """
    tables: dict[str, Mapping[str, str]] = {
        "assignment": OF_ASSIGNMENTS,
        "make_vec_env": OF_MAKE_VEC_ENV,
        "replay_buffer_kwargs": OF_REPLAY,
        "replay_buffer_class": MEMORIES,
    }
    return tables[topic].get(name, "")


def known(owner: object, name: str) -> object:
    """What stable-baselines3 calls `name` in `owner`, an object or package that lacks it; `NotImplemented`: nothing.

    Raises:
        UnknownAttributeError: an object has no counterpart of the name. UnknownNameError: a package has none, or this one has
        it. The message names what to use instead.
    """
    if isinstance(owner, ModuleType):
        return _of_package(owner.__name__, name)
    for kind in type(owner).__mro__:
        folder = ".".join(kind.__module__.split(".")[:2])
        if folder == "torch.nn":
            return _of_network(owner, name)
        if folder == "rlsdk.agent":
            return _of_agent(owner, name)
        if folder == "rlsdk.sinks":
            return _of_logger(owner, name)
        if folder in TABLES:
            return _instead(owner, name, TABLES[folder])
    return NotImplemented


TABLES = {
    "rlsdk.buffers": OF_BUFFERS,
    "rlsdk.callbacks": OF_CALLBACKS,
    "rlsdk_sb3.callbacks": OF_CALLBACKS,
    "rlsdk.distributions": OF_DISTRIBUTIONS,
    "rlsdk.environments": OF_ENVIRONMENTS,
    "rlsdk.preprocessing": OF_NORMALIZERS,
}
"""Package of a base class -> its members that only stable-baselines3 has, and what to use instead."""


def _instead(owner: object, name: str, table: Mapping[str, str]) -> object:
    if name not in table:
        return NotImplemented
    raise UnknownAttributeError(f"{type(owner).__name__} has no attribute {name!r}; {table[name]}")


def _of_package(package: str, name: str) -> object:
    if name in import_module("rlsdk_sb3").__all__ and package != "rlsdk_sb3":
        raise UnknownNameError(f"{package} has no {name!r}; from rlsdk_sb3 import {name}", name=name)
    if name in OF_PACKAGES:
        raise UnknownNameError(f"{package} has no {name!r}; {OF_PACKAGES[name]}", name=name)
    return NotImplemented


def _of_agent(agent: object, name: str) -> object:
    if name in ATTRIBUTES and "_assembled" in vars(agent):
        from rlsdk_sb3.agents import DERIVED

        return DERIVED[name](agent)
    return _instead(agent, name, OF_AGENTS)


def _of_logger(logger: Any, name: str) -> object:
    from rlsdk_sb3.loggers import MEMBERS

    return MEMBERS[name](logger) if name in MEMBERS else NotImplemented


def _of_network(network: Any, name: str) -> object:
    """The part that stable-baselines3 calls `name`, or a method that raises an error."""
    kind = type(network).__name__
    if name == "device":
        from torch import device

        return next((tensor.device for tensor in network.parameters()), device("cpu"))
    if name in METHODS_OF_POLICIES:
        return _refusing(kind, name)
    if name in OF_VALUES:
        raise UnknownAttributeError(f"{kind} has no method {name!r}: it has no value function")
    if _is_called(network, name):
        return network
    for path in PARTS.get(name, ()):
        with suppress(AttributeError):
            if (part := attrgetter(path)(network)) is not None:
                return part
    parts = ", ".join(layer for layer, _ in network.named_children())
    instead = OF_NETWORKS.get(name, f"its parts are {parts}").format(name=name)
    raise UnknownAttributeError(f"{kind} has no attribute {name!r}; {instead}")


def _is_called(network: object, name: str) -> bool:
    """Whether stable-baselines3 has a policy around the network, which is called `name` in it."""
    from rlsdk.networks import DeterministicActor, DiscreteValuePolicy, SquashedActor

    if isinstance(network, DiscreteValuePolicy):
        return name == ("q_net" if network.values_per_action == 1 else "quantile_net")
    return name == "actor" and isinstance(network, SquashedActor | DeterministicActor)


def _refusing(kind: str, name: str) -> Callable[..., NoReturn]:
    def method(*_: object, **__: object) -> NoReturn:
        raise UsageError(f"{kind} has no method {name!r}; {METHODS_OF_POLICIES[name]}")

    method.__name__ = name
    return method
