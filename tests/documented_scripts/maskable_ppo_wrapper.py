import gymnasium as gym
import numpy as np

from rlsdk_envs import ActionMasker
from rlsdk_maskable_ppo import MaskableActorCriticPolicy, MaskablePPO
from tests.documented_scripts import UsersEnvironment


def mask_fn(env: gym.Env) -> np.ndarray:
    return env.valid_action_mask()


env = UsersEnvironment()
env = ActionMasker(env, mask_fn)

model = MaskablePPO(MaskableActorCriticPolicy, env, verbose=1)
model.learn(5000)

observation, _ = env.reset()
valid_action_array = env.action_masks()
model.predict(observation, action_masks=valid_action_array)
