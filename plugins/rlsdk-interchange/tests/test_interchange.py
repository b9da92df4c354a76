"""Files of stable-baselines3 and sb3-contrib: imported agents give the same answers as the models."""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk import registry
from rlsdk.agent import from_parameters
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk_envs.toy import AnySpaceEnv, FakeImageEnv, InvalidActionEnvDiscrete
from rlsdk_interchange import sb3
from rlsdk_interchange.sb3 import import_sb3, read_sb3

sb3_contrib = pytest.importorskip("sb3_contrib")
SMALL = {"net_arch": [12, 7]}
CASES: dict[str, tuple[str, str, Any, str, dict[str, Any]]] = {
    "trpo": ("TRPO", "MlpPolicy", "Pendulum-v1", "trpo", {"n_steps": 32, "batch_size": 32, "policy_kwargs": SMALL}),
    "trpo-sides": (
        "TRPO",
        "MlpPolicy",
        "CartPole-v1",
        "trpo",
        {"n_steps": 32, "batch_size": 32, "policy_kwargs": {"net_arch": {"pi": [9], "vf": [8, 5]}}},
    ),
    "masks": ("MaskablePPO", "MlpPolicy", "mask", "maskable-ppo", {"n_steps": 32, "batch_size": 16}),
    "lstm": ("RecurrentPPO", "MlpLstmPolicy", "CartPole-v1", "recurrent-ppo", {"n_steps": 32, "batch_size": 16}),
    "lstm-shared": (
        "RecurrentPPO",
        "MlpLstmPolicy",
        "CartPole-v1",
        "recurrent-ppo",
        {
            "n_steps": 32,
            "batch_size": 16,
            "policy_kwargs": {
                "lstm_hidden_size": 8,
                "n_lstm_layers": 2,
                "shared_lstm": True,
                "enable_critic_lstm": False,
            },
        },
    ),
    "lstm-actor": (
        "RecurrentPPO",
        "MlpLstmPolicy",
        "Pendulum-v1",
        "recurrent-ppo",
        {"n_steps": 32, "batch_size": 16, "policy_kwargs": {"lstm_hidden_size": 8, "enable_critic_lstm": False}},
    ),
    "quantiles": (
        "QRDQN",
        "MlpPolicy",
        "CartPole-v1",
        "qrdqn",
        {"learning_starts": 10, "buffer_size": 500, "policy_kwargs": {**SMALL, "n_quantiles": 6}},
    ),
    "quantiles-images": (
        "QRDQN",
        "CnnPolicy",
        "images",
        "qrdqn",
        {"learning_starts": 10, "buffer_size": 100, "policy_kwargs": {"n_quantiles": 6}},
    ),
    "trpo-images": ("TRPO", "CnnPolicy", "images", "trpo", {"n_steps": 16, "batch_size": 16}),
    "critics": (
        "TQC",
        "MlpPolicy",
        "Pendulum-v1",
        "tqc",
        {
            "learning_starts": 10,
            "buffer_size": 500,
            "policy_kwargs": {"net_arch": {"pi": [9, 6], "qf": [8]}, "n_critics": 3, "n_quantiles": 7},
        },
    ),
    "gsde": ("TRPO", "MlpPolicy", "Pendulum-v1", "trpo", {"n_steps": 32, "batch_size": 32, "use_sde": True}),
    "gsde-critics": (
        "TQC",
        "MlpPolicy",
        "Pendulum-v1",
        "tqc",
        {
            "learning_starts": 10,
            "buffer_size": 500,
            "use_sde": True,
            "policy_kwargs": {**SMALL, "use_expln": True, "n_quantiles": 7, "clip_mean": 0.5},
        },
    ),
    "gsde-unclipped": (
        "TQC",
        "MlpPolicy",
        "Pendulum-v1",
        "tqc",
        {"learning_starts": 10, "buffer_size": 500, "use_sde": True, "policy_kwargs": {**SMALL, "clip_mean": 0.0}},
    ),
    "activation": (
        "TRPO",
        "MlpPolicy",
        "Pendulum-v1",
        "trpo",
        {"n_steps": 32, "batch_size": 32, "policy_kwargs": {**SMALL, "activation_fn": torch.nn.ELU}},
    ),
    "search": ("ARS", "LinearPolicy", "CartPole-v1", "ars", {"n_delta": 2}),
    "search-mlp": ("ARS", "MlpPolicy", "Pendulum-v1", "ars", {"n_delta": 2, "policy_kwargs": {"net_arch": [6, 5]}}),
}


