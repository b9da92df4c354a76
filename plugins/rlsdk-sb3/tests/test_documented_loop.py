"""The loop of stable-baselines3 over `model.get_env()`: numpy arrays in and out, without disturbing training."""

from __future__ import annotations

import time
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlsdk
from rlsdk.callbacks import Callback
from rlsdk.environments import connect, make_vec_env
from rlsdk.errors import MaskError, UsageError
from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk.spaces import Dict as DictSpace
from rlsdk_envs.toy import AnySpaceEnv, BitFlippingEnv, ChainEnv, IdentityEnv, InvalidActionEnvDiscrete
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_sb3 import NumpyVectorEnv, get_action_masks, is_masking_supported
from rlsdk_sb3.vector import to_actions
from rlsdk_trpo import TRPO

KINDS = ("sync", "async", "next-step", "same-step")
SMALL: dict[str, Any] = {"n_steps": 8, "policy_kwargs": {"net_arch": [4]}, "seed": 0}


def environments(make: Any, kind: str, count: int = 2) -> Any:
    if kind in ("sync", "async"):
        return make_vec_env(make, count, vectorization=kind)
    mode = AutoresetMode.NEXT_STEP if kind == "next-step" else AutoresetMode.SAME_STEP
    return SyncVectorEnv([make] * count, autoreset_mode=mode)


class ReportingEnv(ChainEnv):
    """A chain that puts entries into its infos, and that can be rendered."""

    metadata = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012
    shown = 0

    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0], {"fresh": True}

    def step(self, action: Any) -> Any:
        *given, _ = super().step(action)
        return (*given, {"position": self.position, "is_success": True})

    def render(self) -> Any:
        if self.render_mode == "human":
            self.shown += 1
            return None
        return np.full((2, 3, 3), self.position, np.uint8) if self.render_mode == "rgb_array" else None


@pytest.mark.parametrize("kind", KINDS)
def test_the_documented_loop(kind: str) -> None:
    envs = environments(lambda: ReportingEnv(5), kind)
    model = RecurrentPPO("MlpLstmPolicy", envs, n_steps=8, batch_size=16, policy_kwargs={"lstm_hidden_size": 4}, seed=0)
    vec_env = model.get_env()
    assert vec_env is not None
    assert vec_env is model.get_env()
    obs = vec_env.reset()
    assert isinstance(obs, np.ndarray)
    lstm_states, episode_starts, ends = None, np.ones((vec_env.num_envs,), dtype=bool), 0
    for t in range(1, 13):
        action, lstm_states = model.predict(obs, state=lstm_states, episode_start=episode_starts, deterministic=True)
        obs, rewards, dones, infos = vec_env.step(action)
        episode_starts = dones
        assert obs.shape == (2, 2)
        assert obs.dtype == rewards.dtype == np.float32
        assert dones.dtype == np.bool_
        assert len(infos) == 2
        for i in np.flatnonzero(dones):
            ends += 1
            assert infos[i]["terminal_observation"][1] == 5.0
            assert infos[i]["episode"]["r"] == 10.0
            assert infos[i]["episode"]["l"] == 5
            assert 0.0 < infos[i]["episode"]["t"] < 60.0
            assert infos[i]["is_success"]
            assert infos[i]["position"] == 5
            assert isinstance(infos[i]["TimeLimit.truncated"], bool)
        if not dones.any() and kind != "next-step":
            assert infos[0]["position"] == infos[1]["position"] == (t - 1) % 5 + 1
            assert "terminal_observation" not in infos[0]
    assert ends == 4
    vec_env.reset()
    assert vec_env.reset_infos == [{"fresh": True}] * 2
    vec_env.close()


def test_time_limits_are_told_from_ends() -> None:
    vec_env = NumpyVectorEnv(make_vec_env(lambda: ChainEnv(3), 1, seed=0))
    vec_env.reset()
    truncated = []
    for _ in range(12):
        infos = vec_env.step(np.zeros((1, 1)))[3]
        truncated.append(infos[0]["TimeLimit.truncated"])
    assert np.flatnonzero(truncated).tolist() == [5, 11], "every info has it, also inside an episode"


