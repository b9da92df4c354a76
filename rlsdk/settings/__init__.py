"""Hyper-parameters: one attrs class per algorithm, read strictly, shown everywhere. Imports no torch."""

from rlsdk.settings.fields import AgentConfig, choice, described, finite_schedule, in_range
from rlsdk.settings.load import load_settings, merge, parse_assignments
from rlsdk.settings.render import FieldDoc, commented_toml, describe, docstring
from rlsdk.settings.strict import evolve, structure, unstructure

__all__ = [
    "AgentConfig",
    "FieldDoc",
    "choice",
    "commented_toml",
    "describe",
    "described",
    "docstring",
    "evolve",
    "finite_schedule",
    "in_range",
    "load_settings",
    "merge",
    "parse_assignments",
    "structure",
    "unstructure",
]