def environment(name: str) -> Any:
    if name == "mask":
        return InvalidActionEnvDiscrete(8, 3)
    if name == "images":
        return FakeImageEnv(40, 1, action_space=spaces.Discrete(3))
    return gymnasium.make(name)


@pytest.fixture(scope="module", params=list(CASES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(model of sb3-contrib, imported agent, name of the case)."""
    kind, policy, env, algorithm, settings = CASES[request.param]
    theirs = getattr(sb3_contrib, kind)(policy, environment(env), seed=1, device="cpu", **settings)
    theirs.learn(64)
    path = tmp_path_factory.mktemp("theirs") / "model.zip"
    theirs.save(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some settings are functions in sb3-contrib, of which the import warns
        ours = import_sb3(path, algorithm, environment(env))
    return theirs, ours, request.param


def test_actions_are_theirs(pair: Any) -> None:
    theirs, ours, case = pair
    env = environment(CASES[case][2])
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    state, other, first = None, None, True
    for _ in range(60):
        more: dict[str, Any] = {"action_masks": env.action_masks()} if case == "masks" else {}
        memory = {} if "lstm" not in case else {"episode_start": np.array([first])}
        mine, state = ours.predict(observation, state, deterministic=True, **{**more, **memory})
        expected, other = theirs.predict(observation, other, deterministic=True, **{**more, **memory})
        assert np.allclose(mine, expected, atol=1e-6)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        first = terminated or truncated
        if first:
            observation, _ = env.reset()


def test_settings_are_theirs(pair: Any) -> None:
    theirs, ours, case = pair
    for name in ("gamma", "gae_lambda", "ent_coef", "n_steps", "tau", "n_delta", "exploration_final_eps"):
        if hasattr(theirs, name) and hasattr(ours.config, name):
            assert getattr(ours.config, name) == getattr(theirs, name), name
    assert ours.spec.id == CASES[case][3]


def test_seed_and_steps_are_theirs(pair: Any, tmp_path: Path) -> None:
    theirs, ours, _ = pair
    assert (ours.seed, ours.num_timesteps) == (theirs.seed, theirs.num_timesteps)
    ours.save(tmp_path / "ours")
    again = rlsdk.load(tmp_path / "ours")
    assert (again.seed, again.num_timesteps) == (theirs.seed, theirs.num_timesteps)


def test_values_and_targets_are_theirs(pair: Any) -> None:
    theirs, ours, case = pair
    seen = torch.randn(5, 3 if "Pendulum" in CASES[case][2] else 4)
    if case in ("trpo", "trpo-sides"):
        from rlsdk.records import Observation

        values = ours.policy.predict_values(Observation(seen, torch.zeros(5, dtype=torch.bool)))
        assert torch.allclose(values, theirs.policy.predict_values(seen).squeeze(-1), atol=1e-6)
    if case == "critics":
        unit = torch.rand(5, 1) * 2 - 1
        found = ours.parts.algorithm.trained.target.network(seen, unit)
        assert torch.allclose(found.movedim(0, 1), theirs.critic_target(seen, unit), atol=1e-6)
    if case == "quantiles":
        found = ours.parts.algorithm.target.network(seen)
        assert torch.allclose(found, theirs.quantile_net_target(seen), atol=1e-6)


def test_training_goes_on(pair: Any, tmp_path: Path) -> None:
    _, ours, case = pair
    if "gsde" in case:
        assert ours.config.use_sde
    if case == "gsde-critics":
        assert ours.config.policy_kwargs.use_expln
    if "image" not in case:
        ours.learn(40)
    ours.save(tmp_path / "ours")
    assert rlsdk.load(tmp_path / "ours").spec.id == ours.spec.id


def test_statistics_of_vecnormalize(tmp_path: Path) -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(make_vec_env("Pendulum-v1", 1, seed=0), clip_obs=10.0)
    theirs = sb3_contrib.TRPO("MlpPolicy", env, seed=0, n_steps=64, policy_kwargs=SMALL).learn(128)
    theirs.save(tmp_path / "model.zip")
    moments = env.obs_rms
    np.savez(tmp_path / "stats.npz", mean=moments.mean, var=moments.var, count=moments.count)
    ours = import_sb3(tmp_path / "model.zip", "trpo", "Pendulum-v1", vecnormalize=tmp_path / "stats.npz")
    for observation in np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32):
        expected, _ = theirs.predict(env.normalize_obs(observation), deterministic=True)
        assert np.allclose(ours.predict(observation, deterministic=True)[0], expected, atol=1e-6)
    np.savez(tmp_path / "other.npz", mean=np.zeros(5), var=np.ones(5), count=3)
    with pytest.raises(ArtifactError, match="shape"):
        import_sb3(tmp_path / "model.zip", "trpo", "Pendulum-v1", vecnormalize=tmp_path / "other.npz")
    np.savez(tmp_path / "none.npz", mean=np.zeros(3))
    with pytest.raises(ArtifactError, match="no statistics"):
        import_sb3(tmp_path / "model.zip", "trpo", "Pendulum-v1", vecnormalize=tmp_path / "none.npz")


class Exploit:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code of the file was run')",)


def written(path: Path, data: Any, weights: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(data))
        archive.writestr("policy.pth", weights)
    return path


def test_what_is_no_such_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    torch.save({"action_net.weight": torch.zeros(2, 3)}, buffer)
    (tmp_path / "text.zip").write_text("hello")
    cases = [
        (tmp_path / "nothing.zip", "there is no file"),
        (tmp_path / "text.zip", "not a file of stable-baselines3"),
        (written(tmp_path / "evil.zip", {}, pickle.dumps(Exploit())), "not a file of stable-baselines3"),
        (written(tmp_path / "list.zip", [], buffer.getvalue()), "no settings or no weights"),
        (written(tmp_path / "other.zip", {}, buffer.getvalue()), "holds no trpo agent"),
    ]
    for path, words in cases:
        with pytest.raises(ArtifactError, match=words):
            import_sb3(path, "trpo", "CartPole-v1")
    with pytest.raises(ArtifactError, match="no tqc agent"):
        import_sb3(cases[-1][0], "tqc", "Pendulum-v1")
    alone = attrs.evolve(registry.load("trpo"), from_sb3=None)
    monkeypatch.setattr(sb3, "load_plugin", lambda _: alone)
    with pytest.raises(SettingsError, match="no counterpart"):
        import_sb3(cases[-1][0], "trpo", "CartPole-v1")
    assert read_sb3(cases[-1][0]).settings == {}


def test_the_model_is_not_replaced(cli: Any) -> None:
    """An import does not replace the model, although an agent file of rlsdk may have the suffix .zip too."""
    sb3_contrib.TRPO("MlpPolicy", "CartPole-v1", n_steps=16, policy_kwargs=SMALL).save("model.zip")
    before = Path("model.zip").read_bytes()
    code, out, err = cli("import", "trpo", "model.zip", "--env", "CartPole-v1", "--out", "./model.zip")
    assert (code, out) == (1, "")
    assert "--out model.zip is the model itself, which would be replaced; choose another name" in err
    assert Path("model.zip").read_bytes() == before
    command = ("import", "trpo", "model.zip", "--env", "CartPole-v1", "--out", "model")
    assert cli(*command)[0] == 0
    code, _, err = cli(*command)
    assert (code, "model.rlsdk exists; choose another --out, or remove it first" in err) == (1, True)
    assert (
        "give the .zip that model.save(path) of that library wrote"
        in cli("import", "trpo", "model.rlsdk", "--env", "CartPole-v1", "--out", "other")[2]
    )


def test_another_environment_or_algorithm_is_noticed(tmp_path: Path) -> None:
    theirs = sb3_contrib.TRPO("MlpPolicy", "CartPole-v1", n_steps=16, policy_kwargs=SMALL)
    theirs.save(tmp_path / "model.zip")
    for algorithm, env in (("trpo", "Pendulum-v1"), ("trpo", "Acrobot-v1"), ("qrdqn", "CartPole-v1")):
        with pytest.raises(ArtifactError):
            import_sb3(tmp_path / "model.zip", algorithm, env)


def test_an_activation_that_torch_does_not_have_is_named(tmp_path: Path) -> None:
    class Own(torch.nn.Tanh):
        pass

    networks = {**SMALL, "activation_fn": Own}
    sb3_contrib.TRPO("MlpPolicy", "CartPole-v1", n_steps=16, policy_kwargs=networks).save(tmp_path / "model.zip")
    with pytest.raises(SettingsError, match=r"activation .*Own"):
        import_sb3(tmp_path / "model.zip", "trpo", "CartPole-v1")
    assert import_sb3(tmp_path / "model.zip", "trpo", "CartPole-v1", policy_kwargs={"activation_fn": "tanh"})


def test_settings_that_only_a_pickle_holds_are_named(tmp_path: Path) -> None:
    theirs = sb3_contrib.TRPO("MlpPolicy", "CartPole-v1", learning_rate=lambda left: 1e-3 * left, policy_kwargs=SMALL)
    theirs.save(tmp_path / "model.zip")
    with pytest.warns(UserWarning, match="learning_rate only as a pickle"):
        import_sb3(tmp_path / "model.zip", "trpo", "CartPole-v1")
    ours = import_sb3(tmp_path / "model.zip", "trpo", "CartPole-v1", learning_rate="lin_1e-3")
    assert ours.config.learning_rate(0.5) == pytest.approx(5e-4)


def test_actions_of_imported_agents_begin_at_the_start_of_the_space(tmp_path: Path) -> None:
    from stable_baselines3 import PPO

    env = AnySpaceEnv(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(3, start=5), 1000)
    theirs = PPO("MlpPolicy", env, n_steps=8, batch_size=8, seed=0, device="cpu")
    theirs.save(tmp_path / "model")
    ours = import_sb3(tmp_path / "model.zip", "ppo", env)
    for observation in np.random.default_rng(0).uniform(-1.0, 1.0, (10, 3)).astype(np.float32):
        action, _ = theirs.predict(observation, deterministic=True)
        assert action in (0, 1, 2)
        assert ours.predict(observation, deterministic=True)[0] == action + 5


def test_weights_from_elsewhere_make_an_agent() -> None:
    """A new agent gets every given parameter; it needs each weight of the policy, and no more memory than they justify."""
    settings: dict[str, Any] = {"env": "CartPole-v1", "n_steps": 32, "policy_kwargs": {"net_arch": [8]}}
    given = rlsdk.make("ppo", **settings, seed=1).get_parameters()
    agent = from_parameters("ppo", given, **settings, seed=2)
    made = agent.get_parameters()["policy"]
    assert all(torch.equal(made[name], value) for name, value in given["policy"].items())
    some = {name: value for name, value in given["policy"].items() if name != "head.linear.bias"}
    with pytest.raises(ArtifactError, match=r"^head.linear.bias missing$"):
        from_parameters("ppo", {"policy": some}, **settings)
    with pytest.raises(ArtifactError, match="shape"):
        from_parameters("ppo", given, **settings | {"env": "Acrobot-v1"})
    with pytest.raises(ArtifactError, match="far larger"):
        from_parameters("ppo", given, **settings | {"policy_kwargs": {"net_arch": [2**15, 2**15]}})
