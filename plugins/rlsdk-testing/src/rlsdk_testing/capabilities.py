"""Measures the capabilities of an algorithm: small agents are trained, used, stopped, resumed and exported."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import cattrs
from gymnasium import spaces

from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.registry import Plugin, capabilities_file
from rlsdk.runtime import pip_install, write_json
from rlsdk.tree import leaves
from rlsdk_envs import AnySpaceEnv, FakeImageEnv
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.resume_clauses import resumes_with
from rlsdk_testing.subject import ACTIONS, NAMED, OBSERVATIONS, Subject

STEPS = 48
NAMED_KINDS = {"Cnn": "image", "MultiInput": "Dict"}
"""Beginning of the names of policies that do not observe vectors -> the kind of observation for them."""


@attrs.frozen(kw_only=True)
class Capabilities:
    """What an algorithm was shown to support."""

    actions: tuple[str, ...]
    observations: tuple[str, ...]
    """Kinds of observation spaces; `image` is a Box space of images."""
    masks: str
    """How the algorithm uses action masks: ignored, optional or required."""
    recurrent: str
    """Which policies have a memory: no, optional (some) or always (all)."""
    environments: bool
    """Whether one training can use several environments."""
    resume: bool
    """Whether a training that was saved and resumed equals an uninterrupted one, bit for bit, with every policy for vectors."""
    export: bool
    """Whether every policy can be exported, to use it without rlsdk."""


def measure(algorithm: str) -> Capabilities:
    """Try every capability of the algorithm. What raises an `RlsdkError` counts as unsupported; other errors are raised."""
    if find_spec("rlsdk_interchange") is None:
        raise SettingsError(
            f"measuring whether policies can be exported needs a package: {pip_install('rlsdk-interchange')}"
        )
    subject = Subject(algorithm)
    some, wanted = subject.seen, ACTIONS[subject.action_kind]
    nested = {
        "Dict": spaces.Dict({"a": OBSERVATIONS["Box"], "b": OBSERVATIONS["Discrete"]}),
        "Tuple": spaces.Tuple([OBSERVATIONS["Box"], OBSERVATIONS["Discrete"]]),
    }
    acting = {kind: AnySpaceEnv(some, space) for kind, space in ACTIONS.items()}
    seeing: dict[str, Any] = {kind: AnySpaceEnv(space, wanted) for kind, space in {**OBSERVATIONS, **nested}.items()}
    seeing["image"] = FakeImageEnv(action_space=wanted)
    actions = [kind for kind, env in acting.items() if _works(partial(_trains, subject, env))]
    observations = [kind for kind, env in seeing.items() if _works(partial(_trains, subject, env, kind))]
    agents = [agent for policy in subject.spec.policies if (agent := _trained(subject, policy, seeing)) is not None]
    remembering = [bool(leaves(agent.parts.policy.initial_carry(1))) for agent in agents]
    return Capabilities(
        actions=tuple(actions),
        observations=tuple(observations),
        masks=subject.spec.action_masks,
        recurrent="no" if not any(remembering) else "always" if all(remembering) else "optional",
        environments=_works(
            lambda: _trains(subject, make_vec_env(lambda: subject.with_info(AnySpaceEnv(some, wanted)), 3))
        ),
        resume=all(_works(partial(resumes_with, subject, policy)) for policy in _for_vectors(subject)),
        export=all(_works(partial(_exported, agent)) for agent in agents),
    )


def write(plugin: Plugin, found: Capabilities) -> Path:
    """Write the result to a file next to the plugin's manifest, where `rlsdk info` reads it; return its path."""
    path = capabilities_file(plugin)
    write_json(path, cattrs.unstructure(found))
    return path


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (RlsdkError, NotApplicable):
        return False
    return True


def _trained(subject: Subject, policy: str, seeing: Mapping[str, object]) -> Agent | None:
    """Return a small trained agent of one policy, on an environment whose observations its name states; None: unsupported."""
    kind = next((kind for prefix, kind in NAMED_KINDS.items() if policy.startswith(prefix)), None)
    env = AnySpaceEnv(subject.seen, ACTIONS[subject.action_kind]) if kind is None else seeing[kind]
    try:
        return _trains(subject, env, policy=policy)
    except (RlsdkError, NotApplicable):
        return None


def _for_vectors(subject: Subject) -> tuple[str, ...]:
    """Return the policies that take the observations `subject.seen`."""
    vectors, usual = ("Mlp", "Linear"), subject.usual_policy
    beginnings = vectors if usual.startswith(vectors) else tuple(name for name in NAMED if usual.startswith(name))
    return tuple(name for name in subject.spec.policies if name.startswith(beginnings)) or (subject.usual_policy,)


def _trains(subject: Subject, env: object, kind: str = "Box", policy: str | None = None) -> Agent:
    """Train a small agent on observations of a kind, make one prediction, and return the agent."""
    prefixes = {"image": ("Cnn",), "Dict": ("MultiInput", "Mlp"), "Tuple": ("MultiInput", "Mlp")}
    policy = policy or subject.policy_for(*prefixes.get(kind, ("Mlp", "Linear")))
    agent = subject.agent(env, policy=policy).learn(STEPS)
    agent.observation_space.seed(0)
    subject.predict(agent, agent.observation_space.sample())
    return agent


def _exported(agent: Agent) -> None:
    from rlsdk_interchange import export

    with tempfile.TemporaryDirectory() as folder:
        export(agent, Path(folder) / "policy", "torch-export")
