"""The project uses the words of RL papers, torch and gymnasium: old names do not return, and odd idioms become fewer.

`python -m tests.repository.test_words` lists every occurrence of the counted idioms.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("rlsdk", "plugins", "contrib_algos", "examples", "docs", "tests", "benchmarks", "publishing")
EXCEPTED = {
    "CHANGELOG.md": "lists what was renamed",
    "test_words.py": "lists the old names",
    "plain_english.py": "lists odd words",
}

RENAMED = {
    "ByHand": "manual_backward",
    "Copies": "SyncVectorEnv",
    "Dead": "WorkerDied",
    "Facts": "BuildContext",
    "GoalJudge": "compute_reward",
    "Here": "SerialExecutor",
    "InProcessEnvs": "SyncVectorEnv",
    "LeafScale": "RunningMoments",
    "Lent": "SharedArray",
    "MaskGate": "MaskValidator",
    "Outbox": "SharedArrays",
    "Around": "PartWrapper",
    "Played": "EpisodeResult",
    "RewardedAlgorithm": "nothing: it is gone",
    "Seat": "EpisodeSlot",
    "Sides": "ActorCriticKernel",
    "Stack": "DenseKernel",
    "Tally": "EpisodeStatistics",
    "Twice": "RepeatedFailure",
    "anew": "extension",
    "engine": "kernel",
    "engines": "kernels",
    "facts": "context",
    "judge": "compute_reward or selector",
    "lent": "shared",
    "mode_matters": "has_train_mode",
    "outbox": "shared_arrays",
    "pair_sums": "pairwise_huber",
    "parcels": "shared_memory",
    "preparation": "preprocessing",
    "pulled": "vjp, or a full verb",
    "run_by_hand": "manual_backward",
    "said": "message, report or stated",
    "slope": "grad",
    "slopes": "grads",
    "tally": "statistics",
    "tell": "notify",
    "tells": "notifies",
    "tilt": "tau_weight",
    "told": "notified or recorded",
}
"""Identifiers: old name -> what it is called now. Variables, arguments, attributes, functions, classes and modules."""

RENAMED_IN = {
    "rlsdk/distributions": {"curvature": "fisher_product", "pull": "vjp"},
    "rlsdk/kernels": {"pull": "vjp"},
    "plugins/rlsdk-kernels/src": {"draws": "numpy_distributions", "pull": "vjp"},
    "rlsdk/updates": {"pieces": "segments", "pull": "vjp"},
    "rlsdk/math": {"pieces": "segments"},
    "plugins/rlsdk-qrdqn/src": {"ahead": "next_quantiles", "judge": "selector", "places": "flat_index"},
}
"""Identifiers whose old meaning existed in one folder only; elsewhere the word is allowed."""

METHODS_IN = {
    "rlsdk/networks": {"seen": "update", "restored": "denormalize", "kept": "mean_variance"},
    "rlsdk/preprocessing": {"seen": "update", "restored": "denormalize", "kept": "mean_variance"},
}
"""Functions, methods and attributes whose old meaning existed in one folder only; local variables may have the name."""

MODULES = {"choose": "factory", "described": "fields", "parcels": "shared_memory", "tally": "episode_statistics"}
"""File names: old name -> new name."""

PROSE = {name: new for name, new in RENAMED.items() if re.fullmatch(r"\w+[a-z][A-Z_]\w+", name)} | {
    "engines": "kernels",
    "LeafScale": "RunningMoments",
    "of its own accord": "by itself",
    "of their own accord": "by themselves",
}
"""Words that must not occur in comments, docstrings, messages and pages either: they have no other meaning."""

_PROSE = re.compile(rf"\b({'|'.join(PROSE)})\b")

IDIOMS = {
    r"keeps|kept": 36,
    r"(?<!\.)tells?|told|telling": 0,  # not methods of other libraries: of a file, and of a study of Optuna
    r"says?|said|saying": 6,
    r"whoever": 0,
    r"whatever": 0,
    r"nobody": 0,
    r"(is|are|was|were) asked for": 0,
    r"(is|are|was|were) wanted": 0,
    r"as many as": 0,
    r"doors?": 1,
    r"anew": 0,
    r"go on|goes on|went on|going on": 0,
    r"(?<!there )(is|are) no": 3,
}
"""Idioms -> how often they may occur. They have good uses; a bound is lowered when occurrences go, and never raised."""


GENERATED = {("docs", "cards"), ("docs", "commands"), ("docs", "reference")}
"""Folders whose pages `make docs` writes."""


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """(path relative to the repository, content) of every Python file and page that people wrote."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    files += [path for folder in FOLDERS for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    found = []
    for path in sorted(files):
        place = path.relative_to(ROOT)
        hidden = any(part.startswith(".") or part in ("site", "build", "__pycache__") for part in place.parts)
        hidden = hidden or place.parts[:2] in GENERATED
        if path.name not in EXCEPTED and not hidden:
            found.append((place.as_posix(), path.read_text(encoding="utf-8")))
    return tuple(found)


