"""CartPole in torch: functions of the states of many poles, for `rlsdk_envs.make_torch_vec_env`.

The equations are those of Barto, Sutton and Anderson (1983), integrated by Euler's method as in gymnasium's CartPole-v1.
"""

from __future__ import annotations

import math

import torch
from gymnasium import spaces
from torch import Generator, Tensor

GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MAX_POSITION, MAX_ANGLE = 2.4, 12 * 2 * math.pi / 360


class CartPole:
    """A state [B, 4] has the position and velocity of the cart, and the angle and angular velocity of the pole."""

    observation_space = spaces.Box(-math.inf, math.inf, (4,))
    action_space = spaces.Discrete(2)
    max_episode_steps = 500

    def initial(self, count: int, rng: Generator) -> Tensor:
        """Return `count` poles that almost stand, [count, 4]."""
        return torch.rand(count, 4, generator=rng, device=rng.device) * 0.1 - 0.05

    def transition(self, state: Tensor, action: Tensor, rng: Generator) -> Tensor:
        """Return the states [B, 4] after pushing the carts to the left (0) or right (1) for 0.02 s."""
        _, velocity, angle, angular = state.unbind(1)
        force = FORCE * (2.0 * action - 1.0)
        total = CART_MASS + POLE_MASS
        sin, cos = angle.sin(), angle.cos()
        pushed = (force + POLE_MASS * HALF_LENGTH * angular.square() * sin) / total
        turned = (GRAVITY * sin - cos * pushed) / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos.square() / total))
        moved = pushed - POLE_MASS * HALF_LENGTH * turned * cos / total
        rates = torch.stack([velocity, moved, angular, turned], 1)
        return state + SECONDS * rates

    def observation(self, state: Tensor) -> Tensor:
        """Return the states [B, 4]: nothing is hidden."""
        return state

    def reward(self, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
        """Return 1 [B] for every step."""
        return torch.ones_like(state[:, 0])

    def terminal(self, state: Tensor) -> Tensor:
        """Return whether carts left the track or poles fell, bool [B]."""
        return (state[:, 0].abs() > MAX_POSITION) | (state[:, 2].abs() > MAX_ANGLE)
