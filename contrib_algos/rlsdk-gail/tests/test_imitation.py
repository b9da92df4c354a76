"""GAIL: its loss and rewards, resuming, normalization, and errors for unusable data sets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import ArtifactError, RlsdkError, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk.registry import preset, presets
from rlsdk.training.collector import LocalCollector
from rlsdk.tree import flatten
from rlsdk_datasets import RecordedEpisode, write_episodes
from rlsdk_gail import GAIL
from rlsdk_gail.discriminator import Discriminator, executed
from rlsdk_gail.loss import learned_reward
from rlsdk_testing.rollouts import rollout_of
from tests.tables import in_one_test

SEEN, CHOICE, VECTOR = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(2), spaces.Box(-2.0, 2.0, (1,))
QUICK: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0, "g_step": 1}


class Walk(gymnasium.Env[Any, Any]):
    """Random observations and rewards; every episode has ten steps."""

    def __init__(self, action_space: spaces.Space[Any] = VECTOR, scale: float = 1.0) -> None:
        self.observation_space, self.action_space, self.scale = SEEN, action_space, scale

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._seen(), self.scale * float(self.np_random.uniform()), False, self.time == 10, {}

    def _seen(self) -> Any:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)


def recorded(path: Path, actions: spaces.Space[Any] = VECTOR, episodes: int = 6, shift: float = 0.0) -> Path:
    """Record an expert whose action depends on the first of two observed numbers; `shift` is added to both."""
    dice, made = torch.Generator().manual_seed(0), []
    for seed in range(episodes):
        seen = torch.rand(21, 2, generator=dice) * 2 - 1 + shift
        action = (seen[:-1, 0] > 0).long() if isinstance(actions, spaces.Discrete) else seen[:-1, :1].clone()
        made.append(RecordedEpisode(seen, action, torch.ones(20), terminated=False, seed=seed))
    return write_episodes(path, made, to_space(SEEN), to_space(actions))


def imitator(data: Path, n_envs: int = 2, env: Any = Walk, **settings: Any) -> GAIL:
    return GAIL("MlpPolicy", make_vec_env(env, n_envs), data, **{**QUICK, **settings})


def state_of(agent: GAIL) -> dict[str, Tensor]:
    found = flatten(agent.get_parameters()).items()
    return {name: torch.as_tensor(value) for name, value in found if not isinstance(value, Mapping)}


def assert_same(one: GAIL, two: GAIL) -> None:
    mine, other = state_of(one), state_of(two)
    assert mine.keys() == other.keys()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == []


def test_the_gradient_of_the_whole_loss_equals_finite_differences(tmp_path: Path) -> None:
    algorithm = imitator(
        recorded(tmp_path / "demo"), adversary_entcoeff=0.3, gradient_penalty=2.0, hidden_size_adversary=4
    ).parts.algorithm
    discriminator: Discriminator = algorithm.discriminator.double()
    rng = torch.Generator().manual_seed(0)
    steps = [(torch.randn(6, 2, generator=rng).double(), torch.randn(6, 1, generator=rng).double()) for _ in range(2)]
    inputs = [torch.cat(pair, dim=1) for pair in steps]

    def loss() -> torch.Tensor:
        logits = [discriminator.logits(each) for each in inputs]
        algorithm.generator.manual_seed(7)
        share = torch.rand(6, 1, generator=algorithm.generator).double()
        between = (share * inputs[0] + (1.0 - share) * inputs[1]).requires_grad_()
        gradient = torch.autograd.grad(discriminator.logits(between).sum(), between, create_graph=True)[0]
        penalty = (gradient.square().sum(1).sqrt() - 1.0).square().mean()
        joined = torch.cat(logits)
        entropy = -(joined.sigmoid() * joined.sigmoid().log() + (-joined).sigmoid() * (-joined).sigmoid().log()).mean()
        error = -(logits[0].sigmoid().log().mean() + (-logits[1]).sigmoid().log().mean())
        return error - 0.3 * entropy + 2.0 * penalty

    discriminator.inputs = lambda observation, action: torch.cat([observation, action], dim=1)  # type: ignore[method-assign]
    algorithm.generator.manual_seed(7)
    found = algorithm.loss(*steps)
    assert float(found.detach()) == pytest.approx(float(loss().detach()), abs=1e-9)
    for parameter in discriminator.parameters():
        (gradient,) = torch.autograd.grad(found, parameter, retain_graph=True)
        place = tuple(0 for _ in parameter.shape)
        before = parameter.data[place].clone()
        ends = []
        for step in (1e-6, -1e-6):
            parameter.data[place] = before + step
            ends.append(float(loss().detach()))
        parameter.data[place] = before
        assert float(gradient[place]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("settings", [{}, {"normalize": True, "gradient_penalty": 1.0}], ids=["plain", "normalized"])
def test_true_rewards_are_never_read(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled rewards and NaN rewards give exactly the same weights, statistics and optimizer states."""
    data = recorded(tmp_path / "demo")
    plain = imitator(data, **settings).learn(128)
    scaled = imitator(data, env=partial(Walk, scale=-1000.0), **settings).learn(128)
    assert_same(plain, scaled)
    collect = LocalCollector.collect

    def poisoned(self: LocalCollector, *args: Any, **kwargs: Any) -> Any:
        rollout = collect(self, *args, **kwargs)
        steps = rollout.steps
        return replace(rollout, steps=replace(steps, reward=torch.full_like(steps.reward, torch.nan)))

    monkeypatch.setattr(LocalCollector, "collect", poisoned)
    without = imitator(data, **settings).learn(128)
    assert_same(plain, without)
    assert all(bool(value.isfinite().all()) for value in state_of(without).values())


