"""Checks that the parts of rlsdk that use executors give the same results, bit for bit, as in this process."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from rlsdk import load
from rlsdk.agent import agent_class
from rlsdk.environments import make_vec_env
from rlsdk.errors import PluginError
from rlsdk.executors import SerialExecutor
from rlsdk.interfaces import Executor
from rlsdk.registry import load as load_spec
from rlsdk.runs import EvaluationRequest, RunDirectory, RunRequest, evaluate_stored, run
from rlsdk.runtime import pip_install, quietly
from rlsdk_testing.kit import require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import differing, flat_state

ALGORITHM, ENV = "ars", "rlsdk/IdentityEnv-v0"
COLLECTING = "ppo"


def seeds_equal(executor: Executor) -> None:
    """Check that two small runs with different seeds have equal results and weights with the executor and in this process."""
    _require_algorithm(ALGORITHM)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        here, there = (_runs(one, Path(folder) / name) for one, name in ((SerialExecutor(), "a"), (executor, "b")))
        for seed, (mine, theirs) in enumerate(zip(here, there, strict=True)):
            scores = [each.read_record().final_evaluation for each in (mine, theirs)]
            require(scores[0] == scores[1], f"seed {seed} has the evaluation {scores[1]}, here {scores[0]}")
            wrong = differing(*(flat_state(load(each.final)) for each in (mine, theirs)))
            require(not wrong, f"seed {seed} has other weights than here: {wrong[:3]}")


def _runs(executor: Executor, folder: Path) -> list[RunDirectory]:
    requests = [
        RunRequest(
            algorithm=ALGORITHM,
            env=ENV,
            steps=200,
            settings={"seed": seed},
            out=folder / f"seed-{seed}",
            eval_every=0,
            eval_episodes=1,
            use_preset=False,
            vectorization="sync",
        )
        for seed in (0, 1)
    ]
    executor.map(_run_quietly, requests)
    return [RunDirectory(folder / f"seed-{seed}") for seed in (0, 1)]


def _run_quietly(request: RunRequest) -> None:
    with quietly(True):
        run(request)


def candidates_equal(name: str, workers: int) -> None:
    """Check that two rounds of augmented random search give equal weights on the executor `name` and in this process."""
    _require_algorithm(ALGORITHM)
    here, there = (_candidates(kind, workers) for kind in ("sync", name))
    wrong = differing(here, there)
    require(not wrong, f"the search ends with other weights than here: {wrong[:3]}")


def _candidates(kind: str, workers: int) -> dict[str, Tensor]:
    env = make_vec_env("CartPole-v1", 4, vectorization=kind, workers=workers)
    settings: dict[str, Any] = {"n_delta": 4, "seed": 1, "normalize": {"norm_reward": False}}
    try:
        search = agent_class(load_spec(ALGORITHM))(policy="LinearPolicy", env=env, **settings)
        return flat_state(search.learn(400))
    finally:
        env.close()


def collectors_equal(name: str, workers: int) -> None:
    """Check that two rounds of PPO, with one collector for each worker, give equal weights as in this process."""
    _require_algorithm(COLLECTING)
    here, there = (_collected(place, workers) for place in ("in-process", name))
    wrong = differing(here, there)
    require(not wrong, f"training in collectors ends with other weights than here: {wrong[:3]}")


def _collected(place: str, workers: int) -> dict[str, Tensor]:
    env = make_vec_env("CartPole-v1", 2 * workers, collectors=workers, executor=place)
    settings: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 1, "normalize": True}
    try:
        agent = agent_class(load_spec(COLLECTING))(policy="MlpPolicy", env=env, **settings)
        return flat_state(agent.learn(2 * 16 * 2 * workers))
    finally:
        env.close()


def evaluation_equal(name: str, workers: int) -> None:
    """Check that an evaluation in parts, with sampled actions, has equal returns as in this process."""
    _require_algorithm(COLLECTING)
    request = EvaluationRequest(episodes=2 * workers + 1, n_envs=2, deterministic=False, seed=3, parts=workers)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        agent_class(load_spec(COLLECTING))(policy="MlpPolicy", env="CartPole-v1", seed=1).save(Path(folder) / "agent")
        here, there = (
            evaluate_stored(Path(folder) / "agent", None, request, place)[1] for place in ("in-process", name)
        )
    require(here == there, f"the episodes have returns {there.returns}, here {here.returns}")


def _require_algorithm(algorithm: str) -> None:
    try:
        load_spec(algorithm)
    except PluginError:
        raise NotApplicable(f"it is tried with {algorithm!r}: {pip_install(f'rlsdk-{algorithm}')}") from None
