"""Portfolio weights: actions are shares of three assets, whose sum is 1, from a Dirichlet policy.

Run it: `python examples/portfolio.py` (about ten seconds). It prints how much the wealth grows per year with equal shares, and
with the shares that PPO has learned.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rlsdk_networks import Simplex
from rlsdk_ppo import PPO

DRIFT = np.array([0.0, 0.05, 0.10])
"""Mean yearly growth of cash, bonds and stocks, without the signal."""
VOLATILITY = np.array([0.0, 0.05, 0.20])
SIGNAL, DAYS = 0.008, 250
"""What a signal of 1 adds to tomorrow's growth of the stocks, and the days of an episode."""


class Portfolio(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Each day the agent sees a signal for tomorrow, and divides its wealth. The reward is the logarithm of the growth."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Simplex(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.day, self.weights = 0, np.full(3, 1.0 / 3.0)
        return self._observe(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        weights = np.asarray(action, dtype=np.float64)
        noise = self.np_random.normal(size=3) * VOLATILITY / np.sqrt(DAYS)
        growth = DRIFT / DAYS + noise + np.array([0.0, 0.0, SIGNAL * self.signal])
        cost = 0.0005 * float(np.abs(weights - self.weights).sum())
        reward = float(np.log1p(weights @ np.expm1(growth) - cost))
        self.day, self.weights = self.day + 1, weights
        return self._observe(), 100.0 * reward, False, self.day >= DAYS, {}

    def _observe(self) -> NDArray[np.float32]:
        self.signal = float(self.np_random.normal())
        return np.array([self.signal, *self.weights], dtype=np.float32)


def growth_per_year(shares: Any, years: int = 20) -> float:
    """The mean logarithm of the yearly growth, in percent. `shares(observation)` chooses the shares of a day."""
    env, total = Portfolio(), 0.0
    for year in range(years):
        seen, _ = env.reset(seed=1000 + year)
        done = False
        while not done:
            seen, reward, _, done, _ = env.step(shares(seen))
            total += reward
    return total / years


def main(steps: int = 20_480) -> tuple[float, float]:
    """Train, and return the growth per year of equal shares and of the learned ones."""
    networks = {"action_distribution": "dirichlet"}
    model = PPO("MlpPolicy", Portfolio(), policy_kwargs=networks, gamma=0.9, learning_rate=1e-3, ent_coef=0.0, seed=0)
    model.learn(steps)
    equal = growth_per_year(lambda seen: np.full(3, 1.0 / 3.0, dtype=np.float32))
    learned = growth_per_year(lambda seen: model.predict(seen, deterministic=True)[0])
    print(f"equal shares: {equal:.1f} % per year; learned shares: {learned:.1f} % per year")
    return equal, learned


if __name__ == "__main__":
    main()
