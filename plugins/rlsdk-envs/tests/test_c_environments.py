"""Environments in C that write into arrays of the caller. The tests need a C compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlsdk.environments.states import OpaqueValue
from rlsdk.environments.states.capture import read_state
from rlsdk.errors import EnvironmentFault, SettingsError, UnsupportedSpaceError, UsageError
from rlsdk_envs import make_c_vec_env
from rlsdk_envs.c_vector import FUNCTIONS, CVectorEnv
from rlsdk_kernels import compiled_library
from rlsdk_ppo import PPO

SOURCE = Path(__file__).parents[3] / "examples" / "c_environment" / "cartpole.c"
SPACES: dict[str, Any] = {
    "observation_space": spaces.Box(-np.inf, np.inf, (4,)),
    "action_space": spaces.Discrete(2),
}


def compiled(source: Path, folder: Path) -> Path:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler")
    library = folder / f"{source.stem}.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", str(library), str(source), "-lm"], check=True)
    return library


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("cartpole"))


def test_it_moves_as_gymnasiums_cartpole(cartpole: Path) -> None:
    env = CVectorEnv(cartpole, 3, SPACES["observation_space"], SPACES["action_space"])
    theirs: list[Any] = [gymnasium.make("CartPole-v1") for _ in range(3)]
    for their in theirs:
        their.reset()
    seen, new, over = np.array(env.reset(seed=5)[0]), np.ones(3, bool), np.zeros(3, bool)
    generator, lengths = np.random.default_rng(0), []
    for _ in range(1200):
        for i in np.flatnonzero(new):
            theirs[i].reset()
        # gymnasium's environments start each step from our state: rounding errors grow while a pole falls
        for i in range(3):
            theirs[i].unwrapped.state = seen[i].astype(np.float64)
        # one pole is balanced and reaches the time limit, the others fall
        actions = np.where(np.arange(3) == 0, seen @ [0.1, 0.3, 3.0, 1.0] > 0.0, generator.integers(0, 2, 3))
        given: Any = env.step(actions)
        seen, rewards, terminated, truncated = (array.copy() for array in given[:4])
        for i in np.flatnonzero(~over):
            wanted, reward, *flags, _ = theirs[i].step(int(actions[i]))
            np.testing.assert_allclose(seen[i], wanted, atol=1e-5)
            assert [rewards[i], terminated[i], truncated[i]] == [reward, *flags]
        ended = terminated | truncated
        lengths += [int(theirs[i]._elapsed_steps) for i in np.flatnonzero(ended)]
        assert not ended[over].any()
        assert not rewards[over].any()
        new, over = over, ended
    assert max(lengths) == 500
    assert min(lengths) < 100


def test_seeds_repeat_and_differ(cartpole: Path) -> None:
    env, other = (make_c_vec_env(cartpole, 4, seed=3, **SPACES) for _ in range(2))
    first = env.reset().features
    assert torch.equal(first, other.reset().features)
    assert len(first.unique(dim=0)) == 4
    assert not torch.equal(first, env.reset().features)  # a reset without a seed continues the random numbers
    assert torch.equal(env.reset(7).features, other.reset(7).features)
    assert not torch.equal(env.reset(7).features, env.reset(8).features)


def test_a_time_limit_is_not_a_termination(cartpole: Path) -> None:
    env = make_c_vec_env(cartpole, 2, seed=0, **SPACES)
    seen, weights, ends = env.reset().features, torch.tensor([0.1, 0.3, 3.0, 1.0]), []
    for _ in range(1010):
        step = env.step((seen @ weights > 0).long())  # type: ignore[operator]
        ends += [(int(e.length), e.episode_return) for e in step.episodes]
        if step.episodes:
            assert bool(step.truncated.any())
            assert not bool(step.terminated.any())
            assert step.final_observation is not None
            following = env.step(torch.zeros(2, dtype=torch.int64))
            assert bool((~following.valid == step.truncated).all())
            assert not torch.equal(following.observation.features, step.final_observation.features)
            step = following
        seen = step.observation.features
    assert len(ends) >= 2
    assert set(ends) == {(500, 500.0)}


def test_ppo_learns(cartpole: Path) -> None:
    env = make_c_vec_env(cartpole, 16, **SPACES)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=256, n_epochs=10, learning_rate=1e-3, seed=0)
    model.learn(40_000)
    assert np.mean([e["r"] for e in model.ep_info_buffer]) > 100
    with pytest.raises(OpaqueValue, match=r"cartpole\.so"):
        read_state(env)
    env.close()
    env.close()
    with pytest.raises(UsageError, match=r"^the environments of .* are closed; make new ones"):
        env.reset()


@pytest.mark.full
def test_the_example_trains(cartpole: Path) -> None:
    command = [sys.executable, str(SOURCE.with_name("train.py")), "4096"]
    assert "mean return" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_what_does_not_fit_is_refused_in_one_line(cartpole: Path, tmp_path: Path) -> None:
    other: dict[str, Any] = {**SPACES, "observation_space": spaces.Box(-1, 1, (5,))}
    nested: dict[str, Any] = {**SPACES, "observation_space": spaces.Dict({"a": spaces.Discrete(2)})}
    doubles: dict[str, Any] = {**SPACES, "action_space": spaces.Box(-1, 1, (2,))}
    lacking, failing = tmp_path / "lacking.c", tmp_path / "failing.c"
    lacking.write_text("void vec_step(void *environments) { (void)environments; }\n")
    source = SOURCE.read_text()
    failing.write_text(source.replace("return all;", "free(all); return 0;", 1))
    missing = ", ".join(name for name in FUNCTIONS if name != "vec_step")
    cases: list[tuple[type[Exception], str, Path, Any, dict[str, Any]]] = [
        (EnvironmentFault, "cannot be loaded: .*; compile it", tmp_path / "none.so", 2, SPACES),
        (EnvironmentFault, "cannot be loaded", lacking, 2, SPACES),
        (EnvironmentFault, f"exports no {missing}; it needs", compiled(lacking, tmp_path), 2, SPACES),
        (EnvironmentFault, "has observations of 16 bytes, but .* 20 bytes; give the space", cartpole, 2, other),
        (EnvironmentFault, "vec_init returned NULL for 2 environments", compiled(failing, tmp_path), 2, SPACES),
        (UnsupportedSpaceError, "observation_space is a Dict", cartpole, 2, nested),
        (SettingsError, "n_envs = 0 must be a positive whole number", cartpole, 0, SPACES),
    ]
    for kind, text, library, count, given in cases:
        with pytest.raises(kind, match=text) as caught:
            make_c_vec_env(library, count, **given)
        assert "\n" not in str(caught.value)
    vector = CVectorEnv(cartpole, 2, SPACES["observation_space"], SPACES["action_space"])
    with pytest.raises(UsageError, match=r"actions have shape \(3,\); these environments take \(2,\)"):
        vector.step(np.zeros(3))
    with pytest.raises(SettingsError, match="seed = -1 must be from 0"):
        vector.reset(seed=-1)
    # accepted: both action spaces take the same number of bytes
    make_c_vec_env(cartpole, 2, **{**SPACES, "action_space": doubles["action_space"]})


def test_a_library_that_was_cut_off(cartpole: Path, tmp_path: Path) -> None:
    """The system would load a part of it, and end the process by a signal. The compiled kernels are loaded the same way."""
    data, cut = cartpole.read_bytes(), tmp_path / "cut.so"
    for count in (0, 10, 64, 3000, len(data) // 2, len(data) - 1):
        cut.write_bytes(data[:count])
        with pytest.raises(EnvironmentFault, match=r"cut\.so' cannot be loaded: .*; compile it") as caught:
            make_c_vec_env(cut, 2, **SPACES)
        assert "\n" not in str(caught.value)
        assert compiled_library.load(cut) is None
    assert f"the file is cut off: it has {len(data) - 1:,} of at least {len(data):,} bytes" in str(caught.value)
