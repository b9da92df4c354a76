"""The clause about a stated formula: an update does what the package's `reference.py` states in plain formulas.

The module has one of these functions, or both:

    def losses(networks: Mapping[str, Any], batch: object, config: object, noise: float) -> Mapping[str, Losses]: ...
    def after(networks: Mapping[str, Any], batch: object, config: object, noise: float) -> Mapping[str, Tensor]: ...

| argument | is |
|---|---|
| `networks` | path, such as "algorithm.target.network" -> a float64 copy of the network, or of a tensor of the algorithm; |
| | also a whole number of the algorithm, such as "algorithm.updates" |
| `batch` | the batch that `update` gets, with float64 numbers |
| `config` | the settings |
| `noise` | the number that every random number of the update is; a drawn row number is 0, a drawn bit 1, no order is changed |

`losses` returns path of an optimizer, such as "algorithm.optimizer" -> its loss, 0-d, or the losses of its first steps. A step
along another direction than a gradient has the loss (direction * parameter).sum(), whose gradient the direction is.
`after` returns path of a tensor, such as "algorithm.std" -> its value after an update whose optimizers make no steps. The path
"candidates" is what `propose` of a population method returns before the update. A rollout is one minibatch, and has no fillers.
Half of the training is over. Both leave out what they have no formula for. A dictionary `SETTINGS` in the module has settings
of the agents for this clause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.kernels import kernels_off
from rlsdk.networks import ActorCritic
from rlsdk.records import Rollout, Sequences, Transitions
from rlsdk.tree import map_tensors
from rlsdk_testing.alternatives import others, settings_of
from rlsdk_testing.batches import ROLLOUT, AnySequences, Batch, is_scored, reward_of, rows_in_batch, with_rewards
from rlsdk_testing.dose_clauses import float_settings
from rlsdk_testing.effects import shown
from rlsdk_testing.equal_noise import EqualNoise
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found, held
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.rollouts import with_ends
from rlsdk_testing.row_clauses import WHOLE, in_one_step
from rlsdk_testing.subject import Subject
from rlsdk_testing.watched import NOISE, TINY, Observed, Step, watched

Formula = Callable[[Mapping[str, Any], Any, Any, float], Mapping[str, Any]]
CANDIDATES = "candidates"
ERROR = 2e-3
"""The largest difference of a gradient from that of the formula, as a share of it. Float32 has errors of about 1e-4."""
NUDGE = 0.3
"""The deviation of the numbers that are added to weights, so that ratios of probabilities are not 1."""
NUDGES = 3
"""The number of other weights for each batch."""
LARGE = 30.0
SEEN = 0.2
"""The smallest other value of a setting that is a number: the term of a smaller weight could hide in the error."""
ROUNDED = 1e-5
"""The largest difference of other tensors, as a share of them."""


@clause(
    "formula.reference",
    "The gradients of an update are those of the losses in the package's reference.py, and other tensors become what it states:"
    " on random and extreme batches, for every kind of action, and with another value of each setting.",
    "Compare update() with reference.py: one of them is wrong. The settings and the batch in the message show which term.",
)
def reference(subject: Subject) -> str:
    losses, after, settings = _formulas_of(subject)
    checked, found = set[str](), set[str]()
    for kind in subject.manifest.actions:
        usual = kind == subject.action_kind
        observed = in_one_step(subject, **settings, **({} if usual else {"actions": kind}))
        for what, variant in _variants(observed) if usual else [(f"{kind} actions", observed)]:
            for about, batch in list(_batches(observed.batch))[: None if usual and variant is observed else 1]:
                for nudged in range(1 + NUDGES) if usual and variant is observed else (1,):
                    text = f"with {what}, {about}{' and other weights' if nudged else ''}"
                    checked |= _require_equal(variant, batch, (losses, after), text, nudged)
        found |= set(Found(observed.agent).optimizers)
    unchecked = sorted(found - checked)
    return f"reference.py gives no loss of {', '.join(unchecked)}" if unchecked else ""


def _formulas_of(subject: Subject) -> tuple[Formula | None, Formula | None, dict[str, Any]]:
    """Return `losses`, `after` and `SETTINGS` of the package's reference.py; None for a function that it does not have."""
    package = subject.plugin.module.partition(".")[0]
    name = f"{package}.reference"
    if find_spec(package) is None or find_spec(name) is None:  # a plugin that a script registers has no package
        raise NotApplicable("the package has no reference.py, with a function `losses`; see docs/writing-a-plugin.md")
    module = import_module(name)
    found = (getattr(module, "losses", None), getattr(module, "after", None))
    require(any(map(callable, found)), f"{name} has no function losses(networks, batch, config, noise), and no `after`")
    return *found, dict(getattr(module, "SETTINGS", {}))


