"""Checks of stored files. Untrusted files may not choose which module is imported, or which files are read or written.

Trusted are files that the user trusts with `--trust`, and records of runs that this user made on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsdk.environments.named_in_files import refusal
from rlsdk.errors import SettingsError, shown
from rlsdk.executors import is_place
from rlsdk.experiments.made_here import record_made_here, vouched_for
from rlsdk.runtime.places import PLACES
from rlsdk.settings.environment_id import environment_id

if TYPE_CHECKING:
    from rlsdk.experiments.run_request import RunRequest


def require_trusted(
    source: str,
    folder: Path,
    *,
    env: str | None = None,
    settings: Mapping[str, object] | None = None,
    files: Iterable[Path] = (),
) -> None:
    """Check what a file that may come from someone else, such as a suite, chooses for runs below `folder`.

    Args:
        source: name of the file in errors.
        folder: where the runs write.
        env: the environment that the file names.
        settings: the settings of agents that it names.
        files: existing files that the runs will write.

    Raises:
        SettingsError: the environment would import a module or read a file, a setting is a path outside `folder`, or a file is
            a symbolic link, so that another file would be written. The message tells to add `--trust`.
    """
    if env is not None:
        require_own_environment(env, source, trust=False)
    require_own_places(places_in(settings or {}), folder, source, trust=False)
    require_own_files(files, trust=False)


def require_own_choices(
    request: RunRequest, source: Path, env: str | None, places: Mapping[str, object], files: Iterable[Path]
) -> None:
    """Check what the record `source` would decide for `request`: environment, paths, and the files that will be written.

    Values that the request gives again are not checked, because the user chose them.

    Raises:
        SettingsError: a module would be imported, or a file outside the folder written, and the request does not trust it.
    """
    given = places_in(request.settings)
    named = {name: place for name, place in places.items() if name not in given}
    trust = request.trust or record_made_here(source) is not None
    if env is not None:
        require_own_environment(env, source, trust=trust or request.env is not None)
    require_own_places(named, source.parent, str(source), trust=trust)
    require_own_files(files, trust=request.trust)


def require_same_environment(given: str | None, stored: str | None, held: str) -> None:
    """Check that the environment `given` to a command, if any, is that of the run to continue.

    Raises:
        SettingsError: it is another one. The message begins with `held`.
    """
    if given is None or (stored is not None and environment_id(given) == environment_id(stored)):
        return
    raise SettingsError(
        f"{held} {stored!r}, not on {given!r}; give the same, or leave out --env, --env-kwargs and --wrapper"
    )


def require_own_environment(env: str, source: Path | str, *, trust: bool) -> str:
    """Return `env` after a check: it may not import a module or read a file unless `source` is trusted.

    Such ids are `package:Env-v0` and `Ant-v5?xml_file=/tmp/ant.xml`. A path `source` in a run directory that this user made
    here is trusted with the environment of the run.

    Raises:
        SettingsError: it is such an id, and `source` is not trusted.
    """
    if trust or (why := refusal(env)) is None or (isinstance(source, Path) and vouched_for(source, env)):
        return env
    raise SettingsError(
        f"{source} names the environment {shown(env)}, and a file may not choose what is imported or read: {why}; give it with"
        " --env, or add --trust if you trust the file"
    )


def asks_for_trust(env: str | None, places: Mapping[str, object], folder: Path, executors: Iterable[str]) -> bool:
    """Whether a record with these entries in `folder` is refused, unless it is trusted."""
    if env is not None and refusal(env) is not None:
        return True
    return any(map(is_place, executors)) or not all(_is_inside(place, folder) for place in places.values())


def require_own_executor(executor: str, source: str, *, trust: bool) -> None:
    """Check an executor that `source` names.

    Raises:
        SettingsError: the name refers to a module, which would be imported, and `source` is not trusted.
    """
    if is_place(executor) and not trust:
        raise SettingsError(
            f"{source} names the executor {executor!r}, for which a module would be imported; give it again, or add --trust if"
            " you trust the file"
        )


def places_in(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings in a nested table that are paths on disk: dotted name -> path."""
    found = {}
    for name in PLACES:
        value: Any = settings
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            found[name] = str(value)
    return found


def without_places(settings: Mapping[str, object]) -> set[str]:
    """Return the dotted names of the settings in a nested table that are not paths on disk."""
    return set(_dotted(settings)) - set(PLACES)


def _dotted(settings: Mapping[str, object]) -> list[str]:
    names = []
    for name, value in settings.items():
        names += [f"{name}.{inner}" for inner in _dotted(value)] if isinstance(value, Mapping) else [name]
    return names


def require_own_places(places: Mapping[str, object], folder: Path, source: str, *, trust: bool) -> None:
    """Check the paths that `source` names.

    Raises:
        SettingsError: a path is outside `folder`, and `source` is not trusted.
    """
    for name, place in places.items():
        if not trust and not _is_inside(place, folder):
            raise SettingsError(
                f"{source} names a place to write, {name} = {str(place)[:200]!r}; give it again with --set {name}=..., or"
                " add --trust if you trust the file"
            )


def require_own_files(paths: Iterable[Path], *, trust: bool) -> None:
    """Check files before they are written.

    Raises:
        SettingsError: a file is a symbolic link, so another file would be written, and the folder is not trusted.
    """
    for path in paths:
        if path.is_symlink() and not trust:
            raise SettingsError(
                f"{path} is a link to another place, which would be written to; add --trust if you trust the folder"
            )


def _is_inside(place: object, folder: Path) -> bool:
    if not isinstance(place, str) or "\0" in place:
        return False
    try:
        return Path(place).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a cycle of symbolic links
        return False