def identifiers(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, name, whether other files can use it) of every name that a Python file defines or assigns."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name, True
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg, False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr, True


def _of_folder(table: Mapping[str, dict[str, str]], place: str) -> dict[str, str]:
    return next((names for folder, names in table.items() if place.startswith(folder)), {})


def old_names(place: str, text: str) -> list[str]:
    """Return one line for every old name in a file, with its place and the new name."""
    renamed, methods = RENAMED | _of_folder(RENAMED_IN, place), _of_folder(METHODS_IN, place)
    found = []
    if place.endswith(".py"):
        if (stem := Path(place).stem) in MODULES:
            found.append(f"{place}: the file is called {MODULES[stem]}.py now")
        for line, name, public in identifiers(text):
            if new := (renamed | methods if public else renamed).get(name.strip("_")):
                found.append(f"{place}:{line}: `{name}` is called {new} now")
    for match in _PROSE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        found.append(f"{place}:{line}: {match[0]!r} is called {PROSE[match[0]]} now")
    return found


def occurrences(idiom: str) -> list[str]:
    """The lines with an idiom, as `path:line: content`."""
    pattern = re.compile(rf"\b({idiom})\b", re.IGNORECASE)
    return [
        f"{place}:{line}: {content.strip()}"
        for place, text in texts()
        for line, content in enumerate(text.splitlines(), 1)
        if pattern.search(content)
    ]


def test_no_text_has_a_control_character():
    # a replacement with `\\1` in a plain string leaves one, and editors do not show it
    assert [place for place, text in texts() if re.search(r"[^\S \n]|[\x00-\x08\x0e-\x1f\x7f]", text)] == []


def test_old_names_are_gone():
    assert [line for place, text in texts() for line in old_names(place, text)] == []


@pytest.mark.parametrize("idiom", IDIOMS)
def test_odd_idioms_become_fewer(idiom):
    lines = occurrences(idiom)
    assert len(lines) <= IDIOMS[idiom], f"{len(lines)} lines with {idiom!r}; use the field's word:\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("place", "planted"),
    [
        ("rlsdk/x.py", "slope = 1"),
        ("rlsdk/x.py", "def tell(event): ..."),
        ("rlsdk/x.py", "class Outbox: ..."),
        ("rlsdk/x.py", "self._told = 1"),
        ("rlsdk/x.py", "# see LeafScale"),
        ("rlsdk/storage/choose.py", ""),
        ("rlsdk/networks/x.py", "def kept(): ..."),
        ("plugins/rlsdk-qrdqn/src/rlsdk_qrdqn/loss.py", "ahead = 1"),
        ("docs/x.md", "The engines of the SDK."),
    ],
)
def test_a_planted_old_name_is_found(place, planted):
    assert len(old_names(place, planted)) == 1


def test_the_new_names_are_not_taken_for_old_ones():
    assert old_names("rlsdk/x.py", "kept = seen = grad = 1  # the slope of the line, told by the door") == []
    assert {path for path, _ in texts()} >= {
        "README.md",
        "docs/index.md",
        "rlsdk/records.py",
        "tests/repository/test_docs.py",
    }


if __name__ == "__main__":
    for name in IDIOMS:
        sys.stdout.write("\n".join(occurrences(name)) + f"\n{len(occurrences(name))} x {name}\n\n")
