"""A plugin package from templates.

Templates are the files of `templates/common` and of the family's folder, with `$name` where a fact belongs; `PACKAGE` in a path
is the name of the Python package.
"""

from __future__ import annotations

import json
import keyword
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from rlsdk.errors import ArtifactError, SettingsError, suggest
from rlsdk.registry import plugins

IDENTITY = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
SDK, OLDEST = ">=0.1,<0.2", "0.1.0"
"""What a new package claims, and the oldest release of that range."""
SUFFIX = ".tmpl"
FAMILY_FIELDS: dict[str, dict[str, str]] = {
    "on-policy": {
        "summary": "on-policy: learns from each rollout once",
        "lives": "learning_rate, n_steps, batch_size, n_epochs, gamma,"
        " gae_lambda, normalize_advantage, ent_coef, vf_coef, max_grad_norm",
        "default_envs": "1",
        "actions": "Box, Discrete, MultiDiscrete, MultiBinary",
        "observations": "Box, Discrete, MultiDiscrete, MultiBinary",
        "test_settings": "n_steps=64, batch_size=64, learning_rate=1e-2, gamma=0.0",
        "test_steps": "4000",
        "preset_steps": "50_000",
        "preset_settings": 'n_steps = 128\nlearning_rate = "lin_2e-3"',
    },
    "off-policy": {
        "summary": "off-policy: learns from a replay memory",
        "lives": "learning_rate, learning_starts, batch_size, tau, gamma, train_freq, gradient_steps, max_grad_norm",
        "default_envs": "1",
        "actions": "Discrete",
        "observations": "Box, Discrete, MultiDiscrete, MultiBinary",
        "test_settings": "learning_starts=100, gamma=0.0",
        "test_steps": "1500",
        "preset_steps": "30_000",
        "preset_settings": 'learning_rate = "lin_1e-3"\ntrain_freq = 16\ngradient_steps = 8\ntau = 0.02',
    },
    "population": {
        "summary": "population: searches parameters by playing whole episodes",
        "lives": "candidates, elites, spread, n_eval_episodes",
        "default_envs": "16",
        "actions": "Box, Discrete, MultiDiscrete, MultiBinary",
        "observations": "Box, Discrete, MultiDiscrete, MultiBinary",
        "test_settings": "candidates=32",
        "test_steps": "60_000",
        "preset_steps": "60_000",
        "preset_settings": "candidates = 16\nelites = 4",
    },
}
"""What is particular to a family: spaces its parts support, and settings with which the untouched package learns."""


def new_package(identity: str, family: str, folder: Path) -> Path:
    """Write the package of the algorithm `identity` into a new folder inside `folder`; returns the new folder.

    Raises:
        SettingsError: no such family, an id that cannot be one, or one that is taken.
        ArtifactError: the folder exists, or cannot be written; nothing is left half written.
    """
    context = _placeholders(identity, family)
    _require_free(identity)
    target = folder / context["distribution"]
    if target.exists():
        raise ArtifactError(f"{target} exists already; remove it, choose another id, or another folder with --out")
    staging: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder, prefix=f".{target.name}."))
        for place, text in _files_of(context, family):
            path = staging / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        staging.chmod(0o755)
        staging.rename(target)
    except OSError as error:
        raise ArtifactError(
            f"cannot write {target}: {error.strerror or error}; choose a writable folder with --out"
        ) from None
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
    return target


def _placeholders(identity: str, family: str) -> dict[str, str]:
    if family not in FAMILY_FIELDS:
        raise SettingsError(f"unknown family {family!r}; {suggest(family, FAMILY_FIELDS)}")
    if not IDENTITY.fullmatch(identity):
        raise SettingsError(
            f"{identity!r} cannot be the id of an algorithm: lower-case words of letters and digits, joined by hyphens,"
            " such as my-algo"
        )
    name = "".join(word.capitalize() for word in identity.split("-"))
    own = FAMILY_FIELDS[family]
    return {
        **own,
        "id": identity,
        "family": family,
        "cls": f"{name}Agent" if keyword.iskeyword(name) else name,
        "title": " ".join(identity.split("-")).capitalize(),
        "distribution": f"rlsdk-{identity}",
        "package": f"rlsdk_{identity.replace('-', '_')}",
        "sdk": SDK,
        "oldest": OLDEST,
        **{f"{kind}_list": json.dumps(own[f"{kind}s"].split(", ")) for kind in ("action", "observation", "live")},
        "live_example": own["lives"].partition(",")[0],
        **{f"{kind}_tuple": _tuple(own[f"{kind}s"].split(", ")) for kind in ("action", "observation")},
    }


def _require_free(identity: str) -> None:
    if any(plugin.id == identity for plugin in plugins()):
        raise SettingsError(f"an algorithm {identity!r} is installed already, see `rlsdk list`; choose another id")


def _tuple(names: list[str]) -> str:
    inside = ", ".join(f'"{name}"' for name in names)
    return f"({inside},)" if len(names) == 1 else f"({inside})"


def rendered(identity: str, family: str) -> dict[str, str]:
    """Path inside the package -> text, of every file of the package for an algorithm; nothing is written.

    Raises:
        SettingsError: no such family, or an id that cannot be one.
    """
    return dict(_files_of(_placeholders(identity, family), family))


def _files_of(context: Mapping[str, str], family: str) -> Iterator[tuple[str, str]]:
    root = files("rlsdk.scaffold") / "templates"
    for name in ("common", family):
        for place, file in _files(root / name):
            text = Template(file.read_text(encoding="utf-8")).substitute(context)
            yield place.replace("PACKAGE", context["package"]).removesuffix(SUFFIX), text


def _files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield prefix + entry.name, entry
