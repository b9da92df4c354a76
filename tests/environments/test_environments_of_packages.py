"""Environments and vectorizers of packages: found by their manifests, and one line for each mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rlsdk
from rlsdk.environments import connect, make_vec_env
from rlsdk.environments.gymnasium_adapter import refusal
from rlsdk.environments.vectorize import require_vectorization
from rlsdk.errors import EnvironmentFault, PluginError, RlsdkError, SettingsError
from rlsdk.evaluation import run_episodes
from rlsdk.registry import plugins
from rlsdk.runs import RunRequest, load_agent, run
from rlsdk_sb3 import NumpyVectorEnv
from tests.plugin_site import Site
from tests.stateful_environments import Chase
from tests.throwaway import MANIFEST

HOOK = """
from rlsdk.registry import hookimpl

@hookimpl
def {hook}():
    {body}
"""
MAKE = """import gymnasium
    return {"rows": lambda env, count, **kwargs: gymnasium.make_vec(env, count, **kwargs)}"""


def add(site: Site, name: str, body: str, lists: str = 'vectorizers = ["rows"]', hook: str = "vectorizers") -> None:
    manifest = MANIFEST.format(id=name, sdk=">=0.1")
    lines = [line for line in manifest.splitlines() if line.partition(" ")[0] in ("id", "title", "summary", "sdk")]
    site.add(name, manifest="\n".join([*lines, lists]), code=HOOK.format(hook=hook, body=body))
    plugins(rescan=True)


def test_a_vectorizer_of_a_package_makes_the_environments(site: Site) -> None:
    add(site, "rows", MAKE)
    env = make_vec_env("CartPole-v1", 3, seed=1, vectorization="rows", env_kwargs={"max_episode_steps": 5})
    other = make_vec_env("CartPole-v1", 3, seed=1, vectorization="rows")
    assert env.num_envs == 3
    assert NumpyVectorEnv(env).reset().tolist() == NumpyVectorEnv(other).reset().tolist()
    assert rlsdk.make("trpo", env=env, seed=0, n_steps=8, batch_size=8).learn(24).num_timesteps == 24


AGENTS = """import gymnasium
    return {"rows": lambda env, count, **kwargs: gymnasium.make_vec(env.partition("/")[2], 2 * count, **kwargs)}"""


def test_ids_of_a_namespace_are_made_by_the_vectorizer_of_that_name(site: Site, tmp_path: Path) -> None:
    """With two rows for each environment, as environments of two agents have."""
    add(site, "rows", AGENTS)
    text = "rows/CartPole-v1?max_episode_steps=5"
    env = make_vec_env(text, 3, seed=1)
    assert (env.num_envs, env.env_id) == (6, text)
    assert connect(text, 2).num_envs == 4
    model: Any = rlsdk.make("trpo", env=text, seed=0, n_steps=8, batch_size=8)
    model.learn(16)
    assert set(run_episodes(model, text, 4).lengths) == {5}
    model.save(tmp_path / "agent.rlsdk")
    assert load_agent(tmp_path / "agent.rlsdk", None, trust=True)[1] == text
    request = RunRequest(algorithm="trpo", env=text, n_envs=2, steps=32, settings={"n_steps": 8}, out=tmp_path / "run")
    run(request)
    assert run(attrs.evolve(request, steps=64, resume=True, n_envs=None, settings={})).env_steps == 64
    with pytest.raises(SettingsError, match="takes no wrappers"):
        make_vec_env(f"{text}&wrapper=TimeLimit")


def test_a_vectorizer_makes_the_same_number_of_rows_for_each_environment(site: Site) -> None:
    add(site, "rows", AGENTS.replace("2 * count", "3"))
    with pytest.raises(EnvironmentFault, match="made 3 environments, not 2"):
        make_vec_env("rows/CartPole-v1", 2)


@pytest.mark.parametrize(
    ("body", "arguments", "words"),
    [
        (MAKE, {"wrappers": ["TimeFeature"]}, "without wrappers and monitor_dir"),
        (MAKE, {"env_kwargs": {"seed": 3}}, "use seed of make_vec_env"),
        (MAKE, {"env_kwargs": {"speed": 3}}, "speed"),
        (MAKE, {"collectors": 3}, "leave out vectorization"),
        ("return {'rows': lambda env, count: None}", {}, "None is not an environment"),
        ("return {'rows': lambda env, count: 1 / 0}", {}, "vectorization='rows' raised ZeroDivisionError"),
        (
            "import gymnasium\n    return {'rows': lambda *_: gymnasium.make_vec('CartPole-v1', 2)}",
            {},
            "made 2 environments, not 3",
        ),
        ("return {'other': print}", {}, "its manifest lists 'rows', its hook gives"),
        ("1 / 0", {}, "is broken"),
    ],
)
def test_one_line_names_each_mistake(site: Site, body: str, arguments: dict[str, Any], words: str) -> None:
    add(site, "rows", body)
    with pytest.raises(RlsdkError) as caught:
        make_vec_env("CartPole-v1", 3, vectorization="rows", **arguments)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert make_vec_env("CartPole-v1", 2, vectorization="sync").num_envs == 2


def test_wrappers_of_a_package_have_names(site: Site) -> None:
    body = """import gymnasium
    return {"Turned": lambda env, by=1: gymnasium.wrappers.TransformReward(env, lambda r: by * r)}"""
    add(site, "turns", body, 'wrappers = ["Turned"]', "wrappers")
    env = make_vec_env("CartPole-v1?wrapper=Turned(by=-2)", 2, seed=1)
    env.reset(0)
    assert env.step(torch.zeros(2, dtype=torch.int64)).reward.tolist() == [-2.0, -2.0]
    assert refusal("CartPole-v1?wrapper=Turned(by=3)") is None
    assert "not a known argument" in str(refusal("CartPole-v1?wrapper=Turned(to=3)"))
    with pytest.raises(SettingsError, match="did you mean 'Turned'"):
        make_vec_env("CartPole-v1?wrapper=Turne")
    add(site, "bad", "return {'other': print}", 'wrappers = ["Bent"]', "wrappers")
    with pytest.raises(PluginError, match="its manifest lists 'Bent', its hook gives"):
        make_vec_env("CartPole-v1?wrapper=Bent")


def test_two_packages_with_one_name(site: Site) -> None:
    add(site, "rows", MAKE)
    add(site, "bad", MAKE)
    with pytest.raises(PluginError, match="offered by several plugins"):
        make_vec_env("CartPole-v1", 3, vectorization="rows")
    add(site, "bad", "return {'rows': print}", 'executors = ["rows"]', "executors")
    with pytest.raises(SettingsError, match="a vectorizer of one package and an executor of another"):
        make_vec_env("CartPole-v1", 3, vectorization="rows")


def test_names_of_the_sdk_are_reserved(site: Site) -> None:
    add(site, "bad", MAKE, 'vectorizers = ["sync"]')
    bad = site.check()
    assert bad is not None
    assert bad.problem is not None
    assert "the SDK's own" in bad.problem


def test_the_vectorizers_for_c_and_torch(tmp_path: Path) -> None:
    env = make_vec_env(Chase(), 4, seed=1, vectorization="torch", env_kwargs={"device": "cpu"})
    assert env.num_envs == 4
    assert env.env_id is None
    given = {"observation_space": spaces.Box(-1, 1, (2,), np.float32), "action_space": spaces.Discrete(2)}
    with pytest.raises(RlsdkError, match="cannot be loaded"):
        make_vec_env(str(tmp_path / "none.so"), 4, vectorization="c", env_kwargs=given)


def test_native_asks_the_package_where_gymnasium_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[Any]()

    def pool(name: str, count: int, **kwargs: object) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        given.append((name, count, kwargs))
        return gymnasium.make_vec("CartPole-v1", count)

    monkeypatch.setattr("rlsdk_envs.envpool_vector.knows", lambda name: name == "Pong-v5")
    monkeypatch.setattr("rlsdk_envs.envpool_vector.EnvpoolVector", pool)
    env = make_vec_env("Pong-v5?a=1", 2, vectorization="native", env_kwargs={"b": 2})
    assert given == [("Pong-v5", 2, {"a": 1, "b": 2})]
    assert (env.name, env.env_id) == ("Pong-v5", "Pong-v5?a=1&b=2")
    assert make_vec_env("CartPole-v1", 2, vectorization="native").num_envs == 2
    assert len(given) == 1


def test_the_text_of_a_file_loads_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may name an unknown id and a vectorization; spaces, without which no library is loaded, cannot be text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ctypes.CDLL", lambda *_: pytest.fail("loaded"))
    Path("evil.so").write_bytes(b"")
    for text in ("evil.so", "evil.so?observation_space=3&action_space=3"):
        with pytest.raises(RlsdkError):
            make_vec_env(text, 2, vectorization="c")
    with pytest.raises(RlsdkError):
        make_vec_env("evil.so", 2, vectorization="c", env_kwargs={"observation_space": 3, "action_space": [2]})


@pytest.mark.full
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSDK_PLUGINS", "tqc")
    code = "import gymnasium; assert not any(name.startswith('rlsdk/') for name in gymnasium.registry)"
    code += """
