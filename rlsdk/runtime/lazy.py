"""Imports the public names of a package at their first use; leads names of stable-baselines3 to those of rlsdk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import NoReturn

from rlsdk.errors import UnknownNameError

__all__ = [
    "attach",
]


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` (PEP 562) of a package whose public names are the keys of `homes`.

    A value of `homes` is the module that defines the name, or `module:attribute` if the attribute has another name there, or
    `module:` for the module itself. A home such as rlsdk-envs is the package that pip calls so. Its names are not listed:
    it may be absent.
    """

    absent = names_elsewhere(package)

    def load(name: str) -> object:
        if name not in homes:
            absent(name)
        module, colon, attribute = homes[name].partition(":")
        found = of_package(module, name) if "-" in module else import_module(module)
        value: object = found if colon and not attribute else getattr(found, attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *(name for name, home in homes.items() if "-" not in home)})

    return load, names


def of_package(package: str, wanted: str) -> ModuleType:
    """Import a package of this project by the name that pip takes, such as rlsdk-envs, for the documented name `wanted` in it.

    Raises:
        UnknownNameError: it is not installed; the message has the command that installs it.
    """
    from rlsdk.runtime.packages import pip_install  # for the message alone

    name = package.replace("-", "_")
    if find_spec(name) is None:
        raise UnknownNameError(f"{wanted} is in {package}, which is not installed: {pip_install(package)}", name=wanted)
    return import_module(name)


_OUTPUT = (
    "rlsdk.sinks.configure(folder, formats) makes a logger; an object with write(step, values) is a sink of your own"
)
_SCHEDULE = (
    "rlsdk.settings.schedules has Constant, Linear and as_schedule; settings take numbers and functions as they are"
)
_WRAPPERS = "model.get_env().env_is_wrapped(kind); for one environment, search env, env.env and so on with isinstance"
_ONE_MODEL = "the agent normalises its inputs itself: the setting normalize, model.get_vec_normalize_env()"
_VECTOR = (
    "rlsdk.environments.make_vec_env makes vector environments; NumpyVectorEnv around one takes and returns arrays"
)
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
ELSEWHERE = {
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
    "ConvertCallback": "rlsdk.callbacks.FunctionCallback is it; learn takes the function itself",
    "DiagGaussianDistribution": "rlsdk.distributions.Gaussian is it",
    "DictReplayBuffer": "rlsdk.buffers.ReplayBuffer takes Dict observations too",
    "Distribution": "rlsdk.interfaces.Distribution is the protocol, rlsdk.distributions has the classes",
    "HerReplayBuffer": "give replay_buffer_class='hindsight'; rlsdk.buffers.HindsightReplay is the class",
    "MaskableCategoricalDistribution": "masks are part of the distributions: rlsdk.distributions.Categorical",
    "MultiCategoricalDistribution": "rlsdk.distributions.MultiCategorical is it",
    "ResultsWriter": "rlsdk_envs.Monitor writes the file",
    "SquashedDiagGaussianDistribution": "rlsdk.distributions.SquashedGaussian is it",
    "StateDependentNoiseDistribution": "rlsdk.exploration.StateDependentNoise is the noise",
    "TimeFeatureWrapper": "rlsdk_envs.TimeFeature is it",
    "VecCheckNan": "rlsdk_envs.CheckNan is it, around each environment",
    "VecFrameStack": "the setting frame_stack stacks observations; rlsdk.environments.FrameStack is the wrapper",
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


def names_elsewhere(package: str) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` (PEP 562) of a package: a name of `ELSEWHERE` raises UnknownNameError, others AttributeError.

    It is an ImportError, because `from package import name` would replace the message of an AttributeError.
    """

    def absent(name: str) -> NoReturn:
        if name in ELSEWHERE:
            raise UnknownNameError(f"{package} has no {name!r}; {ELSEWHERE[name]}", name=name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    return absent