def test_seconds_of_episodes_count_from_the_beginning_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    vec_env = NumpyVectorEnv(make_vec_env(lambda: ChainEnv(3), 1, seed=0))
    vec_env.reset()
    infos = [vec_env.step(np.zeros((1, 1)))[3][0] for _ in range(12)]
    seconds = [info["episode"]["t"] for info in infos if "episode" in info]
    assert len(seconds) == 4
    assert seconds == sorted(set(seconds)), "as in monitor files: a running clock, not the time of one episode"


ACTIONS = {
    "box": spaces.Box(-2.0, 2.0, (2, 2), np.float32),
    "box of integers": spaces.Box(0, 9, (2,), np.int64),
    "discrete": spaces.Discrete(3, start=5),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "multi-binary": spaces.MultiBinary(3),
    "dict": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
}
OBSERVATION = spaces.Dict(
    {
        "vector": spaces.Box(-1.0, 1.0, (2,), np.float64),
        "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
        "both": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)]),
    }
)


@pytest.mark.parametrize("kind", ["sync", "async", "same-step"])
@pytest.mark.parametrize("action", [name for name in ACTIONS if name != "box of integers"])
def test_actions_and_observations_of_every_kind(action: str, kind: str) -> None:
    flat = spaces.Dict({key: OBSERVATION[key] for key in ("vector", "image")})
    envs = environments(lambda: AnySpaceEnv(flat, ACTIONS[action], 4), kind)
    model = TRPO("MultiInputPolicy", envs, **{**SMALL, "n_steps": 4})
    vec_env = model.get_env()
    assert vec_env is not None
    obs = vec_env.reset()
    for _ in range(6):
        chosen, _ = model.predict(obs)
        obs, _, dones, infos = vec_env.step(chosen)
        assert obs["image"].shape == (2, 36, 36, 1)
        assert obs["image"].dtype == np.uint8
        assert obs["vector"].dtype == np.float64
        for i in np.flatnonzero(dones):
            assert flat.contains(infos[i]["terminal_observation"])
    vec_env.close()


def test_nested_observations_and_actions_given_by_hand() -> None:
    for name, space in ACTIONS.items():
        vec_env = NumpyVectorEnv(make_vec_env(lambda space=space: AnySpaceEnv(OBSERVATION, space, 4), 2))
        obs = vec_env.reset()
        assert obs["both"][0].shape == (2,)
        rows = [space.sample(), space.sample()]
        vec_env.step(rows)  # a list with one action per environment
        nested = name in ("dict", "tuple")
        if not nested:
            vec_env.step(np.stack(rows))
            vec_env.step(torch.from_numpy(np.stack(rows)))
        elif name == "dict":
            vec_env.step({key: np.stack([row[key] for row in rows]) for key in space})
        else:
            vec_env.step(tuple(np.stack(column) for column in zip(*rows, strict=True)))
        vec_env.step_async(rows)
        assert len(vec_env.step_wait()) == 4
        with pytest.raises(UsageError, match="step_async"):
            vec_env.step_wait()
        for wrong in (rows[:1], [*rows, rows[0]], None, "up", [["a"], ["b"]]):
            with pytest.raises(UsageError, match="actions"):
                vec_env.step(wrong)
    with pytest.raises(UsageError, match=r"actions\['a'\] are .* of shape \(2,\)"):
        to_actions(DictSpace({"a": connect(IdentityEnv(2)).action_space}), [{"a": 0.5}, {"a": 1}], 2)


