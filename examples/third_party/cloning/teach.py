"""Record a teacher's episodes, and clone the teacher from them."""

import rlsdk
from rlsdk_interchange import record_episodes

teacher = rlsdk.load("teacher/final.rlsdk")
record_episodes(teacher, "CartPole-v1", 20, "demo", deterministic=True, seed=0)
clone = rlsdk.make("cloning", env=None, dataset="demo.safetensors", held_out=0.2, seed=0).learn(1000)  # updates
clone.save("clone")
