"""Reads the parameters of an agent by name, and replaces them in place."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from rlsdk.agent import agent_file
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.file_checks import require_same_places, spaces_of
from rlsdk.agent.further_states import further_states, restore_states
from rlsdk.agent.made_by import upgraded
from rlsdk.agent.torch_modes import in_plain_modes
from rlsdk.errors import ArtifactError, suggest
from rlsdk.interfaces import CountsUpdates, State
from rlsdk.interfaces.abilities import ability
from rlsdk.records import Cursor
from rlsdk.storage import factory
from rlsdk.storage.archive import table_in
from rlsdk.storage.storable import nested_state
from rlsdk.tree import flatten

PLACES = "_metadata"
"""The attribute of the parameters that holds the agent's spaces as JSON values. The `state_dict` of torch also has one of this
name, which copies and `torch.save` keep."""


def parameters_of(agent: AssembledAgent) -> OrderedDict[str, State]:
    """Name -> state of every network and optimiser; see `Agent.get_parameters`."""
    found = OrderedDict(_parameters(agent))
    setattr(found, PLACES, spaces_of(agent.context))
    return found


def _parameters(agent: AssembledAgent) -> dict[str, State]:
    policy = agent.preprocessing.policy_state(agent.parts.policy)
    return {"policy": policy, **agent.parts.algorithm.state_dict(), **_further(agent)}


def _further(agent: AssembledAgent) -> dict[str, State]:
    """The entry `states` with the states of `Parts.states`; empty if there are none."""
    found = further_states(agent.parts).get("states")
    return {"states": found} if isinstance(found, Mapping) else {}


@in_plain_modes
def set_parameters(agent: AssembledAgent, source: str | Path | IO[bytes] | State, *, exact_match: bool) -> None:
    """Replace parameters in place; see `Agent.set_parameters`."""
    current = _parameters(agent)
    if isinstance(spaces := getattr(source, PLACES, None), Mapping):
        require_same_places(spaces, agent.context)
    given = source if isinstance(source, Mapping) else _parameters_in(source, agent)
    if unknown := sorted(set(given) - set(current)):
        raise ArtifactError(f"the agent has no {unknown}; it has {sorted(current)}")
    if exact_match and (missing := sorted(set(current) - set(given))):
        raise ArtifactError(f"exact_match needs all of {sorted(current)}; missing: {missing}")
    if exact_match:
        _require_all(current, given, "")
    backup = {name: _copied(state) for name, state in current.items()}
    try:
        if not exact_match and isinstance(policy := given.get("policy"), Mapping):
            given = {**given, "policy": _under_every_name(current["policy"], policy)}
        merged = {**backup, **{name: _merged(backup[name], value, exact_match) for name, value in given.items()}}
        _apply(agent, merged)
        if exact_match:
            _require_emptied(agent, given)
        _take_over_count(agent)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        _apply(agent, backup)
        raise ArtifactError(f"the parameters do not fit this agent: {error}") from None


def _under_every_name(current: State, given: State) -> State:
    """`given` with each tensor under all names that `current` has for it, because networks may share a parameter."""
    names: dict[tuple[int, torch.Size], list[str]] = {}
    for name, value in flatten(current).items():
        if isinstance(value, Tensor) and value.numel():
            names.setdefault((value.data_ptr(), value.shape), []).append(name)
    found, others = flatten(given), dict[str, object]()
    for same in names.values():
        values = [found[name] for name in same if name in found]
        others |= {name: values[0] for name in same if values and name not in found}
    return nested_state({**found, **others}) if others else given


def _require_all(current: object, given: object, place: str) -> None:
    """Raise ArtifactError if `given` lacks a tensor or value of `current`, or has one that `current` lacks."""
    if not isinstance(current, Mapping) or not current:  # an optimiser that has made no step has an empty state
        return
    if place not in ("", " of 'policy'") and isinstance(given, Mapping) and not given:  # see `_require_emptied`
        return
    known, found = set(current), set(given) if isinstance(given, Mapping) else set()
    if missing := sorted(map(str, known - found)):
        advice = "exact_match=False replaces what is given and leaves the rest"
        raise ArtifactError(f"exact_match needs every parameter{place}; missing: {', '.join(missing[:5])}; {advice}")
    if unknown := sorted(map(str, found - known)):
        raise ArtifactError(f"the agent has no parameter {unknown[0]!r}{place}; {suggest(unknown[0], map(str, known))}")
    for name, value in current.items():
        _require_all(value, given[name] if isinstance(given, Mapping) else {}, f" of {name!r}")


def _require_emptied(agent: AssembledAgent, given: State) -> None:
    """Raise ValueError if a state is empty in `given`, like that of an optimiser before its first step, but was not emptied in
    the agent."""
    now = flatten(_parameters(agent))
    for name, value in flatten(given).items():
        if isinstance(value, Mapping) and name not in now:
            raise ValueError(f"{name!r} is empty")


def _copied(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


def _merged(old: object, new: object, exact: bool) -> object:
    """A copy of `new`; unless `exact`, entries that `new` lacks are those of `old`. Tensors in both must have equal shapes."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**({} if exact else old), **{name: _merged(old.get(name), value, exact) for name, value in new.items()}}
    if isinstance(old, Tensor) and torch.as_tensor(new).shape != old.shape:
        raise ArtifactError(
            f"a parameter has shape {tuple(torch.as_tensor(new).shape)}, the agent's has {tuple(old.shape)}"
        )
    # a copy, because algorithms may store the tensors that they load and change them
    return _copied(torch.as_tensor(new) if isinstance(old, Tensor) else new)


def _apply(agent: AssembledAgent, parameters: State) -> None:
    with torch.no_grad():
        agent.preprocessing.load_policy_state(agent.parts.policy, parameters["policy"])
        further = _further(agent)
        agent.parts.algorithm.load_state_dict({n: v for n, v in parameters.items() if n not in ("policy", *further)})
        for states in (parameters[name] for name in further):
            restore_states(agent.parts, states)


def _take_over_count(agent: AssembledAgent) -> None:
    """Set the updates of the cursor to the count of an algorithm that counts them, which is one of its parameters."""
    counter = ability(agent.parts.algorithm, CountsUpdates)
    if counter is not None:
        agent.counts = Cursor(agent.counts.env_steps, counter.updates)


def _parameters_in(path: str | Path | IO[bytes], agent: AssembledAgent) -> State:
    document, stored = factory.read(agent_file.existing(path), ("policy", "training"), kind=agent_file.KIND)
    require_same_places(document, agent.context)
    _, sections = upgraded(document, stored, agent.spec)
    training = sections.get("training", {})
    states = {"states": training["states"]} if "states" in training else {}
    return {"policy": agent_file.policy_in(sections), **table_in(training, "algorithm"), **states}
