"""Write the golden file of every algorithm: `python tests/golden/make.py`, once for each new version of the file format.

Files of earlier formats are not changed: `test_golden_files.py` checks that they can be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import rlsdk
import rlsdk_envs  # noqa: F401  # registers ids with gymnasium
from rlsdk.storage.archive import FORMAT

NET = {"policy_kwargs": {"net_arch": [4]}}
AGENTS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "tqc": ("Pendulum-v1", 60, {**NET, "buffer_size": 50, "learning_starts": 40, "batch_size": 4, "normalize": True}),
    "qrdqn": ("CartPole-v1", 60, {**NET, "buffer_size": 50, "learning_starts": 40, "batch_size": 4, "frame_stack": 2}),
    "ars": ("CartPole-v1", 60, {"policy": "LinearPolicy", "n_delta": 1, "normalize": True}),
    "trpo": ("Pendulum-v1", 32, {**NET, "n_steps": 32, "batch_size": 16}),
    "maskable-ppo": ("rlsdk/InvalidActionEnvDiscrete-v0", 32, {**NET, "n_steps": 32, "batch_size": 16}),
    "recurrent-ppo": (
        "CartPole-v1",
        32,
        {"policy_kwargs": {"net_arch": [4], "lstm_hidden_size": 4}, "n_steps": 32, "batch_size": 16},
    ),
}


def play(agent: Any, observations: list[Any], masks: list[bool] | None) -> list[Any]:
    """Return deterministic actions for the observations of two short episodes."""
    session, found, dtype = agent.session(), [], agent.observation_space.dtype
    extra = {} if masks is None else {"action_masks": np.array(masks)}
    for step, observation in enumerate(observations):
        if step == 3:
            session.ended(True)
        found.append(np.asarray(session.act(np.array(observation, dtype), **extra)).tolist())
    return found


def noted(agent: Any) -> dict[str, Any]:
    """Return random observations, action masks, and the agent's actions for them."""
    agent.observation_space.seed(0)
    samples = [np.clip(agent.observation_space.sample(), -2, 2).tolist() for _ in range(6)]
    masks = [i % 3 > 0 for i in range(agent.action_space.n)] if agent.masks.required else None
    return {"observations": samples, "masks": masks, "actions": play(agent, samples, masks)}


def main() -> None:
    """Train and save an agent of every algorithm, and write their actions to answers.json."""
    folder = Path(__file__).parent / f"format-{FORMAT}"
    folder.mkdir(exist_ok=True)
    answers = {}
    for algorithm, (env, steps, settings) in AGENTS.items():
        agent = rlsdk.make(algorithm, env=env, seed=0, **settings).learn(steps)
        agent.save(folder / algorithm)
        answers[algorithm] = noted(agent)
    (folder / "answers.json").write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
