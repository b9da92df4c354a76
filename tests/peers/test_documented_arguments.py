"""Arguments, methods and attributes in the manuals of the six algorithms of sb3-contrib: each works, or an error
names a replacement."""

from __future__ import annotations

import os
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.environments import make_vec_env
from rlsdk.errors import ArtifactError, SettingsError, UnknownAttributeError, UsageError
from rlsdk.registry import load as load_spec
from rlsdk_envs.toy import InvalidActionEnvDiscrete

SMALL: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "seed": 0}
REPLAY: dict[str, Any] = {"buffer_size": 200, "learning_starts": 10, "batch_size": 8, "seed": 0}


def trpo(**settings: Any) -> Any:
    return rlsdk.make("trpo", env="CartPole-v1", **{**SMALL, **settings})


def tqc(**settings: Any) -> Any:
    return rlsdk.make("tqc", **{"env": "Pendulum-v1", **REPLAY, **settings})


def test_constructor_arguments_without_effect() -> None:
    trpo(_init_setup_model=True, create_eval_env=False, rollout_buffer_class=None, rollout_buffer_kwargs={})
    for name, value in {
        "create_eval_env": True,
        "rollout_buffer_class": dict,
        "rollout_buffer_kwargs": {"a": 1},
    }.items():
        with pytest.raises(UsageError, match=f"{name} = .* has no counterpart here; "):
            trpo(**{name: value})
    with pytest.raises(SettingsError, match="unknown setting 'rollout_buffer_class'"):
        tqc(rollout_buffer_class=None)


def test_arguments_of_learn() -> None:
    model = trpo()
    model.learn(1e1, eval_env=None, eval_freq=-1, n_eval_episodes=5, eval_log_path=None)
    assert model.num_timesteps == 16
    with pytest.raises(UsageError, match=r"learn\(eval_env=\) = .*EvalCallback"):
        model.learn(8, eval_env="CartPole-v1")
    with pytest.raises(SettingsError, match="learn has no argument 'total_timestep'; did you mean 'total_timesteps'"):
        model.learn(8, total_timestep=3)
    for wrong in (1.5, -3, "8", True, float("nan"), float("inf"), None):
        with pytest.raises(SettingsError, match=r"total_timesteps = .* must be a whole number of at least 0"):
            model.learn(wrong)
    with pytest.raises(UsageError, match="stores no experience to train from"):
        model.train()
    with pytest.raises(SettingsError, match="train needs the number of updates"):
        tqc().learn(20).train()


def test_paths_and_devices_as_objects(tmp_path: Path) -> None:
    model = trpo(tensorboard_log=tmp_path, device=torch.device("cpu"))
    assert (model.tensorboard_log, model.config.device) == (str(tmp_path), "cpu")
    for name in ("tensorboard_log", "device"):
        with pytest.raises(SettingsError, match=f"{name} = 3 is not a"):
            trpo(**{name: 3})
    path = model.save(os.fspath(tmp_path / "agent"))
    assert rlsdk.load(path, device=torch.device("cpu")).device == "cpu"  # type: ignore[arg-type]


def test_where_files_go(tmp_path: Path) -> None:
    model = trpo()
    assert model.save(tmp_path / "a") == tmp_path / "a.rlsdk"
    assert model.save(tmp_path / "a.zip") == tmp_path / "a.zip"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.rlsdk", "a.zip"]
    assert rlsdk.load(tmp_path / "a.zip").observation_space == model.observation_space
    assert model.save(BytesIO()) is None
    model.save(tmp_path / "b", exclude=["learning_rate", "tensorboard_log", "replay_buffer", "logger"])
    assert rlsdk.load(tmp_path / "b").learning_rate == model.learning_rate
    with pytest.raises(SettingsError, match=r"no section 'learning_rat'.*'learning_rate'"):
        model.save(tmp_path / "c", exclude=["learning_rat"])
    with pytest.raises(SettingsError, match="files never hold 'env'"):
        model.save(tmp_path / "c", include=["env"])
    for wrong in (None, 3, ["a"]):
        with pytest.raises(ArtifactError, match="a file name, a Path or a binary file object"):
            rlsdk.load(wrong)  # type: ignore[arg-type]
        with pytest.raises(ArtifactError, match="a name, a Path or a binary file object"):
            model.save(wrong)


