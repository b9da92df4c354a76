"""Clauses about a plugin's package: its import, manifest, settings, presets and supported spaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import attrs
import numpy as np
import torch
from hypothesis import given
from torch import Generator, Tensor, nn

from rlsdk import spaces
from rlsdk.errors import PluginError, SettingsError, UnsupportedSpaceError, message_of, one_line, shown
from rlsdk.interfaces import BuildContext, plays_episodes
from rlsdk.kernels import SLOTS, KernelChoice, kernels_of, kernels_off
from rlsdk.math import explained_variance, greedy_target, quantile_huber, smooth_l1, taken_values
from rlsdk.networks import (
    ActionScale,
    ContinuousCritics,
    DeterministicActor,
    DiscreteValuePolicy,
    EnsembleMLP,
    FlattenEncoder,
    Layers,
    build_actor_critic,
    build_encoder,
    build_squashed_actor,
    mlp,
)
from rlsdk.records import Observation, StepData
from rlsdk.registry import extension, extensions_of, presets
from rlsdk.runtime import Streams
from rlsdk.settings import ActorCriticConfig, describe, structure, unstructure
from rlsdk.tree import leaves
from rlsdk.updates import (
    FlatOptimizer,
    LossTerms,
    Minibatches,
    PolicyBatch,
    policy_kernels,
)
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing import import_state
from rlsdk_testing.captured_output import written_during
from rlsdk_testing.kit import clause, require
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.strategies import configs, examples
from rlsdk_testing.subject import ACTIONS, Subject


@clause(
    "plugin.import-is-free",
    "Importing the plugin does not import torch or gymnasium, prints nothing, seeds no random generator and changes no state of"
    " the process.",
    "Import torch, gymnasium, and modules that print or draw random numbers in `build`, not in `__init__.py`"
    " or the module of the settings.",
)
def import_is_free(subject: Subject) -> None:
    if subject.plugin.distribution == "registered":
        raise NotApplicable("registered in this process, not installed")
    # an empty text is the working directory
    path = json.dumps([os.path.abspath(place) for place in map(str, sys.path)])
    command = [sys.executable, "-P", str(import_state.__file__), subject.plugin.qualified_id, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
    require(done.returncode == 0, f"loading it in a fresh interpreter failed:\n{done.stderr}")
    require(not done.stderr.strip(), f"loading it wrote to standard error:\n{done.stderr}")
    wrong = json.loads(done.stdout)
    require(not wrong, f"importing the plugin touched: {wrong}")


@clause(
    "plugin.manifest-agrees",
    "Id, family and policies of the AlgorithmSpec equal those of the manifest rlsdk.toml; what its tables name exists.",
    "Write the same id, family and policies in rlsdk.toml and in the AlgorithmSpec. Or name `build` and"
    " `config` in rlsdk.toml and remove the hook. Name a function of the package for each command, importer and inspector.",
)
def manifest_agrees(subject: Subject) -> None:
    spec, manifest = subject.spec, subject.manifest
    pairs = {name: (getattr(spec, name), getattr(manifest, name)) for name in ("id", "family", "policies")}
    wrong = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    require(not wrong, f"spec and manifest disagree: {wrong}")
    require(bool(manifest.summary and manifest.title), "the manifest needs a title and a summary")
    for kind in ("commands", "importers", "inspectors"):
        for name, _ in getattr(manifest, kind):
            try:
                extension(kind, name)
            except PluginError as error:
                require(False, message_of(error))


@clause(
    "plugin.settings-documented",
    "Every hyper-parameter has a help text, and all except `policy` have a default.",
    'In the config class give each field a default and `metadata=described("what it does")`.',
)
def settings_documented(subject: Subject) -> None:
    docs = describe(subject.spec.config_type)
    silent = [doc.name for doc in [*docs, *(c for d in docs for c in d.children)] if not doc.help]
    require(not silent, f"hyper-parameters without help: {silent}")
    required = [doc.name for doc in docs if doc.required and doc.name != "policy"]
    require(not required, f"hyper-parameters without default: {required}")


@clause(
    "plugin.settings-round-trip",
    "Settings that are written as plain data and read again are equal.",
    "Give each field of the config class a type that plain data can represent: numbers, text, lists, tables,"
    " or a class that `rlsdk.settings` converts. A converter must accept its own result.",
)
def settings_round_trip(subject: Subject) -> None:
    kind = subject.spec.config_type

    @examples
    @given(configs(kind, subject.spec.policies[0]))
    def check(config: object) -> None:
        written = json.loads(json.dumps(unstructure(config)))
        require(structure(written, kind) == config, f"{config} came back different from {written}")

    check()


@clause(
    "plugin.presets-fit",
    "The config class accepts every preset of the package.",
    "In presets/*.toml name settings that the config class has, with values that its validators accept.",
)
def presets_fit(subject: Subject) -> None:
    known = presets(subject.plugin.qualified_id)
    if not known:
        raise NotApplicable("it ships no presets")
    for preset in known:
        try:
            structure({"policy": subject.spec.policies[0], **preset.settings}, subject.spec.config_type)
        except SettingsError as error:
            require(False, f"the preset for {preset.env} is refused: {error}")


@clause(
    "plugin.unknown-setting-refused",
    "An unknown hyper-parameter raises a SettingsError that names the most similar one.",
    "Make the config class a subclass of AgentConfig, without an `__init__` or a converter that ignores unknown names.",
)
def unknown_setting_refused(subject: Subject) -> None:
    known = [f.name for f in attrs.fields(subject.spec.config_type)]
    for name in known[2:5]:
        try:
            structure({"policy": subject.spec.policies[0], f"{name}x": 1}, subject.spec.config_type)
        except SettingsError as error:
            require(repr(name) in str(error), f"the message for {name + 'x'!r} does not name {name!r}: {error}")
        else:
            require(False, f"the unknown hyper-parameter {name + 'x'!r} was accepted")


@clause(
    "plugin.claims-backed",
    "A small agent trains and predicts with every space that the manifest lists. The traits of the manifest are true.",
    "Make `build` and `update` work with every space that rlsdk.toml lists, or remove the space or the trait"
    " from `actions`, `observations` or `traits` there.",
)
def claims_backed(subject: Subject) -> None:
    for what, agent in subject.agents():
        subject.predict(agent.learn(24), agent.observation_space.sample())
        require(agent.num_timesteps >= 24, f"{what}: it did not train")
    small, spec = subject.agent(), subject.spec
    names = {field.name for field in attrs.fields(spec.config_type)}
    context = {
        "recurrent": bool(leaves(small.parts.policy.initial_carry(1))),
        "replay": small.parts.buffer is not None,
        "gsde": "use_sde" in names,
        "action_noise": "action_noise" in names,
        "action_mask": spec.action_masks == "optional",
        "requires_action_mask": spec.action_masks == "required",
        "parallel": plays_episodes(small.parts.plan),
    }
    own = [trait for trait in subject.manifest.traits if not trait.startswith("x-")]
    unknown = [trait for trait in own if trait not in context]
    require(not unknown, f"unknown traits {unknown}; known are {sorted(context)}, traits of your own begin with 'x-'")
    wrong = [trait for trait in own if not context[trait]]
    require(not wrong, f"traits of the manifest that are not so: {wrong}")


@clause(
    "plugin.prints-nothing",
    "With verbose=0, building, training and predicting write nothing to standard output and standard error.",
    "Remove print() and progress bars from the plugin. Return numbers from `update` as metrics, and write"
    " messages with the `logging` module.",
)
def prints_nothing(subject: Subject) -> None:
    def use() -> None:
        subject.predict(subject.trained(verbose=0), subject.seen.sample())

    text = written_during(use)
    require(not text, f"building, training and predicting wrote {shown(text, 200)}")


@clause(
    "plugin.unsupported-space-refused",
    "An action space that the manifest does not list raises UnsupportedSpaceError.",
    "Call `require_spaces(context, id, actions=..., observations=...)` first in `build`, with the spaces that"
    " rlsdk.toml lists.",
)
def unsupported_space_refused(subject: Subject) -> None:
    unsupported = [kind for kind in ACTIONS if kind not in subject.manifest.actions]
    if not unsupported:
        raise NotApplicable("every action space is supported")
    for kind in unsupported:
        try:
            subject.agent(AnySpaceEnv(subject.seen, ACTIONS[kind]))
        except UnsupportedSpaceError as error:
            missing = [name for name in subject.manifest.actions if name not in str(error)]
            require(not missing, f"the refusal of {kind} does not list the supported {missing}: {error}")
        else:
            require(False, f"a {kind} action space was accepted, but the manifest does not list it")


Numbers = Iterator[tuple[str, Tensor]]
"""Descriptions of results, and the results."""
CLOSE = 1e-3
"""The largest difference of a number from that of torch, as a share of the largest number. Float32 has errors of about 1e-6."""


@clause(
    "plugin.kernels-agree",
    "Each kernel of the package, alone and together with its others, returns the shapes, values and gradients of torch, and"
    " raises nothing.",
    "Compare the function that the table `kernels` of rlsdk.toml names with that of the same name in rlsdk.kernels.SLOTS;"
    " return None or `reference` for what it cannot compute.",
)
def kernels_agree(subject: Subject) -> str:
    if not subject.manifest.kernels:
        raise NotApplicable("the package offers no kernels")
    table = extensions_of(subject.plugin, "kernels")
    called, expected = set[str](), {case: _computed(case, {}) for case in CASES}

    def noted(name: str) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> Any:
            called.add(name)
            return table[name](*args, **kwargs)

        return call

    for chosen in [*([name] for name in table), list(table)]:
        for case in CASES:
            found = _computed(case, {name: noted(name) for name in chosen})
            for (what, number), (_, by_torch) in zip(found, expected[case], strict=True):
                fault = _difference(number, by_torch)
                require(not fault, f"{' and '.join(chosen)}: {what} {fault}")
    unseen = sorted(set(table) - called)
    return f"no check calls {', '.join(unseen)}" if unseen else ""


def _computed(case: Callable[[], Numbers], table: dict[str, Callable[..., Any]]) -> list[tuple[str, Tensor]]:
    """Return the results of a case with some kernels; in torch if there are none."""
    torch.manual_seed(0)  # the kit checks in a process, or state, of its own
    with kernels_of(table) if table else kernels_off(), warnings.catch_warnings():
        warnings.filterwarnings("error", "the kernel ", RuntimeWarning)
        try:
            return [(what, number.detach().clone()) for what, number in case()]
        except RuntimeWarning as fault:
            require(False, message_of(fault).removesuffix("; torch computes instead"))
        except Exception as error:
            require(False, f"{' and '.join(table)} raised {one_line(f'{type(error).__name__}: {error}', 300)}")
    return []


def _difference(found: Tensor, expected: Tensor) -> str:
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return f"is {found.dtype} {list(found.shape)}, not {expected.dtype} {list(expected.shape)}"
    error = (found.double() - expected.double()).abs().max() if found.numel() else torch.zeros(())
    largest = expected.double().abs().max() if found.numel() else torch.zeros(())
    return "" if bool(error <= CLOSE * (largest + CLOSE)) else f"differs by {float(error):.3g} of {float(largest):.3g}"


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed))


def _of_rollouts() -> Numbers:
    for envs in (2, 40):
        value, weight = _normal(9, envs), _normal(9, envs, seed=1).sigmoid()
        yield "the discounted sums", SLOTS["discounted_sums"](value, weight)
        flags = [_normal(9, envs, seed=seed) > 1.0 for seed in (2, 3, 4)]
        seen = Observation(_normal(9, envs, 3), flags[0])
        steps = StepData(seen, value, value, flags[0], flags[1] & ~flags[0], ~flags[2], None)
        advantage, target, _ = SLOTS["advantages"](steps, value, weight, 0.9, 0.8)
        yield "the advantages", advantage
        yield "the targets of values", target
    yield "the explained variance", explained_variance(_normal(50), _normal(50) + 0.3 * _normal(50, seed=1))


def _of_values() -> Numbers:
    for shape in ((2, 7, 5), (7, 5)):
        loss, grad = quantile_huber(_normal(*shape), _normal(7, 6, seed=1), sum_over_quantiles=True)
        yield f"the quantile loss of {shape}", loss
        yield f"the gradient of the quantile loss of {shape}", grad
    for atoms in (1, 5):
        values, other = _normal(6, 5, atoms), _normal(6, 5, atoms, seed=1)
        mask, action = _normal(6, 5, seed=2) > -1.0, torch.tensor([[0, 1], [1, 2], [0, 0], [1, 1], [0, 2], [1, 0]])
        yield (
            "the targets of greedy actions",
            greedy_target(values, _normal(6), _normal(6, seed=1).sigmoid(), (2, 3), mask=mask, selector=other),
        )
        taken, vjp = taken_values(values, action, (2, 3))
        yield "the values of actions", taken
        yield "the gradient of the values of actions", vjp(torch.ones_like(taken))
        for weight in (None, _normal(6).abs()):
            loss, grad = smooth_l1(values[None, :, 0], other[None, :, 0], weight=weight)
            yield "the smooth loss", loss
            yield "the gradient of the smooth loss", grad
    mean, deviation, rows = _normal(1, 4).double(), _normal(1, 4, seed=1).double().abs() + 0.1, _normal(6, 4)
    kernel = SLOTS["normalization"]()
    normal = None if kernel is None else kernel(rows, mean, deviation, 2.0)
    by_torch = ((rows.double() - mean) / deviation).clamp(-2.0, 2.0).float()
    yield "the normalized values", by_torch if normal is None else normal


def _box(low: float, high: float, size: int) -> spaces.Box:
    return spaces.Box(np.full(size, low, np.float32), np.full(size, high, np.float32), (size,), "float32")


def _gradients(optimizer: FlatOptimizer, vjp: Callable[..., object], *grads: Tensor) -> Tensor:
    optimizer.zero_grad()
    vjp(*grads)
    return optimizer.gradients


def _of_continuous_actions() -> Numbers:
    space, scale = _box(-1.0, 1.0, 3), ActionScale(_box(-2.0, 1.0, 2))
    for rows in (1, 32):
        seen, action, choice = _normal(rows, 3), _normal(rows, 2, seed=1).tanh(), KernelChoice(width=16, rows=rows)
        critics = ContinuousCritics(FlattenEncoder(space), EnsembleMLP(2, 5, (16, 16), 3, "relu"), choice)
        optimizer = FlatOptimizer(critics, "adam", 1e-3)
        values, vjp = critics.evaluate(seen, action)
        yield f"the values of critics for {rows} rows", values
        yield "the gradients of critics", _gradients(optimizer, vjp, _normal(*values.shape))
        yield "the gradients of critics by actions", critics.action_gradient(seen, action)[1]
        yield "the gradients of one critic by actions", critics.action_gradient(seen, action, first=True)[1]
        actor = DeterministicActor(FlattenEncoder(space), (16, 16), "relu", scale, choice)
        optimizer = FlatOptimizer(actor, "adam", 1e-3)
        unit, vjp = actor.evaluate(seen)
        yield f"the actions of an actor for {rows} rows", unit
        yield "the gradients of an actor", _gradients(optimizer, vjp, _normal(rows, 2))
        yield from _acts("an actor", actor, seen)
        squashed = build_squashed_actor(FlattenEncoder(space), (16, 16), "relu", scale).use_kernel(choice)
        optimizer = FlatOptimizer(squashed, "adam", 1e-3)
        (unit, density), sampled = squashed.evaluate(seen, _normal(rows, 2, seed=2))
        yield f"the actions of a squashed policy for {rows} rows", unit
        yield "the log-densities of a squashed policy", density
        yield "the gradients of a squashed policy", _gradients(optimizer, sampled, _normal(rows, 2), _normal(rows))
        yield from _acts("a squashed policy", squashed, seen)


def _acts(whose: str, policy: Any, seen: Tensor) -> Numbers:
    observation = Observation(seen, torch.zeros(len(seen), dtype=torch.bool))
    for deterministic in (True, False):
        generator = Generator().manual_seed(7)
        act = policy.act(observation, policy.initial_carry(len(seen)), deterministic=deterministic, generator=generator)
        yield f"an act of {whose}, {deterministic=}", act.action


def _of_discrete_actions() -> Numbers:
    for rows, atoms in ((1, 1), (32, 4)):
        seen, space = _normal(rows, 3), _box(-1.0, 1.0, 3)
        choice = KernelChoice(width=16, rows=rows)
        policy = DiscreteValuePolicy(FlattenEncoder(space), (16, 16), "tanh", spaces.Discrete(3), atoms, choice=choice)
        optimizer = FlatOptimizer(policy, "rmsprop", 1e-3)
        values, vjp = policy.evaluate(seen)
        yield f"the action values of {rows} rows", values
        yield "the gradients of action values", _gradients(optimizer, vjp, _normal(*values.shape))
        yield "the action values of two batches", policy.values_of_several(torch.cat([seen, seen]), 2)
        yield from _acts("a network of action values", policy, seen)


def _of_actor_and_critic() -> Numbers:
    space = _box(-1.0, 1.0, 3)
    for actions in (spaces.Discrete(3), _box(-1.0, 1.0, 2)):
        context = BuildContext(space, actions, 1, "cpu", Streams(0))
        network = build_actor_critic(context, SimpleNamespace(policy="MlpPolicy", policy_kwargs=ActorCriticConfig()))
        optimizer, seen = FlatOptimizer(network, "adam", 1e-3), _normal(24, 3)
        optimizer.zero_grad()
        yield from _acts("an actor-critic policy", network, seen)
        starts = torch.zeros(24, dtype=torch.bool)
        action = torch.arange(24) % 3 if isinstance(actions, spaces.Discrete) else _normal(24, 2)
        old, value, advantage, target = (_normal(24, seed=seed) for seed in range(4))
        observation = Observation(seen, starts)
        rows = PolicyBatch(observation, action, 0.1 * old - 1.0, value, advantage, target, ((), ()), starts)
        evaluator, loss, steps = policy_kernels(network, 24, hooked=False)
        terms = LossTerms(0.2, None, 0.1, 0.5, True)
        rows = evaluator.prepared(rows)
        now, vjp = evaluator.evaluate(rows)
        yield from (("the log-probabilities", now.log_prob), ("the entropies", now.entropy), ("the values", now.value))
        yield "the values alone", evaluator.values(rows, [])[0]
        yield "the log-probabilities alone", evaluator.policy(rows)[1]
        means, (of_log_prob, of_entropy, of_value) = loss(rows, now, terms)
        yield "the means of the loss", means
        yield "the gradients of the loss", _gradients(optimizer, vjp, of_log_prob, cast("Tensor", of_entropy), of_value)
        for _ in range(3):
            following = optimizer.next_steps(1e-3, 0.5)
            if steps is None or following is None or not steps(rows, Minibatches(), terms, following)[1]:
                now, vjp = evaluator.evaluate(rows)
                _gradients(optimizer, vjp, *cast("tuple[Tensor, ...]", loss(rows, now, terms)[1]))
                optimizer.step(1e-3, 0.5)
            yield "the weights after a step of the policy", nn.utils.parameters_to_vector(network.parameters())


class _Dense(nn.Module):
    """A network of a user, as `Layers` evaluates it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = mlp(3, (16, 16), "tanh"), nn.Linear(16, 2)
        self.layers = Layers(self, "body", "head")


