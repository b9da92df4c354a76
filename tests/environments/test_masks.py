"""Action masks: their sources in environments, their use by policies, and errors for invalid masks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.agent.agent_file import inspect_file
from rlsdk.environments import make_vec_env, to_space
from rlsdk.environments.adapters.masks import MaskRule
from rlsdk.errors import EnvironmentFault, MaskError
from rlsdk.evaluation.evaluate import run_episodes
from rlsdk.registry import unregister
from rlsdk_envs import ActionMasker
from rlsdk_envs.toy import IdentityEnv, InvalidActionEnvDiscrete, InvalidActionEnvMultiBinary
from rlsdk_tqc import TQC
from tests.small_algorithms import register_reinforce
from tests.tables import in_one_test


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_reinforce(action_masks="required")
    yield
    unregister("reinforce")


class Scripted(gymnasium.Env[Any, Any]):
    """Episodes of `len(script)` steps. The mask at step t is `script[t]`, from the method `action_masks` or from the info."""

    observation_space = spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, script: list[Any], source: str, last: Any = (1, 1, 1)) -> None:
        self.script, self.source, self.last, self.t = script, source, last, 0
        if source == "method":
            self.action_masks = self.mask

    def mask(self) -> Any:
        return np.array(self.script[self.t] if self.t < len(self.script) else self.last, dtype=bool)

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.mask()} if self.source == "info" else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.array([0.0], np.float32), self.info()

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t == len(self.script)
        return np.array([self.t], np.float32), 0.0, False, over, self.info()


SCRIPT = [[1, 0, 0], [0, 1, 0], [0, 1, 1]]


@pytest.mark.parametrize("source", ["method", "info"])
@pytest.mark.parametrize("kind", ["sync", "async", "gymnasium"])
def test_masks_arrive_with_their_observation(source: str, kind: str) -> None:
    if kind == "gymnasium":
        if source == "method":
            pytest.skip("gymnasium's vector environments pass infos on, not methods")
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        from rlsdk.environments import connect

        makers = [lambda: Scripted(SCRIPT, source, last=[0, 0, 0])] * 2
        env: Any = connect(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
    else:
        env = make_vec_env(lambda: Scripted(SCRIPT, source, last=[0, 0, 0]), 2, vectorization=kind)
    seen = env.reset(0)
    for t in range(8):
        assert seen.action_mask.dtype == torch.bool
        assert seen.action_mask.int().tolist() == [SCRIPT[t % 3]] * 2
        step = env.step(torch.zeros(2, dtype=torch.int64))
        seen = step.observation
        if step.final_observation is not None:  # the last mask of an episode is all 0 here and becomes all 1
            assert step.final_observation.action_mask.all()
    env.close()


def test_a_next_step_vector_environment_has_masks_too() -> None:
    from gymnasium.vector import SyncVectorEnv

    from rlsdk.environments import connect

    env = connect(SyncVectorEnv([lambda: Scripted(SCRIPT, "info", last=[0, 0, 0])] * 2))
    seen = env.reset(0)
    rows = []
    for _ in range(9):
        step = env.step(torch.zeros(2, dtype=torch.int64))
        rows += [] if not bool(step.valid.all()) else [seen.action_mask.int().tolist()[0]]  # type: ignore[union-attr]
        seen = step.observation
    assert rows[:6] == SCRIPT * 2


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_an_episode_that_is_over_may_forbid_all_values_of_one_choice(mode: str) -> None:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from rlsdk.environments import connect

    class Two(Scripted):
        action_space: Any = spaces.MultiDiscrete([2, 2])

    script = [[1, 0, 1, 1], [1, 1, 0, 1]]
    makers = [lambda: Two(script, "info", last=[1, 1, 0, 0])] * 2
    env = connect(SyncVectorEnv(makers, autoreset_mode=AutoresetMode[mode]))
    env.reset(0)
    env.step(torch.zeros(2, 2, dtype=torch.int64))
    step = env.step(torch.zeros(2, 2, dtype=torch.int64))
    assert step.final_observation is not None
    assert step.final_observation.action_mask is not None
    assert step.final_observation.action_mask.all()


def test_policies_obey_them_everywhere() -> None:
    agent = rlsdk.make("reinforce", env=make_vec_env(InvalidActionEnvDiscrete, 2), seed=1, n_steps=50)
    agent.learn(400)
    for rollout in agent.parts.algorithm.rollouts:  # type: ignore[attr-defined]
        allowed = rollout.steps.observation.action_mask.gather(-1, rollout.steps.action.unsqueeze(-1))
        assert bool(allowed.all())
        assert rollout.steps.observation.action_mask.element_size() == 1

    class Strict(InvalidActionEnvDiscrete):
        def step(self, action: Any) -> Any:
            assert self.action_masks()[action]
            return super().step(action)

    run_episodes(agent, Strict(), 2, deterministic=False)
    env = Strict()
    seen, _ = env.reset(seed=2)
    session = agent.session(1, deterministic=False)
    for _ in range(50):
        seen, *_ = env.step(session.act(seen, action_masks=env.action_masks()))
        action, _ = agent.predict(seen, action_masks=env.action_masks())
        assert env.action_masks()[action]


def test_predict_refuses_to_go_without() -> None:
    agent = rlsdk.make("reinforce", env=InvalidActionEnvDiscrete(4, 1), seed=1)
    seen = agent.observation_space.sample()
    with pytest.raises(MaskError, match="needs the current action masks"):
        agent.predict(seen)
    agent.predict(seen, action_masks="none")
    with pytest.raises(MaskError, match=r"shape \(3,\); this action space needs \(4,\)"):
        agent.predict(seen, action_masks=[1, 1, 1])
    with pytest.raises(MaskError, match="allows no action"):
        agent.predict(seen, action_masks=[0, 0, 0, 0])
    with pytest.raises(MaskError, match="accepted: true and false"):
        agent.predict(seen, action_masks=[0.5, 1, 1, 1])
    with pytest.raises(MaskError, match="1 action masks for 2 observations"):
        agent.predict(np.stack([seen, seen]), action_masks=[1, 1, 1, 1])
    tqc = TQC("MlpPolicy", "Pendulum-v1", buffer_size=10)
    with pytest.raises(MaskError, match="does not use action masks"):
        tqc.predict(np.zeros(3, np.float32), action_masks=[True])


@in_one_test
@pytest.mark.parametrize(
    ("name", "masked"), [("maskable-ppo", True), *itertools.product(["qrdqn", "acer", "ars"], [True, False])]
)
def test_parts_and_files_know_whether_there_are_masks(name: str, masked: bool, tmp_path: Path) -> None:
    """Buffers ask for their memory, and a loaded agent expects masks where it was trained with them."""
    env = InvalidActionEnvDiscrete(4, 2) if masked else IdentityEnv(4)
    agent = rlsdk.make(name, env=env, seed=0)
    uses = masked and name != "ars"
    assert agent.context.masks == uses
    agent.save(tmp_path / "agent")
    assert inspect_file(tmp_path / "agent.rlsdk").get("action_masks", False) is uses
    assert rlsdk.load(tmp_path / "agent").trains_with_masks == uses


def test_masks_in_an_attribute_are_refused() -> None:
    """They would be ignored without a message."""

    class Fixed(IdentityEnv):
        action_masks = np.array([True, False, True, True])

    for made in (lambda: Fixed(4), lambda: gymnasium.wrappers.TimeLimit(Fixed(4), 5)):
        with pytest.raises(MaskError, match=r"Fixed\.action_masks is array.*def action_masks\(self\)"):
            rlsdk.make("ppo", env=made())


def test_an_environment_without_masks_is_refused_at_once() -> None:
    with pytest.raises(MaskError, match="the environment offers none"):
        rlsdk.make("reinforce", env=IdentityEnv(4))
    rlsdk.make("reinforce", env=ActionMasker(IdentityEnv(4), lambda env: [True] * 4))
    agent = rlsdk.make("reinforce", env=Scripted(SCRIPT, "info"))
    with pytest.raises(MaskError, match="offers none"):
        run_episodes(agent, Scripted(SCRIPT, "nowhere"), 1)
    with pytest.raises(MaskError, match="offers none"):
        agent.set_env(Scripted(SCRIPT, "nowhere"))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_bad_masks_name_the_environment(kind: str) -> None:
    def failing(script: list[Any], source: str = "method") -> Any:
        env = make_vec_env(lambda: Scripted(script, source), 2, vectorization=kind)
        env.reset(0)
        for _ in range(3):
            env.step(torch.zeros(2, dtype=torch.int64))

    with pytest.raises(MaskError, match=r"environment 'Scripted'.*step: the action mask of environment 0 allows no"):
        failing([[1, 1, 1], [0, 0, 0], [1, 1, 1]])
    with pytest.raises(MaskError, match=r"environment 'Scripted' \(number 0\).*shape \(2,\)"):
        failing([[1, 1, 1], [1, 1], [1, 1, 1]])

    class Forgetful(Scripted):
        def info(self) -> dict[str, Any]:
            return super().info() if self.t != 1 else {}

    env = make_vec_env(lambda: Forgetful(SCRIPT, "info"), 2, vectorization=kind)
    env.reset(0)
    with pytest.raises(EnvironmentFault, match="gave an 'action_mask' in its info before, but not now"):
        env.step(torch.zeros(2, dtype=torch.int64))
    env.close()


def test_the_rule_knows_every_space() -> None:
    def size(space: Any) -> int:
        return MaskRule(to_space(space)).size

    assert size(spaces.Discrete(5, start=3)) == 5
    assert size(spaces.MultiDiscrete([2, 3])) == 5
    assert size(spaces.MultiBinary(3)) == 6
    assert size(spaces.Box(-1, 1, (2,))) == 0
    nested = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Box(0, 1, (1,)), spaces.MultiBinary(1)])})
    assert size(nested) == 4
    rule = MaskRule(to_space(spaces.MultiDiscrete([2, 3])))
    rule.require_choice(np.array([[1, 0, 0, 0, 1]], bool))
    with pytest.raises(MaskError, match="environment 1"):
        rule.require_choice(np.array([[1, 0, 0, 0, 1], [1, 1, 0, 0, 0]], bool))
    env = make_vec_env(lambda: InvalidActionEnvMultiBinary(4, 2), 1)
    assert env.reset(0).action_mask.shape == (1, 8)  # type: ignore[union-attr]