@pytest.mark.parametrize("form", ["positive", "negative", "logit"])
def test_a_biased_coin_is_matched(tmp_path: Path, form: str) -> None:
    """The expert takes the second of two actions in 80 of 100 steps. Exact gradient ascent on the learned reward gives a
    policy with KL(expert || policy) < 0.01."""
    data = recorded(tmp_path / "choices", CHOICE)
    settings: dict[str, Any] = {"d_stepsize": 1e-2, "hidden_size_adversary": 8}
    algorithm = imitator(data, env=partial(Walk, CHOICE), **settings).parts.algorithm
    coin = torch.arange(100)
    expert, logit = (torch.zeros(100, 2), (coin < 80).long()), 0.0
    for _ in range(150):
        share = 1.0 / (1.0 + np.exp(-logit))
        policy = torch.zeros(100, 2), (coin < round(100 * share)).long()
        for _ in range(5):
            algorithm.optimizer.zero_grad()
            algorithm.loss(expert, policy).backward()
            algorithm.optimizer.step(1e-2)
        with torch.no_grad():
            first, second = learned_reward(algorithm.discriminator(torch.zeros(2, 2), torch.arange(2)), form).tolist()
        logit += 0.5 * (second - first) * share * (1.0 - share)
    divergence = 0.8 * np.log(0.8 / share) + 0.2 * np.log(0.2 / (1.0 - share))
    assert divergence < 0.01, f"the second action is taken in {share:.1%}"


def test_it_resumes_to_the_bit_between_steps_of_the_discriminator(tmp_path: Path) -> None:
    settings = {"normalize": True, "g_step": 2, "d_step": 2, "demo_batch_size": 10, "gradient_penalty": 1.0}
    data = recorded(tmp_path / "demo")
    whole = imitator(data, **settings).learn(96)
    whole.save(tmp_path / "agent")
    whole.learn(96, reset_num_timesteps=False)
    again = GAIL.load(tmp_path / "agent", env=make_vec_env(Walk, 2), dataset=data, force_reset=False)
    assert again.parts.algorithm.rounds == 3
    assert_same(whole, again.learn(96, reset_num_timesteps=False))


def test_expert_and_rollout_are_normalized_by_the_same_statistics(tmp_path: Path) -> None:
    """They are the statistics of the collected rollout; with newer ones the expert could be recognized by its scale."""
    agent = imitator(recorded(tmp_path / "demo"), normalize=True)
    algorithm, counts = agent.parts.algorithm, list[tuple[float, float]]()
    compared = algorithm._compared

    def noted(*args: Any) -> Any:
        both = algorithm.expert.normalizer, algorithm.expert.context.observation_normalizer
        counts.append(tuple(float(next(iter(each.moments.values())).count) for each in both))  # type: ignore[arg-type]
        return compared(*args)

    algorithm._compared = noted
    agent.learn(96)
    first = counts[0][0]
    assert [round(before - first) for before, _ in counts] == [0, 32, 64]
    assert [round(after - first) for _, after in counts] == [32, 64, 96]


