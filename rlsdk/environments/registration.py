"""Ids of environments in installed packages. Such a package registers them with gymnasium when it is imported."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import gymnasium

from rlsdk.errors import RlsdkError
from rlsdk.registry import extension, extensions
from rlsdk.registry.discovery import SWITCH
from rlsdk.registry.loading import is_offered
from rlsdk.runtime.pip_commands import pip_install

PACKAGES: Mapping[str, str] = {"rlsdk": "rlsdk-envs"}
"""Namespace of ids that another package of this project offers -> that package."""


def is_of_package(identity: str) -> bool:
    """Whether gymnasium does not know an id and an installed package offers its namespace, also after that was imported.

    Raises:
        PluginError: several packages offer the namespace, or the package is broken.
    """
    namespace, slash, _ = identity.partition("/")
    if not slash or identity in gymnasium.registry or not is_offered("environments", namespace):
        return False
    extension("environments", namespace)  # imports the package, which may register the id
    return identity not in gymnasium.registry


def register_all() -> None:
    """Import all packages that offer environments, so that a message can suggest their ids. Broken ones are ignored."""
    for namespace in extensions("environments"):
        with contextlib.suppress(RlsdkError):
            extension("environments", namespace)


def lacking_package(identity: str) -> str | None:
    """A message if the namespace of an id belongs to a package of this project that is not installed; otherwise None."""
    namespace = identity.partition("/")[0]
    if namespace not in PACKAGES or is_offered("environments", namespace):
        return None
    package, hidden = PACKAGES[namespace], f" or hidden by {SWITCH}" if os.environ.get(SWITCH) else ""
    fix = pip_install(package)
    return f"{namespace}/... are environments of {package}, which is not installed{hidden}; install it: {fix}"
