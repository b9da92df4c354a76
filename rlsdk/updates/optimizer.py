"""The optimizer of a network, whose parameters are views of one flat vector; which optimizer is chosen, and its state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.errors import SettingsError
from rlsdk.kernels import Structure, factory, reference
from rlsdk.kernels.vector_steps import (
    SMALLEST_MOMENT,
    STEPS_BETWEEN_CLEARING,
    VectorStep,
    next_steps,
    step_optimizer,
    without_compiler,
)
from rlsdk.networks.layers import FlatParameters, is_trained, views_of


def _clear_decayed(state: Mapping[str, object]) -> None:
    """Set moments [D] to 0 that have decayed to almost 0.

    Without gradients, as in a ReLU unit that is never active, moments decay to subnormal numbers and remain there. CPUs
    calculate with these many times as slowly.
    """
    for moments in state.values():
        if isinstance(moments, Tensor) and moments.dim() and moments.is_floating_point():
            # far below what could move a weight
            moments.masked_fill_(moments.abs() < SMALLEST_MOMENT * torch.finfo(moments.dtype).tiny, 0.0)


class FlatOptimizer:
    """Applies a torch optimizer to all `parameters`, as one vector if it computes every number separately.

    Other optimizers, such as LARS, and functions that choose parameters by their shape get the tensors as they are.
    `backward` accumulates gradients in one flat buffer. Call `zero_grad`, then `backward`, then `step`.
    """

    def __init__(
        self,
        parameters: nn.Module | Iterable[nn.Parameter],
        choice: str | Callable[..., torch.optim.Optimizer] | None,
        learning_rate: float,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Create the optimizer.

        Args:
            parameters: the parameters to train. If it is a module, parameters that are replaced in it later are trained
                too.
            choice: a name, a class or function that creates the optimizer, or None for Adam.
            learning_rate: the first learning rate.
            arguments: further arguments of the optimizer.

        Raises:
            SettingsError: the optimizer does not take `arguments`.
        """
        self._structure = Structure(parameters) if isinstance(parameters, nn.Module) else None
        self._choice = "adam" if choice is None else choice
        self._make, self._first_rate = maker(self._choice, learning_rate, arguments), learning_rate
        self._begin(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
        if self._structure is not None:
            self._structure.changed()

    def _begin(self, parameters: Iterable[nn.Parameter]) -> None:
        self._memory = FlatParameters(parameters)
        self.gradients = self._memory.gradients
        self.flat = nn.Parameter(self._memory.values)
        self.flat.grad = self.gradients
        self._by_tensor = self._tensor_optimizer()
        """None: the optimizer gets the vector, which is faster; else it gets tensors that are views of it."""
        self.optimizer = self._make([self.flat]) if self._by_tensor is None else self._by_tensor.optimizer
        self._kernel = factory.optimizer_step(self._choice, self.optimizer, self.flat)
        self._make_step = factory.vector_step(self.flat)
        self._clip = factory.clip_norm(self.gradients, reference.clip_norm)

    def _tensor_optimizer(self) -> TensorOptimizer | None:
        """The optimizer of the tensors as they are; None if the vector has the same result."""
        # classes by identity: a subclass may look at whole matrices
        known = isinstance(self._choice, str) or any(self._choice is kind for kind in ELEMENTWISE)
        if known or not self._memory.parameters:
            return None
        stacked = stacked_in(None if self._structure is None else self._structure.roots[0])
        made = TensorOptimizer(self._make, self._memory, stacked, self._first_rate)
        return None if made.is_elementwise() else made  # a function may return Adam of all tensors, for example

    def adopt(self, parameters: Iterable[nn.Parameter]) -> None:
        """Train these parameters from now on. Parameters that were trained before retain their moments; new ones start
        with 0."""
        wanted, before, flat = list(parameters), self._memory.parameters, self.flat
        # nothing was replaced; moving the moments would copy them for nothing
        if len(wanted) == len(before) and all(map(is_, wanted, before)):
            return
        state, tensors = self.optimizer.state.get(flat, {}), self._by_tensor
        self._begin(wanted)
        if self._by_tensor is not None and tensors is not None:
            self._by_tensor.continue_from(tensors)
        if moved := moved_state(state, flat, before, wanted):
            self.optimizer.state[self.flat] = moved

    def zero_grad(self) -> None:
        """Set the gradients to zero, before `backward`. Parameters that were replaced in the network are adopted here."""
        # here and not in `step`: gradients of new parameters have to land in the vector from the first backward pass on
        if self._structure is not None and self._structure.changed():
            self.adopt(self._structure.roots[0].parameters())
        self._memory.clear()

    def step(self, learning_rate: float | Tensor, max_norm: float | None = None) -> None:
        """Apply the accumulated gradients. With `max_norm`, first scale them down to that global norm.

        The learning rate is a tensor 0-d if the step belongs to a CUDA graph.
        """
        self._memory.renew_views()
        is_frozen = False in map(is_trained, self._memory.parameters)
        if self._by_tensor is None:
            self.optimizer.param_groups[0]["lr"] = learning_rate
        else:
            self._by_tensor.set_rates(learning_rate)
        state = self.optimizer.state.get(self.flat, {})
        if self._make_step is not None and self._by_tensor is None and not is_frozen:
            following = next_steps(self.optimizer, self.flat, state, max_norm)
            if following is not None and self._make_step(following):
                return
        frozen = self._memory.frozen() if is_frozen else []
        if max_norm is not None:
            self._clip(self.gradients, max_norm)
        # the optimizer moves the whole vector: momentum and weight decay change frozen parameters too, so they are put back
        before = [parameter.detach().clone() for parameter in frozen]
        if not self._kernel(self.optimizer, state):
            step_optimizer(self.optimizer)
        # the step count is saved, so a resumed training clears the same moments
        if self.flat.is_cpu and int(state.get("step", 1)) % STEPS_BETWEEN_CLEARING == 0:
            _clear_decayed(state)
        for parameter, value in zip(frozen, before, strict=True):
            parameter.data.copy_(value)

    def next_steps(self, learning_rate: float, max_norm: float | None = None) -> VectorStep | None:
        """Set the gradients to zero; return what compiled code needs to make the next steps itself. None: call `step`."""
        self.zero_grad()
        self._memory.renew_views()
        if self._by_tensor is not None or False in map(is_trained, self._memory.parameters):
            return None
        self.optimizer.param_groups[0]["lr"] = learning_rate
        return next_steps(self.optimizer, self.flat, self.optimizer.state.get(self.flat, {}), max_norm)

    def state_dict(self) -> dict[str, object]:
        """The optimizer's moments and step count, without the parameters, which are part of the network's state."""
        if self._by_tensor is not None:
            return self._by_tensor.state_dict()
        state = self.optimizer.state.get(self.flat, {})
        return {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Raises ValueError if the state does not fit this optimizer. The check is needed because fused steps do not
        check memory."""
        if self._by_tensor is not None:
            self._by_tensor.load_state_dict(state)
            return
        moments = own_state(self._make, self.flat, state)
        self.optimizer.state.clear()
        if moments:
            self.optimizer.state[self.flat] = moments


CLASSES: dict[str, type[torch.optim.Optimizer]] = {
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
FUSED = ("adagrad", "adam", "adamw", "sgd")
ELEMENTWISE = frozenset([*CLASSES.values(), torch.optim.ASGD, torch.optim.Rprop])
"""Optimizers that compute every number separately, so one vector of all parameters has the same result as the tensors."""
Maker = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]
"""A function that creates the optimizer of some parameters."""


def adam_arguments(choice: object, arguments: Mapping[str, object] | None) -> dict[str, object]:
    """The arguments of an on-policy algorithm's optimizer.

    Without `arguments`, Adam has the documented epsilon of 1e-5. With `arguments` that do not contain `eps`, it has
    torch's default 1e-8.
    """
    if arguments is None:
        return {"eps": 1e-5} if choice == "adam" else {}
    return dict(arguments)


def maker(
    choice: str | Callable[..., torch.optim.Optimizer], learning_rate: float, arguments: Mapping[str, object] | None
) -> Maker:
    """Return a function that creates the optimizer of some parameters."""
    kind: Callable[..., torch.optim.Optimizer] = CLASSES[choice] if isinstance(choice, str) else choice

    def make(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        options: dict[str, object] = {"lr": learning_rate, **(arguments or {})}
        if (
            isinstance(choice, str)
            and choice in FUSED
            and not (options.get("foreach") or options.get("differentiable"))
        ):
            # fused steps are one call for the vector; torch refuses them for other tensors
            options.setdefault("fused", all(p.numel() > 0 and p.is_floating_point() for p in parameters))
        try:
            # importing torch's compiler takes two seconds and serves nothing here
            with without_compiler():
                found = kind(list(parameters), **options)
        except (TypeError, ValueError, RuntimeError) as error:
            advice = (
                "" if isinstance(choice, str) else "; it may be a function (parameters, lr) that chooses among them"
            )
            raise SettingsError(
                f"optimizer_kwargs {dict(arguments or {})} do not fit {choice}: {error}{advice}"
            ) from None
        if not isinstance(found, torch.optim.Optimizer):
            raise SettingsError(
                f"optimizer_class {choice} returned {type(found).__name__}; return a torch.optim.Optimizer"
            )
        _require_plain_steps(found)
        return found

    return make


def _require_plain_steps(optimizer: torch.optim.Optimizer) -> None:
    """Raises SettingsError for optimizers that updates cannot use.

    Those are optimizers whose `step()` needs a function that evaluates the loss again (LBFGS), that train other weights
    than they evaluate (schedule-free), or that need sparse gradients.
    """
    name = f"optimizer_class {type(optimizer).__name__}"
    if callable(getattr(optimizer, "train", None)) and callable(getattr(optimizer, "eval", None)):
        raise SettingsError(
            f"{name} evaluates averaged weights, not those it trains (train() and eval()), and agents act with the weights"
            f" they train; accepted: {', '.join(CLASSES)}, or another class without eval()"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise SettingsError(
            f"{name} needs sparse gradients, and networks have dense ones; accepted: {', '.join(CLASSES)}"
        )
    given = inspect.signature(optimizer.step).parameters.values()
    if any(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in given
    ):
        raise SettingsError(
            f"{name} evaluates the loss several times per step, and updates do so once;"
            f" accepted: {', '.join(CLASSES)}, or another class that evaluates it once"
        )


# The state of an optimizer of one flat vector: checks of stored states, and updates after parameters were replaced.
#
# Stored states are checked because fused optimizer steps access memory without checks.


def own_state(make: Maker, flat: Tensor, state: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of `state` on the devices on which an optimizer made by `make([flat])` has it, for a vector `flat` [D].

    Raises:
        ValueError: it is not the state of such an optimizer.
    """
    before, after = _states_of_one_number(make, flat)
    wanted = before if not state else after
    # fused steps read moments without checks, so a damaged file must not reach them
    if set(state) != set(wanted):
        raise ValueError(f"the optimizer's state {sorted(state)} is not {sorted(wanted)}")
    found = dict(state)
    for name, value in state.items():
        like = wanted[name]
        if isinstance(like, Tensor):
            shape = flat.shape if like.dim() else like.shape
            if not isinstance(value, Tensor) or (value.shape, value.dtype) != (shape, like.dtype):
                raise ValueError(f"the optimizer's {name!r} is not {like.dtype} {tuple(shape)}")
            found[name] = value.to(like.device, copy=True)
        elif type(value) is not type(like):
            raise ValueError(f"the optimizer's {name!r} is {value!r}, not a {type(like).__name__}")
    return found


def _states_of_one_number(make: Maker, flat: Tensor) -> tuple[dict[str, object], dict[str, object]]:
    """The states of such an optimizer for a parameter [1], before and after its first step."""
    # one number is enough to see which entries the state has, and costs no copy of the vector
    number = nn.Parameter(torch.zeros_like(flat[:1]))
    number.grad = torch.zeros_like(number)
    optimizer = make([number])
    before = dict(optimizer.state.get(number, {}))
    step_optimizer(optimizer)
    return before, dict(optimizer.state.get(number, {}))


def moved_state(
    state: Mapping[str, object], flat: Tensor, before: Iterable[nn.Parameter], wanted: Sequence[nn.Parameter]
) -> dict[str, object]:
    """Convert the state of an optimizer of `flat` [D] from the parameters `before` to the parameters `wanted`.

    Both are concatenated into one vector. Parameters that are in both retain their moments; new ones have 0.
    """
    before, moved = list(before), dict[str, object]()
    spans = {id(p): part for p, part in zip(before, _spans(before), strict=True)}
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.shape != flat.shape:
            moved[name] = value
            continue
        moved[name] = moments = value.new_zeros(sum(parameter.numel() for parameter in wanted))
        for parameter, place in zip(wanted, _spans(wanted), strict=True):
            if id(parameter) in spans:
                moments[place] = value[spans[id(parameter)]]
    return moved


def _spans(parameters: Iterable[nn.Parameter]) -> list[slice]:
    """The slice of each parameter in the vector of all parameters."""
    ends = list(accumulate(parameter.numel() for parameter in parameters))
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


# Optimizers that get the tensors as they are, because they compute something else from one vector of all parameters.
#
# Those are optimizers that look at whole matrices (LARS, Adafactor, Muon), and functions that choose parameters by
# their shape, for weight decay for example.


def stacked_in(module: nn.Module | None) -> list[nn.Parameter]:
    """The parameters of a module that are one tensor for several critics, see `rlsdk.networks.layers`."""
    layers = [] if module is None else [each for each in module.modules() if hasattr(each, "is_ensemble_linear")]
    return [parameter for layer in layers for parameter in layer.parameters()]


class TensorOptimizer:
    """An optimizer of tensors as they are. Its state is the one that its own `state_dict` returns.

    Layers that are stacked for C critics, [C, inputs, outputs], become one matrix [outputs, inputs] per critic, as in
    `nn.Linear`.
    """

    def __init__(self, make: Maker, memory: FlatParameters, stacked: Iterable[nn.Parameter], rate: float) -> None:
        """Create the optimizer.

        Args:
            make: creates it.
            memory: the parameters to train, which are views of one vector.
            stacked: those of them that are one tensor for several critics.
            rate: the first learning rate.
        """
        self._make, self._memory, self._stacked = make, memory, set(map(id, stacked))
        self.tensors: dict[tuple[int, int], nn.Parameter] = {}
        """(id of the parameter, number of the critic) -> the tensor that the optimizer gets."""
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
        """Whether the optimizer computes every number of all tensors separately, and all in the same way."""
        group, *others = self.optimizer.param_groups
        same = len(group["params"]) == len(self.tensors) and all(map(is_, group["params"], self.tensors.values()))
        return type(self.optimizer) in ELEMENTWISE and same and not others

    def set_rates(self, learning_rate: float | Tensor) -> None:
        """Set the learning rate, a number or 0-d. Groups that were made with another one keep their ratio to it."""
        for group, ratio in zip(self.optimizer.param_groups, self._ratios, strict=True):
            group["lr"] = learning_rate if ratio == 1.0 else learning_rate * ratio

    def continue_from(self, before: TensorOptimizer) -> None:
        """Take over the state of the tensors that were trained before, and what the optimizer changed in its groups."""
        for key, tensor in before.tensors.items():
            if key in self.tensors and tensor in before.optimizer.state:
                self.optimizer.state[self.tensors[key]] = before.optimizer.state[tensor]
        for group, changed in zip(self.optimizer.param_groups, before.changed_groups(), strict=False):
            group.update(changed)

    def changed_groups(self) -> list[dict[str, Any]]:
        """What the optimizer itself changed in its groups. The rest comes from the settings, which may change."""

        def changed(group: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
            names = [name for name in group if name not in ("params", "lr")]
            return {name: group[name] for name in names if name not in fresh or not _same(group[name], fresh[name])}

        return [changed(group, fresh) for group, fresh in zip(self.optimizer.param_groups, self._fresh, strict=True)]

    def state_dict(self) -> dict[str, object]:
        """A copy of the optimizer's `state_dict`, with only those entries of groups that the optimizer changed."""
        # a copy, because later steps change the moments in place
        state: dict[str, object] = deepcopy(self.optimizer.state_dict())
        return {**state, "param_groups": deepcopy(self.changed_groups())} if "param_groups" in state else state

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Load what `state_dict` returned.

        Raises:
            ValueError: the state is not one of such an optimizer.
        """
        own: dict[str, Any] = self._make(list(self.tensors.values())).state_dict()
        wanted: dict[str, Any] = deepcopy(dict(state))
        if "param_groups" in own:
            wanted.setdefault("state", {})  # files have no empty tables
            wanted["param_groups"] = _completed(own["param_groups"], wanted.get("param_groups"))
        _require_like(wanted, own if "state" in own and not wanted["state"] else self._state_after_a_step())
        self.optimizer.load_state_dict(wanted)

    def _state_after_a_step(self) -> dict[str, Any]:
        """The `state_dict` of such an optimizer after one step with copies of the tensors."""
        copies = [nn.Parameter(tensor.detach().clone()) for tensor in self.tensors.values()]
        for copy in copies:
            copy.grad = torch.full_like(copy, 1e-3)
        optimizer = self._make(copies)
        # which entries a state has is known only after a step
        optimizer.step()
        return optimizer.state_dict()


def _completed(own: list[dict[str, Any]], stored: object) -> list[dict[str, Any]]:
    """The groups of an optimizer, with the entries that a file has for them."""
    changed: object = [{}] * len(own) if stored is None else stored
    if not isinstance(changed, list | tuple) or [isinstance(one, Mapping) for one in changed] != [True] * len(own):
        raise ValueError(f"the optimizer has {len(own)} groups of parameters, its stored state has others")
    return [{**group, **more, "params": group["params"]} for group, more in zip(own, changed, strict=True)]


def _same(one: object, two: object) -> bool:
    if isinstance(one, Tensor) or isinstance(two, Tensor):
        return isinstance(one, Tensor) and isinstance(two, Tensor) and torch.equal(one, two)
    return bool(one == two)


def _require_like(value: object, like: object, place: str = "state") -> None:
    """Raise ValueError if `value` lacks an entry of `like`, or has a tensor of another shape or dtype.

    It may have more, because some optimizers begin to store something after many steps, unless `like` has nothing.
    """
    if isinstance(like, Mapping):
        given = value if isinstance(value, Mapping) else {}
        if missing := [name for name in like if name not in given]:
            raise ValueError(f"the optimizer's {place} lacks {', '.join(map(str, missing[:3]))}")
        if given and not like:
            raise ValueError(
                f"the optimizer's {place} has {', '.join(map(str, list(given)[:3]))}, which this one does not store"
            )
        for name, wanted in like.items():
            _require_like(given[name], wanted, f"{place}/{name}")
    elif isinstance(like, Tensor):
        if not isinstance(value, Tensor) or (value.shape, value.dtype) != (like.shape, like.dtype):
            raise ValueError(f"the optimizer's {place} is not {like.dtype} {tuple(like.shape)}")
    elif isinstance(value, Tensor | Mapping) and like is not None:
        raise ValueError(f"the optimizer's {place} is a {type(value).__name__}, not a {type(like).__name__}")