from rlsdk.environments import connect, make_vec_env
from rlsdk.environments.vectorize import require_vectorization
for call in (lambda: make_vec_env("rlsdk/TMazeEnv-v0"), lambda: require_vectorization("torch"),
             lambda: make_vec_env("Pong-v5", vectorization="native"),
             lambda: make_vec_env("CartPole-v1?wrapper=TimeFeature"), lambda: make_vec_env("CartPole-v1", monitor_dir="x")):
    try:
        call()
    except Exception as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all("rlsdk-envs" in line and "pip install" in line for line in lines)


def test_ids_that_a_package_registers_have_known_arguments(site: Site) -> None:
    register = """import gymnasium
    from gymnasium.envs.classic_control import CartPoleEnv
    gymnasium.register("acme/Pole-v0", CartPoleEnv, max_episode_steps=7)
    return {"acme": gymnasium.make}"""
    add(site, "poles", register, 'environments = ["acme"]', "environments")
    assert refusal("acme/Pole-v0?sutton_barto_reward=true") is None
    assert "not a known argument" in str(refusal("acme/Pole-v0?speed=1"))
    (spec,) = make_vec_env("acme/Pole-v0").get_attr("spec")
    assert spec.max_episode_steps == 7  # type: ignore[attr-defined]


def test_a_broken_package_makes_its_environments_unknown_only(site: Site) -> None:
    add(site, "poles", "1 / 0", 'environments = ["acme"]', "environments")
    assert refusal("acme/Room-v0") is None
    with pytest.raises(PluginError, match="acme-poles/poles"):
        make_vec_env("acme/Room-v0")
    with pytest.raises(RlsdkError, match="did you mean 'rlsdk/TMazeEnv-v0'"):
        make_vec_env("TMazeEnv-v0")
    require_vectorization("c")


@pytest.mark.full
@pytest.mark.parametrize("options", [("--profile",), ("--preset", "ppo.yml")])
def test_options_of_a_missing_package_name_it(options: tuple[str, ...], tmp_path: Path) -> None:
    given = ("run", "ppo", "--env", "CartPole-v1", "--steps", "8", "--out", str(tmp_path / "run"), *options)
    command = [sys.executable, "-m", "rlsdk", *given]
    done = subprocess.run(
        command, check=False, env={**os.environ, "RLSDK_PLUGINS": "ppo"}, capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "rlsdk-lab" in done.stderr
    assert "pip install" in done.stderr
    assert not (tmp_path / "run").exists()
