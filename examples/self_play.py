"""Self-play: an agent learns tic-tac-toe against stored copies of itself.

Run it: `python examples/self_play.py` (half a minute). It needs rlsdk-maskable-ppo and rlsdk-pettingzoo[classic]. After each
round the agent is stored, and each environment gets one of the stored agents as the opponent of the next round. It prints how
many of 200 games the agent wins and loses against random moves.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from rlsdk.environments import make_vec_env
from rlsdk.evaluation import run_episodes
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_pettingzoo import make_role_env

TASK, COPIES = "tictactoe_v3", 8


def shares(model: Any, games: int) -> tuple[float, float]:
    """The shares of games that the agent wins and loses against random moves. Chance decides who begins."""
    returns = np.array(run_episodes(model, make_role_env(TASK), games, seed=1).returns)
    return float((returns > 0).mean()), float((returns < 0).mean())


def main(rounds: int = 12, steps: int = 4096, games: int = 200) -> tuple[float, float]:
    """Train, and return the shares of games that are won and lost."""
    envs = make_vec_env(f"pettingzoo-role/{TASK}", COPIES, vectorization="sync")
    model = MaskablePPO("MlpPolicy", envs, n_steps=128, batch_size=256, learning_rate=1e-3, ent_coef=0.01, seed=0)
    chosen = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        stored: list[str] = []
        for number in range(rounds):
            model.learn(steps, reset_num_timesteps=False)
            stored.append(str(model.save(Path(folder) / f"{number}.rlsdk")))
            for copy in range(COPIES):
                # half of the environments play against the newest agent, so that it meets what it does now
                opponent = stored[-1] if copy % 2 else stored[int(chosen.integers(len(stored)))]
                envs.env_method("set_opponents", opponent, indices=copy)
    won, lost = shares(model, games)
    print(f"against random moves: {won:.0%} won, {lost:.0%} lost")
    return won, lost


if __name__ == "__main__":
    main()