@pytest.mark.parametrize("kind", ["sync", "async", "same-step"])
def test_attributes_methods_and_wrappers(kind: str) -> None:
    def make() -> Any:
        return gymnasium.wrappers.TimeLimit(ReportingEnv(5), 3)

    vec_env = NumpyVectorEnv(connect(environments(make, kind)))
    assert vec_env.num_envs == 2
    assert vec_env.unwrapped is vec_env
    assert vec_env.get_attr("length") == [5, 5]
    vec_env.set_attr("length", 7, indices=[1])
    assert vec_env.get_attr("length") == [5, 7]
    assert vec_env.env_method("terminates", 0, indices=0) == [True]
    assert vec_env.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [True, True]
    assert vec_env.env_is_wrapped("TimeLimit", indices=1) == [True]
    assert vec_env.env_is_wrapped(gymnasium.wrappers.ClipAction) == [False, False]
    assert vec_env.has_attr("length")
    assert not vec_env.has_attr("width")
    assert isinstance(vec_env.observation_space, spaces.Box)
    assert isinstance(vec_env.action_space, spaces.Box)
    vec_env.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_seeds(kind: str) -> None:
    vec_env = NumpyVectorEnv(make_vec_env(lambda: IdentityEnv(100), 2, vectorization=kind))
    seen = []
    for seed in (3, 3, 4):
        assert vec_env.seed(seed) == [seed, seed]
        first = vec_env.reset()
        assert first.dtype == np.int64
        seen.append([*first, *vec_env.step(first)[0]])
    assert seen[0] == seen[1] != seen[2]
    vec_env.close()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_pictures(kind: str) -> None:
    vec_env = NumpyVectorEnv(make_vec_env(lambda: ReportingEnv(5), 3, vectorization=kind))
    vec_env.reset()
    vec_env.step(np.zeros((3, 1)))
    pictures = vec_env.get_images()
    assert [picture.shape for picture in pictures] == [(2, 3, 3)] * 3
    assert vec_env.render("rgb_array").shape == (4, 6, 3)
    assert vec_env.render_mode is None, "the environments are as they were made"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert vec_env.render("human") is None
    assert bool(caught) == (kind == "async"), "windows of other processes cannot be opened"
    assert vec_env.get_attr("shown") == ([1, 1, 1] if kind == "sync" else [0, 0, 0])
    with pytest.raises(UsageError, match=r"'ansi' is not theirs: .*render_mode=None; accepted: 'human', 'rgb_array'"):
        vec_env.render(mode="ansi")
    vec_env.close()
    text = NumpyVectorEnv(make_vec_env("FrozenLake-v1", 2, env_kwargs={"render_mode": "ansi"}, vectorization=kind))
    text.reset()
    assert text.render(mode="ansi") is text.render() is None
    text.close()
    IdentityEnv(3).render(mode="human")
    blind = NumpyVectorEnv(connect(ChainEnv(3)))
    assert blind.get_images() == [None]
    with pytest.warns(UserWarning, match="nothing is shown: the environment has no render mode 'human'"):
        blind.render()


# --- training continues --------------------------------------------------------------------------------------------------


def weights(model: Any) -> Any:
    return torch.cat([p.detach().flatten() for p in model.policy.parameters()])


def first_observations(model: Any) -> Any:
    """The (observations, episode starts) with which the next training begins."""
    seen = []

    class First(Callback):
        def on_rollout_start(self, run: Any) -> None:
            seen.append(run.agent.acting[0].observation)

    model.learn(8, callback=First(), reset_num_timesteps=False)
    return seen[0].features.clone(), seen[0].is_first.clone()


def by_facade(model: Any) -> None:
    model.get_env().reset()
    model.get_env().step(np.zeros((model.get_env().num_envs, 1)))


def by_method(model: Any) -> None:
    model.get_env().env_method("reset", seed=1)


def by_hand(model: Any) -> None:
    model.env.environments[0].reset(seed=1)
    model.env.environments[0].step(np.zeros(1))


def by_another_agent(model: Any) -> None:
    TRPO("MlpPolicy", model.env.environments[0], **SMALL).learn(8)


def by_another_agent_of_the_vector(model: Any) -> None:
    TRPO("MlpPolicy", model.get_env(), **SMALL).learn(8)


def by_evaluation(model: Any) -> None:
    evaluate_policy(model, model.get_env(), 1)


def by_a_round_that_fails(model: Any) -> None:
    class Failing(Callback):
        watches_steps = True

        def on_step(self, run: Any, step: Any) -> None:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        model.learn(8, callback=Failing())


USES = [
    by_facade,
    by_method,
    by_hand,
    by_another_agent,
    by_another_agent_of_the_vector,
    by_evaluation,
    by_a_round_that_fails,
]


