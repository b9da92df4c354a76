"""A stored file may not choose which module is imported, or where something is written or read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsdk.errors import SettingsError
from rlsdk.executors import is_place
from rlsdk.runtime.places import PLACES
from rlsdk.settings.environment_id import environment_id

if TYPE_CHECKING:
    from rlsdk.experiments.run_request import RunRequest


def require_own_choices(
    request: RunRequest, source: Path, env: str | None, places: Mapping[str, object], files: Iterable[Path]
) -> None:
    """Check what the record `source` would decide for `request`: its environment, its places, and the files that will be
    written beside it. What the request gives again is its own choice.

    Raises:
        SettingsError: a module would be imported, or something written elsewhere, and the request does not trust the folder.
    """
    given = places_in(request.settings)
    named = {name: place for name, place in places.items() if name not in given}
    if env is not None:
        require_own_environment(env, str(source), trust=request.trust or request.env is not None)
    require_own_places(named, source.parent, str(source), trust=request.trust)
    require_own_files(files, trust=request.trust)


def require_same_environment(given: str | None, stored: str | None, held: str) -> None:
    """Check the environment that a command gives again, if any, against that of the run it continues.

    Raises:
        SettingsError: it is another one. `held` begins the message.
    """
    if given is None or (stored is not None and environment_id(given) == environment_id(stored)):
        return
    raise SettingsError(
        f"{held} {stored!r}, not on {given!r}; give the same, or leave out --env, --env-kwargs and --wrapper"
    )


def require_own_environment(env: str, source: str, *, trust: bool) -> str:
    """`env`, unless it is an id such as `package:Env-v0` or `Ant-v5?xml_file=/tmp/ant.xml`: a module would be imported, or a
    file read.

    Raises:
        SettingsError: it is one, and `source` is not trusted.
    """
    if not trust and environment_id(env).reads_more:
        raise SettingsError(
            f"{source} names the environment {env!r}, for which a module would be imported or a file read; give it with"
            " --env, or add --trust if you trust the file"
        )
    return env


def require_own_executor(executor: str, source: str, *, trust: bool) -> None:
    """Check an executor that `source` names.

    Raises:
        SettingsError: it is a place in a module, which would be imported, and `source` is not trusted.
    """
    if is_place(executor) and not trust:
        raise SettingsError(
            f"{source} names the executor {executor!r}, for which a module would be imported; give it again, or add --trust if"
            " you trust the file"
        )


def places_in(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings in a nested table that name a place on disk, by dotted name."""
    found = {}
    for name in PLACES:
        value: Any = settings
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            found[name] = str(value)
    return found


def without_places(settings: Mapping[str, object]) -> set[str]:
    """The dotted names of the other settings in a nested table."""
    return set(_dotted(settings)) - set(PLACES)


def _dotted(settings: Mapping[str, object]) -> list[str]:
    names = []
    for name, value in settings.items():
        names += [f"{name}.{inner}" for inner in _dotted(value)] if isinstance(value, Mapping) else [name]
    return names


def require_own_places(places: Mapping[str, object], folder: Path, source: str, *, trust: bool) -> None:
    """Check places that `source` names.

    Raises:
        SettingsError: one lies outside `folder`, and `source` is not trusted.
    """
    for name, place in places.items():
        inside = isinstance(place, str) and "\0" not in place and _inside(Path(place), folder)
        if not inside and not trust:
            raise SettingsError(
                f"{source} names a place to write, {name} = {str(place)[:200]!r}; give it again with --set {name}=..., or"
                " add --trust if you trust the file"
            )


def require_own_files(paths: Iterable[Path], *, trust: bool) -> None:
    """Check files that are about to be written.

    Raises:
        SettingsError: one is a symbolic link, which leads elsewhere, and its folder is not trusted.
    """
    for path in paths:
        if path.is_symlink() and not trust:
            raise SettingsError(
                f"{path} is a link to another place, which would be written to; add --trust if you trust the folder"
            )


def _inside(place: Path, folder: Path) -> bool:
    try:
        return place.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links
        return False