def _variants(observed: Observed) -> Iterator[tuple[str, Observed]]:
    """Yield the small agent, and one for each setting with another value, or with each option that it has."""
    yield "the usual settings", observed
    levels = {setting.name: level for setting, level in float_settings(observed)}
    for setting in settings_of(observed.agent.config):
        if setting.name in {"seed", *WHOLE} or "." in setting.name or setting.doc.affects != "training":
            continue
        level = levels.get(setting.name)
        # twice a small weight would be a small share of the loss
        for value in others(setting) if level is None else (max(2.0 * level, SEEN), 2.0 * level, level / 2.0):
            changed = observed.variant(**{setting.name: value})
            if changed is not None and _learns(changed):
                yield f"{setting.name} = {shown(value)}", changed
                if value not in setting.options:
                    break


def _learns(variant: Observed) -> bool:
    """Return whether an agent with other settings has the same networks, and learns from the batch of the usual ones."""
    try:
        variant.update(variant.batch)
    except Exception:  # with such settings the plugin would have got another batch
        return False
    return True


def _batches(batch: Batch) -> Iterator[tuple[str, Batch]]:
    """Yield (description, batch): the usual one, and some with extreme numbers."""
    if is_scored(batch):  # scores of short episodes may be equal, and then several candidates are the best
        score = torch.randn(batch.score.shape, generator=torch.Generator().manual_seed(1))
        yield "random scores", replace(batch, score=score)
        yield f"scores {LARGE:g} times as large", replace(batch, score=LARGE * (score.flip(0) + 1.0))
        return
    yield "a usual batch", batch
    if isinstance(batch, Transitions):
        yield f"rewards {LARGE:g} times as large", replace(batch, reward=LARGE * (batch.reward + 1.0))
        yield "terminated rows only", replace(batch, discount=torch.zeros_like(batch.discount))
        generator = torch.Generator().manual_seed(1)
        discount = torch.rand(batch.discount.shape, generator=generator)
        weight = 2.0 * torch.rand(rows_in_batch(batch), generator=generator)
        yield "other discounts, and weights of rows", replace(batch, discount=discount, weight=weight)
    if isinstance(batch, Sequences):
        yield f"rewards {LARGE:g} times as large", with_rewards(batch, LARGE * (reward_of(batch) + 1.0))
        yield "ends inside of sequences", _with_ends_inside(batch)
    if isinstance(batch, Rollout) and batch.final_observations is not None:
        yield "terminations only", with_ends(batch, terminated=True)
        rewards = LARGE * (batch.steps.reward + 1.0)
        yield (
            f"time limits, and rewards {LARGE:g} times as large",
            with_ends(replace(batch, steps=replace(batch.steps, reward=rewards)), terminated=False),
        )


