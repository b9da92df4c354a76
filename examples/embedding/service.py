"""An agent inside another program. The program trains it; then several threads request actions from it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium

import rlsdk
from rlsdk.agent import Agent
from rlsdk.errors import RlsdkError


def train(path: Path, steps: int = 20_000) -> Path:
    """Train an agent and save it to a file. Raises errors of rlsdk and prints nothing."""
    agent = rlsdk.make("ars", env="CartPole-v1", policy="LinearPolicy", seed=0)
    agent.learn(steps)
    agent.save(path)
    return path


class Service:
    """Answers requests for actions. One agent serves every thread; each client has a session."""

    def __init__(self, path: Path) -> None:
        self.agent: Agent = rlsdk.load(path)

    def play(self, number: int) -> float:
        """Play one episode as client `number`, and return its undiscounted return."""
        env, session = gymnasium.make("CartPole-v1"), self.agent.session(1, deterministic=True, seed=number)
        observation, _ = env.reset(seed=number)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(session.act(observation))
            total, over = total + float(reward), terminated or truncated
        return total


def main() -> None:
    """Train, then serve eight clients from four threads."""
    try:
        service = Service(train(Path("service.rlsdk")))
    except RlsdkError as error:  # the base class of all errors that rlsdk raises deliberately
        raise SystemExit(f"the agent could not be trained: {error}") from error
    with ThreadPoolExecutor(4) as clients:
        print("returns:", list(clients.map(service.play, range(8))))


if __name__ == "__main__":
    main()
