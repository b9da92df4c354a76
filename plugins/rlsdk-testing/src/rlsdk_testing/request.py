"""`CheckRequest` describes what to check, in a form that can be sent to another process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import attrs

from rlsdk.errors import SettingsError, one_line
from rlsdk.registry import find, load
from rlsdk.settings import merge, structure
from rlsdk_testing.declared import declared_bounds, declared_exceptions, declared_settings


@attrs.frozen(kw_only=True)
class CheckRequest:
    """The algorithm to check, the settings of its agents, and whether to try more examples (`thorough`)."""

    algorithm: str
    settings: Mapping[str, object] = attrs.field(factory=dict)
    thorough: bool = False

    def as_line(self) -> bytes:
        """Return the request as a line of JSON, for the standard input of the worker process.

        Raises:
            SettingsError: a setting is an object that is not a number, text, list or table.
        """
        values = {**attrs.asdict(self, recurse=False), "settings": dict(self.settings)}
        try:
            return json.dumps(values, default=os.fspath).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise SettingsError(
                f"settings for the process of the checks are numbers, text, lists and tables ({one_line(error)});"
                " use isolate=False for others"
            ) from None

    @staticmethod
    def of_line(line: bytes) -> CheckRequest:
        """Return the request from a line that `as_line` has made."""
        return CheckRequest(**json.loads(line))


def require_settings(algorithm: str, settings: Mapping[str, object]) -> None:
    """Check that the algorithm loads, that its declarations for testing are correct, and that it accepts `settings`.

    Raises:
        PluginError: the algorithm does not load, or a declaration is wrong.
        SettingsError: it refuses `settings`, or they choose another device than the CPU.
    """
    spec = load(algorithm)
    plugin = find(algorithm)
    declared_bounds(plugin, spec)
    declared_exceptions(plugin, spec)
    declared = declared_settings(plugin, spec)
    if str(settings.get("device", "cpu")) not in ("cpu", "auto"):
        raise SettingsError("the checks compare agents with computations on the CPU; leave out the setting device")
    if settings:
        structure({"policy": spec.policies[0], **merge(declared, settings)}, spec.config_type)
