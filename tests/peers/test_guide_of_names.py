"""docs/guides/coming-from-sb3-contrib.md: names on the left exist in stable-baselines3 or sb3-contrib, those beside
them here."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import rlsdk.callbacks
import rlsdk.environments
import rlsdk.sinks
import rlsdk_envs.toy
import rlsdk_sb3
from rlsdk.errors import SettingsError
from rlsdk_ars import AsyncEval
from rlsdk_sb3 import NumpyVectorEnv
from tests.peers.test_documented_differences import one_of_each
from tests.tables import in_one_test

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "coming-from-sb3-contrib.md"
SIX = ("ARS", "MaskablePPO", "QRDQN", "RecurrentPPO", "TQC", "TRPO")
OTHER_DEFAULTS = {
    ("QRDQN", "learning_starts"),  # 50000 in the documentation
    *((name, "env") for name in SIX),  # optional in rlsdk
    *((name, "policy_kwargs") for name in SIX),  # the signature shows the default values of the networks
}
AS_NONE = {"log_interval", "tb_log_name", "rollout_buffer_class", "rollout_buffer_kwargs", "_init_setup_model"}
"""Parameters whose default is chosen where None is given, or that have no effect (see docs/compatibility.md)."""


def rows(section: str) -> list[tuple[list[str], str]]:
    """(names in the left column, text of the middle column) of each row in a section of the guide."""
    text = GUIDE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith(("| `", "| a `"))]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [(re.findall(r"`([^`]+)`", left), middle) for left, middle, *_ in cells]


@cache
def models() -> list[Any]:
    return one_of_each()


@cache
def source_of_the_peers() -> str:
    found = []
    for name in ("stable_baselines3", "sb3_contrib"):
        folder = Path(str(pytest.importorskip(name).__file__)).parent
        found += [path.read_text() for path in folder.rglob("*.py")]
    return "\n".join(found)


SECTIONS = (
    "Algorithms and policies",
    "Methods of a model",
    "Environments and wrappers",
    "Buffers, noise, schedules",
    "Callbacks, logging, evaluation",
    "Functions",
)


@in_one_test
@pytest.mark.parametrize("section", SECTIONS)
def test_names_on_the_left_are_documented(section: str) -> None:
    assert rows(section)
    for names, _ in rows(section):
        for name in re.findall(r"[A-Za-z_]{2}\w*", " ".join(names).replace("lin_3e-4", "").replace("1e-4", "")):
            assert re.search(rf"\b{name}\b", source_of_the_peers()), name


def test_methods_and_attributes_of_models_are_there() -> None:
    for names, middle in rows("Methods of a model"):
        if "rlsdk.training.collector" in middle:
            continue
        for name in re.findall(r"(?<![=\w.(])[a-z_]\w+(?=\(|$| =)", "\n".join(n.removeprefix("model.") for n in names)):
            wanted = [model.policy if "model.policy" in middle else model for model in models()]
            assert any(hasattr(each, name) for each in wanted), name


def test_every_member_of_the_first_row_has_the_documented_arguments() -> None:
    peers = pytest.importorskip("sb3_contrib")
    names, middle = rows("Methods of a model")[0]
    assert "rlsdk.Agent" in middle
    for kind in SIX:
        ours, theirs = _class(kind), getattr(peers, kind)
        for name in ["__init__", *names]:
            if name != "logger":
                _compare(kind, name, getattr(ours, name), getattr(theirs, name))


def _class(kind: str) -> Any:
    return next(type(model) for model in models() if type(model).__name__ == kind)


def _compare(kind: str, name: str, ours: Any, theirs: Any) -> None:
    mine, wanted = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
    for key, parameter in wanted.items():
        open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in mine.values())
        if key in AS_NONE or (key not in mine and open_ended):
            continue
        assert key in mine, f"{kind}.{name}({key}=)"
        if (kind, key) not in OTHER_DEFAULTS:
            given = getattr(mine[key].default, "value", mine[key].default)  # the value of a schedule or frequency
            given = getattr(given, "count", given) if key == "train_freq" else given
            assert given == parameter.default, f"{kind}.{name}({key}=)"
    by_position = [n for n, p in mine.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    common = [n for n in wanted if n in by_position]
    if (kind, name) == ("QRDQN", "__init__"):
        assert mine["learning_starts"].default == 50000
    assert by_position[: len(common)] == common or (kind, name) == ("MaskablePPO", "learn"), (
        f"{kind}.{name}: another order"
    )


def test_arguments_of_learn_that_differ_between_versions_are_given_by_name() -> None:
    maskable, ars = (next(m for m in models() if type(m).__name__ == kind) for kind in ("MaskablePPO", "ARS"))
    with pytest.raises(SettingsError, match="after reset_num_timesteps by name"):
        maskable.learn(8, None, 1, "run", True, False)
    with pytest.raises(SettingsError, match="is not a bool; after reset_num_timesteps give names"):
        ars.learn(8, None, 1, "run", True, AsyncEval([], None))


def test_the_same_names_are_there() -> None:
    """Names in rows that say "the same names in ..." or "and so on" exist in rlsdk."""
    for places, names in (
        ((rlsdk_sb3, rlsdk.callbacks), "CheckpointCallback"),
        ((rlsdk_sb3, rlsdk.sinks, rlsdk.sinks.Logger), "configure"),
        ((rlsdk_envs.toy,), "InvalidActionEnvDiscrete"),
    ):
        of = [row for section in SECTIONS for row in rows(section) if names in row[0]]
        assert len(of) == 1, names
        for name in of[0][0]:
            assert any(name in dir(place) for place in places), name
    (loop,) = [names for names, _ in rows("Environments and wrappers") if "model.get_env()" in names]
    assert all(hasattr(NumpyVectorEnv, name) for name in loop[1:])


def test_policies_of_the_guide_are_the_documented_ones() -> None:
    peers = pytest.importorskip("sb3_contrib")
    for kind in SIX:
        assert set(getattr(peers, kind).policy_aliases) <= set(_class(kind).policy_aliases), kind
    for package in ("rlsdk_tqc", "rlsdk_qrdqn", "rlsdk_trpo", "rlsdk_ars", "rlsdk_maskable_ppo", "rlsdk_recurrent_ppo"):
        assert importlib.import_module(f"{package}.policies")


def test_wrappers_of_gymnasium_are_there() -> None:
    text = GUIDE.read_text().partition("## Environments and wrappers")[2].partition("## Buffers")[0]
    named = {
        name
        for line in text.splitlines()
        if "gymnasium's" in line
        for name in re.findall(r"`([A-Z]\w+)(?=[`(])", line.split("gymnasium's")[1])
    }
    assert {"AtariPreprocessing", "StickyAction", "RecordVideo", "MaxAndSkipObservation"} <= named
    assert all(hasattr(gymnasium.wrappers, name) for name in named)
