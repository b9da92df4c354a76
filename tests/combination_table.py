"""The table of features of each algorithm in this repository, from its manifest and its settings.

python -m tests.combination_table     writes the table into docs/capabilities.md
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import attrs

from rlsdk.registry import Manifest, find, load

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "capabilities.md"
BEGIN, END = "<!-- combinations: begin -->\n", "<!-- combinations: end -->"
MANIFESTS = (*ROOT.glob("plugins/*/src/*/rlsdk.toml"), *ROOT.glob("contrib_algos/*/src/*/rlsdk.toml"))
OURS = sorted(manifest["id"] for path in MANIFESTS if "family" in (manifest := tomllib.loads(path.read_text())))
KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
HEAD = """| algorithm | actions | observations | masks | recurrent | replay buffer | gSDE | action noise | variants |
|---|---|---|---|---|---|---|---|---|
"""
SWITCHES = {"double_q": "double", "policy_kwargs.dueling": "dueling"}
"""Settings that choose a variant of an algorithm -> the name of the variant."""


def settings_of(config: Any) -> set[str]:
    """Return the names of settings; those of networks are `policy_kwargs.NAME`."""
    names = set(attrs.fields_dict(config))
    networks = attrs.fields_dict(config).get("policy_kwargs")
    if networks is None:
        return names
    return names | {f"policy_kwargs.{name}" for name in attrs.fields_dict(networks.default.factory)}


def _spaces(kinds: tuple[str, ...], images: bool = False) -> str:
    names = "all" if set(kinds) == set(KINDS) else ", ".join(kinds)
    return f"{names}, images" if images else names


def memories(manifest: Manifest) -> list[str]:
    """Return the kinds of recurrent memory that the policies have."""
    return [kind for kind in ("LSTM", "GRU") if any(kind.title() in name for name in manifest.policies)]


def row(name: str) -> str:
    """Return the line of an algorithm in the table."""
    manifest = find(name).manifest
    assert manifest is not None
    settings = settings_of(load(name).config_type)
    images = any(policy.startswith("Cnn") for policy in manifest.policies)
    chosen = "uniform, n-step, prioritized, hindsight" if "replay_buffer_class" in settings else "whole rollouts"
    replay = chosen if "replay" in manifest.traits else ""
    cells = (
        f"`{name}`",
        _spaces(manifest.actions),
        _spaces(manifest.observations, images),
        manifest.action_masks,
        ", ".join(memories(manifest)),
        replay,
        "yes" if "gsde" in manifest.traits else "",
        "yes" if "action_noise" in manifest.traits else "",
        ", ".join(label for setting, label in SWITCHES.items() if setting in settings),
    )
    return f"| {' | '.join(cells)} |\n"


def table() -> str:
    """Return the table, with algorithms in the order of their ids."""
    return HEAD + "".join(map(row, OURS))


def with_table(page: str) -> str:
    """Return the page with the current table."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
