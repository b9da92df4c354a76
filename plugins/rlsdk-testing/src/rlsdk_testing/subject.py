"""`Subject` makes small agents of the plugin under test, for every kind of space that its manifest lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import attrs
import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rlsdk.agent import Agent, agent_class
from rlsdk.networks import memory_of
from rlsdk.registry import AlgorithmSpec, Manifest, Plugin, find, load, plugins
from rlsdk.settings import describe, merge
from rlsdk.spaces import choices_of
from rlsdk_envs import ActionMasker, AnySpaceEnv, ChainEnv, ExtraInfo, FakeImageEnv, SimpleMultiObsEnv
from rlsdk_testing.datasets import random_dataset, recordable
from rlsdk_testing.declared import declared_bounds, declared_exceptions, declared_settings
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.strategies import is_thorough

SMALL: dict[str, int] = {
    "buffer_size": 300,
    "learning_starts": 8,
    "batch_size": 16,
    "n_steps": 16,
    "n_epochs": 2,
    "target_update_interval": 2,
}
"""Settings with which any algorithm is fast. Those that its config class does not have are left out."""
SMALL_NETWORKS: dict[str, int | list[int]] = {"net_arch": [16, 16], "n_quantiles": 20}
SMALL_MEMORY: dict[str, int | list[int]] = {"lstm_hidden_size": 16}
"""The same for entries of `policy_kwargs`, and the further entries for recurrent policies."""

LARGE = 100
"""A whole number from here on may be a number of steps that delays updates."""

ACTIONS: dict[str, spaces.Space[Any]] = {
    "Box": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 3.0], np.float32)),
    "Discrete": spaces.Discrete(3),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiBinary": spaces.MultiBinary(3),
    "Dict": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    "Tuple": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2,), np.float32)]),
}
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "Box": spaces.Box(-3.0, 3.0, (4,), np.float32),
    "Discrete": spaces.Discrete(5, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(4),
}
WITHOUT_VECTORS: dict[str, spaces.Space[Any]] = {
    "MultiInput": SimpleMultiObsEnv().observation_space,
    "Cnn": FakeImageEnv().observation_space,
}
"""Beginning of the names of policies that do not observe vectors -> the observation space for them."""

NAMED = ("Mlp", "Linear", "Cnn", "MultiInput")
"""The beginnings of policy names that state a kind of observation."""


@attrs.frozen
class Package:
    """A plugin under test that has no algorithm, but kernels. Only the clause about these can be checked."""

    plugin: Plugin
    manifest: Manifest
    package: str
    exceptions: Mapping[str, str] = {}

    CLAUSE: ClassVar[str] = "plugin.kernels-agree"


def package_of_kernels(name: str) -> Package | None:
    """Return the installed plugin with the id, package or `package/id` called `name`, if it has kernels and no algorithm."""
    for plugin in plugins():
        manifest, names = plugin.manifest, (plugin.id, plugin.distribution, plugin.qualified_id)
        if manifest is not None and manifest.kernels and manifest.family is None and name in names:
            return Package(plugin, manifest, plugin.module.partition(".")[0])
    return None


class Subject:
    """The algorithm under test, with methods that make small agents of it."""

    def __init__(self, algorithm: str, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: settings for every agent. They override the `testing_settings` that the plugin declares."""
        self.spec: AlgorithmSpec = load(algorithm)
        self.plugin: Plugin = find(algorithm)
        self.package = (self.plugin.module or str(getattr(self.spec.build, "__module__", ""))).partition(".")[0]
        """The package whose lines are named in messages."""
        if self.plugin.manifest is None:
            raise NotApplicable("the algorithm has no manifest")
        self.manifest: Manifest = self.plugin.manifest
        self.given: Mapping[str, object] = merge(declared_settings(self.plugin, self.spec), settings or {})
        """Settings that the plugin or the caller gives for testing. They override the kit's own settings."""
        self.bounds = declared_bounds(self.plugin, self.spec)
        """Name of a toy task -> the bound that the plugin declares for it."""
        self.exceptions = declared_exceptions(self.plugin, self.spec)
        """Id of a clause that the plugin declares not to hold for it -> the reason."""
        self._folder: TemporaryDirectory[str] | None = None
        self._recorded = 0

    @property
    def action_kind(self) -> str:
        """The first kind of action space that the manifest lists."""
        return self.manifest.actions[0]

    @property
    def usual_policy(self) -> str:
        """The name of the policy that most checks use.

        It is a policy for vectors, or one whose name states no kind of observation; else one for Dict observations or images.
        """
        try:
            return self.policy_for("Mlp", "Linear")
        except NotApplicable:
            return self.policy_for("MultiInput", "Cnn")

    @property
    def seen(self) -> spaces.Space[Any]:
        """The observation space that most checks use.

        It is a space of vectors, or the first kind that the manifest lists if it lists no vectors. If all policies are for
        Dict observations or images, it is a space of those.
        """
        for prefix, space in WITHOUT_VECTORS.items():
            if self.usual_policy.startswith(prefix):
                return space
        listed = self.manifest.observations
        kinds = [kind for kind in OBSERVATIONS if kind in listed] or ["Box"]
        return OBSERVATIONS[kinds[0]]

    def samples(self, count: int) -> object:
        """Return `count` random observations [count, ..] from the space `seen`."""
        drawn = tuple(self.seen.sample() for _ in range(count))
        empty = create_empty_array(self.seen, count)
        assert empty is not None
        return concatenate(self.seen, drawn, empty)

    @property
    def sees_vectors(self) -> bool:
        """Whether the plugin supports vectors as observations with its usual policy."""
        return "Box" in self.manifest.observations and not self.usual_policy.startswith(tuple(WITHOUT_VECTORS))

    def needs_vectors(self, why: str) -> None:
        """Check that the plugin supports vectors as observations. `why` begins the message of the exception.

        Raises:
            NotApplicable: the manifest does not list them, or no policy is for them.
        """
        if not self.sees_vectors:
            raise NotApplicable(f"{why}, which the plugin does not support")

    def settings(
        self, base: Mapping[str, object] = SMALL, /, *, policy: str | None = None, **changes: object
    ) -> dict[str, object]:
        """Return the settings of a small agent.

        They are `base`, overridden by those that the plugin or the caller gives for testing, then by `changes`. Settings of
        `base` and `changes` that the config class does not have are left out. So are those of recurrent policies, unless
        `policy` is recurrent.
        """
        names = {f.name: f for f in attrs.fields(self.spec.config_type)}
        chosen: dict[str, object] = {name: value for name, value in base.items() if name in names}
        if "buffer_size" in names:  # with a replay buffer it is the number of steps of n-step targets
            chosen.pop("n_steps", None)
        if "policy_kwargs" in names:
            own = _networks_of(names["policy_kwargs"])
            small = SMALL_NETWORKS | (SMALL_MEMORY if memory_of(policy or self.usual_policy) else {})
            chosen["policy_kwargs"] = {n: v for n, v in small.items() if n in own or n == "net_arch"}
        known = {name: value for name, value in changes.items() if name in names}
        return {**merge({"seed": 1, "device": "cpu", **chosen}, self.given), **known}

    def large_settings(self) -> str:
        """Return text for messages: whole numbers of the config class that may delay updates and that nothing makes smaller."""
        fields = [doc for doc in describe(self.spec.config_type) if doc.affects == "training"]
        whole = {f.name: f.default for f in fields if isinstance(f.default, int) and not isinstance(f.default, bool)}
        large = [f"{name} = {value}" for name, value in whole.items() if value >= LARGE and name not in self.settings()]
        hint = "give smaller values in testing_settings of the manifest"
        return f"; the kit does not know {', '.join(large)}: {hint}" if large else ""

    def predict(self, agent: Agent, observation: object, *, deterministic: bool = False) -> Any:
        """Return the action of `agent.predict`. Algorithms that require masks get one that allows all actions."""
        masks = "none" if self.spec.action_masks == "required" else None
        return agent.predict(observation, deterministic=deterministic, action_masks=masks)[0]

    def agent(
        self, env: Any = None, base: Mapping[str, object] = SMALL, /, *, policy: str | None = None, **changes: Any
    ) -> Agent:
        """Return a small agent. Default environment: the observation space `seen` and the first action space of the manifest.

        `base`, `policy` and `changes`: see `settings`.
        """
        env = self.with_info(env or AnySpaceEnv(self.seen, ACTIONS[self.action_kind]))
        kind = agent_class(self.spec)
        changes = {**self._datasets(env, changes), **changes}
        return kind(policy or self.usual_policy, env, **self.settings(base, policy=policy, **changes))

    def _datasets(self, env: object, given: Mapping[str, object]) -> dict[str, object]:
        """Return a data set recorded in `env`, for each setting that is a data set and has no value in `given`."""
        fixed = {**self.given, **given}
        names = [name for name in recordable(self.spec.config_type) if name not in fixed]
        if not names:
            return {}
        self._folder = self._folder or TemporaryDirectory(prefix="rlsdk-data-sets-")
        self._recorded += 1
        path = random_dataset(env, Path(self._folder.name) / str(self._recorded))
        return dict.fromkeys(names, path)

    def with_info(self, env: object) -> object:
        """Return a gymnasium environment with the entries of `info` that the algorithm declares; other objects unchanged."""
        return ExtraInfo(env, self.spec.info) if self.spec.info and isinstance(env, gymnasium.Env) else env

    def policy_for(self, *prefixes: str) -> str:
        """Return the policy whose name begins with one of `prefixes`; earlier prefixes are preferred.

        If there is none, return the first policy whose name states no kind of observation.

        Raises:
            NotApplicable: the algorithm has no such policy.
        """
        for prefix in prefixes:
            for policy in self.spec.policies:
                if policy.startswith(prefix):
                    return policy
        for policy in self.spec.policies:
            if not policy.startswith(NAMED):
                return policy
        raise NotApplicable(f"{self.spec.id} has no policy called {' or '.join(f'{prefix}...' for prefix in prefixes)}")

    def agents(self) -> Iterator[tuple[str, Agent]]:
        """Yield (description, small agent) for every supported kind of action space and of observation space.

        All observation spaces are combined with the first action space. Every other action space is combined with two
        observation spaces, or with all of them if `--thorough` is given.
        """
        flat = () if self.usual_policy.startswith(tuple(WITHOUT_VECTORS)) else tuple(OBSERVATIONS)
        nested = () if self.usual_policy.startswith("Cnn") else ("Dict", "Tuple")
        kinds = [name for name in (*flat, *nested) if name in self.manifest.observations]
        images = ["image"] if any(policy.startswith("Cnn") for policy in self.spec.policies) else []
        for i, action in enumerate(self.manifest.actions):
            chosen = [*kinds, *images]
            if i and not is_thorough():
                chosen = list(dict.fromkeys([kinds[0], kinds[i % len(kinds)]])) if kinds else images
            for kind in chosen:
                env, policy = self._observing(kind, ACTIONS[action])
                yield f"{kind} -> {action}", self.agent(env, policy=policy)

    def _observing(self, kind: str, action_space: spaces.Space[Any]) -> tuple[object, str]:
        """Return an environment with this kind of observation, and the name of the policy for it."""
        if kind == "image":
            return FakeImageEnv(action_space=action_space), self.policy_for("Cnn")
        if kind in OBSERVATIONS:
            return AnySpaceEnv(OBSERVATIONS[kind], action_space), self.policy_for("Mlp", "Linear")
        policy, parts = self.policy_for("MultiInput", "Mlp"), (OBSERVATIONS["Box"], OBSERVATIONS["Discrete"])
        if kind == "Tuple":
            return AnySpaceEnv(spaces.Tuple(parts), action_space), policy
        if policy.startswith("MultiInput"):
            return SimpleMultiObsEnv(action_space), policy
        return AnySpaceEnv(spaces.Dict(dict(zip("ab", parts, strict=True))), action_space), policy

    def trained(self, steps: int = 40, **changes: Any) -> Agent:
        """Return a small agent after a training of `steps` steps, which includes updates."""
        return self.agent(**changes).learn(steps)

    def chain_agent(self, num_envs: int, length: int = 4, **changes: Any) -> Agent:
        """Return an agent on `num_envs` copies of `ChainEnv`, whose observations are vectors.

        Raises:
            NotApplicable: the algorithm does not collect into a buffer, or does not support vectors as observations.
        """
        from rlsdk.environments import make_vec_env, to_space

        self.needs_vectors("the chain has vectors as observations")

        def chain() -> object:
            env = ChainEnv(length, action_space=ACTIONS[self.action_kind])
            choices = sum(choices_of(to_space(env.action_space)))
            return self.with_info(ActionMasker(env, lambda _: np.ones(choices, bool)) if choices else env)

        env = make_vec_env(chain, num_envs)
        agent = self.agent(env, **changes)
        if agent.parts.buffer is None:
            raise NotApplicable(f"{self.spec.id} has no buffer")
        if not agent.parts.plan.needs_environment:
            raise NotApplicable(f"the buffer of {self.spec.id} is filled already")
        return agent


def _networks_of(setting: Any) -> set[str]:
    """Return the names of the entries of `policy_kwargs`; empty if it has no config class."""
    kind = getattr(setting.default, "factory", None)
    return {f.name for f in attrs.fields(kind)} if isinstance(kind, type) and attrs.has(kind) else set()


def flat_state(agent: Agent) -> dict[str, torch.Tensor]:
    """Return name -> copy [..] for every tensor of the agent's parameters."""
    from rlsdk.tree import flatten

    return {n: v.clone() for n, v in flatten(agent.get_parameters()).items() if isinstance(v, torch.Tensor)}


def equal_values(left: object, right: Any) -> bool:
    """Return whether two nested values of arrays or tensors are equal, bit for bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal_values(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(equal_values(a, b) for a, b in zip(left, right, strict=True))
    return bool(np.array_equal(np.asarray(left), np.asarray(right)))


def differing(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> list[str]:
    """Return the names whose tensors [..] differ in shape or in a bit, or exist in one of the two only."""
    common = set(left) & set(right)
    unequal = [n for n in common if left[n].shape != right[n].shape or not torch.equal(left[n], right[n])]
    return sorted({*unequal, *(set(left) ^ set(right))})