def test_actions_outside_their_bounds_do_not_give_the_policy_away(tmp_path: Path) -> None:
    discriminator = imitator(recorded(tmp_path / "demo")).parts.algorithm.discriminator
    seen = torch.zeros(2, 2)
    inside, outside = (discriminator(seen, torch.tensor([[low], [high]])) for low, high in ((-2.0, 2.0), (-9.0, 7.0)))
    assert torch.equal(inside, outside)
    assert executed(to_space(CHOICE), torch.tensor([0, 1])).tolist() == [0, 1]


def test_filler_rows_change_nothing(tmp_path: Path) -> None:
    agent = imitator(recorded(tmp_path / "demo"), 3)
    rollout = rollout_of(agent, 12)
    valid = torch.ones_like(rollout.steps.valid)
    valid[4] = False
    steps = replace(rollout.steps, valid=valid)
    features = steps.observation.features.clone()
    features[4] = 0.77
    altered = replace(steps, observation=replace(steps.observation, features=features), action=steps.action.clone())
    altered.action[4] = -1.5
    algorithm = agent.parts.algorithm
    assert algorithm.rewards(replace(rollout, steps=steps))[4].tolist() == [0.0] * 3
    states = []
    for each in (steps, altered):
        twin = imitator(recorded(tmp_path / "demo"), 3)
        twin.parts.algorithm.update(replace(rollout, steps=each), progress=0.0)
        states.append(twin.parts.algorithm.discriminator.state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_discriminator_that_wins_is_in_the_metrics_and_warned_of_once(tmp_path: Path) -> None:
    data = recorded(tmp_path / "far", shift=5.0)
    agent = imitator(data, d_step=20, d_stepsize=1e-2)
    wins = list[float]()
    update = agent.parts.algorithm.update

    def noted(*args: Any, **kwargs: Any) -> Any:
        metrics = update(*args, **kwargs)
        wins.append(float(metrics["train/discriminator_wins"]))
        return metrics

    agent.parts.algorithm.update = noted
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        agent.learn(32 * 16)
    assert wins[-1] >= 12
    found = [str(each.message) for each in seen if "discriminator recognized" in str(each.message)]
    assert len(found) == 1
    assert "gradient_penalty" in found[0]


def test_the_control_run_pays_one_for_every_step(tmp_path: Path) -> None:
    agent = imitator(recorded(tmp_path / "demo"), reward="constant")
    assert bool((agent.parts.algorithm.rewards(rollout_of(agent, 8)) == 1.0).all())


def test_every_preset_has_its_control() -> None:
    tuned = [each for each in presets("gail") if not each.env.endswith("-constant-reward")]
    assert tuned
    for each in tuned:
        control = preset("gail", f"{each.env}-constant-reward")
        assert control is not None
        assert (control.steps, control.n_envs) == (each.steps, each.n_envs)
        assert control.settings == {**each.settings, "reward": "constant"}


def test_prediction_needs_no_data_set_and_training_asks_for_the_same(tmp_path: Path) -> None:
    data = recorded(tmp_path / "demo")
    agent = imitator(data).learn(32)
    agent.save(tmp_path / "agent")
    moved = data.rename(tmp_path / "elsewhere.safetensors")
    alone = GAIL.load(tmp_path / "agent", env=make_vec_env(Walk, 2))
    shown = np.array([0.5, 0.5], np.float32)
    assert np.array_equal(alone.predict(shown, deterministic=True)[0], agent.predict(shown, deterministic=True)[0])
    with pytest.raises(UsageError, match="needs the data set 'demo'"):
        alone.learn(32)
    assert alone.num_timesteps in (0, agent.num_timesteps), "it fails before the first step"
    GAIL.load(tmp_path / "agent", env=make_vec_env(Walk, 2), dataset=moved).learn(32)
    other = recorded(tmp_path / "other", episodes=3)
    with pytest.raises((ArtifactError, SettingsError), match="another data set than expected"):
        GAIL.load(tmp_path / "agent", env=make_vec_env(Walk, 2), dataset=other)


def one_line(error: pytest.ExceptionInfo[RlsdkError]) -> None:
    assert "\n" not in str(error.value)


def test_unusable_data_sets_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="give dataset = the path") as error:
        GAIL("MlpPolicy", "CartPole-v1")
    one_line(error)
    with pytest.raises(SettingsError, match="there is no data set") as error:
        imitator(tmp_path / "missing")
    one_line(error)
    with pytest.raises(UnsupportedSpaceError, match="was recorded with actions") as wrong:
        imitator(recorded(tmp_path / "choices", CHOICE)).learn(32)
    one_line(wrong)
    with pytest.raises(SettingsError, match="at least one episode") as error:
        write_episodes(tmp_path / "empty", [], to_space(SEEN), to_space(VECTOR))
    one_line(error)
    data = recorded(tmp_path / "damaged")
    content = bytearray(data.read_bytes())
    content[-10] ^= 255
    data.write_bytes(bytes(content))
    with pytest.raises(ArtifactError, match="is damaged") as damaged:
        imitator(data).learn(32)
    one_line(damaged)
    seen, action = torch.zeros(5, 2), torch.zeros(4, 1)
    seen[2, 0] = torch.nan
    episode = RecordedEpisode(seen, action, torch.zeros(4), terminated=True)
    # another program could write such a file
    monkeypatch.setattr("rlsdk_datasets.episode_file.checked_episode", lambda spaces, episode, where: episode)
    data = write_episodes(tmp_path / "nan", [episode], to_space(SEEN), to_space(VECTOR))
    agent = imitator(data)
    with pytest.raises(ArtifactError, match="is damaged: its observations hold NaN or infinite") as damaged:
        agent.learn(32)
    one_line(damaged)
    assert agent.num_timesteps == 0