def _with_ends_inside(batch: AnySequences) -> AnySequences:
    """Return sequences in whose middle an episode ends, every second time by a time limit."""
    steps, row = batch.steps, len(batch.steps.reward) // 2
    terminated, truncated, discount = (each.clone() for each in (steps.terminated, steps.truncated, batch.discount))
    terminated[row, ::2], truncated[row, ::2], discount[row, ::2] = True, False, 0.0
    terminated[row, 1::2], truncated[row, 1::2], discount[row, 1::2] = False, True, float(batch.discount.max())
    return replace(batch, steps=replace(steps, terminated=terminated, truncated=truncated), discount=discount)


def _require_equal(
    observed: Observed, batch: Batch, formulas: tuple[Formula | None, Formula | None], what: str, nudged: int
) -> set[str]:
    """Check one update; return the paths of the optimizers that the reference has losses for."""
    agent, algorithm, order = observed.agent, observed.agent.parts.algorithm, torch.arange(_count(batch))
    seen, now = list[Step](), dict[str, Tensor]()
    with kernels_off():
        found, batch, given, stated, copies = _prepared(observed, batch, formulas, nudged)
        if CANDIDATES in stated:
            with EqualNoise(order, NOISE):
                now[CANDIDATES] = algorithm.propose(progress=0.5).double()  # type: ignore[attr-defined]  # a population method
            # the scores are those of other candidates
            found, batch, given, stated, copies = _prepared(observed, batch, formulas, nudged)
        before = _tensors(found)
        with EqualNoise(order, NOISE), watched(agent, seen.append, hold=True):
            algorithm.update(batch, progress=0.5)
    for path, loss in given.items():
        require(
            path in found.optimizers, f"reference.py names {path!r}; the optimizers are {', '.join(found.optimizers)}"
        )
        made = [step.gradient for step in seen if step.optimizer == path]
        # without any step, the actor is trained every few updates only
        for gradient, wanted in zip(made, loss if isinstance(loss, tuple | list) else [loss], strict=False):
            _require_gradient(
                gradient, _gradient(wanted, held(found.optimizers[path]), copies), f"{what}: the gradient of {path}"
            )
    now |= _tensors(Found(agent))
    for path, wanted in stated.items():
        require(path in now, f"reference.py names {path!r}; the tensors are {', '.join(now)}")
        _require_value(before.get(path, torch.zeros(())), now[path], wanted, f"{what}: {path}")
    return set(given)


def _prepared(
    observed: Observed, batch: Batch, formulas: tuple[Formula | None, Formula | None], nudged: int
) -> tuple[Found, Batch, Mapping[str, Any], Mapping[str, Tensor], list[tuple[Tensor, Tensor]]]:
    """Set the state after the training, with other weights if `nudged`; return what it has, the batch, and `_stated`."""
    observed.restore()
    found, config = Found(observed.agent), observed.agent.config
    # before the weights change, so that ratios of probabilities to those of acting are not 1
    batch = _with_estimates(observed.agent.parts.policy, batch)
    if not nudged:
        return found, batch, *_stated(formulas, found, batch, config)
    _nudge(found, nudged)
    stated = _stated(formulas, found, batch, config)
    if not stated[1]:
        return found, batch, *stated
    return found, batch, *_stated(formulas, _nudged_numbers(found, stated[1], nudged), batch, config)


def _with_estimates(policy: object, batch: Batch) -> Batch:
    """Return a rollout with the log-probabilities and values of acting, which networks of dense layers compute later."""
    if not isinstance(batch, Rollout) or not isinstance(policy, ActorCritic):
        return batch
    return replace(batch, steps=replace(batch.steps, extras=policy.estimates(batch.steps)))


def _stated(
    formulas: tuple[Formula | None, Formula | None], found: Found, batch: Batch, config: object
) -> tuple[Mapping[str, Any], Mapping[str, Tensor], list[tuple[Tensor, Tensor]]]:
    """Return the losses, the values of tensors after an update, and pairs of a parameter [..] and its copy [..]."""
    networks, copies = _exact_networks(found)
    losses, after = (one(networks, _exact_batch(batch), config, NOISE) if one else {} for one in formulas)
    return losses, after, copies


