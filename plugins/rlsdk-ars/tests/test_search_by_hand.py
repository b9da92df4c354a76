"""The step of ARS by hand and compared with sb3-contrib, and candidates whose results do not depend on where they
are played."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.callbacks import LambdaCallback
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError, UsageError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk_ars import ARS, Scored
from rlsdk_ars.episodes import EpisodeRequest, encoder_of, play_episodes
from rlsdk_ars.loss import search_step
from rlsdk_envs.toy import AnySpaceEnv, IdentityEnv, IdentityEnvMultiBinary, IdentityEnvMultiDiscrete, SimpleMultiObsEnv


def test_the_step_by_hand() -> None:
    deltas = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    plus, minus = torch.tensor([5.0, 1.0, 2.0]), torch.tensor([1.0, 9.0, 0.0])
    # the best scores of the directions are 5, 9 and 2: the step uses the first two directions
    step, deviation = search_step(deltas, plus, minus, top=2)
    assert float(deviation) == pytest.approx(np.std([5, 1, 1, 9], ddof=1))
    expected = (np.array([4.0, 0.0]) + np.array([0.0, -8.0])) / (2 * np.std([5, 1, 1, 9], ddof=1) + 1e-6)
    assert step.tolist() == pytest.approx(expected.tolist())


def test_an_update_equals_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")
    from stable_baselines3.common.logger import configure

    settings = {"n_delta": 6, "n_top": 3, "learning_rate": 0.03, "delta_std": 0.1, "seed": 0}
    theirs = sb3_contrib.ARS("LinearPolicy", "Pendulum-v1", **settings)
    theirs.set_logger(configure(None, []))
    ours = ARS("LinearPolicy", "Pendulum-v1", **settings)
    algorithm: Any = ours.parts.algorithm
    scores = torch.randn(12, generator=torch.Generator().manual_seed(4))
    seen: list[torch.Tensor] = []

    def evaluate(candidates: torch.Tensor, *args: Any) -> torch.Tensor:
        seen.append(candidates.clone())
        return scores

    monkeypatch.setattr(theirs, "evaluate_candidates", evaluate)
    theirs._setup_learn(100)
    theirs._do_one_update(None, None)
    (mine,) = [algorithm.propose(progress=0.0)]
    algorithm.deltas = (seen[0][:6] - seen[0][6:]) / 0.2  # the directions that sb3-contrib sampled
    algorithm.update(Scored(mine, scores, 100), progress=0.0)
    their_weights = torch.nn.utils.parameters_to_vector(theirs.policy.parameters())
    assert torch.allclose(algorithm.values, their_weights, atol=1e-6)


@pytest.mark.parametrize("policy", ["LinearPolicy", "MlpPolicy"])
@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([3, 2], start=[1, 0]),
        spaces.MultiBinary(4),
        spaces.Box(-2.0, np.array([1.0, 3.0], np.float32), (2,), np.float32),
    ],
    ids=lambda space: type(space).__name__,
)
def test_candidates_act_as_the_policy_does(space: Any, policy: str) -> None:
    env = AnySpaceEnv(spaces.Box(-1.0, 1.0, (5,), np.float32), space)
    model = ARS(policy, env, zero_policy=False, seed=1, policy_kwargs={"net_arch": [6]})
    plan: Any = model.parts.plan
    act = plan.make_act(model.parts.algorithm.values.numpy()[None])  # type: ignore[attr-defined]
    env.observation_space.seed(0)
    for _ in range(50):
        seen = env.observation_space.sample()
        mine = act(encoder_of(model.context.observation_space)(seen)[None])[0]
        theirs = model.predict(seen, deterministic=True)[0]
        assert space.contains(mine)
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("env", [IdentityEnvMultiDiscrete(2), IdentityEnvMultiBinary(2)])
def test_several_choices_are_learned(env: Any) -> None:
    model = ARS("LinearPolicy", env, n_delta=8, delta_std=0.1, learning_rate=0.1, seed=0).learn(40_000)
    assert run_episodes(model, type(env)(2), 5, seed=1).mean > 95.0


@pytest.mark.parametrize("width", [1, 3, 16])
@pytest.mark.parametrize("policy", ["LinearPolicy", "MlpPolicy"])
def test_outcomes_do_not_depend_on_what_is_played_beside(policy: str, width: int) -> None:
    """The result of a candidate does not depend on other episodes: here with different lengths, several episodes for
    each candidate, and more candidates than environments."""
    model = ARS(policy, "CartPole-v1", zero_policy=False, seed=3, policy_kwargs={"net_arch": [7]})
    plan: Any = model.parts.plan
    space, size = model.context.observation_space, len(model.parts.algorithm.values)  # type: ignore[attr-defined]
    rows = np.random.default_rng(0).standard_normal((11, size)).astype(np.float32)
    moments: dict[str, Any] = {"mean": np.full(4, 0.1), "factor": np.full(4, 2.0), "clip": 3.0}
    requests = [EpisodeRequest(row, (i, i + 100, i + 200), **moments) for i, row in enumerate(rows)]
    found = play_episodes(plan.make_act, space, [gymnasium.make("CartPole-v1") for _ in range(width)], requests)
    assert len({episode.length for result in found for episode in result.episodes}) > 5
    for request, result in zip(requests, found, strict=True):
        seen: list[Any] = []
        returns = [by_hand(plan.make_act(request.parameters[None]), seed, moments, seen) for seed in request.seeds]
        assert [episode.episode_return for episode in result.episodes] == returns
        assert [episode.length for episode in result.episodes] == list(map(int, returns))
        assert result.moments is not None
        assert result.moments.count == len(seen)
        assert np.array_equal(result.moments.mean, np.stack(seen).mean(0))
        assert np.array_equal(result.moments.squares, np.square(np.stack(seen) - np.stack(seen).mean(0)).sum(0))


def by_hand(act: Any, seed: int, moments: Any, seen: list[Any]) -> float:
    """The return of one episode that is played alone; its observations are appended to `seen`."""
    env, total, over = gymnasium.make("CartPole-v1"), 0.0, False
    observation = env.reset(seed=seed)[0].astype(np.float64)
    while not over:
        seen.append(observation)
        vector = np.clip((observation - moments["mean"]) * moments["factor"], -moments["clip"], moments["clip"])
        observation, reward, terminated, truncated, _ = env.step(act(vector[None])[0])
        observation, total, over = observation.astype(np.float64), total + float(reward), terminated or truncated
    return total


@pytest.mark.parametrize(
    ("answer", "message"),
    [(np.zeros(3, np.float32), "3 numbers, its space 4"), (np.float32(1.0), "1 numbers, its space 4")],
)
def test_an_observation_of_another_size_is_an_error(answer: Any, message: str) -> None:
    env = AnySpaceEnv(spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(2))
    model = ARS("LinearPolicy", env, seed=0)
    env.step = lambda action: (answer, 0.0, False, False, {})  # type: ignore[method-assign]
    with pytest.raises(EnvironmentFault, match=message):
        model.learn(100)


def weights(**settings: Any) -> torch.Tensor:
    kind, workers = settings.pop("kind", "sync"), settings.pop("workers", None)
    env = make_vec_env("Pendulum-v1", settings.pop("n_envs", 1), vectorization=kind, workers=workers)
    model = ARS("LinearPolicy", env, n_delta=3, seed=2, normalize={"norm_reward": False}, **settings).learn(2500)
    env.close()
    state = model.get_parameters()["policy"]
    return torch.cat([state["layers.0.weight"].flatten().double(), state["normalizer"]["observation"]["000"]["mean"]])


@pytest.mark.full
def test_the_result_is_the_same_to_the_bit_wherever_candidates_are_played() -> None:
    alone = weights()
    assert torch.equal(alone, weights(n_envs=3))
    assert torch.equal(alone, weights(kind="async", n_envs=2, workers=1))
    assert torch.equal(alone, weights(kind="async", n_envs=3, workers=3))
    assert torch.equal(alone, weights(kind="async", n_envs=5, workers=2))
    assert torch.equal(alone, weights(kind="processes", n_envs=2, workers=2))
    assert torch.equal(alone, weights(kind="in-process", n_envs=8))


class Mortal(IdentityEnv):
    """Kills its process in a step: once, if the file `flag` does not exist yet, or in every step."""

    flag: Path
    always = False

    def step(self, action: Any) -> Any:
        if self.always:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return super().step(action)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def mortal(flag: Path, always: bool = False) -> Any:
    env = Mortal(3, episode_length=5)
    env.flag, env.always = flag, always
    return env


def test_a_death_costs_a_candidate_nothing_and_two_deaths_are_an_error(tmp_path: Path) -> None:
    def train(make: Any) -> torch.Tensor:
        env = make_vec_env(make, 2, vectorization="async", workers=2)
        model = ARS("LinearPolicy", env, n_delta=4, seed=1).learn(200)
        env.close()
        return torch.cat([p.flatten() for p in model.policy.parameters()])

    spared = tmp_path / "spared"
    spared.touch()
    assert torch.equal(train(lambda: mortal(spared)), train(lambda: mortal(tmp_path / "once")))
    with pytest.raises(EnvironmentFault, match="ended its process twice"):
        train(lambda: mortal(spared, always=True))


@pytest.mark.parametrize("policy", ["LinearPolicy", "MlpPolicy"])
@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
@pytest.mark.parametrize("squash", [True, False])
def test_candidates_act_as_the_policy_would(policy: str, env: str, squash: bool) -> None:
    model = ARS(policy, env, seed=0, zero_policy=False, policy_kwargs={"squash_output": squash, "net_arch": [8]})
    plan: Any = model.parts.plan
    act = plan.make_act(model.parts.algorithm.values.numpy()[None])  # type: ignore[attr-defined]
    model.observation_space.seed(0)
    for _ in range(20):
        seen = np.clip(model.observation_space.sample(), -5, 5)
        mine = act(encoder_of(model.context.observation_space)(seen)[None])[0]
        assert np.allclose(mine, model.predict(seen)[0], atol=1e-5)


def test_a_linear_policy_has_no_bias_and_starts_at_zero() -> None:
    model = ARS("LinearPolicy", "Pendulum-v1", seed=0)
    assert [name for name, _ in model.policy.named_parameters()] == ["layers.0.weight"]
    assert not any(bool(p.any()) for p in model.policy.parameters())
    assert any(bool(p.any()) for p in ARS("MlpPolicy", "Pendulum-v1", zero_policy=False).policy.parameters())


def test_the_offset_changes_scores_and_not_what_is_reported() -> None:
    seen: list[Any] = []

    def run(offset: float) -> tuple[list[float], torch.Tensor]:
        model = ARS("LinearPolicy", "CartPole-v1", seed=0, n_delta=2, alive_bonus_offset=offset)
        seen.clear()
        model.learn(30, callback=LambdaCallback(on_episode=lambda run, episode: seen.append(episode)))
        return [e.episode_return for e in seen], model.parts.algorithm.values.clone()  # type: ignore[attr-defined]

    plain, without = run(0.0)
    shifted, with_offset = run(-1.0)
    assert plain[:4] == shifted[:4]  # the first round, before any update
    assert not torch.equal(without, with_offset)
    assert not bool(with_offset.any())  # every step has the score 1 - 1, so that no direction is better


def test_bad_settings() -> None:
    with pytest.warns(UserWarning, match="n_top = 9 is more than n_delta = 8"):
        assert ARS("LinearPolicy", "CartPole-v1", n_top=9).n_top == 8
    with pytest.raises(SettingsError, match="in numpy"):
        ARS("MlpPolicy", "CartPole-v1", policy_kwargs={"activation_fn": "selu"})
    with pytest.raises(SettingsError, match="frame_stack is not possible"):
        ARS("MlpPolicy", "CartPole-v1", frame_stack=2)
    with pytest.raises(SettingsError, match="images"):
        ARS("MlpPolicy", SimpleMultiObsEnv())
    env = make_vec_env("CartPole-v1", 2, vectorization="native")
    with pytest.raises(UsageError, match="needs single environments"):
        ARS("LinearPolicy", env).learn(10)