def test_one_episode_is_enough_to_train(tmp_path: Path) -> None:
    assert imitator(recorded(tmp_path / "one", episodes=1), demo_batch_size=64).learn(64).num_timesteps == 64


@in_one_test
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"g_step": 0}, "g_step"),
        ({"d_step": -1}, "d_step"),
        ({"d_stepsize": 0.0}, "d_stepsize"),
        ({"gradient_penalty": -1.0}, "gradient_penalty"),
        ({"reward": "true"}, "not one of 'positive', 'negative', 'logit', 'constant'"),
        ({"normalize": {"sign_reward": True, "norm_reward": False}}, "sign_reward has no meaning"),
        ({"normalize": "yes"}, "must be true, false, or a table"),
    ],
)
def test_settings_out_of_range_are_one_line_each(tmp_path: Path, settings: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        imitator(recorded(tmp_path / "demo"), **settings)
    one_line(error)


@pytest.mark.slow
def test_ten_episodes_of_cartpole_are_enough(tmp_path: Path) -> None:
    """The preset reaches 450 of 500 from ten episodes of a linear expert, whose episodes all last 500 steps."""
    from rlsdk.evaluation import evaluate_policy

    env, made = gymnasium.make("CartPole-v1"), []
    for seed in range(10):
        seen, actions = [env.reset(seed=seed)[0]], []
        for _ in range(500):
            actions.append(int(np.dot(seen[-1], [0.1, 0.5, 1.0, 1.0]) > 0))
            seen.append(env.step(actions[-1])[0])
        arrays = torch.as_tensor(np.array(seen, np.float32)), torch.tensor(actions)
        made.append(RecordedEpisode(*arrays, torch.ones(500), terminated=False, seed=seed))
    data = write_episodes(tmp_path / "demo", made, to_space(env.observation_space), to_space(env.action_space))
    tuned = preset("gail", "CartPole-v1")
    assert tuned is not None
    agent = GAIL("MlpPolicy", make_vec_env("CartPole-v1", tuned.n_envs or 1), data, seed=0, **tuned.settings)
    agent.learn(tuned.steps)
    assert evaluate_policy(agent, "CartPole-v1", 20)[0] >= 450
