"""Clauses about random numbers: none is used twice, other seeds give others, and acting changes nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rlsdk.evaluation import run_episodes
from rlsdk.kernels import kernels_off
from rlsdk.tree import map_tensors
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.acting import act_on, acting_policies, observations
from rlsdk_testing.batches import small_agent
from rlsdk_testing.equal_noise import NOISE
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import ACTIONS, Subject, differing, flat_state
from rlsdk_testing.trials import quietly

FEWEST, SHORTEST = 4, 12
"""The smallest number of random floats, and the length of the shortest permutation, that two draws share by no accident."""
STEPS = 96


class NotedDraws(TorchFunctionMode):
    """While this mode is active, random numbers and permutations are noted: their bytes -> the functions that drew them."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: dict[bytes, list[str]] = {}

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and _is_unique(func, found):
            shape = "x".join(map(str, found.shape))
            name = f"{getattr(func, '__name__', 'a function')} of {shape}"
            self.drawn.setdefault(found.detach().cpu().contiguous().numpy().tobytes(), []).append(name)
        return found


def _is_unique(func: Callable[..., object], found: Tensor) -> bool:
    """Return whether another draw of this function almost never gives the same numbers [..]."""
    if func is torch.randperm:
        return found.numel() >= SHORTEST
    return func in NOISE and found.is_floating_point() and len(set(found.flatten().tolist())) >= FEWEST


@clause(
    "seeds.draws-are-fresh",
    "No random numbers or permutations are used twice in a training, and other seeds give others.",
    "update(), act(), sample(), rounds(): draw from one generator of context.streams or training.streams for the whole"
    " training. Look for manual_seed, for Generator() in a loop, and for numbers that are drawn once and reused.",
)
def draws_are_fresh(subject: Subject) -> None:
    draws = NotedDraws()
    with quietly(), kernels_off():
        for seed in (1, 2):
            agent = small_agent(subject, seed=seed)
            length = STEPS if agent.parts.plan.unit == "steps" else 6
            with draws:
                agent.learn(length)
                agent.learn(length, reset_num_timesteps=False)
    if not draws.drawn:
        raise NotApplicable("its trainings draw no tensors of random numbers")
    twice = sorted({names[0] for names in draws.drawn.values() if len(names) > 1})
    require(not twice, f"in trainings with the seeds 1 and 2 the same numbers were drawn again: {', '.join(twice[:3])}")


@clause(
    "policy.acting-changes-nothing",
    "Acting, predicting and evaluating leave every parameter, buffer and running statistic as it is, also if modules are in"
    " training mode.",
    "act(): change nothing but the recurrent state. Call eval() in act() and train() in update(), so that statistics stay.",
)
def acting_changes_nothing(subject: Subject) -> None:
    agent = subject.trained()
    for training in (False, True):
        for module in Found(agent).modules.values():
            module.train(training)
        before = flat_state(agent)
        for name, policy in acting_policies(agent):
            carry = policy.initial_carry(3)
            for deterministic in (True, False):
                seen = observations(agent, 3, seed=4)
                act_on(policy, seen, map_tensors(torch.clone, carry), seed=5, deterministic=deterministic)
            _require_same(before, flat_state(agent), f"{name}.act, after modules.train({training}),")
    env = subject.with_info(AnySpaceEnv(subject.seen, ACTIONS[subject.action_kind]))
    before = flat_state(agent)
    subject.predict(agent, subject.seen.sample())
    _require_same(before, flat_state(agent), "agent.predict")
    if subject.spec.action_masks != "required":
        run_episodes(agent, env, 2, seed=1)
        _require_same(before, flat_state(agent), "an evaluation")


def _require_same(before: dict[str, Tensor], after: dict[str, Tensor], what: str) -> None:
    wrong = differing(before, after)
    require(not wrong, f"{what} changed {', '.join(wrong[:3])}")
