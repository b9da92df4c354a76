"""The plugin under test: small agents of it, on small environments of every kind that its manifest lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from rlsdk.agent import Agent, agent_class
from rlsdk.environments.toy import AnySpaceEnv, ChainEnv, ExtraInfo, FakeImageEnv, SimpleMultiObsEnv
from rlsdk.registry import AlgorithmSpec, Manifest, Plugin, find, load
from rlsdk.settings import merge
from rlsdk.settings.actor_critic import memory_of
from rlsdk.settings.dataset import dataset_names
from rlsdk.spaces import choices_of
from rlsdk.testing.datasets import random_dataset
from rlsdk.testing.declared import declared_bounds, declared_exceptions, declared_settings
from rlsdk.testing.not_applicable import NotApplicable
from rlsdk.testing.strategies import is_thorough

SMALL: dict[str, int] = {
    "buffer_size": 300,
    "learning_starts": 8,
    "batch_size": 16,
    "n_steps": 16,
    "target_update_interval": 2,
}
"""Settings that make any algorithm quick, used where its config has them."""
SMALL_NETWORKS: dict[str, int | list[int]] = {"net_arch": [16, 16], "n_quantiles": 20}
SMALL_MEMORY: dict[str, int | list[int]] = {"lstm_hidden_size": 16}
"""The same of `policy_kwargs`, and those that policies with a memory have besides."""

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
"""How names of policies begin that observe no vectors, and what they observe."""

NAMED = ("Mlp", "Linear", "Cnn", "MultiInput")
"""How names of policies begin that are for a kind of observation."""


class Subject:
    """One algorithm, with ways to get agents of it."""

    def __init__(self, algorithm: str, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: used for every agent, before the `testing_settings` that the plugin declares."""
        self.spec: AlgorithmSpec = load(algorithm)
        self.plugin: Plugin = find(algorithm)
        if self.plugin.manifest is None:
            raise NotApplicable("the algorithm has no manifest")
        self.manifest: Manifest = self.plugin.manifest
        self.given: Mapping[str, object] = merge(declared_settings(self.plugin, self.spec), settings or {})
        """Settings that the plugin or the caller gives for testing, which replace the kit's own."""
        self.bounds = declared_bounds(self.plugin, self.spec)
        """Bounds of toys that the plugin declares, by name."""
        self.exceptions = declared_exceptions(self.plugin, self.spec)
        """Clauses that the plugin declares not to hold for it, with the reasons."""
        self._folder: TemporaryDirectory[str] | None = None
        self._recorded = 0

    @property
    def action_kind(self) -> str:
        """The first action space the manifest lists."""
        return self.manifest.actions[0]

    @property
    def usual_policy(self) -> str:
        """The policy of the usual observation: for vectors, or with a name of the plugin's own; else for Dict observations, or
        for images."""
        try:
            return self.policy_for("Mlp", "Linear")
        except NotApplicable:
            return self.policy_for("MultiInput", "Cnn")

    @property
    def seen(self) -> spaces.Space[Any]:
        """The usual observation: a vector, or the first kind that the manifest lists if it lists no vectors; a Dict or an image
        if all policies are for those."""
        for prefix, space in WITHOUT_VECTORS.items():
            if self.usual_policy.startswith(prefix):
                return space
        listed = self.manifest.observations
        kinds = [kind for kind in OBSERVATIONS if kind in listed] or ["Box"]
        return OBSERVATIONS[kinds[0]]

    def samples(self, count: int) -> object:
        """`count` observations [count, ..] of the usual space."""
        drawn = tuple(self.seen.sample() for _ in range(count))
        empty = create_empty_array(self.seen, count)
        assert empty is not None
        return concatenate(self.seen, drawn, empty)

    @property
    def sees_vectors(self) -> bool:
        """Whether the usual observation can be a vector."""
        return "Box" in self.manifest.observations and not self.usual_policy.startswith(tuple(WITHOUT_VECTORS))

    def needs_vectors(self, why: str) -> None:
        """For clauses that observe vectors.

        Raises:
            NotApplicable: the manifest does not list them, or no policy is for them.
        """
        if not self.sees_vectors:
            raise NotApplicable(f"{why}, which the plugin does not support")

    def settings(
        self, base: Mapping[str, object] = SMALL, /, *, policy: str | None = None, **changes: object
    ) -> dict[str, object]:
        """`base`, settings of the kit's own, then those that the plugin or the caller gives for testing, then `changes`. Those
        that this algorithm's config class has no field for are left out, and a memory's where `policy` has none."""
        names = {f.name: f for f in attrs.fields(self.spec.config_type)}
        chosen: dict[str, object] = {name: value for name, value in base.items() if name in names}
        if "buffer_size" in names:  # with a replay memory it is how far targets look ahead
            chosen.pop("n_steps", None)
        if "policy_kwargs" in names:
            own = _networks_of(names["policy_kwargs"])
            small = SMALL_NETWORKS | (SMALL_MEMORY if memory_of(policy or self.usual_policy) else {})
            chosen["policy_kwargs"] = {n: v for n, v in small.items() if n in own or n == "net_arch"}
        known = {name: value for name, value in changes.items() if name in names}
        return {**merge({"seed": 1, **chosen}, self.given), **known}

    def predict(self, agent: Agent, observation: object, *, deterministic: bool = False) -> Any:
        """`agent.predict` without restrictions, for algorithms that insist on masks too; the action only."""
        masks = "none" if self.spec.action_masks == "required" else None
        return agent.predict(observation, deterministic=deterministic, action_masks=masks)[0]

    def agent(
        self, env: Any = None, base: Mapping[str, object] = SMALL, /, *, policy: str | None = None, **changes: Any
    ) -> Agent:
        """A small agent, by default on the observation `seen` and the first action space the manifest lists.

        `base`, `changes`: see `settings`.
        """
        env = self.with_info(env or AnySpaceEnv(self.seen, ACTIONS[self.action_kind]))
        kind = agent_class(self.spec)
        changes = {**self._datasets(env, changes), **changes}
        return kind(policy or self.usual_policy, env, **self.settings(base, policy=policy, **changes))

    def _datasets(self, env: Any, given: Mapping[str, object]) -> dict[str, object]:
        """A recorded data set of `env` for each setting that is one."""
        fixed = {**self.given, **given}
        names = [name for name in dataset_names(self.spec.config_type) if name not in fixed]
        if not names:
            return {}
        self._folder = self._folder or TemporaryDirectory(prefix="rlsdk-data-sets-")
        self._recorded += 1
        path = random_dataset(env, Path(self._folder.name) / str(self._recorded))
        return dict.fromkeys(names, path)

    def with_info(self, env: Any) -> object:
        """A gymnasium environment with the entries of `info` that the algorithm declares; anything else as it is."""
        return ExtraInfo(env, self.spec.info) if self.spec.info and isinstance(env, gymnasium.Env) else env

    def policy_for(self, *prefixes: str) -> str:
        """The policy whose name starts with the first of `prefixes` that one starts with; else the first with a name of the
        plugin's own.

        Raises:
            NotApplicable: the algorithm has none.
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
        """(description, small agent) for every supported kind of action and of observation.

        All observations come with the first action space, every other action space with a vector and one more observation;
        with `--thorough` all come with all.
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
        """An environment whose observations are of a kind, and the policy for it."""
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
        """A small agent that has learnt for some steps, updates included."""
        return self.agent(**changes).learn(steps)

    def chain_agent(self, num_envs: int, length: int = 4, **changes: Any) -> Agent:
        """An agent on copies of `ChainEnv`, whose observations determine every row.

        Raises:
            NotApplicable: the algorithm remembers nothing, or sees no vectors.
        """
        from rlsdk.environments import ActionMasker, make_vec_env, to_space

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
    """The names in `policy_kwargs`, if its default has a config class."""
    kind = getattr(setting.default, "factory", None)
    return {f.name for f in attrs.fields(kind)} if isinstance(kind, type) and attrs.has(kind) else set()


def flat_state(agent: Agent) -> dict[str, torch.Tensor]:
    """Name -> copy [..], for every tensor of the agent's parameters."""
    from rlsdk.tree import flatten

    return {n: v.clone() for n, v in flatten(agent.get_parameters()).items() if isinstance(v, torch.Tensor)}


def equal_values(left: Any, right: Any) -> bool:
    """Whether two nested values of arrays or tensors are equal to the bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal_values(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(equal_values(a, b) for a, b in zip(left, right, strict=True))
    return bool(np.array_equal(np.asarray(left), np.asarray(right)))


def differing(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> list[str]:
    """Names whose tensors [..] differ in shape or in a bit, or exist on one side only."""
    common = set(left) & set(right)
    unequal = [n for n in common if left[n].shape != right[n].shape or not torch.equal(left[n], right[n])]
    return sorted({*unequal, *(set(left) ^ set(right))})
