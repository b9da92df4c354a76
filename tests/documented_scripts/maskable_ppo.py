from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk_envs.toy import InvalidActionEnvDiscrete
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_sb3 import get_action_masks

env = InvalidActionEnvDiscrete(dim=80, n_invalid_actions=60)
model = MaskablePPO("MlpPolicy", env, gamma=0.4, seed=32, verbose=1)
model.learn(5000)

evaluate_policy(model, env, n_eval_episodes=20, reward_threshold=90, warn=False)

model.save("ppo_mask")
del model

model = MaskablePPO.load("ppo_mask")

obs, _ = env.reset()
while True:
    action_masks = get_action_masks(env)
    action, _states = model.predict(obs, action_masks=action_masks)
    obs, reward, terminated, truncated, info = env.step(action)
    env.render()
    if terminated or truncated:
        obs, _ = env.reset()
