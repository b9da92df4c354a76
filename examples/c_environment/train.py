"""PPO on the CartPole of cartpole.c: compile it, then train with 64 environments that one call steps together.

pip install . ./plugins/rlsdk-kernels ./plugins/rlsdk-sb3 ./plugins/rlsdk-envs ./contrib_algos/rlsdk-ppo
python examples/c_environment/train.py [ENVIRONMENT_STEPS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gymnasium import spaces

from rlsdk_envs import make_c_vec_env
from rlsdk_ppo import PPO

SOURCE = Path(__file__).with_name("cartpole.c")
BOUND = np.array([4.8, np.inf, 0.42, np.inf], np.float32)


def compiled(folder: str) -> Path:
    """Compile cartpole.c to a shared library in `folder`, and return its path."""
    library = Path(folder) / "cartpole.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-lm"]
    subprocess.run(command, check=True)  # noqa: S603  # the command is written above
    return library


def main(steps: int) -> None:
    """Train for `steps` environment steps and print the mean return."""
    with tempfile.TemporaryDirectory() as folder:
        env = make_c_vec_env(
            compiled(folder), 64, seed=0, observation_space=spaces.Box(-BOUND, BOUND), action_space=spaces.Discrete(2)
        )
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=256, learning_rate=1e-3, seed=0)
        model.learn(steps)
        print(f"mean return of the last episodes: {np.mean([e['r'] for e in model.ep_info_buffer]):.0f}")
        env.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
