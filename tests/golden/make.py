"""Write the golden agent file of a new file format: `python -m tests.golden.make`.

It has a bit of everything that files hold: networks, optimisers, statistics, stacked frames, a replay buffer with
priorities, and running episodes. Files of earlier formats are not changed: `tests/storage/test_golden_files.py` reads them all.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import rlsdk
from rlsdk.storage.archive import FORMAT

ENV, STEPS, MORE = "Pendulum-v1", 60, 200
SETTINGS: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [4], "n_quantiles": 5},
    "buffer_size": 60,
    "learning_starts": 40,
    "batch_size": 4,
    "normalize": True,
    "frame_stack": 3,
    "replay_buffer_class": "prioritized",
    "n_steps": 3,
}


def answers(agent: Any, observations: list[Any]) -> dict[str, list[Any]]:
    """Return deterministic ("mode") and sampled ("sample") actions for the observations of two short episodes."""
    found: dict[str, list[Any]] = {}
    for name, deterministic in (("mode", True), ("sample", False)):
        session = agent.session(deterministic=deterministic, seed=1)
        found[name] = []
        for step, observation in enumerate(observations):
            if step == 4:
                session.ended(True)
            found[name].append(np.asarray(session.act(np.array(observation, np.float32))).tolist())
    return found


def parameters(agent: Any) -> list[float]:
    """Return every parameter of the policy, in the order of the modules."""
    return [float(x) for each in agent.policy.parameters() for x in each.detach().ravel()]


def resumed(path: Path) -> Any:
    """Load the agent in a file, continue its running episode, train for `MORE` steps, and return the agent."""
    return rlsdk.load(path, env=ENV, force_reset=False).learn(MORE, reset_num_timesteps=False)


def machine() -> str:
    """Return the versions of torch and numpy, and a digest of some results; exact results depend on them."""
    draw = np.random.default_rng(0)
    results: list[NDArray[Any]] = []
    for rows, inputs, outputs in ((1, 3, 4), (4, 9, 4), (4, 4, 5), (64, 64, 64)):
        x, w = (draw.normal(size=shape).astype(np.float32) for shape in ((rows, inputs), (outputs, inputs)))
        product = torch.nn.functional.linear(torch.from_numpy(x), torch.from_numpy(w))
        functions = (product, product.tanh(), product.exp(), product.softmax(-1), product.sum(0), product.T @ product)
        results += [x @ w.T, np.tanh(x), np.exp(x), *(each.numpy() for each in functions)]
    digest = hashlib.sha256(b"".join(each.tobytes() for each in results)).hexdigest()[:16]
    return f"torch {torch.__version__}, numpy {np.__version__}, arithmetic {digest}"


def main() -> None:
    """Train and save the agent, and write its actions, and its parameters after further training, to answers.json."""
    folder = Path(__file__).parent / f"format-{FORMAT}"
    folder.mkdir()
    rlsdk.make("tqc", env=ENV, seed=0, **SETTINGS).learn(STEPS).save(folder / "tqc", include=["replay"])
    loaded = rlsdk.load(folder / "tqc")
    loaded.observation_space.seed(0)
    seen = [np.clip(loaded.observation_space.sample(), -2, 2).tolist() for _ in range(8)]
    later = resumed(folder / "tqc.rlsdk")
    written = {
        "machine": machine(),
        "observations": seen,
        "steps": [loaded.num_timesteps, later.num_timesteps],
        "before": answers(loaded, seen),
        "after": answers(later, seen),
        "trained": parameters(later),
    }
    (folder / "answers.json").write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main()
