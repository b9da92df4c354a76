"""Ids of gymnax and brax, the command line, and what happens without their packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

import rlsdk
from rlsdk.environments import connect, make_vec_env
from rlsdk.environments.gymnasium_adapter import refusal
from rlsdk.errors import EnvironmentFault, SettingsError
from rlsdk_jax.hooks import BRAX, GYMNAX, IDS


def command(*words: str, folder: Path, code: str = "") -> subprocess.CompletedProcess[str]:
    """Run `rlsdk` in another process, after `code`."""
    program = f"{code}\nimport sys\nsys.argv = {['rlsdk', *words]!r}\nfrom rlsdk.__main__ import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=dict(os.environ), capture_output=True, text=True, check=False
    )


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize(
    ("package", "extra"), [("jax", "jax"), pytest.param("gymnax", "gymnax", marks=pytest.mark.full)]
)
def test_a_missing_package_is_one_line(package: str, extra: str, tmp_path: Path) -> None:
    if package == "gymnax":
        pytest.importorskip("jax")
    words = ("run", "ppo", "--env", "gymnax/CartPole-v1", "--steps", "100", "--vectorization", "jax")
    found = command(*words, folder=tmp_path, code=WITHOUT.format(package=package))
    assert found.returncode != 0
    assert (
        found.stderr.strip().splitlines()[-1].startswith(f"error: {package} is not installed; install it: pip install")
    )
    assert f"[{extra}]" in found.stderr
    assert "Traceback" not in found.stderr


def test_hooks_and_ids_need_neither_jax_nor_torch() -> None:
    code = "import sys, rlsdk_jax.hooks as h; h.vectorizers(), h.environments(); import gymnasium; gymnasium.spec(h.IDS[0])"
    code += "\nprint([name for name in ('jax', 'torch', 'gymnax', 'brax') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_file_may_name_the_ids() -> None:
    assert refusal("gymnax/CartPole-v1") is None
    assert refusal("brax/reacher?max_episode_steps=200") is None
    assert refusal("brax/reacher?backend=/tmp/x") is not None
    assert len({*IDS}) == len(GYMNAX) + len(BRAX)


def test_wrappers_and_unknown_ids() -> None:
    pytest.importorskip("gymnax")
    with pytest.raises(SettingsError, match="vectorization='jax' takes no wrappers"):
        make_vec_env("gymnax/CartPole-v1?wrapper=TimeFeature", 2, vectorization="jax")
    with pytest.raises(EnvironmentFault, match=r"gymnax has no environment 'CartPol-v1'; did you mean 'CartPole-v1'\?"):
        make_vec_env("gymnax/CartPol-v1", 2, vectorization="jax")
    with pytest.raises(EnvironmentFault, match=r"gymnax has no environment 'CartPol-v1'"):
        connect("gymnax/CartPol-v1")
    with pytest.raises(SettingsError, match=r"unexpected keyword argument 'speed'; parameters: .*masscart"):
        make_vec_env("gymnax/CartPole-v1?speed=3", 2, vectorization="jax")


def test_cartpole_of_gymnax_is_that_of_gymnasium() -> None:
    """Step by step, from the same states."""
    pytest.importorskip("gymnax")
    ours = make_vec_env("gymnax/CartPole-v1", 8, seed=1, vectorization="jax")
    theirs: Any = gymnasium.make("CartPole-v1").unwrapped
    seen, ends = ours.reset().features, 0
    for t in range(120):
        chosen = torch.randint(2, (8,), generator=torch.Generator().manual_seed(t))
        step = ours.step(chosen)
        finals = iter([] if step.final_observation is None else step.final_observation.features)
        for i in range(8):
            theirs.state, theirs.steps_beyond_terminated = seen[i].double().tolist(), None
            after, reward, terminated, _, _ = theirs.step(int(chosen[i]))
            assert bool(step.terminated[i]) is terminated
            assert float(step.reward[i]) == reward
            found = next(finals) if terminated else step.observation.features[i]
            torch.testing.assert_close(found, torch.from_numpy(after), rtol=1e-5, atol=1e-6)
            ends += terminated
        seen = step.observation.features
    assert ends > 20


@pytest.mark.full
def test_a_run_of_the_command_line_and_its_resumption(tmp_path: Path) -> None:
    """A run, the same run in two parts, and an evaluation of its agent, whose file names the environment."""
    pytest.importorskip("gymnax")
    common = ["ppo", "--env", "gymnax/CartPole-v1", "--vectorization", "jax", "--n-envs", "4", "--seed", "2"]
    common += ["--set", "n_steps=16", "--set", "batch_size=32", "--eval-episodes", "2", "--exact-steps"]
    once = command("run", *common, "--steps", "256", "--schedule-until", "256", "--out", "once", folder=tmp_path)
    assert once.returncode == 0, once.stderr
    half = command("run", *common, "--steps", "128", "--schedule-until", "256", "--out", "half", folder=tmp_path)
    assert half.returncode == 0, half.stderr
    rest = command("run", "ppo", "--resume", "--out", "half", "--steps", "256", folder=tmp_path)
    assert rest.returncode == 0, rest.stderr
    weights = [rlsdk.load(tmp_path / run / "final.rlsdk").parts.policy.state_dict() for run in ("once", "half")]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    scored = command("eval", "once/final.rlsdk", "--episodes", "2", folder=tmp_path)
    assert scored.returncode == 0, scored.stderr


@pytest.mark.full
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """Those in gymnax, with fewer steps. Those in brax differ in the environment alone."""
    pytest.importorskip("gymnax")
    page = (Path(__file__).parents[1] / "README.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("rlsdk run ppo --env gymnax/")]
    assert len(lines) == 2
    for number, line in enumerate(lines):
        words = re.sub(r"--steps \d+", "--steps 600 --eval-episodes 1", line).split()[1:]
        done = command(*words, "--out", f"run{number}", folder=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_brax_steps_and_resumes() -> None:
    pytest.importorskip("brax")
    env = make_vec_env("brax/fast", 3, seed=1, vectorization="jax", env_kwargs={"max_episode_steps": 5})
    env.reset()
    steps = [env.step(torch.ones(3, 1)) for _ in range(5)]
    assert [episode.length for episode in steps[-1].episodes] == [5] * 3
    assert steps[-1].truncated.tolist() == [True] * 3
    with pytest.raises(EnvironmentFault, match=r"brax has no environment 'fst'; did you mean 'fast'\?"):
        make_vec_env("brax/fst", 3, vectorization="jax")
    from brax.envs import create, get_environment

    with pytest.raises(EnvironmentFault, match="is inside AutoResetWrapper; give the environment without it"):
        make_vec_env(create("fast"), 3, vectorization="jax")
    assert make_vec_env(get_environment("fast"), 3, vectorization="jax").num_envs == 3
    with pytest.raises(SettingsError, match=r"cannot be made: .*'speed'"):
        make_vec_env("brax/inverted_pendulum?speed=2", 3, vectorization="jax")


def test_copies_stay_in_one_process() -> None:
    """`auto` never steps them in processes, and a note names the faster way. Forked processes are refused."""
    pytest.importorskip("gymnax")
    with pytest.warns(UserWarning, match="one after another; vectorization='jax'"):
        many = make_vec_env("gymnax/CartPole-v1", 40)
    assert type(many).__name__ == "SyncVectorEnv"
    many.reset(0)
    assert many.step(torch.ones(40, dtype=torch.int64)).reward.tolist() == [1] * 40
    with pytest.raises(EnvironmentFault, match=r"JAX cannot be used in a forked process; .* vectorization='jax'"):
        make_vec_env("gymnax/CartPole-v1", 2, vectorization="async", start_method="fork")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ppo_solves_cartpole_of_gymnax(seed: int) -> None:
    pytest.importorskip("gymnax")
    env = make_vec_env("gymnax/CartPole-v1", 16, vectorization="jax")
    settings: dict[str, Any] = {"learning_rate": "lin_1e-3", "clip_range": "lin_0.2", "gamma": 0.98, "gae_lambda": 0.8}
    model = rlsdk.make("ppo", env=env, n_steps=32, batch_size=256, n_epochs=20, seed=seed, **settings).learn(100_000)
    returns = [episode["r"] for episode in model.ep_info_buffer][-20:]
    assert sum(returns) / len(returns) > 450
