"""The record of the tensors that an agent copied from the policy in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LISTED = 6


@dataclass(frozen=True, slots=True)
class PolicyTransfer:
    """The result of `load_policy`: which tensors were copied from the file, and which were not."""

    taken: tuple[str, ...]
    """The names of the tensors that were copied."""
    unchanged: Mapping[str, str]
    """Name of a tensor of the agent that was not replaced -> the reason."""
    unused: tuple[str, ...]
    """The names of the file's tensors that the agent does not have."""

    @property
    def partial(self) -> bool:
        """Whether some tensors of the agent were not replaced, or some of the file were not used."""
        return bool(self.unchanged or self.unused)

    def __str__(self) -> str:
        whole = f"{len(self.taken)} of {len(self.taken) + len(self.unchanged)} tensors of the policy come from the file"
        unchanged = [f"{name} ({why})" for name, why in self.unchanged.items()]
        parts = [whole, *_listed("unchanged", unchanged), *_listed("unused in the file", list(self.unused))]
        return "; ".join(parts)


def _listed(what: str, names: list[str]) -> list[str]:
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return [f"{what}: {', '.join(names[:LISTED])}{more}"] if names else []