def _of_layers() -> Numbers:
    network, pixels = _Dense(), torch.arange(2 * 36 * 36, dtype=torch.float32).reshape(2, 1, 36, 36) % 256.0
    seen = _normal(8, 3).requires_grad_()
    outputs = network.layers(seen)
    yield "the outputs of layers", outputs
    yield from (
        ("a gradient of layers", each) for each in torch.autograd.grad(outputs.sum(), [seen, *network.parameters()])
    )
    outputs, vjp = network.layers.evaluate(seen)
    yield "the outputs of layers without graph", outputs
    yield "the gradient of layers by inputs", cast("Tensor", vjp(torch.ones_like(outputs)))
    yield from (("a gradient of layers without graph", cast("Tensor", each.grad)) for each in network.parameters())
    space = spaces.Box(np.zeros((1, 36, 36)), np.full((1, 36, 36), 255), (1, 36, 36), "uint8")
    images = build_encoder(
        BuildContext(space, spaces.Discrete(2), 1, "cpu", Streams(0)), "CnnPolicy", ActorCriticConfig()
    )
    features = images(pixels)
    yield "the features of pixels", features
    yield from (("a gradient by pixels", g) for g in torch.autograd.grad(features.sum(), list(images.parameters())))


def _of_optimizers() -> Numbers:
    for name in ("adam", "rmsprop"):
        weights = nn.Parameter(_normal(50))
        optimizer = FlatOptimizer([weights], name, 1e-2)
        for step in range(40):  # moments are cleared after 32 steps
            optimizer.zero_grad()
            optimizer.gradients.copy_(_normal(50, seed=step))
            optimizer.step(1e-2, 1.0 if step % 2 else None)
            yield f"the weights after step {step + 1} of {name}", weights


CASES = (
    _of_rollouts,
    _of_values,
    _of_continuous_actions,
    _of_discrete_actions,
    _of_actor_and_critic,
    _of_layers,
    _of_optimizers,
)
"""What is computed with each kernel, and in torch."""
