"""PPO on the CartPole of cartpole.py. On a GPU, environments and agent stay there.

pip install . ./plugins/rlsdk-kernels ./plugins/rlsdk-sb3 ./plugins/rlsdk-envs ./contrib_algos/rlsdk-ppo
python examples/torch_environment/train.py [ENVIRONMENT_STEPS] [NUMBER_OF_ENVIRONMENTS]
"""

from __future__ import annotations

import sys
import time

from cartpole import CartPole

from rlsdk.evaluation import evaluate_policy
from rlsdk_envs import make_torch_vec_env
from rlsdk_ppo import PPO


def main(steps: int, copies: int) -> None:
    """Train for `steps` environment steps; print the speed and the mean return of ten episodes."""
    env = make_torch_vec_env(CartPole(), copies, seed=0)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=8 * copies, n_epochs=4, learning_rate=1e-3, seed=0)
    began = time.perf_counter()
    model.learn(steps)
    print(f"{model.num_timesteps / (time.perf_counter() - began):,.0f} steps/s on {model.device}")
    mean, _ = evaluate_policy(model, make_torch_vec_env(CartPole(), 10, seed=1))
    print(f"mean return of ten episodes: {mean:.0f}")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*given, *(1_000_000, 1024)[len(given) :])
