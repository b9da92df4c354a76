"""Hyper-parameters of algorithms: config classes (attrs), strict reading, and their description. Imports no torch."""

from typing import TYPE_CHECKING

from rlsdk.runtime.lazy import names_elsewhere
from rlsdk.settings.agent_config import AgentConfig, Normalization, PolicyName
from rlsdk.settings.fields import (
    MEMORY,
    Default,
    choice,
    defaults,
    described,
    finite_schedule,
    in_range,
    needs,
    positional,
    without,
)
from rlsdk.settings.load import (
    DataReference,
    data_in,
    data_settings,
    environment_id,
    load_settings,
    merge,
    parse_assignments,
)
from rlsdk.settings.strict import (
    FieldDoc,
    commented_toml,
    describe,
    docstring,
    evolve,
    flat_scalars,
    structure,
    unstructure,
)

__all__ = [
    "MEMORY",
    "AgentConfig",
    "DataReference",
    "Default",
    "FieldDoc",
    "Normalization",
    "PolicyName",
    "choice",
    "commented_toml",
    "data_in",
    "data_settings",
    "defaults",
    "describe",
    "described",
    "docstring",
    "environment_id",
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
