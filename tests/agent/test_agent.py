"""The class `Agent`: learning, predicting, parameters, environments, callbacks, metrics."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import rlsdk
from rlsdk.callbacks import Callback, CheckpointCallback, EvalCallback, LambdaCallback
from rlsdk.callbacks.callback import StepCounter, as_callbacks
from rlsdk.environments import make_vec_env
from rlsdk.errors import (
    ArtifactError,
    DivergenceError,
    ObservationError,
    ResourceError,
    SettingsError,
    UnsupportedSpaceError,
    UsageError,
)
from rlsdk.evaluation.evaluate import evaluate_policy, run_episodes
from rlsdk.sinks import ConsoleSink, CsvSink, JsonlSink, Logger
from rlsdk_envs.toy import ChainEnv, IdentityEnvBox, SimpleMultiObsEnv
from rlsdk_testing.subject import differing, flat_state
from rlsdk_tqc import TQC
from rlsdk_tqc.config import TQCConfig


def small(env: Any = None, **settings: Any) -> TQC:
    defaults: dict[str, Any] = {"buffer_size": 300, "learning_starts": 5, "batch_size": 8, "seed": 0}
    kwargs = {"net_arch": [8], **settings.pop("policy_kwargs", {})}
    policy = settings.pop("policy", "MlpPolicy")
    return TQC(policy, env or IdentityEnvBox(episode_length=10), policy_kwargs=kwargs, **{**defaults, **settings})


def test_the_first_example() -> None:
    model = TQC("MlpPolicy", "Pendulum-v1", top_quantiles_to_drop_per_net=2, verbose=0, buffer_size=1000)
    assert model.learn(total_timesteps=110, log_interval=4) is model
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset()
    action, state = model.predict(observation, deterministic=True)
    assert env.action_space.contains(action)
    assert state is None


def test_make_and_registry_names() -> None:
    model = rlsdk.make("tqc", env="Pendulum-v1", learning_rate=1e-3, buffer_size=100)
    assert isinstance(model, TQC)
    assert isinstance(model, rlsdk.Agent)
    assert model.config.policy == "MlpPolicy"
    with pytest.raises(rlsdk.errors.PluginError, match="did you mean 'tqc'"):
        rlsdk.make("tqcc", env="Pendulum-v1")
    no_name: Any = None
    with pytest.raises(rlsdk.errors.PluginError, match="no installed plugin offers None"):
        rlsdk.make(no_name, env="Pendulum-v1")
    with pytest.raises(SettingsError, match="policy_kwargs: 5 is not a table of settings"):
        rlsdk.make("tqc", env="Pendulum-v1", policy_kwargs=5)
    with pytest.raises(UsageError, match="needs an environment"):
        TQC("MlpPolicy", None)


def test_positional_arguments_as_documented() -> None:
    model = TQC("MlpPolicy", IdentityEnvBox(), 1e-2, 500, 7)
    assert (model.config.learning_rate(1.0), model.config.buffer_size, model.config.learning_starts) == (1e-2, 500, 7)
    with pytest.raises(SettingsError, match="by position and by name"):
        TQC("MlpPolicy", IdentityEnvBox(), 1e-2, learning_rate=1e-3)
    with pytest.raises(SettingsError, match="positional arguments"):
        TQC("MlpPolicy", IdentityEnvBox(), *range(40))


def test_predict_checks_what_it_is_given() -> None:
    model = small()
    assert model.predict(np.zeros(1))[0].shape == (1,)
    assert model.predict(np.zeros((4, 1)))[0].shape == (4, 1)
    assert model.predict([0.5])[0].dtype == np.float32
    for bad in (np.zeros(2), np.zeros((2, 2, 1)), [np.nan], "text"):
        with pytest.raises(ObservationError):
            model.predict(bad)
    multi = small(SimpleMultiObsEnv(), policy="MultiInputPolicy")
    seen = multi.observation_space.sample()
    assert multi.predict(seen)[0].shape == (2,)
    assert multi.predict({key: np.stack([value] * 3) for key, value in seen.items()})[0].shape == (3, 2)
    with pytest.raises(ObservationError, match="camera"):
        multi.predict({"vec": seen["vec"]})


def test_predict_does_not_touch_training() -> None:
    states = []
    for noisy in (False, True):
        model = small().learn(20)
        for _ in range(5 * noisy):
            model.predict(np.zeros(1), deterministic=False)
        states.append(flat_state(model.learn(20, reset_num_timesteps=False)))
    assert differing(*states) == []


def test_timesteps_and_reset() -> None:
    model = small().learn(20)
    assert model.learn(10, reset_num_timesteps=False).num_timesteps == 30
    assert model.learn(15).num_timesteps == 15
    assert model.cursor is not None
    assert model.cursor.env_steps == 45
    for bad in (-5, 2.5, "10", True):
        with pytest.raises(SettingsError, match="total_timesteps"):
            model.learn(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sde.log_std", "head.noise.log_std"])
def test_a_parameter_with_two_names_is_set_by_either(name: str) -> None:
    agent = rlsdk.make("trpo", env="Pendulum-v1", use_sde=True)
    wanted = torch.full_like(agent.get_parameters()["policy"][name], -3.0)
    agent.set_parameters({"policy": {name: wanted}}, exact_match=False)
    now = agent.get_parameters()["policy"]
    assert torch.equal(now["sde.log_std"], wanted)
    assert torch.equal(now["head.noise.log_std"], wanted)


def test_get_and_set_parameters(tmp_path: Path) -> None:
    one, two = small().learn(30), small(seed=1)
    before = flat_state(two)
    with pytest.raises(ArtifactError, match="missing"):
        two.set_parameters({"policy": one.get_parameters()["policy"]})
    with pytest.raises(ArtifactError, match="has no"):
        two.set_parameters({"polcy": {}}, exact_match=False)
    with pytest.raises(ArtifactError, match="shape"):
        two.set_parameters({"policy": {"mean.bias": torch.zeros(7)}}, exact_match=False)
    with pytest.raises(ArtifactError, match="do not fit"):
        two.set_parameters({"policy": {"nonsense": torch.zeros(7)}}, exact_match=False)
    assert differing(before, flat_state(two)) == []
    two.set_parameters({"policy": {"mean.bias": torch.full((1,), 0.25)}}, exact_match=False)
    assert two.get_parameters()["policy"]["mean.bias"].item() == 0.25
    one.save(tmp_path / "one")
    two.set_parameters(tmp_path / "one")
    assert differing(flat_state(one), flat_state(two)) == []


def test_set_env_keeps_learning_elsewhere() -> None:
    model = small().learn(20)
    other = IdentityEnvBox(episode_length=7)
    model.set_env(other)
    assert model.get_env().envs == [other]
    lengths: list[int] = []
    model.learn(
        14, callback=LambdaCallback(on_report=lambda run, report: lengths.extend(e.length for e in report.episodes))
    )
    assert lengths == [7, 7]
    assert model.get_vec_normalize_env() is None
    with pytest.raises(UnsupportedSpaceError, match="observation_space"):
        model.set_env(ChainEnv())
    with pytest.raises(UsageError, match="not 3"):
        model.set_env(make_vec_env(IdentityEnvBox, 3))
    fresh = small()
    fresh.set_env(make_vec_env(lambda: IdentityEnvBox(episode_length=10), 3))
    assert fresh.learn(30).num_timesteps == 30


@pytest.mark.parametrize("algorithm", ["ppo", "pqn", "discrete-sac", "crossq"])
@pytest.mark.parametrize(
    "text", ["[enforce fail]\nCPU: can't allocate memory", "CUDA out of memory. Tried to allocate 4 TiB"]
)
def test_networks_that_do_not_fit_into_memory_are_one_line(
    algorithm: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(torch.nn.Linear, "__init__", failing)
    env = "Pendulum-v1" if algorithm == "crossq" else "CartPole-v1"
    with pytest.raises(
        ResourceError, match=f"{algorithm}: its networks do not fit into memory; lower net_arch"
    ) as caught:
        rlsdk.make(algorithm, env=env)
    assert "\n" not in str(caught.value)
    text = "another error"
    with pytest.raises(RuntimeError, match="another error"):
        rlsdk.make(algorithm, env=env)


def test_a_filled_memory_is_not_asked_to_fit_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small().learn(20)
    monkeypatch.setattr("rlsdk.runtime.memory.available_bytes", lambda: 10)
    model.set_env(IdentityEnvBox(episode_length=10))
    assert model.learn(10, reset_num_timesteps=False).num_timesteps == 30
    with pytest.raises(ResourceError, match="lower buffer_size"):
        small()


def test_loaded_without_env_says_what_to_do(tmp_path: Path) -> None:
    small().save(tmp_path / "a")
    model = TQC.load(tmp_path / "a")
    with pytest.raises(UsageError, match="set_env"):
        model.learn(10)
    model.set_env(IdentityEnvBox(episode_length=10))
    model.learn(10)


def test_set_random_seed() -> None:
    model, drawn = small().learn(10), []
    for seed in (9, None, 9, 8):
        model.set_random_seed(seed)
        drawn.append(model.predict(np.zeros((3, 1)))[0].tolist())
    first, further, again, other = drawn
    assert first == again
    assert first != further
    assert first != other
    assert model.seed == 8


def test_a_session_counts_rows_and_forgets_at_ends() -> None:
    model = small(use_sde=True, sde_sample_freq=50, policy_kwargs={"log_std_init": 0.0})
    session = model.session(2, deterministic=False)
    seen = np.zeros((2, 1), np.float32)
    first, second = session.act(seen), session.act(seen)
    np.testing.assert_array_equal(first, second)  # one noise matrix for 50 steps
    session.ended([True, False])
    third = session.act(seen)
    assert third[0] != first[0]
    assert third[1] == first[1]
    with pytest.raises(ObservationError, match="2 environments"):
        session.act(np.zeros((3, 1), np.float32))


def test_divergence_stops_the_run_and_says_where() -> None:
    model = small()
    with torch.no_grad():
        model.learn(20)
        model.parts.algorithm.critics.ensemble.layers[0].weight[0, 0, 0] = float("nan")
    with pytest.raises(DivergenceError, match=r"at update 16.*environment step 21.*critic_loss"):
        model.learn(10, reset_num_timesteps=False)
    small(learning_rate=0.5).learn(5)


def test_large_metrics_are_no_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    update = model.parts.algorithm.update
    large = {"train/a": torch.tensor(3e38), "train/b": torch.tensor(3e38)}
    monkeypatch.setattr(model.parts.algorithm, "update", lambda *args, **named: {**update(*args, **named), **large})
    model.learn(20)


class Recorder(Callback):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_training_start(self, run: Any) -> None:
        self.events.append("start")

    def on_report(self, run: Any, report: Any) -> bool:
        self.events.append(f"{run.num_timesteps}")
        return run.num_timesteps < 6

    def on_log(self, run: Any, values: dict[str, float]) -> None:
        values["mine/value"] = 1.0

    def on_training_end(self, run: Any) -> None:
        self.events.append("end")


def test_callbacks_see_everything_and_can_stop(capsys: pytest.CaptureFixture[str]) -> None:
    recorder, calls = Recorder(), list[int]()
    small(train_freq=2).learn(20, callback=[recorder, lambda scope, _: calls.append(scope["self"].num_timesteps)])
    assert recorder.events == ["start", "2", "4", "6", "end"]
    assert calls == [1, 2, 3, 4, 5, 6]
    with pytest.raises(SettingsError, match="not a callback"):
        as_callbacks(3)
    small(verbose=1).learn(20, callback=Recorder(), log_interval=1)
    small(verbose=1).learn(60, log_interval=2, progress_bar=True)
    out = capsys.readouterr()
    assert "rollout/" in out.out
    assert "ep_rew_mean" in out.out
    assert "60/60 steps" in out.err


@pytest.mark.parametrize("n_envs", [1, 4])
def test_periods_count_environment_steps(n_envs: int, tmp_path: Path) -> None:
    model = small(make_vec_env(lambda: IdentityEnvBox(episode_length=10), n_envs))
    evaluator = EvalCallback(
        IdentityEnvBox(episode_length=5), eval_freq=20, n_eval_episodes=2, best_model_save_path=tmp_path
    )
    checkpoints = CheckpointCallback(20, tmp_path, keep=2)
    model.learn(80, callback=[evaluator, checkpoints])
    assert [steps for steps, _ in evaluator.history] == [20, 40, 60, 80]
    files = sorted(p.name for p in tmp_path.glob("*.rlsdk"))
    assert files == ["best.rlsdk", "step_000000060.rlsdk", "step_000000080.rlsdk"]
    counter = StepCounter(10, "x")
    assert [counter.due(s) for s in (3, 9, 10, 11, 25, 31)] == [False, False, True, False, True, True]
    with pytest.raises(SettingsError):
        StepCounter(0, "x")


def test_evaluation_stops_training_when_good_enough() -> None:
    model = small().learn(100, callback=EvalCallback(IdentityEnvBox(), eval_freq=20, stop_at=-1e9))
    assert model.num_timesteps == 20


def test_metrics_reach_every_sink(tmp_path: Path) -> None:
    model = small()
    model.set_logger(Logger(output_formats=[CsvSink(tmp_path / "m.csv"), JsonlSink(tmp_path / "m.jsonl")]))
    began = time.perf_counter()
    model.learn(
        30, log_interval=1, callback=EvalCallback(IdentityEnvBox(episode_length=5), eval_freq=15, n_eval_episodes=1)
    )
    rows = list(csv.DictReader((tmp_path / "m.csv").open()))
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [int(row["step"]) for row in rows] == [10, 15, 20, 30] == [line["step"] for line in lines]
    expected = {"rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps", "time/total_timesteps", "time/episodes",
                "time/time_elapsed", "train/critic_loss", "train/actor_loss", "train/ent_coef", "train/ent_coef_loss",
                "train/learning_rate", "train/n_updates"}  # fmt: skip
    assert expected <= set(lines[2])
    assert 0.0 < lines[2]["time/time_elapsed"] < time.perf_counter() - began
    assert lines[1]["eval/mean_ep_length"] == 5.0
    assert rows[0]["eval/mean_reward"] == ""
    CsvSink(tmp_path / "m.csv").write(99, {"new/one": 1.0})
    assert list(csv.DictReader((tmp_path / "m.csv").open()))[-1]["new/one"] == "1.0"
    assert float(rows[0]["rollout/ep_len_mean"]) == 10.0
    JsonlSink(tmp_path / "n.jsonl").write(1, {"a": float("nan")})
    assert json.loads((tmp_path / "n.jsonl").read_text()) == {"step": 1, "a": None}
    ConsoleSink().write(1, {})
    ConsoleSink().write(1, {"a/b": 1.0})


def test_a_frozen_clock_divides_nothing_by_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", lambda: 5.0)
    small().learn(30, log_interval=1, progress_bar=True)


def test_a_log_is_written_after_each_rollout_or_every_fourth_episode() -> None:
    class Written:
        def __init__(self) -> None:
            self.steps: list[int] = []

        def write(self, step: int, values: Any) -> None:
            self.steps.append(step)

        def close(self) -> None: ...

    on_policy = rlsdk.make("ppo", env=IdentityEnvBox(episode_length=10), n_steps=8, batch_size=8, n_epochs=1)
    for model, total, expected in (
        (on_policy, 24, [8, 16, 24]),
        (small(env=IdentityEnvBox(episode_length=10)), 90, [40, 80]),
    ):
        written = Written()
        model.set_logger(written)
        model.learn(total)
        assert written.steps == expected


def test_success_rate() -> None:
    class Succeeding(IdentityEnvBox):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, terminated, truncated, {**info, "is_success": truncated}

    class Keep:
        values: dict[str, float] = {}  # noqa: RUF012

        def write(self, step: int, values: Any) -> None:
            self.values = dict(values)

        def close(self) -> None: ...

    model, keep = small(Succeeding(episode_length=5)), Keep()
    model.set_logger(keep)
    model.learn(20, log_interval=1)
    assert keep.values["rollout/success_rate"] == 1.0


def test_evaluate_policy_equals_a_loop_by_hand() -> None:
    model = small().learn(30)
    mean, std = evaluate_policy(model, IdentityEnvBox(episode_length=6), n_eval_episodes=3)
    returns, lengths = evaluate_policy(model, IdentityEnvBox(episode_length=6), 3, return_episode_rewards=True)
    assert lengths == [6, 6, 6]
    env = IdentityEnvBox(episode_length=6)
    by_hand = []
    from rlsdk.runtime.process import derive

    observation, _ = env.reset(seed=derive(0, "environment", 0) % 2**31)
    for _ in range(3):
        total, done = 0.0, False
        while not done:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, done = total + reward, terminated or truncated
        by_hand.append(total)
        observation, _ = env.reset()
    assert run_episodes(model, IdentityEnvBox(episode_length=6), 3, seed=0).returns == pytest.approx(by_hand)
    assert np.isfinite([mean, std, *returns]).all()
    seen: list[Any] = []
    evaluate_policy(model, IdentityEnvBox(episode_length=6), 2, callback=lambda scope, _: seen.append(scope["i"]))
    assert seen == [0] * 12
    for bad in ({"n_eval_episodes": 0}, {"reward_threshold": 1.0}, {"render": True}):
        with pytest.raises(SettingsError):
            evaluate_policy(model, IdentityEnvBox(), **bad)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedSpaceError, match="evaluation environment"):
        evaluate_policy(model, "Pendulum-v1")


def test_tensorboard_log_names_the_missing_package(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(SettingsError, match=r"rlsdk\[tensorboard\]"):
            small(tensorboard_log=str(tmp_path)).learn(10)
    else:
        for _ in range(2):
            small(tensorboard_log=str(tmp_path)).learn(40)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["TQC_1", "TQC_2"]


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    small().learn(5, callback=lambda *_: seen.append(torch.get_num_threads()))
    small().learn(5, callback=lambda *_: seen.append(torch.get_num_threads()), threads=2)
    assert set(seen[:5]) == {1}
    assert set(seen[5:]) == {2}
    assert torch.get_num_threads() == before


def test_more_threads_than_cores_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    seen: list[int] = []
    with pytest.warns(UserWarning, match="64 threads reduced to 1: the machine has 1 core"):
        small().learn(5, callback=lambda *_: seen.append(torch.get_num_threads()), threads=64)
    assert set(seen) == {1}


def test_a_file_names_only_environments_that_an_id_makes_again(tmp_path: Path) -> None:
    """An agent file names its environment only if the name makes the same environment again. Evaluating without the
    wrappers used in training would give a wrong number without an error."""
    import gymnasium

    from rlsdk_envs import MaskVelocity

    plain, masked = gymnasium.make("Pendulum-v1"), MaskVelocity(gymnasium.make("Pendulum-v1"))
    assert small(plain).env_name == "Pendulum-v1"
    assert small(make_vec_env("Pendulum-v1", 2)).env_name == "Pendulum-v1"
    assert small(masked).env_name is None
    assert small(gymnasium.make("Pendulum-v1", g=5.0)).env_name is None
    named = make_vec_env("Pendulum-v1", 2, wrappers=["MaskVelocity"], env_kwargs={"g": 5.0})
    text = small(named).env_name
    assert text == "Pendulum-v1?g=5.0&wrapper=MaskVelocity"
    again = make_vec_env(text, 2)
    np.testing.assert_array_equal(*(np.asarray(envs.reset(3).features) for envs in (named, again)))
    assert again.get_attr("g") == [5.0, 5.0]
    assert small(make_vec_env("Pendulum-v1", 2, wrappers=[MaskVelocity])).env_name is None
    assert small("rlsdk/PendulumNoVel-v1").env_name == "rlsdk/PendulumNoVel-v1"
    agent = small(masked)
    agent.set_env(plain)
    assert agent.env_name == "Pendulum-v1"


def test_settings_are_checked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checks, check = [], TQCConfig.__attrs_post_init__
    monkeypatch.setattr(TQCConfig, "__attrs_post_init__", lambda config: (checks.append(config), check(config)))
    small().save(tmp_path / "agent")
    assert len(checks) == 1, "by the constructor"
    TQC.load(tmp_path / "agent")
    assert len(checks) == 2, "by `load`"
