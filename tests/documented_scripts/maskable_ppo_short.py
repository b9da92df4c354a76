from rlsdk_envs.toy import InvalidActionEnvDiscrete
from rlsdk_maskable_ppo import MaskablePPO

env = InvalidActionEnvDiscrete(dim=80, n_invalid_actions=60)
model = MaskablePPO("MlpPolicy", env, verbose=1)
model.learn(5000)
model.save("maskable_toy_env")
