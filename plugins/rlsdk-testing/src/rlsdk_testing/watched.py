"""Watches optimizers from outside: the gradients and learning rates of their steps, and what else an update changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import attrs
import torch
from torch import Tensor
from torch.optim import Optimizer

from rlsdk.agent import Agent
from rlsdk.kernels import kernels_off
from rlsdk_testing.batches import Batch, Learner, small_agent, wrapping
from rlsdk_testing.equal_noise import EqualNoise
from rlsdk_testing.networks import Found, held
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import Subject, flat_state

LOOSE: dict[str, object] = {"max_grad_norm": 1e6}
"""Settings with which gradients are not scaled down, so that they can be compared."""
Effect = Mapping[str, Tensor]
"""What an update does: name -> gradient of an optimizer, or change of another tensor."""


@attrs.frozen(eq=False)
class Step:
    """One step of an optimizer."""

    optimizer: str
    """The path of the optimizer, as `Found` names it."""
    rate: float
    gradient: Tensor
    """The gradients of all its parameters, float64 [D]."""


@contextmanager
def watched(agent: Agent, note: Callable[[Step], object], *, hold: bool) -> Iterator[None]:
    """Inside the `with` statement, call `note` for each step of an optimizer. With `hold`, the steps are not made."""
    found = Found(agent).optimizers
    before = {path: vars(optimizer).get("step") for path, optimizer in found.items()}
    for path, optimizer in found.items():
        setattr(optimizer, "step", _noting(path, optimizer, note, hold))  # noqa: B010  # it is a method
    try:
        yield
    finally:
        for path, optimizer in found.items():
            if before[path] is None:
                del vars(optimizer)["step"]
            else:
                setattr(optimizer, "step", before[path])  # noqa: B010


def _noting(path: str, optimizer: Optimizer, note: Callable[[Step], object], hold: bool) -> Callable[..., object]:
    original: Callable[..., object] = optimizer.step

    def step(*args: object, **kwargs: object) -> object:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in held(optimizer)]
        flat = torch.cat([grad.detach().double().flatten() for grad in grads]) if grads else torch.zeros(0)
        note(Step(path, float(optimizer.param_groups[0]["lr"]), flat))
        return None if hold else original(*args, **kwargs)

    return step


Marks = tuple[tuple[Tensor | None, Tensor | None], ...]
"""The gradient of each tensor of an optimizer, and a copy of its values."""


class Ledger:
    """Follows which gradients an agent computes, and which steps of its optimizers use them."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.faults: list[str] = []
        """A text for each step without a gradient of its own, and for each gradient without a step."""
        self.updates = self.steps = 0
        self._optimizers = Found(agent).optimizers
        self._fresh = set[str]()
        """Paths of optimizers whose gradient was computed since their last step."""
        self._last: dict[str, tuple[Tensor, Marks, int]] = {}
        """Path -> the gradient of the last step [D], its marks, and `_calls` at that step."""
        self._calls = 0
        """The calls of torch.autograd."""
        self._open: list[dict[str, Marks]] = []
        """The gradients of this update that no step has used: path of each optimizer that has one -> its marks."""
        self._overdue: list[dict[str, Marks]] = []
        """The same of earlier updates."""

    @contextmanager
    def following(self) -> Iterator[None]:
        """Inside the `with` statement, follow all that is computed with torch.autograd."""
        backward, grad = torch.autograd.backward, torch.autograd.grad

        def computed(*args: Any, **kwargs: Any) -> object:
            self._calls += 1
            before = self._marks()
            self._look_for_dropped(before)
            found: object = backward(*args, **kwargs)
            after = self._marks()
            filled = {path: marks for path, marks in after.items() if not _same(marks, before[path])}
            self._fresh |= filled.keys()
            self._open += [filled] if filled else []
            return found

        def returned(*args: Any, **kwargs: Any) -> object:
            self._calls += 1
            self._fresh |= self._optimizers.keys()  # it is not known to which optimizer they will be given
            return grad(*args, **kwargs)

        with (
            wrapping(self.agent.parts.algorithm, self._updated, "update"),
            watched(self.agent, self._step, hold=False),
            patch.multiple(torch.autograd, backward=computed, grad=returned),
        ):
            yield

    def _marks(self) -> dict[str, Marks]:
        return {path: _marks_of(optimizer) for path, optimizer in self._optimizers.items()}

    def _updated(self, method: Callable[..., object], *args: object, **kwargs: object) -> object:
        found = method(*args, **kwargs)
        self.updates += 1
        self._overdue += self._open
        self._open = []
        return found

    def _step(self, step: Step) -> None:
        path, marks = step.optimizer, _marks_of(self._optimizers[step.optimizer])
        self.steps += 1
        last = self._last.get(path)
        # gradients of one number, written without autograd, are parallel by chance
        known = step.gradient.numel() > 1 or (last is not None and last[2] == self._calls)
        if last is not None and known and path not in self._fresh and _same_objects(marks, last[1]):
            before, now = last[0], step.gradient
            # a clipped gradient is scaled, and one that was set to zero still moves weights by their momentum
            if bool(before.any()) and float(now @ before) >= (1.0 - TINY) * float(now.norm() * before.norm()):
                self.faults.append(
                    f"step {self.steps} of a training, of {path}: no gradient was computed after the step before"
                )
        self._last[path] = step.gradient, marks, self._calls
        self._fresh.discard(path)
        self._open = [each for each in self._open if path not in each]
        self._overdue = [each for each in self._overdue if path not in each]

    def _look_for_dropped(self, now: Mapping[str, Marks]) -> None:
        """Note the gradients of earlier updates that were removed before any step used them."""
        for each in self._overdue:
            if not any(_same(marks, now[path]) for path, marks in each.items()):
                self.faults.append(
                    f"update {self.updates} of a training computed a gradient of {', '.join(each)}, and no step used it"
                )
        self._overdue = [each for each in self._overdue if any(_same(marks, now[path]) for path, marks in each.items())]


