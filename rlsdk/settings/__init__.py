"""Hyper-parameters of algorithms: config classes (attrs), strict reading, and their description. Imports no torch."""

from typing import TYPE_CHECKING

from rlsdk.runtime.documented_names import names_elsewhere
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.dataset import Dataset, dataset_names
from rlsdk.settings.fields import MEMORY, choice, described, finite_schedule, in_range, needs
from rlsdk.settings.inherited import Default, defaults, positional, without
from rlsdk.settings.load import load_settings, merge, parse_assignments
from rlsdk.settings.policy_names import PolicyName
from rlsdk.settings.preprocessing import Normalization
from rlsdk.settings.render import FieldDoc, commented_toml, describe, docstring
from rlsdk.settings.strict import evolve, flat_scalars, structure, unstructure

__all__ = [
    "MEMORY",
    "AgentConfig",
    "Dataset",
    "Default",
    "FieldDoc",
    "Normalization",
    "PolicyName",
    "choice",
    "commented_toml",
    "dataset_names",
    "defaults",
    "describe",
    "described",
    "docstring",
    "evolve",
    "finite_schedule",
    "flat_scalars",
    "in_range",
    "load_settings",
    "merge",
    "needs",
    "parse_assignments",
    "positional",
    "structure",
    "unstructure",
    "without",
]

if not TYPE_CHECKING:  # type checkers report names that are not there
    __getattr__ = names_elsewhere(__name__)
