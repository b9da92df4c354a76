"""Clauses about a plugin's package: its import, manifest, settings, presets and supported spaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import attrs
from hypothesis import given

from rlsdk.errors import PluginError, SettingsError, UnsupportedSpaceError, message_of, shown
from rlsdk.registry import extension, presets
from rlsdk.settings import describe, structure, unstructure
from rlsdk.tree import leaves
from rlsdk_envs.toy import AnySpaceEnv
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
    path = json.dumps(
        [os.path.abspath(place) for place in map(str, sys.path)]
    )  # an empty text is the working directory
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
        "parallel": hasattr(small.parts.plan, "with_normalizer"),
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
