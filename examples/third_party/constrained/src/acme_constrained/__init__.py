"""PPO-Lagrangian for rlsdk: a tutorial of `info`. See README.md."""
