"""Random network distillation for rlsdk: an intrinsic reward with a separate value function."""
