"""Optimisers that get the tensors as they are, because they compute something else from one vector of all parameters.

Those are optimisers that look at whole matrices (LARS, Adafactor, Muon), and functions that choose parameters by their
shape, for weight decay for example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.networks.flat import FlatParameters, views_of
from rlsdk.updates.optimizer_choice import ELEMENTWISE, Maker


def stacked_in(module: nn.Module | None) -> list[nn.Parameter]:
    """The parameters of a module that are one tensor for several critics, see `rlsdk.networks.ensemble`."""
    layers = [] if module is None else [each for each in module.modules() if hasattr(each, "is_ensemble_linear")]
    return [parameter for layer in layers for parameter in layer.parameters()]


class TensorOptimizer:
    """An optimiser of tensors as they are. Its state is the one that its own `state_dict` returns.

    Layers that are stacked for C critics, [C, inputs, outputs], become one matrix [outputs, inputs] per critic, as in
    `nn.Linear`.
    """

    def __init__(self, make: Maker, memory: FlatParameters, stacked: Iterable[nn.Parameter], rate: float) -> None:
        """Create the optimiser.

        Args:
            make: creates it.
            memory: the parameters to train, which are views of one vector.
            stacked: those of them that are one tensor for several critics.
            rate: the first learning rate.
        """
        self._make, self._memory, self._stacked = make, memory, set(map(id, stacked))
        self.tensors: dict[tuple[int, int], nn.Parameter] = {}
        """(id of the parameter, number of the critic) -> the tensor that the optimiser gets."""
        values, gradients = self._segments(memory.values), self._segments(memory.gradients)
        own = {(id(parameter), 0): parameter for parameter in memory.parameters if id(parameter) not in self._stacked}
        for key, value in values.items():
            if key in own:
                self.tensors[key] = own[key]
            else:
                self.tensors[key] = nn.Parameter(value)
                self.tensors[key].grad = gradients[key]
        self.optimizer = make(list(self.tensors.values()))
        groups = self.optimizer.param_groups
        self._fresh = [{name: deepcopy(value) for name, value in group.items() if name != "params"} for group in groups]
        self._ratios = [float(group.get("lr", rate)) / rate if rate else 1.0 for group in groups]

    def _segments(self, vector: Tensor) -> dict[tuple[int, int], Tensor]:
        """The part of a vector [D] that belongs to each tensor, with the tensor's shape."""
        found = dict[tuple[int, int], Tensor]()
        for parameter, view in zip(self._memory.parameters, views_of(vector, self._memory.parameters), strict=True):
            if id(parameter) not in self._stacked:
                found[id(parameter), 0] = view
                continue
            for critic, one in enumerate(view):  # a weight [inputs, outputs], or a bias [1, outputs]
                found[id(parameter), critic] = one[0] if len(one) == 1 and view.shape[1] == 1 else one.t()
        return found

    def is_elementwise(self) -> bool:
        """Whether the optimiser computes every number of all tensors separately, and all in the same way."""
        group, *others = self.optimizer.param_groups
        same = len(group["params"]) == len(self.tensors) and all(map(is_, group["params"], self.tensors.values()))
        return type(self.optimizer) in ELEMENTWISE and same and not others

    def set_rates(self, learning_rate: float | Tensor) -> None:
        """Set the learning rate, a number or 0-d. Groups that were made with another one keep their ratio to it."""
        for group, ratio in zip(self.optimizer.param_groups, self._ratios, strict=True):
            group["lr"] = learning_rate if ratio == 1.0 else learning_rate * ratio

    def continue_from(self, before: TensorOptimizer) -> None:
        """Take over the state of the tensors that were trained before, and what the optimiser changed in its groups."""
        for key, tensor in before.tensors.items():
            if key in self.tensors and tensor in before.optimizer.state:
                self.optimizer.state[self.tensors[key]] = before.optimizer.state[tensor]
        for group, changed in zip(self.optimizer.param_groups, before.changed_groups(), strict=False):
            group.update(changed)

    def changed_groups(self) -> list[dict[str, Any]]:
        """What the optimiser itself changed in its groups. The rest comes from the settings, which may change."""

        def changed(group: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
            names = [name for name in group if name not in ("params", "lr")]
            return {name: group[name] for name in names if name not in fresh or not _same(group[name], fresh[name])}

        return [changed(group, fresh) for group, fresh in zip(self.optimizer.param_groups, self._fresh, strict=True)]

    def state_dict(self) -> dict[str, object]:
        """A copy of the optimiser's `state_dict`, with only those entries of groups that the optimiser changed."""
        state: dict[str, object] = deepcopy(self.optimizer.state_dict())
        return {**state, "param_groups": deepcopy(self.changed_groups())} if "param_groups" in state else state

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Load what `state_dict` returned.

        Raises:
            ValueError: the state is not one of such an optimiser.
        """
        own: dict[str, Any] = self._make(list(self.tensors.values())).state_dict()
        wanted: dict[str, Any] = deepcopy(dict(state))
        if "param_groups" in own:
            wanted.setdefault("state", {})  # files have no empty tables
            wanted["param_groups"] = _completed(own["param_groups"], wanted.get("param_groups"))
        _require_like(wanted, own if "state" in own and not wanted["state"] else self._state_after_a_step())
        self.optimizer.load_state_dict(wanted)

    def _state_after_a_step(self) -> dict[str, Any]:
        """The `state_dict` of such an optimiser after one step with copies of the tensors."""
        copies = [nn.Parameter(tensor.detach().clone()) for tensor in self.tensors.values()]
        for copy in copies:
            copy.grad = torch.full_like(copy, 1e-3)
        optimizer = self._make(copies)
        optimizer.step()
        return optimizer.state_dict()


def _completed(own: list[dict[str, Any]], stored: object) -> list[dict[str, Any]]:
    """The groups of an optimiser, with the entries that a file has for them."""
    changed: object = [{}] * len(own) if stored is None else stored
    if not isinstance(changed, list | tuple) or [isinstance(one, Mapping) for one in changed] != [True] * len(own):
        raise ValueError(f"the optimiser has {len(own)} groups of parameters, its stored state has others")
    return [{**group, **more, "params": group["params"]} for group, more in zip(own, changed, strict=True)]


def _same(one: object, two: object) -> bool:
    if isinstance(one, Tensor) or isinstance(two, Tensor):
        return isinstance(one, Tensor) and isinstance(two, Tensor) and torch.equal(one, two)
    return bool(one == two)


def _require_like(value: object, like: object, place: str = "state") -> None:
    """Raise ValueError if `value` lacks an entry of `like`, or has a tensor of another shape or dtype.

    It may have more, because some optimisers begin to store something after many steps, unless `like` has nothing.
    """
    if isinstance(like, Mapping):
        given = value if isinstance(value, Mapping) else {}
        if missing := [name for name in like if name not in given]:
            raise ValueError(f"the optimiser's {place} lacks {', '.join(map(str, missing[:3]))}")
        if given and not like:
            raise ValueError(
                f"the optimiser's {place} has {', '.join(map(str, list(given)[:3]))}, which this one does not store"
            )
        for name, wanted in like.items():
            _require_like(given[name], wanted, f"{place}/{name}")
    elif isinstance(like, Tensor):
        if not isinstance(value, Tensor) or (value.shape, value.dtype) != (like.shape, like.dtype):
            raise ValueError(f"the optimiser's {place} is not {like.dtype} {tuple(like.shape)}")
    elif isinstance(value, Tensor | Mapping) and like is not None:
        raise ValueError(f"the optimiser's {place} is a {type(value).__name__}, not a {type(like).__name__}")