def _require_gradient(made: Tensor, wanted: Tensor, what: str) -> None:
    size, difference = max(float(wanted.norm()), float(made.norm())), float((made - wanted).norm())
    ratio = float(made @ wanted / (wanted @ wanted)) if bool(wanted.any()) else float("inf")
    require(
        difference <= ERROR * size + TINY,
        f"{what} differs by {difference / size:.1%} from that of the formula, and is {ratio:.3g} times as large in its"
        " direction",
    )


def _require_value(before: Tensor, now: Tensor, wanted: Tensor, what: str) -> None:
    """Check a tensor after an update, up to rounding of its values and of its change."""
    require(now.shape == wanted.shape, f"{what} has shape {tuple(now.shape)}, and {tuple(wanted.shape)} in the formula")
    difference, moved = float((now - wanted).norm()), float((wanted - before).norm())
    require(
        difference <= ERROR * moved + ROUNDED * float(wanted.norm()) + TINY,
        f"{what} becomes {_shown(now)}, and the formula has {_shown(wanted)}",
    )


def _shown(values: Tensor) -> str:
    few = ", ".join(f"{value:.4g}" for value in values.flatten()[:3].tolist())
    return f"{few}, .." if values.numel() > 3 else few


def _count(batch: Batch) -> int:
    """Return the number of rows of a batch; 0 if it is a record of the plugin with another structure."""
    if isinstance(batch, Rollout):
        return batch.steps.valid.numel()
    try:
        return rows_in_batch(batch)
    except NotApplicable:
        return 0


def _tensors(found: Found) -> dict[str, Tensor]:
    """Return path -> float64 copy [..] of every float tensor that an update can change."""
    inside = ((f"{path}.{name}", each) for path, m in found.modules.items() for name, each in m.state_dict().items())
    return {
        path: each.detach().clone().double() for path, each in (*inside, *found.tensors.items(), *found.numbers.items())
    }


def _exact_networks(found: Found) -> tuple[dict[str, Any], list[tuple[Tensor, Tensor]]]:
    """Return path -> float64 copy of each network and tensor, and pairs of a parameter [..] and its copy [..]."""
    originals: dict[str, Any] = {**found.modules, **found.tensors}
    networks = deepcopy({**originals, **{path: each.double() for path, each in found.numbers.items()}})
    copies = _copied_parameters(originals, networks)
    exact = {path: _exact(each) if isinstance(each, nn.Module) else each for path, each in networks.items()}
    return {**exact, **found.counts}, copies


def _exact(network: nn.Module) -> nn.Module:
    """Return the network with float64 parameters. Its layers convert their inputs, because encoders give float32."""
    for module in network.modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, inputs: map_tensors(_as_double, inputs))
    return network.double()


def _exact_batch(batch: Batch) -> Batch:
    if is_scored(batch):
        return replace(batch, parameters=batch.parameters.double(), score=batch.score.double())
    if not isinstance(batch, Rollout | Sequences | Transitions):  # a record of the plugin
        values = {each.name: getattr(batch, each.name) for each in fields(batch)}
        return replace(
            batch, **{name: _as_double(value) for name, value in values.items() if isinstance(value, Tensor)}
        )
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
            # large biases would make one critic the smallest everywhere
            size = NUDGE if parameter.dim() > 1 else NUDGE / 10
            parameter.add_(size * noise.to(parameter.device))


@torch.no_grad()
def _nudged_numbers(found: Found, stated: Mapping[str, Tensor], seed: int) -> Found:
    """Add positive numbers, ten times as large for each seed, to the tensors that the formula names: some begin at 0."""
    generator = torch.Generator().manual_seed(seed)
    for path in stated.keys() & found.numbers.keys():
        noise = torch.rand(found.numbers[path].shape, generator=generator)
        found.numbers[path].add_(NUDGE * 10 ** (seed - 1) * noise.to(found.numbers[path]))
    return found


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
