"""Random network distillation for rlsdk: an intrinsic reward with a value of its own."""