@pytest.mark.parametrize("where", ["path", "object"])
def test_a_memory_in_a_file_is_there_when_it_is_needed(where: str, tmp_path: Path) -> None:
    model = tqc().learn(60)
    model.save(tmp_path / "m", include=["replay_buffer"])

    def loaded() -> Any:
        source = tmp_path / "m" if where == "path" else BytesIO((tmp_path / "m.rlsdk").read_bytes())
        return rlsdk.load(source)

    agent = loaded()
    agent.set_env(make_vec_env("Pendulum-v1", 1))
    assert len(agent.replay_buffer) == 60
    assert len(loaded().replay_buffer) == 60
    assert loaded().train(2)
    agent = loaded()
    agent.save(tmp_path / "again", include=["replay"])
    assert len(rlsdk.load(tmp_path / "again", env="Pendulum-v1").replay_buffer) == 60
    agent = loaded()
    agent.save_replay_buffer(tmp_path / "rows")
    fresh = tqc()
    fresh.load_replay_buffer(tmp_path / "rows")
    assert len(fresh.replay_buffer) == 60
    other = loaded()
    tqc().learn(20).save_replay_buffer(tmp_path / "few")
    other.load_replay_buffer(tmp_path / "few")
    other.set_env(make_vec_env("Pendulum-v1", 1))
    assert len(other.replay_buffer) == 20


