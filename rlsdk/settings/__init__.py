"""Hyper-parameters: one attrs class per algorithm, read strictly, shown everywhere. Imports no torch."""

from rlsdk.settings.described import choice, described, finite_schedule, in_range
from rlsdk.settings.fields import AgentConfig
from rlsdk.settings.load import load_settings, merge, parse_assignments
from rlsdk.settings.policy_names import PolicyName
from rlsdk.settings.preparation import Normalization
from rlsdk.settings.render import FieldDoc, commented_toml, describe, docstring
from rlsdk.settings.strict import evolve, flat_scalars, structure, unstructure

__all__ = [
    "AgentConfig",
    "FieldDoc",
    "Normalization",
    "PolicyName",
    "choice",
    "commented_toml",
    "describe",
    "described",
    "docstring",
    "evolve",
    "finite_schedule",
    "flat_scalars",
    "in_range",
    "load_settings",
    "merge",
    "parse_assignments",
    "structure",
    "unstructure",
]
