"""What no library can go below on this machine: the bare environment and the bare matrix products of one step.

Matrix products, convolutions and LSTMs are those of the update's networks, forwards and backwards, with torch and nothing
around them: no activation, loss, optimiser, sampling, memory, normalisation or log.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.cases import IMAGES, Case
from rlsdk.environments.gymnasium_adapter import make_one
from rlsdk.kernels import backends, factory

Work = Callable[[], object]
SECONDS, BLOCKS = 0.2, 5


def floor(case: Case) -> float:
    """Environment steps per second of processor time."""
    return 1.0 / (_environment(case) + ARITHMETIC[case.algorithm](case))


def _environment(case: Case) -> float:
    """Seconds of one bare step with actions drawn before."""
    env = make_one(case.source(), {})
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(64)]

    def steps() -> None:
        for action in actions:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return _seconds(steps) / len(actions)


def _seconds(work: Work) -> float:
    """Of one call, the median of some blocks."""
    work()
    return sorted(_block(work) for _ in range(BLOCKS))[BLOCKS // 2]


def _block(work: Work) -> float:
    """Of one call, averaged over enough calls for the clock: some machines' clocks tick in hundredths of a second."""
    calls = 1
    while (took := timeit.timeit(work, timer=time.process_time, number=calls)) < SECONDS:
        calls *= 2
    return took / calls


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> object:
    """`left @ right` for every member of the ensemble (first axis), by the quicker library; `out` is reused."""
    if not backends.is_quick(left[0], right[0]):
        return torch.bmm(left, right, out=out)
    return [backends.product(one, other) for one, other in zip(left, right, strict=True)]


class Layers:
    """Dense layers of these sizes on so many rows, as bare products, the quickest there are here; `copies` of them."""

    def __init__(self, rows: int, sizes: Iterable[int], copies: int = 1) -> None:
        widths = list(sizes)
        self.seen = [torch.randn(copies, rows, width) for width in widths]
        self.weights = [torch.randn(copies, a, b) for a, b in pairwise(widths)]
        self.grads = [torch.empty_like(weight) for weight in self.weights]

    def forward(self) -> float:
        """Seconds."""
        calls = list(zip(self.seen, self.weights, self.seen[1:], strict=False))
        return _seconds(lambda: [_multiply(x, w, y) for x, w, y in calls])

    def to_inputs(self, *, first: bool = False) -> float:
        """Seconds for the gradient of the layers' inputs; of the first layer's only when asked for."""
        calls = list(zip(self.seen[1:], self.weights, self.seen, strict=False))[0 if first else 1 :]
        return _seconds(lambda: [_multiply(y, w.mT, x) for y, w, x in calls])

    def to_weights(self) -> float:
        """Seconds for the gradient of the weights."""
        calls = list(zip(self.seen, self.seen[1:], self.grads, strict=False))
        return _seconds(lambda: [_multiply(x.mT, y, w) for x, y, w in calls])

    def learning(self) -> float:
        """Seconds of a pass forwards and back."""
        return self.forward() + self.to_inputs() + self.to_weights()


def _sizes(case: Case) -> tuple[int, int]:
    """(observation numbers, action numbers) of the case's environment."""
    env = make_one(case.source(), {})
    actions = int(getattr(env.action_space, "n", 0)) or int(np.prod(env.action_space.shape or ()))
    return int(getattr(env.observation_space, "n", 0)) or int(np.prod(env.observation_space.shape or ())), actions


def _tqc(case: Case) -> float:
    seen, acts = _sizes(case)
    actor = Layers(256, (seen, 256, 256, 2 * acts))
    critics = Layers(256, (seen + acts, 256, 256, 25), copies=2)
    act = Layers(1, (seen, 256, 256, 2 * acts)).forward()
    targets = actor.forward() + critics.forward()
    return act + targets + critics.learning() + critics.forward() + critics.to_inputs(first=True) + actor.learning()


def _qrdqn(case: Case) -> float:
    settings = case.settings
    updates = float(settings["gradient_steps"] / settings["train_freq"])
    if case.env == IMAGES:
        net = _convolutions(6 * 200)
        images, one = torch.randn(32, 4, 84, 84), torch.randn(1, 4, 84, 84)
        return _seconds(lambda: _untracked(net, one)) + updates * (
            _seconds(lambda: _untracked(net, images)) + _seconds(lambda: net(images).backward(torch.ones(32, 1200)))
        )
    seen, acts = _sizes(case)
    net_arch, quantiles = settings["policy_kwargs"]["net_arch"], settings["policy_kwargs"]["n_quantiles"]
    sizes = (seen, *net_arch, acts * quantiles)
    layers = Layers(settings["batch_size"], sizes)
    return Layers(1, sizes).forward() + updates * (layers.forward() + layers.learning())


def _convolutions(outputs: int) -> nn.Module:
    """Nature CNN."""
    layers = (nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten(), _Dense(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, outputs)))


class _Dense(nn.Sequential):
    """By the quickest products."""

    def forward(self, x: Tensor) -> Tensor:
        return factory.sequential(self, x)


@torch.no_grad()
def _untracked(net: nn.Module, inputs: Tensor) -> object:
    return net(inputs)


def _trpo(case: Case) -> float:
    """2,048 steps, 10 epochs of 128 for the critic, a gradient, 15 Fisher products and one look along the line."""
    seen, acts = _sizes(case)
    steps, critic = 2048, Layers(128, (seen, 64, 64, 1)).learning() * 10 / 128
    actor = Layers(steps, (seen, 64, 64, acts))
    products = 15 * (2 * actor.forward() + actor.to_inputs() + actor.to_weights())
    whole = actor.learning() + products + actor.forward() + Layers(steps, (seen, 64, 64, 1)).forward()
    return Layers(1, (seen, 64, 64, acts)).forward() + critic + whole / steps


def _maskable_ppo(case: Case) -> float:
    seen, acts = _sizes(case)
    both = Layers(64, (seen, 64, 64, acts)).learning() + Layers(64, (seen, 64, 64, 1)).learning()
    return Layers(case.n_envs, (seen, 64, 64, acts)).forward() / case.n_envs + both * 10 / 64


def _recurrent_ppo(case: Case) -> float:
    """Ten epochs of 128 steps, here six segments of 22, through the memories of actor and critic."""
    seen, acts = _sizes(case)
    memory, features = nn.LSTM(seen, 256), torch.randn(22, 6, seen)
    now = torch.randn(1, case.n_envs, seen)
    learning = _seconds(lambda: memory(features)[0].backward(torch.ones(22, 6, 256)))
    acting = _seconds(lambda: _untracked(memory, now))
    heads = Layers(128, (256, 64, 64, acts)).learning() + Layers(128, (256, 64, 64, 1)).learning()
    return 2 * acting / case.n_envs + (2 * learning + heads) * 10 / 128


def _ars(case: Case) -> float:
    seen, acts = _sizes(case)
    return Layers(1, (seen, acts), copies=8).forward() / 8


ARITHMETIC: dict[str, Callable[[Case], float]] = {
    "tqc": _tqc,
    "qrdqn": _qrdqn,
    "trpo": _trpo,
    "maskable-ppo": _maskable_ppo,
    "recurrent-ppo": _recurrent_ppo,
    "ars": _ars,
}
"""Seconds of one environment step, by algorithm, for the settings of the cases."""