class Resets(gym.Wrapper[Any, Any, Any, Any]):
    """Pendulum, with a count of its resets."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.count = 0

    def reset(self, **arguments: Any) -> Any:
        self.count += 1
        return self.env.reset(**arguments)


@pytest.mark.parametrize("truncates", [True, False])
def test_a_loaded_memory_ends_the_running_episode_unless_it_must_not(truncates: bool, tmp_path: Path) -> None:
    """The newest row of the file does not come before the next step of this environment."""
    tqc().learn(30).save_replay_buffer(tmp_path / "rows")
    env = Resets()
    agent = tqc(env=env).learn(20)
    agent.load_replay_buffer(tmp_path / "rows", truncate_last_traj=truncates)
    before = env.count
    agent.learn(20, reset_num_timesteps=False)
    assert env.count - before == truncates


def test_a_memory_whose_file_changed_is_not_taken(tmp_path: Path) -> None:
    tqc().learn(60).save(tmp_path / "m", include=["replay"])
    agent = rlsdk.load(tmp_path / "m")
    tqc().learn(40).save(tmp_path / "m", include=["replay"])
    with pytest.raises(ArtifactError, match="has changed since"):
        agent.set_env("Pendulum-v1")
    (tmp_path / "m.rlsdk").unlink()
    with pytest.raises(ArtifactError):
        _ = agent.replay_buffer


def test_exact_match_means_every_parameter() -> None:
    model, fresh = tqc().learn(40), tqc()
    given = model.get_parameters()
    fresh.set_parameters(given)
    assert torch.equal(fresh.policy.state_dict()["mean.weight"], given["policy"]["mean.weight"])
    lacking = {**given, "policy": {name: v for name, v in given["policy"].items() if name != "mean.weight"}}
    for wrong, match in (
        ({name: {} for name in given}, "missing"),
        (lacking, "every parameter of 'policy'; missing: mean.weight"),
        (
            {**given, "policy": {**given["policy"], "meen.weight": given["policy"]["mean.weight"]}},
            "did you mean 'mean.weight'",
        ),
        ({**given, "policy": {**given["policy"], "mean.weight": "text"}}, "do not fit"),
    ):
        with pytest.raises(ArtifactError, match=match):
            fresh.set_parameters(wrong)
    fresh.set_parameters(lacking, exact_match=False)
    model.set_parameters(tqc().get_parameters())  # parameters of an agent whose optimizers have made no step


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(SettingsError, match="clip_range_vf"):
        rlsdk.make("recurrent-ppo", env="CartPole-v1", clip_range_vf=-1.0)
    with pytest.raises(SettingsError, match="clip_range_vf"):
        rlsdk.make("maskable-ppo", env=lambda: InvalidActionEnvDiscrete(4, 2), clip_range_vf=0.0)
    shared = {"shared_lstm": True, "enable_critic_lstm": False, "share_features_extractor": False}
    with pytest.raises(SettingsError, match="shared_lstm = true needs share_features_extractor = true"):
        rlsdk.make("recurrent-ppo", env="CartPole-v1", policy_kwargs=shared)
    with pytest.raises(SettingsError, match="ARS has no optimizer"):
        rlsdk.make("ars", env="CartPole-v1", policy_kwargs={"optimizer_class": torch.optim.SGD})


def test_minibatches_that_do_not_divide_a_rollout_warn() -> None:
    with pytest.warns(
        UserWarning, match=r"batch_size = 5 does not divide .* 8 x 1 = 8 steps: its last minibatch has 3"
    ):
        trpo(batch_size=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trpo(batch_size=4)


def test_maskable_ppo_can_learn_without_masks() -> None:
    from rlsdk_maskable_ppo import MaskablePPO

    def learned(**given: Any) -> dict[str, Any]:
        model = MaskablePPO("MlpPolicy", InvalidActionEnvDiscrete(6, 4), **SMALL, n_epochs=1)
        model.learn(16, **given)
        assert model.parts.policy.use_masks  # type: ignore[attr-defined]
        return dict(model.policy.state_dict())

    masked, free, default = learned(use_masking=True), learned(use_masking=False), learned()
    assert all(torch.equal(masked[name], default[name]) for name in masked)
    assert not all(torch.equal(masked[name], free[name]) for name in masked)


def test_ars_takes_the_documented_helper_and_evaluates_candidates() -> None:
    from rlsdk_ars import ARS, AsyncEval

    model = ARS("LinearPolicy", "CartPole-v1", n_delta=2, n_top=1, seed=0)
    with (
        AsyncEval([lambda: make_vec_env("CartPole-v1", 1)], model.policy) as helper,
        pytest.warns(UserWarning, match="async_eval is not needed"),
    ):
        model.learn(100, async_eval=helper)
    with pytest.warns(UserWarning, match="AsyncEval.seed has no effect"):
        assert helper.seed(3) == []
    for name, words in (
        ("send_jobs", r"model\.evaluate_candidates"),
        ("get_results", r"model\.evaluate_candidates"),
        ("set_options", "env_kwargs"),
        ("get_obs_rms", r"model\.normalizer"),
        ("sync_obs_rms", r"model\.normalizer"),
    ):
        with pytest.raises(UnknownAttributeError, match=f"AsyncEval has no attribute '{name}'; .*{words}"):
            getattr(helper, name)
    with pytest.raises(SettingsError, match="no argument 'async_eval'"):
        trpo().learn(8, async_eval=helper)
    steps, weights = model.num_timesteps, dict(model.policy.state_dict())
    size = sum(parameter.numel() for parameter in model.policy.parameters())
    returns = model.evaluate_candidates(torch.zeros(3, size))
    assert returns.shape == (3,)
    assert bool((returns > 5).all())
    assert model.num_timesteps == steps
    assert all(torch.equal(value, weights[name]) for name, value in model.policy.state_dict().items())
    with pytest.raises(SettingsError, match="candidate_weights has shape"):
        model.evaluate_candidates(torch.zeros(3, size + 1))


EVERYWHERE = """get_env get_parameters get_vec_normalize_env learn load logger predict save set_env set_logger set_parameters
set_random_seed policy_aliases"""
SIX = ("ars", "maskable-ppo", "qrdqn", "recurrent-ppo", "tqc", "trpo")
MORE = {
    **dict.fromkeys(["maskable-ppo", "recurrent-ppo"], "train collect_rollouts"),
    **dict.fromkeys(["qrdqn", "tqc"], "train collect_rollouts save_replay_buffer load_replay_buffer"),
    "trpo": "train collect_rollouts hessian_vector_product",
    "ars": "evaluate_candidates",
}


@pytest.mark.parametrize("name", SIX)
def test_every_documented_method_is_there_or_says_what_is(name: str) -> None:
    env: Any = {"maskable-ppo": lambda: InvalidActionEnvDiscrete(4, 2), "tqc": "Pendulum-v1"}.get(name, "CartPole-v1")
    settings = {"buffer_size": 100} if name in ("tqc", "qrdqn") else {}
    model = rlsdk.make(name, env=env, **settings)  # type: ignore[arg-type]
    for method in f"{EVERYWHERE} {MORE[name]}".split():
        if method == "load":
            continue
        if not hasattr(model, method):
            with pytest.raises(UnknownAttributeError, match=r"rlsdk\."):
                getattr(model, method)


@pytest.mark.parametrize("name", SIX)
def test_every_documented_parameter_is_accepted_with_its_default(name: str) -> None:
    import inspect

    import sb3_contrib

    theirs = {"maskable-ppo": "MaskablePPO", "recurrent-ppo": "RecurrentPPO"}.get(name, name.upper())
    peer = inspect.signature(getattr(sb3_contrib, theirs).__init__)
    defaults = {n: p.default for n, p in peer.parameters.items() if p.default is not inspect.Parameter.empty}
    env: Any = {"maskable-ppo": lambda: InvalidActionEnvDiscrete(4, 2), "tqc": "Pendulum-v1"}.get(name, "CartPole-v1")
    defaults |= {"buffer_size": 100} if "buffer_size" in defaults else {}
    model = rlsdk.make(name, env=env, **defaults)
    own = set(vars(model)) | set(dir(model))
    assert set(defaults) - own <= {"_init_setup_model", "rollout_buffer_class", "rollout_buffer_kwargs"}
    assert load_spec(name).id == name
    assert np.isfinite(model.num_timesteps)


def test_methods_have_the_documented_defaults() -> None:
    import inspect

    import sb3_contrib

    theirs, ours = sb3_contrib.TQC, type(tqc())
    for method in ("predict", "set_parameters", "load_replay_buffer"):
        documented, own = (inspect.signature(getattr(kind, method)).parameters for kind in (theirs, ours))
        defaults = {name: parameter.default for name, parameter in documented.items() if name in own}
        assert len(defaults) > 1
        assert {name: own[name].default for name in defaults} == defaults
    # of stable-baselines 2, which had it
    pretrain = {"n_epochs": 10, "learning_rate": 1e-4, "adam_epsilon": 1e-8, "val_interval": None}
    own = inspect.signature(ours.pretrain).parameters
    assert {name: own[name].default for name in pretrain} == pretrain