@pytest.mark.parametrize("use", USES)
def test_training_begins_new_episodes_after_the_environments_were_moved(use: Any) -> None:
    model = TRPO("MlpPolicy", gymnasium.wrappers.TimeLimit(ChainEnv(50), 40), **SMALL).learn(12)
    use(model)
    features, first = first_observations(model)
    assert first.all(), "the training took up episodes that are over"
    assert features[0, 1] == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_where_nothing_was_moved(kind: str) -> None:
    model = TRPO("MlpPolicy", environments(lambda: ChainEnv(50), kind), **SMALL).learn(16)
    vec_env = model.get_env()
    assert vec_env is not None
    vec_env.get_attr("length") if kind != "async" else vec_env.env_method("terminates", 0)
    vec_env.has_attr("length")
    features, first = first_observations(model)
    assert not first.any()
    assert features[:, 1].tolist() == [8.0, 8.0]
    vec_env.reset()
    features, first = first_observations(model)
    assert first.all()
    model.env.close()


def test_a_file_written_after_the_environments_were_moved_holds_no_episodes(tmp_path: Any) -> None:
    model = TRPO("MlpPolicy", ChainEnv(50), **SMALL).learn(8)
    by_hand(model)
    model.save(tmp_path / "moved")
    loaded = TRPO.load(tmp_path / "moved", env=ChainEnv(50), force_reset=False)
    assert first_observations(loaded)[1].all()


def test_a_running_training_is_not_disturbed() -> None:
    class Meddling(Callback):
        def on_rollout_end(self, run: Any, *_: Any) -> None:
            with pytest.raises(UsageError, match="a training is running in this environment"):
                run.agent.get_env().reset()
            assert run.agent.get_env().get_attr("length") == [50]

    a, b = (TRPO("MlpPolicy", ChainEnv(50), **SMALL) for _ in range(2))
    assert torch.equal(weights(a.learn(32, callback=Meddling())), weights(b.learn(32)))


def test_everything_takes_it() -> None:
    model = TRPO("MlpPolicy", "CartPole-v1", **SMALL).learn(8)
    vec_env = model.get_env()
    another = TRPO("MlpPolicy", vec_env, **SMALL)
    assert another.env is model.env
    model.set_env(vec_env)
    assert evaluate_policy(model, vec_env, 2)[0] > 0
    assert is_masking_supported(vec_env) is False
    with pytest.raises(MaskError, match="no method 'action_masks'"):
        get_action_masks(vec_env)
    goals = NumpyVectorEnv(make_vec_env(lambda: BitFlippingEnv(4), 2))
    assert goals.env_method("compute_reward", np.zeros(4), np.zeros(4), {}, indices=0) == [0.0]


@pytest.mark.parametrize("kind", ["sync", "async", "same-step"])
def test_masks_of_the_loop(kind: str) -> None:
    envs = environments(lambda: InvalidActionEnvDiscrete(6, 3), kind)
    if kind == "same-step":  # gymnasium's vector environments give masks in their infos
        envs.close()
        envs = make_vec_env(lambda: InvalidActionEnvDiscrete(6, 3), 2, vectorization="sync")
    model = MaskablePPO("MlpPolicy", envs, n_steps=8, batch_size=8, seed=0)
    vec_env = model.get_env()
    assert vec_env is not None
    assert is_masking_supported(vec_env)
    obs = vec_env.reset()
    for _ in range(5):
        masks = get_action_masks(vec_env)
        assert masks.shape == (2, 6)
        action, _ = model.predict(obs, action_masks=masks)
        assert masks[np.arange(2), action].all()
        obs, *_ = vec_env.step(action)
    vec_env.close()
    one = InvalidActionEnvDiscrete(6, 3)
    one.reset(seed=0)
    assert is_masking_supported(one)
    assert get_action_masks(one).sum() == 3
    assert not is_masking_supported(ChainEnv())
    with pytest.raises(MaskError, match="ChainEnv has no method 'action_masks'"):
        get_action_masks(ChainEnv())


def test_what_is_played_by_an_executor_has_no_steps() -> None:
    model = rlsdk.make("ars", env=make_vec_env("CartPole-v1", 2, vectorization="in-process"))
    with pytest.raises(UsageError, match="plays whole episodes"):
        model.get_env().reset()
    model.env.close()
    with pytest.raises(UsageError, match="not in this process"):
        _ = NumpyVectorEnv(make_vec_env("CartPole-v1", 2, vectorization="async")).envs