def _marks_of(optimizer: Optimizer) -> Marks:
    grads = [tensor.grad for tensor in held(optimizer)]
    return tuple((grad, None if grad is None else grad.clone()) for grad in grads)


def _same(one: Marks, two: Marks) -> bool:
    values = [(a[1], b[1]) for a, b in zip(one, two, strict=False)]
    return _same_objects(one, two) and all(
        a is b or torch.equal(a, b) for a, b in values if a is not None and b is not None
    )


def _same_objects(one: Marks, two: Marks) -> bool:
    return len(one) == len(two) and all(a[0] is b[0] for a, b in zip(one, two, strict=True))


class Observed:
    """A learner computed by torch alone, whose updates are watched. Its optimizers make no steps while they are watched.

    So all steps of an update are computed at the same weights, and their gradients can be compared.
    """

    def __init__(self, subject: Subject, like: Observed | None = None, **changes: object) -> None:
        """`changes`: settings. `like`: use the batch and the state of this one instead of a training."""
        self.subject, self.like = subject, like
        self.changes: dict[str, Any] = {**LOOSE, **(like.changes if like else {}), **changes}
        with kernels_off():
            self.learner = Learner(subject, **self.changes) if like is None else None
            self.agent = self.learner.agent if self.learner else small_agent(subject, **self.changes)
        self.batch: Batch = like.batch if like else self.learner and self.learner.batch
        self.steps: list[Step] = []
        """The steps of the last update."""

    def variant(self, **changes: object) -> Observed | None:
        """Return the same with other settings, or None if the plugin refuses them."""
        try:
            return Observed(self.subject, self, **changes)
        except Exception:  # a value may be refused with any error
            return None

    def restore(self) -> None:
        """Set weights, state and random streams to those after the training."""
        first = self
        while first.like is not None:
            first = first.like
        assert first.learner is not None
        first.learner.restore()
        if first is not self:
            self.agent.set_parameters(first.agent.get_parameters())
            self.agent.streams.load_state_dict(first.agent.streams.state_dict())

    def update(self, batch: Batch, progress: float = 0.5, where: Tensor | None = None) -> list[Step]:
        """Restore the state, update with `batch` of N rows without making the steps, and return them.

        `where` [N]: all random numbers of the update are `NOISE`, see `EqualNoise`.
        """
        self.restore()
        self.steps = []
        with kernels_off(), watched(self.agent, self.steps.append, hold=True):
            if where is None:
                self.agent.parts.algorithm.update(batch, progress=progress)
            else:
                with EqualNoise(where, NOISE) as noise:
                    self.agent.parts.algorithm.update(batch, progress=progress)
                if noise.indices:
                    raise NotApplicable("its update chooses rows by itself")
        return self.steps

    def effect(self, batch: Batch, progress: float = 0.5, where: Tensor | None = None) -> Effect:
        """Return the mean gradient of each optimizer, and the changes of all other tensors in one update."""
        self.restore()
        before = flat_state(self.agent)
        steps = self.update(batch, progress, where)
        after = flat_state(self.agent)
        found = dict[str, Tensor]()
        for path in dict.fromkeys(step.optimizer for step in steps):
            found[path] = torch.stack([step.gradient for step in steps if step.optimizer == path]).mean(0)
        for name, value in after.items():
            if value.is_floating_point() and name in before and before[name].shape == value.shape:
                change = value.double() - before[name].double()
                if bool(change.any()):
                    found[name] = change.flatten()
        return found

    def proposal(self, progress: float = 0.5) -> Effect:
        """Return the candidates of a population method, as an effect; empty for other algorithms."""
        propose = getattr(self.agent.parts.algorithm, "propose", None)
        if propose is None:
            return {}
        self.restore()
        with kernels_off():
            return {"candidates": propose(progress=progress).detach().double().flatten()}


def apart(one: Effect, two: Effect) -> tuple[float, str]:
    """Return the largest difference of two effects, as a share of the effect, and the name of what differs."""
    found = [(0.0, "")]
    for name in {**one, **two}:
        a, b = one.get(name), two.get(name)
        if a is None or b is None or a.shape != b.shape:
            size = float((a if b is None else b).norm()) if (a is None) != (b is None) else 1.0  # type: ignore[union-attr]
            found.append((1.0 if size > TINY else 0.0, name))
            continue
        size = max(float(a.norm()), float(b.norm()))
        if size > TINY:
            found.append((float((a - b).norm()) / size, name))
    return max(found)


def of_weights(effect: Effect, optimizers: set[str]) -> Effect:
    """Return what an effect does to weights: gradients, candidates and changes of the policy, without other statistics."""
    return {
        name: value
        for name, value in effect.items()
        if name in {"candidates", *optimizers} or name.startswith("policy")
    }


NOISE = 0.5
"""The number that all random numbers are in updates whose rows are compared."""
TINY = 1e-7
"""Gradients and changes whose norm is smaller count as zero: they are rounding."""
