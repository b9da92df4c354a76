"""Not run: checked by mypy and pyright. Lines with an ignore must be errors (`warn_unused_ignores` sees to that)."""

from typing import assert_type

import numpy as np

from rlsdk_tqc import TQC

model = TQC("MlpPolicy", "Pendulum-v1", 1e-3, buffer_size=10_000, verbose=1)
TQC(policy="MlpPolicy", env="Pendulum-v1", learning_rate="lin_3e-4", train_freq=(1, "episode"))
TQC("MlpPolicy", "Pendulum-v1", policy_kwargs={"n_critics": 5}, seed=3)
assert_type(model.learn(total_timesteps=10_000, log_interval=4), TQC)
assert_type(TQC.load("file"), TQC)
action, state = model.predict(np.zeros(3), deterministic=True)

TQC("MlpPolicy", "Pendulum-v1", learning_rat=1e-3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
TQC("MlpPolicy", "Pendulum-v1", buffer_size="many")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
TQC("MlpPolicy", "Pendulum-v1", train_freq=0.5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
