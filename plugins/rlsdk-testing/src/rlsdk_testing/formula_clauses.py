"""The clause about a stated formula: an update has the gradients of the losses in the package's `reference.py`.

The module has one function:

    def losses(networks: Mapping[str, Any], batch: object, config: object, noise: float) -> Mapping[str, Tensor]: ...

| argument | is |
|---|---|
| `networks` | path, such as "policy" or "algorithm.target.network" -> a float64 copy of the network, or of a trained tensor |
| `batch` | the batch that `update` gets, with float64 numbers |
| `config` | the settings |
| `noise` | the number that every random number of the update is |

It returns path of an optimizer, such as "algorithm.optimizer" -> its loss, 0-d. A rollout is one minibatch, and has no fillers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.kernels import kernels_off
from rlsdk.records import Rollout, Transitions
from rlsdk.tree import map_tensors
from rlsdk_testing.batches import ROLLOUT, Batch, rows_in_batch
from rlsdk_testing.dose_clauses import float_settings
from rlsdk_testing.equal_noise import EqualNoise
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found, held
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.rollouts import with_ends
from rlsdk_testing.row_clauses import in_one_step
from rlsdk_testing.subject import Subject
from rlsdk_testing.watched import NOISE, TINY, Observed, Step, look_first, watched

Losses = Callable[[Mapping[str, Any], Any, Any, float], Mapping[str, Tensor]]
ERROR = 2e-3
"""The largest difference of a gradient from that of the formula, as a share of it. Float32 has errors of about 1e-4."""
NUDGE = 0.3
"""The deviation of the numbers that are added to weights, so that ratios of probabilities are not 1."""
NUDGES = 3
"""The number of other weights for each batch."""
LARGE = 30.0


@clause(
    "formula.reference",
    "The gradients of an update are those of the losses in the package's reference.py, on random and extreme batches, and with"
    " each float setting doubled.",
    "Compare update() with reference.py: one of them is wrong. The settings and the batch in the message show which term.",
)
@look_first("algorithm", "update")
def reference(subject: Subject) -> str:
    losses = _losses_of(subject)
    observed = in_one_step(subject)
    checked = set[str]()
    for what, variant in _variants(observed):
        for about, batch in list(_batches(observed.batch))[: None if variant is observed else 1]:
            for nudged in range(1 + NUDGES) if variant is observed else (1,):
                text = f"with {what}, {about}{' and other weights' if nudged else ''}"
                checked |= _require_equal(variant, batch, losses, text, nudged)
    unchecked = sorted(set(Found(observed.agent).optimizers) - checked)
    return f"reference.py gives no loss of {', '.join(unchecked)}" if unchecked else ""


def _losses_of(subject: Subject) -> Losses:
    package = subject.plugin.module.partition(".")[0]
    name = f"{package}.reference"
    if find_spec(package) is None or find_spec(name) is None:  # a plugin that a script registers has no package
        raise NotApplicable("the package has no reference.py, with a function `losses`; see docs/writing-a-plugin.md")
    found = getattr(import_module(name), "losses", None)
    require(callable(found), f"{name} has no function losses(networks, batch, config, noise)")
    losses: Losses = found  # type: ignore[assignment]  # it is callable
    return losses


def _variants(observed: Observed) -> Iterator[tuple[str, Observed]]:
    """Yield the small agent, and one for each float setting with another value."""
    yield "the usual settings", observed
    for setting, level in float_settings(observed):
        for value in (2.0 * level, level / 2.0):
            changed = observed.variant(**{setting.name: value})
            if changed is not None:
                yield f"{setting.name} = {value:g}", changed
                break


def _batches(batch: Batch) -> Iterator[tuple[str, Batch]]:
    """Yield (description, batch): the usual one, and some with extreme numbers."""
    yield "a usual batch", batch
    if isinstance(batch, Transitions):
        yield f"rewards {LARGE:g} times as large", replace(batch, reward=LARGE * (batch.reward + 1.0))
        yield "terminated rows only", replace(batch, discount=torch.zeros_like(batch.discount))
        generator = torch.Generator().manual_seed(1)
        discount = torch.rand(batch.discount.shape, generator=generator)
        weight = 2.0 * torch.rand(rows_in_batch(batch), generator=generator)
        yield "other discounts, and weights of rows", replace(batch, discount=discount, weight=weight)
    if isinstance(batch, Rollout) and batch.final_observations is not None:
        yield "terminations only", with_ends(batch, terminated=True)
        rewards = LARGE * (batch.steps.reward + 1.0)
        yield (
            f"time limits, and rewards {LARGE:g} times as large",
            with_ends(replace(batch, steps=replace(batch.steps, reward=rewards)), terminated=False),
        )


def _require_equal(observed: Observed, batch: Batch, losses: Losses, what: str, nudged: int) -> set[str]:
    """Check the gradients of one update; return the paths of the optimizers that the reference has losses for."""
    agent = observed.agent
    observed.restore()
    found, seen = Found(agent), list[Step]()
    if nudged:
        _nudge(found, nudged)
    with kernels_off():
        networks: dict[str, Any] = deepcopy({**found.modules, **found.tensors})
        copies = _copied_parameters({**found.modules, **found.tensors}, networks)
        networks = {path: _exact(each) if isinstance(each, nn.Module) else each for path, each in networks.items()}
        numbers = _exact_batch(batch)
        given = losses(networks, numbers, agent.config, NOISE)
        rows = batch.steps.valid.numel() if isinstance(batch, Rollout) else rows_in_batch(batch)
        with EqualNoise(torch.arange(rows), NOISE), watched(agent, seen.append, hold=True):
            agent.parts.algorithm.update(batch, progress=0.5)
    made = {step.optimizer: step.gradient for step in reversed(seen)}
    for path, loss in given.items():
        require(
            path in found.optimizers, f"reference.py names {path!r}; the optimizers are {', '.join(found.optimizers)}"
        )
        if path not in made:
            continue  # this update made no step, as with an actor that is trained every few updates
        wanted = _gradient(loss, held(found.optimizers[path]), copies)
        size = max(float(wanted.norm()), float(made[path].norm()))
        difference = float((made[path] - wanted).norm())
        ratio = float(made[path] @ wanted / (wanted @ wanted)) if bool(wanted.any()) else float("inf")
        require(
            difference <= ERROR * size + TINY,
            f"{what}: the gradient of {path} differs by {difference / size:.1%} from that of the formula, and is {ratio:.3g}"
            " times as large in its direction",
        )
    return set(given)


def _exact(network: nn.Module) -> nn.Module:
    """Return the network with float64 parameters. Its layers convert their inputs, because encoders give float32."""
    for module in network.modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, inputs: map_tensors(_as_double, inputs))
    return network.double()


def _exact_batch(batch: Batch) -> Batch:
    if not isinstance(batch, Rollout):
        return map_tensors(_as_double, batch)
    return replace(batch, **{name: map_tensors(_as_double, getattr(batch, name)) for name in ROLLOUT})


def _as_double(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values


@torch.no_grad()
def _nudge(found: Found, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for module in found.modules.values():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            size = (
                NUDGE if parameter.dim() > 1 else NUDGE / 10
            )  # large biases would make one critic the smallest everywhere
            parameter.add_(size * noise.to(parameter.device))


def _copied_parameters(originals: Mapping[str, Any], copies: Mapping[str, Any]) -> list[tuple[Tensor, Tensor]]:
    """Return (parameter [..], its copy [..]) for every parameter; `double()` leaves the parameter objects of the copies."""
    pairs: list[tuple[Tensor, Tensor]] = []
    for path, original in originals.items():
        if isinstance(original, nn.Module):
            pairs += list(zip(original.parameters(), copies[path].parameters(), strict=True))
        else:
            copies[path].data = copies[path].data.double()
            pairs.append((original, copies[path]))
    return pairs


def _gradient(loss: Tensor, trained: list[Tensor], copies: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the gradient of `loss` with respect to what an optimizer trains, float64 [D], in its order."""
    used = [copy for _, copy in copies if copy.requires_grad]
    grads = dict(zip(map(id, used), torch.autograd.grad(loss, used, allow_unused=True, retain_graph=True), strict=True))
    parts = []
    for tensor in trained:
        flat = torch.zeros(tensor.numel(), dtype=torch.float64)
        for parameter, copy in copies:
            grad = grads.get(id(copy))
            start = (parameter.data_ptr() - tensor.data_ptr()) // parameter.element_size()
            same = parameter.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            if grad is not None and same and 0 <= start < tensor.numel():
                flat[start : start + parameter.numel()] = grad.flatten()
        parts.append(flat)
    return torch.cat(parts)
