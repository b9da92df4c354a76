"""The agent of a new run: with new weights, or with the policy in the file of another agent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlsdk.agent import Agent, agent_class
from rlsdk.agent.policy_transfer import NOT_NETWORKS, SHARED
from rlsdk.experiments.agent_path import find_agent
from rlsdk.registry import AlgorithmSpec, Preset
from rlsdk.runtime.output import print_line
from rlsdk.settings import merge


def made(
    spec: AlgorithmSpec,
    policy_from: Path | None,
    known: Preset | None,
    settings: Mapping[str, object],
    given: Mapping[str, object],
) -> Agent:
    """Return an agent with `settings`, which include the environment.

    With `policy_from`, an agent file or a run directory, the agent begins with the policy in that file. The file defines the
    networks, the normalisation and the stacked frames: it has priority over the preset `known`, and `given` over both.

    Raises:
        SettingsError: as `Agent.load_policy`.
        ArtifactError: as `Agent.load_policy`.
    """
    if policy_from is None:
        return agent_class(spec)(**settings)
    preset: dict[str, Any] = dict(known.settings) if known else {}
    networks = preset.pop("policy_kwargs", {})
    others = {name: value for name, value in preset.items() if name not in SHARED}
    others["policy_kwargs"] = {name: value for name, value in networks.items() if name in NOT_NETWORKS}
    chosen = {**merge(others, given), "seed": settings["seed"]}
    chosen.pop("env", None)
    file = find_agent(policy_from)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="load_policy:")  # the warning below also names the file
        agent = agent_class(spec).load_policy(file, settings["env"], **chosen)
    taken = agent.policy_transfer
    if taken is not None and taken.partial:  # a warning is also shown with --quiet
        warnings.warn(f"policy from {file}: {taken}", stacklevel=2)
    else:
        print_line(f"policy from {file}: {taken}")
    return agent
