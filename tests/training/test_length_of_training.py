"""The length of a training and of its schedules: rounds of episodes, several calls, files, and exact numbers of steps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import PluginError, SettingsError, UsageError
from rlsdk.updates import QLearning
from rlsdk_interchange import record_episodes
from tests.training.test_plans import TwoRollouts, agent

ON: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "policy_kwargs": {"net_arch": [4]}}
OFF: dict[str, Any] = {"learning_starts": 8, "batch_size": 4, "buffer_size": 300, "policy_kwargs": {"net_arch": [4]}}
LSTM: dict[str, Any] = {**ON, "policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 4}}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", ON),
    "ppo normalized": ("ppo", "Pendulum-v1", {**ON, "normalize": True}),
    "a2c": ("a2c", "CartPole-v1", {"n_steps": 16}),
    "trpo": ("trpo", "CartPole-v1", ON),
    "acktr": ("acktr", "CartPole-v1", {"n_steps": 16}),
    "maskable-ppo": ("maskable-ppo", "rlsdk/InvalidActionEnvDiscrete-v0", ON),
    "recurrent-ppo": ("recurrent-ppo", "CartPole-v1", LSTM),
    "acer": ("acer", "CartPole-v1", {"n_steps": 16, "replay_start": 16}),
    "dqn": ("dqn", "CartPole-v1", {**OFF, "train_freq": 16, "gradient_steps": 2}),
    "qrdqn": ("qrdqn", "CartPole-v1", {**OFF, "train_freq": (3, "episode")}),
    "tqc": ("tqc", "Pendulum-v1", {**OFF, "train_freq": 16, "gradient_steps": -1}),
    "td3": ("td3", "Pendulum-v1", {**OFF, "train_freq": (1, "episode")}),
}
SCHEDULED: dict[str, dict[str, Any]] = {
    "ppo": {**ON, "n_steps": 10, "batch_size": 10, "learning_rate": "lin_1e-2", "clip_range": "lin_0.4"},
    "dqn": {**OFF, "learning_rate": "lin_1e-2", "exploration_fraction": 1.0, "replay_buffer_class": "prioritized"},
    "tqc": {**OFF, "learning_rate": "lin_1e-2"},
    "recurrent-ppo": {**LSTM, "n_steps": 10, "learning_rate": "lin_1e-2"},
}


def made(case: str, envs: int = 1, **changes: Any) -> Any:
    name, env, settings = CASES[case]
    return rlsdk.make(name, env=make_vec_env(env, envs, vectorization="sync"), seed=0, **{**settings, **changes})


def scheduled(name: str, **changes: Any) -> Any:
    env = "Pendulum-v1" if name == "tqc" else "CartPole-v1"
    return rlsdk.make(name, env=env, seed=0, **{**SCHEDULED[name], **changes})


def same(one: Any, other: Any) -> bool:
    return all(map(torch.equal, one.policy.parameters(), other.policy.parameters()))


# --- rounds of episodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["here", "in collectors", "in groups"])
@pytest.mark.parametrize("count", [1, 3])
def test_every_step_of_a_round_of_episodes_is_counted(where: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, float]] = []
    original = QLearning.collected

    def collected(self: Any, env_steps: int, progress: float) -> None:
        if self is model.parts.algorithm:
            seen.append((env_steps, progress))
        original(self, env_steps, progress)

    monkeypatch.setattr(QLearning, "collected", collected)
    more = {"collectors": 2, "executor": "in-process"} if where == "in collectors" else {}
    env = make_vec_env("CartPole-v1", 2, **more)
    groups = {"env_groups": 2} if where == "in groups" else {}
    model: Any = rlsdk.make("dqn", env=env, seed=0, **{**OFF, "train_freq": (count, "episode"), **groups})
    model.learn(120)
    assert [steps for steps, _ in seen] == list(range(2, model.num_timesteps + 1, 2))
    assert [progress for _, progress in seen] == [min(1.0, steps / 120) for steps, _ in seen]
    assert model.policy.epsilon == pytest.approx(model.config.exploration_rate(1.0))


# --- schedules over several calls ----------------------------------------------------------------------------------


class Values:
    """The learning rates, clip ranges and epsilons of a training, by the count of steps."""

    def __init__(self) -> None:
        self.found: dict[int, dict[str, float]] = {}

    def on_report(self, run: Any, report: Any) -> None:
        rate = run.agent.config.learning_rate(run.progress_remaining)
        names = ("train/clip_range", "rollout/exploration_rate")
        metrics = {name: float(report.metrics[name]) for name in names if name in (report.metrics or {})}
        remaining = run.agent._current_progress_remaining
        beta = getattr(run.agent.replay_buffer, "beta_now", 0.0)
        self.found[run.num_timesteps] = {**metrics, "rate": rate, "remaining": remaining, "beta": float(beta)}

    def callback(self) -> LambdaCallback:
        return LambdaCallback(on_report=self.on_report)


@pytest.mark.parametrize("name", SCHEDULED)
def test_schedules_run_over_several_calls_and_files(name: str, tmp_path: Path) -> None:
    whole, parts = scheduled(name), scheduled(name)
    one, several = Values(), Values()
    whole.learn(120, one.callback())
    parts.learn(40, several.callback(), schedule_until=120)
    parts.learn(40, several.callback(), schedule_until=120)
    include = ("replay_buffer",) if parts.replay_buffer is not None else ()
    parts.save(tmp_path / "agent", include=include)
    for model in (
        parts,
        rlsdk.load(tmp_path / "agent", env="Pendulum-v1" if name == "tqc" else "CartPole-v1", force_reset=False),
    ):
        model.learn(40, several.callback(), schedule_until=120)
        assert several.found == one.found
        assert model.num_timesteps == 120
        assert same(whole, model)
    assert one.found[120]["rate"] == 0.0


def test_the_count_goes_on_and_without_the_argument_each_call_has_a_schedule_of_its_own() -> None:
    model, values = scheduled("ppo"), Values()
    for _ in range(2):
        model.learn(20, values.callback())
        assert (model.num_timesteps, values.found[10]["rate"], values.found[20]["rate"]) == (20, 5e-3, 0.0)
    model.learn(20, values.callback(), schedule_until=80)
    assert model.num_timesteps == 40
    assert values.found[40]["rate"] == pytest.approx(5e-3)
    model.learn(80, values.callback(), schedule_until=80)
    assert values.found[120]["rate"] == 0.0, "schedules stay at their end"
    for wrong in (0, -3, 1.5):
        with pytest.raises(SettingsError, match="schedule_until"):
            model.learn(20, schedule_until=wrong)


# --- exact steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [70, 66])
@pytest.mark.parametrize("envs", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_a_training_ends_after_exactly_the_steps_that_were_asked_for(case: str, envs: int, total: int) -> None:
    model = made(case, envs)
    reports: list[Any] = []
    model.learn(total, LambdaCallback(on_report=lambda run, report: reports.append(report)), exact_steps=True)
    assert model.num_timesteps == total
    assert reports[-1].metrics is not None, "the last round is learned from"
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.policy.parameters())
    model.learn(envs * 3, reset_num_timesteps=False, exact_steps=True)
    assert model.num_timesteps == total + envs * 3


@pytest.mark.parametrize("case", ["ppo", "recurrent-ppo", "dqn"])
def test_whole_rounds_are_the_same_with_and_without(case: str) -> None:
    one, other, longer = made(case), made(case), made(case)
    one.learn(64)
    other.learn(64, exact_steps=True)
    longer.learn(60)
    assert same(one, other)
    assert longer.num_timesteps == 64


@pytest.mark.parametrize("max_lag", [0, 1])
def test_collectors_end_exactly_too(max_lag: int) -> None:
    def model(**where: Any) -> Any:
        env = make_vec_env("CartPole-v1", 4, **where)
        return rlsdk.make("dqn", env=env, seed=0, **{**OFF, "train_freq": 4, "env_groups": 2})

    apart = model(collectors=2, executor="in-process", max_lag=max_lag)
    apart.learn(72, exact_steps=True)
    assert apart.num_timesteps == 72
    if not max_lag:
        here = model(vectorization="sync").learn(72, exact_steps=True)
        assert same(here, apart)


def test_a_cut_training_resumes_to_the_bit(tmp_path: Path) -> None:
    model = made("ppo", 2).learn(70, exact_steps=True)
    model.save(tmp_path / "agent")
    env = make_vec_env("CartPole-v1", 2, vectorization="sync")
    again: Any = rlsdk.load(tmp_path / "agent", env=env, force_reset=False)
    for each in (model, again):
        each.learn(50, reset_num_timesteps=False, exact_steps=True)
    assert same(model, again)


def test_gail_and_data_sets(tmp_path: Path) -> None:
    expert = rlsdk.make("ppo", env="CartPole-v1", seed=0, **ON)
    data = record_episodes(expert, "CartPole-v1", 3, tmp_path / "demo")
    model = rlsdk.make("gail", env="CartPole-v1", dataset=data, seed=0, n_steps=16)
    model.learn(40, exact_steps=True)
    assert model.num_timesteps == 40


def test_what_cannot_end_exactly_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match="ars plays whole episodes, which are not cut; leave exact_steps out"):
        rlsdk.make("ars", env="CartPole-v1").learn(100, exact_steps=True)
    with pytest.raises(
        SettingsError, match="4 environments are stepped together and cannot make 70 steps; give 68 or 72"
    ):
        made("ppo", 4).learn(70, exact_steps=True)
    with pytest.raises(SettingsError, match="cannot make 2 steps; give 4, or leave"):
        made("ppo", 4).learn(2, exact_steps=True)


def test_loops_of_plugins_end_exactly_or_say_why_they_cannot() -> None:
    model = agent(TwoRollouts(8))  # two collections of 8 steps in 2 environments per round
    model.learn(56, exact_steps=True)
    assert model.num_timesteps == 56
    with pytest.raises(PluginError, match="collects again after a rollout with `stopped`"):
        agent(TwoRollouts(8)).learn(48, exact_steps=True)


def test_a_callback_may_stop_before_the_exact_end() -> None:
    model = made("ppo")
    model.learn(70, LambdaCallback(on_step=lambda run, step: run.num_timesteps < 20), exact_steps=True)
    assert model.num_timesteps == 20


# --- what is printed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "total", "line"),
    [
        (
            "ppo",
            20,
            "learn: 20 steps become 32: rounds of 16 steps are whole; exact_steps=True (--exact-steps) ends at 20",
        ),
        ("dqn", 1000, "learn: 1,000 steps become 1,008: rounds of 16 steps are whole"),
        ("qrdqn", 20, "learn: training ends with the round of episodes in which step 20 falls"),
        ("ppo", 32, None),
    ],
)
@pytest.mark.parametrize("verbose", [0, 1])
def test_a_rounded_number_of_steps_is_a_warning_once_per_agent(
    case: str, total: int, line: str | None, verbose: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = made(case, verbose=verbose)
        for _ in range(3):
            model.learn(total, log_interval=10**6)
    notices = [each for each in caught if str(each.message).startswith("learn: ")]
    assert len(notices) == (0 if line is None else 1)
    for each in notices:
        assert str(each.message).startswith(line or "")
        assert each.filename == __file__, "the line of the user's call"
    assert "learn: " not in capsys.readouterr().out, "it is not printed as well"


def test_another_rounding_has_a_notice_too_and_exact_or_whole_lengths_have_none() -> None:
    model = made("ppo")
    for total in (20, 40):
        with pytest.warns(UserWarning, match=f"learn: {total} steps become .* ends at {total}"):
            model.learn(total)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(0)
        model.learn(32)
        made("ppo").learn(20, exact_steps=True)
        warnings.filterwarnings("ignore", "learn: ")  # the line of docs/resuming.md
        made("ppo").learn(20)


def test_runs_of_the_command_line(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    common = ("--env", "CartPole-v1", "--set", "n_steps=16", "--set", "batch_size=16", "--seed", "0", "--no-preset")
    _, printed, errors = cli("run", "ppo", *common, "--steps", "40", "--eval-every", "0", "--out", str(out),
               "--schedule-until", "100", "--set", "learning_rate=lin_1e-2")  # fmt: skip
    assert printed.count("40 steps become 48: rounds of 16 steps are whole") == 1
    assert "rounds of 16" not in errors, "it is printed once, and no warning repeats it"
    cli("run", "ppo", "--resume", "--out", str(out), "--steps", "60", "--exact-steps")
    rows = [line.split(",") for line in (out / "metrics.csv").read_text().splitlines()]
    rate = rows[0].index("train/learning_rate")
    assert {int(row[0]): float(row[rate]) for row in rows[1:]} == pytest.approx(
        {16: 8.4e-3, 32: 6.8e-3, 48: 5.2e-3, 60: 4e-3}
    )
    code, _, error = cli("run", "ars", "--env", "CartPole-v1", "--steps", "40", "--exact-steps", "--out", "no")
    assert code
    assert "plays whole episodes" in error
    assert not (tmp_path / "no").exists()


# --- updates without collecting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("envs", [1, 4])
def test_updates_from_memory_move_the_target_as_if_steps_were_collected(envs: int) -> None:
    model = made("dqn", envs, train_freq=4, gradient_steps=2, target_update_interval=40)
    model.learn(80)
    before = model.parts.algorithm.target_updates
    model.train(100)  # as many updates as 50 rounds of 4 steps in every environment
    assert model.parts.algorithm.target_updates - before == 50 * 4 * envs // 40


@pytest.mark.parametrize("envs", [1, 3])
def test_acer_updates_from_one_stored_rollout_per_environment(envs: int) -> None:
    model = made("acer", envs)
    model.learn(200)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    metrics = model.train(3)
    assert metrics["train/q_loss"] > 0.0
    assert not all(map(torch.equal, before, model.policy.parameters()))
