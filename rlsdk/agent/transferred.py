"""What an agent took over from the policy of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LISTED = 6


@dataclass(frozen=True, slots=True)
class PolicyTransfer:
    """What an agent took over from a file."""

    taken: tuple[str, ...]
    """Names of tensors."""
    unchanged: Mapping[str, str]
    """Names of the agent's tensors that stayed as they were, each with why."""
    unused: tuple[str, ...]
    """Names of the file's tensors that the agent does not have."""

    @property
    def partial(self) -> bool:
        """Whether the two policies are not the same in every tensor."""
        return bool(self.unchanged or self.unused)

    def __str__(self) -> str:
        whole = f"{len(self.taken)} of {len(self.taken) + len(self.unchanged)} tensors of the policy come from the file"
        unchanged = [f"{name} ({why})" for name, why in self.unchanged.items()]
        parts = [whole, *_listed("unchanged", unchanged), *_listed("unused in the file", list(self.unused))]
        return "; ".join(parts)


def _listed(what: str, names: list[str]) -> list[str]:
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return [f"{what}: {', '.join(names[:LISTED])}{more}"] if names else []
