"""Bugs of files, settings, manifests and presets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

import rlsdk_tqc.algorithm
from rlsdk.storage import archive
from tests.mutants.catalog import Patch, mutant


def written_as(patch: Patch, change: Callable[[Tensor], Tensor]) -> None:
    """Write `change(tensor)` instead of each tensor."""
    encode = archive._encode

    def changed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: changed(part) for name, part in value.items()}
        return change(value) if isinstance(value, Tensor) else value

    patch.setattr(archive, "_encode", lambda key, section: encode(key, changed(section)))


@mutant("serializer.round-trip")
def half_precision_on_disk(patch: Patch) -> None:
    written_as(patch, lambda tensor: tensor.half().float() if tensor.dtype == torch.float32 else tensor)


@mutant("plugin.unsupported-space-refused", alone=True)
def any_space_is_taken(patch: Patch) -> None:
    patch.setattr("rlsdk_tqc.build.require_spaces", lambda *a, **k: None)


@mutant("plugin.kernels-agree", "kernels", alone=True)
def sums_forget_the_last_row(patch: Patch) -> None:
    from rlsdk_kernels import compiled_vectors
    from rlsdk_kernels.hooks import kernels

    def wrong(value: Tensor, weight: Tensor) -> Tensor:
        return compiled_vectors.discounted_sums(torch.cat([value[:-1], torch.zeros_like(value[-1:])]), weight)

    patch.setattr("rlsdk_testing.plugin_clauses.extensions_of", lambda *_: {**kernels(), "discounted_sums": wrong})


@mutant("plugin.settings-round-trip", alone=True)
def settings_lose_precision(patch: Patch) -> None:
    from rlsdk_testing import plugin_clauses as plugin

    unstructure = plugin.unstructure
    patch.setattr(plugin, "unstructure", lambda config: {**unstructure(config), "tau": round(config.tau, 2)})


@mutant("plugin.presets-fit", alone=True)
def a_preset_names_a_setting_that_is_no_more(patch: Patch) -> None:
    from rlsdk.registry import Preset
    from rlsdk_testing import plugin_clauses as plugin

    old = Preset(env="Pendulum-v1", steps=1, settings={"quantiles": 25})
    patch.setattr(plugin, "presets", lambda name: (old,))


@mutant("plugin.unknown-setting-refused", alone=True)
def unknown_settings_are_ignored(patch: Patch) -> None:
    from rlsdk_testing import plugin_clauses as plugin

    true = plugin.structure

    def lenient(values: Any, kind: Any) -> Any:
        known = {f.name for f in attrs.fields(kind)}
        return true({name: value for name, value in values.items() if name in known}, kind)

    patch.setattr(plugin, "structure", lenient)


@mutant("plugin.import-is-free", alone=True)
def the_plugin_imports_torch(patch: Patch) -> None:
    source = Path(rlsdk_tqc.__file__).parent
    copy = Path(tempfile.mkdtemp(prefix="rlsdk-mutant-"))
    shutil.copytree(source, copy / "rlsdk_tqc")
    with (copy / "rlsdk_tqc" / "config.py").open("a") as stream:
        stream.write("import torch\n")
    patch.syspath_prepend(str(copy))


def say_in_the_manifest(patch: Patch, **changes: Any) -> None:
    """Make the kit read the manifest with these changes."""
    from rlsdk_testing import subject

    true = subject.find

    def find(name: str) -> Any:
        plugin = true(name)
        assert plugin.manifest is not None
        return attrs.evolve(plugin, manifest=attrs.evolve(plugin.manifest, **changes))

    patch.setattr(subject, "find", find)


@mutant("plugin.manifest-agrees", alone=True)
def the_manifest_names_a_policy_that_is_not_there(patch: Patch) -> None:
    say_in_the_manifest(patch, policies=("MlpPolicy", "LstmPolicy"))


@mutant("plugin.claims-backed", alone=True)
def the_manifest_claims_a_memory(patch: Patch) -> None:
    say_in_the_manifest(patch, traits=("gsde", "action_noise", "replay", "recurrent"))


@mutant("plugin.settings-documented", alone=True)
def a_setting_has_no_help(patch: Patch) -> None:
    from rlsdk_testing import plugin_clauses as plugin

    true = plugin.describe
    patch.setattr(plugin, "describe", lambda kind: [attrs.evolve(doc, help="") for doc in true(kind)])


@mutant("serializer.damage-refused", alone=True)
def digests_of_tensors_are_not_compared(patch: Patch) -> None:
    patch.setattr(archive, "_require_digest", lambda *arguments: None)
    patch.setattr("zipfile.ZipExtFile._update_crc", lambda self, data: None)


@mutant("serializer.round-trip", alone=True)
def large_whole_numbers_lose_digits(patch: Patch) -> None:
    written_as(patch, lambda tensor: tensor.to(torch.int32).to(torch.int64) if tensor.dtype == torch.int64 else tensor)
