"""Every combination of `optimizer_class` and `optimizer_kwargs` gives the same optimizer arguments as sb3-contrib."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import rlsdk
from rlsdk_envs.toy import InvalidActionEnvDiscrete
from tests.tables import in_one_test

sb3_contrib = pytest.importorskip("sb3_contrib")

SMALL: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "maskable-ppo": ("MaskablePPO", "MlpPolicy", "discrete", {"n_steps": 8, "batch_size": 8}),
    "qrdqn": ("QRDQN", "MlpPolicy", "discrete", {"buffer_size": 10}),
    "recurrent-ppo": ("RecurrentPPO", "MlpLstmPolicy", "discrete", {"n_steps": 8, "batch_size": 8}),
    "tqc": ("TQC", "MlpPolicy", "box", {"buffer_size": 10}),
    "trpo": ("TRPO", "MlpPolicy", "discrete", {"n_steps": 8, "batch_size": 8}),
}
CLASSES = {
    "none": None,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
KWARGS: list[dict[str, Any] | None] = [None, {}, {"weight_decay": 0.01}, {"eps": 1e-3}]
HOW = {"params", "fused", "foreach", "capturable", "differentiable", "decoupled_weight_decay", "initial_lr"}
"""Entries of an optimizer's parameter group that choose its implementation and do not change the result."""


def agents(name: str, networks: dict[str, Any]) -> tuple[Any, Any]:
    """Return (the agent of rlsdk, the agent of sb3-contrib)."""
    theirs, policy, _, more = SMALL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        common = {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [4], **networks}, **more}
        peer = getattr(sb3_contrib, theirs)(policy, environment(name), **common)
    return own(name, networks), peer


def own(name: str, networks: dict[str, Any]) -> Any:
    _, policy, _, more = SMALL[name]
    kwargs = {"net_arch": [4], **networks}
    return rlsdk.make(name, env=environment(name), policy=policy, policy_kwargs=kwargs, device="cpu", seed=0, **more)


def environment(name: str) -> Any:
    return InvalidActionEnvDiscrete(4, 1) if SMALL[name][2] == "discrete" else "Pendulum-v1"


def groups(ours: Any, theirs: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    algorithm = ours.parts.algorithm
    if hasattr(theirs, "actor"):
        pairs = [(algorithm.trained.actor_optimizer, theirs.actor), (algorithm.trained.optimizer, theirs.critic)]
    else:
        pairs = [(algorithm.optimizer, theirs.policy)]
    return [(mine.optimizer.param_groups[0], other.optimizer.param_groups[0]) for mine, other in pairs]


@in_one_test
@pytest.mark.parametrize("name", list(SMALL))
def test_the_peers_optimizer_in_every_combination(name: str) -> None:
    for chosen, kind in CLASSES.items():
        for kwargs in KWARGS:
            if chosen == "sgd" and kwargs and "eps" in kwargs:
                continue  # SGD has no eps
            if name == "qrdqn" and kind is None and kwargs is not None:
                continue  # sb3-contrib ignores the arguments here, see the next test
            networks: dict[str, Any] = {} if kind is None else {"optimizer_class": kind}
            networks |= {} if kwargs is None else {"optimizer_kwargs": dict(kwargs)}
            ours, theirs = agents(name, networks)
            for mine, other in groups(ours, theirs):
                wanted = {key: value for key, value in other.items() if key not in HOW}
                assert {key: mine[key] for key in wanted} == wanted, (chosen, kwargs)


def test_arguments_without_a_class_are_used_by_qrdqn() -> None:
    """rlsdk applies `optimizer_kwargs` over the paper's epsilon. sb3-contrib ignores them without `optimizer_class`."""
    for kwargs, expected in (({"weight_decay": 0.01}, (0.01 / 32, 0.01)), ({"eps": 1e-4}, (1e-4, 0.0))):
        group = own("qrdqn", {"optimizer_kwargs": kwargs}).parts.algorithm.optimizer.optimizer.param_groups[0]
        assert (group["eps"], group["weight_decay"]) == expected


@pytest.mark.parametrize("name", ["qrdqn", "trpo"])
def test_files_keep_whether_arguments_were_given(name: str, tmp_path: Any) -> None:
    for networks in ({}, {"optimizer_kwargs": {}}, {"optimizer_class": "adam"}):
        ours = own(name, networks)
        ours.save(tmp_path / "agent")
        again = rlsdk.load(tmp_path / "agent", env=ours.get_env())
        found = [a.parts.algorithm.optimizer.optimizer.param_groups[0]["eps"] for a in (ours, again)]  # type: ignore[attr-defined]
        assert found[0] == found[1], networks
