"""Agent files of many kinds, which version 0.1.0 wrote, with their actions before and after further training.

`tests/test_golden_resumed.py` reads them. `python -c "from tests.golden.resumed import main; main()"` writes them again.
Use it only for a new file format and with a new folder: the files must stay like those that users have.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import rlsdk
import rlsdk_envs  # noqa: F401  # registers ids with gymnasium
from rlsdk.environments import make_vec_env

FOLDER = Path(__file__).parent / "resumed-1"
STEPS, MORE = 60, 200


class MixedEnv(gymnasium.Env[Any, Any]):
    """A Dict observation of a vector and a phase; the reward is largest if the action equals the phase."""

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = spaces.Dict({"phase": spaces.Discrete(3), "position": spaces.Box(-1.0, 1.0, (2,))})
        self.action_space = spaces.Box(-1.0, 1.0, (1,)) if continuous else spaces.Discrete(3)
        self.phase, self.steps, self.position = 0, 0, np.zeros(2, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.phase, self.steps = int(self.np_random.integers(3)), 0
        self.position = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = float(np.ravel(action)[0])
        reward = 1.0 - abs(chosen - self.phase) + 0.1 * float(self.position[0])
        self.position = np.clip(self.position[::-1] * 0.9 + 0.05 * chosen, -1.0, 1.0).astype(np.float32)
        self.phase, self.steps = (self.phase + 1) % 3, self.steps + 1
        return self._observation(), reward, self.steps >= 15, False, {}

    def _observation(self) -> dict[str, Any]:
        return {"phase": self.phase, "position": self.position.copy()}


class MaskedMixedEnv(MixedEnv):
    """`MixedEnv` in which one action is forbidden in each phase."""

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [3], True where allowed."""
        return np.arange(3) != (self.phase + 1) % 3


def _flip(continuous: bool) -> Any:
    return gymnasium.make("rlsdk/BitFlippingEnv-v0", n_bits=4, continuous=continuous)


ENVS: dict[str, Any] = {
    "pendulum": lambda: "Pendulum-v1",
    "cartpole": lambda: "CartPole-v1",
    "masks": lambda: gymnasium.make("rlsdk/InvalidActionEnvDiscrete-v0", dim=6, n_invalid_actions=2),
    "dict": MixedEnv,
    "dict-box": lambda: MixedEnv(continuous=True),
    "dict-masks": MaskedMixedEnv,
    "flip": lambda: _flip(continuous=False),
    "flip-box": lambda: _flip(continuous=True),
    "pendulums": lambda: make_vec_env("Pendulum-v1", 3),
    "cartpoles": lambda: make_vec_env("CartPole-v1", 3),
    "many-masks": lambda: make_vec_env(MaskedMixedEnv, 3),
}
NET: dict[str, Any] = {"policy_kwargs": {"net_arch": [4]}}
CRITICS: dict[str, Any] = {"policy_kwargs": {"net_arch": [4], "n_quantiles": 5}}
LSTM: dict[str, Any] = {"policy_kwargs": {"net_arch": [4], "lstm_hidden_size": 4}}
MULTI: dict[str, Any] = {"policy": "MultiInputPolicy"}
TQC: dict[str, Any] = {**CRITICS, "buffer_size": 60, "learning_starts": 40, "batch_size": 4}
QRDQN: dict[str, Any] = {**TQC, "target_update_interval": 50, "learning_rate": 1e-2, "exploration_fraction": 0.5}
ROLLOUT: dict[str, Any] = {**NET, "n_steps": 30, "batch_size": 15}
MEMORY: dict[str, Any] = {**LSTM, "n_steps": 30, "batch_size": 15, "n_epochs": 2}
ARS: dict[str, Any] = {"policy": "LinearPolicy", "n_delta": 2}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tqc-plain": ("tqc", "pendulum", TQC),
    "tqc-normalize": ("tqc", "pendulum", {**TQC, "normalize": True}),
    "tqc-gsde": ("tqc", "pendulum", {**TQC, "use_sde": True, "sde_sample_freq": 4}),
    "tqc-frames": ("tqc", "pendulum", {**TQC, "frame_stack": 3}),
    "tqc-prioritized": ("tqc", "pendulum", {**TQC, "replay_buffer_class": "prioritized", "n_steps": 3}),
    "tqc-hindsight": ("tqc", "flip-box", {**TQC, **MULTI, "replay_buffer_class": "hindsight"}),
    "tqc-dict": ("tqc", "dict-box", {**TQC, **MULTI}),
    "tqc-dict-normalize": ("tqc", "dict-box", {**TQC, **MULTI, "normalize": True}),
    "tqc-envs": ("tqc", "pendulums", TQC),
    "tqc-shared": ("tqc", "pendulum", {**TQC, "optimize_memory_usage": True, "action_noise": None}),
    "qrdqn-plain": ("qrdqn", "cartpole", QRDQN),
    "qrdqn-normalize": ("qrdqn", "cartpole", {**QRDQN, "normalize": True}),
    "qrdqn-masks": ("qrdqn", "masks", QRDQN),
    "qrdqn-frames": ("qrdqn", "cartpole", {**QRDQN, "frame_stack": 3}),
    "qrdqn-prioritized": ("qrdqn", "cartpole", {**QRDQN, "replay_buffer_class": "prioritized", "double_q": True}),
    "qrdqn-hindsight": ("qrdqn", "flip", {**QRDQN, **MULTI, "replay_buffer_class": "hindsight"}),
    "qrdqn-dict": ("qrdqn", "dict", {**QRDQN, **MULTI, "n_steps": 2}),
    "qrdqn-envs": ("qrdqn", "cartpoles", QRDQN),
    "ars-plain": ("ars", "cartpole", ARS),
    "ars-normalize": ("ars", "pendulum", {**ARS, "normalize": True}),
    "ars-mlp": ("ars", "cartpole", {"n_delta": 2, **NET}),
    "ars-dict": ("ars", "dict", ARS),
    "ars-envs": ("ars", "cartpoles", ARS),
    "trpo-plain": ("trpo", "cartpole", ROLLOUT),
    "trpo-normalize": ("trpo", "pendulum", {**ROLLOUT, "normalize": True}),
    "trpo-masks": ("trpo", "masks", ROLLOUT),
    "trpo-gsde": ("trpo", "pendulum", {**ROLLOUT, "use_sde": True, "sde_sample_freq": 4}),
    "trpo-frames": ("trpo", "pendulum", {**ROLLOUT, "frame_stack": 3}),
    "trpo-dict": ("trpo", "dict-masks", {**ROLLOUT, **MULTI}),
    "trpo-envs": ("trpo", "pendulums", {**ROLLOUT, "n_steps": 10}),
    "maskable-ppo-plain": ("maskable-ppo", "masks", ROLLOUT),
    "maskable-ppo-normalize": ("maskable-ppo", "dict-masks", {**ROLLOUT, **MULTI, "normalize": True}),
    "maskable-ppo-frames": ("maskable-ppo", "masks", {**ROLLOUT, "frame_stack": 3}),
    "maskable-ppo-dict": ("maskable-ppo", "dict-masks", {**ROLLOUT, **MULTI}),
    "maskable-ppo-envs": ("maskable-ppo", "many-masks", {**ROLLOUT, **MULTI, "n_steps": 10}),
    "recurrent-ppo-plain": ("recurrent-ppo", "cartpole", MEMORY),
    "recurrent-ppo-gru": ("recurrent-ppo", "cartpole", {**MEMORY, "policy": "MlpGruPolicy"}),
    "recurrent-ppo-normalize": ("recurrent-ppo", "pendulum", {**MEMORY, "normalize": True}),
    "recurrent-ppo-masks": ("recurrent-ppo", "masks", {**MEMORY, "sequence_length": 8, "burn_in": 2}),
    "recurrent-ppo-gsde": ("recurrent-ppo", "pendulum", {**MEMORY, "use_sde": True, "sde_sample_freq": 4}),
    "recurrent-ppo-frames": ("recurrent-ppo", "pendulum", {**MEMORY, "frame_stack": 2}),
    "recurrent-ppo-dict": ("recurrent-ppo", "dict", {**MEMORY, "policy": "MultiInputLstmPolicy"}),
    "recurrent-ppo-envs": ("recurrent-ppo", "cartpoles", {**MEMORY, "n_steps": 10}),
}
"""Name -> (algorithm, key of `ENVS`, settings)."""


def _plain(value: Any) -> Any:
    return {key: _plain(part) for key, part in value.items()} if isinstance(value, dict) else np.asarray(value).tolist()


def _observation(space: Any, value: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _observation(space[key], value[key]) for key in space.spaces}
    return np.array(value, space.dtype)


def observations(agent: Any) -> list[Any]:
    """Return eight random observations of the space, with floats clipped to [-2, 2], as lists and numbers."""

    def bounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bounded(part) for key, part in value.items()}
        return np.clip(value, -2, 2) if np.asarray(value).dtype.kind == "f" else value

    space = agent.observation_space
    space.seed(0)
    return [_plain(bounded(space.sample())) for _ in range(8)]


def masks(agent: Any, environment: str) -> list[bool] | None:
    """Return a mask that forbids every third action, or None for environments without masks."""
    return [i % 3 > 0 for i in range(int(agent.action_space.n))] if "masks" in environment else None


def answers(agent: Any, seen: list[Any], allowed: list[bool] | None) -> dict[str, list[Any]]:
    """Return deterministic ("mode") and sampled ("sample") actions for observations of two short episodes."""
    extra = {} if allowed is None else {"action_masks": np.array(allowed)}
    found: dict[str, list[Any]] = {}
    for name, deterministic in (("mode", True), ("sample", False)):
        session = agent.session(deterministic=deterministic, seed=1)
        found[name] = []
        for step, observation in enumerate(seen):
            if step == 4:
                session.ended(True)
            given = _observation(agent.observation_space, observation)
            found[name].append(np.asarray(session.act(given, **extra)).tolist())
    return found


def parameters(agent: Any) -> NDArray[np.float32]:
    """Every parameter of the policy in one vector, in the order of the modules."""
    policy = getattr(agent, "built", agent.parts).policy
    return np.concatenate([each.detach().numpy().ravel() for each in policy.parameters()]).astype(np.float32)


def resumed(path: Path, environment: str) -> Any:
    """Load the agent in a file, continue its running episodes, train for `MORE` steps, and return the agent."""
    agent = rlsdk.load(path, env=ENVS[environment](), force_reset=False)
    return agent.learn(MORE, reset_num_timesteps=False)


def machine() -> str:
    """Return the versions of torch and numpy, and a digest of some results; exact results depend on them."""
    draw = np.random.default_rng(0)
    results: list[NDArray[Any]] = []
    for rows, inputs, outputs in ((1, 3, 4), (3, 4, 4), (4, 8, 5), (15, 4, 16), (30, 7, 4), (64, 64, 64)):
        x, w = (draw.normal(size=shape).astype(np.float32) for shape in ((rows, inputs), (outputs, inputs)))
        product = torch.nn.functional.linear(torch.from_numpy(x), torch.from_numpy(w))
        functions = (product, product.tanh(), product.exp(), product.softmax(-1), product.sum(0), product.T @ product)
        results += [x @ w.T, np.tanh(x), np.exp(x), *(each.numpy() for each in functions)]
    digest = hashlib.sha256(b"".join(each.tobytes() for each in results)).hexdigest()[:16]
    return f"torch {torch.__version__}, numpy {np.__version__}, arithmetic {digest}"


def main() -> None:
    """Write the agent file of every case, its actions, and its parameters after further training."""
    FOLDER.mkdir()
    written: dict[str, Any] = {"machine": machine()}
    trained = {}
    for name, (algorithm, environment, settings) in CASES.items():
        agent = rlsdk.make(algorithm, env=ENVS[environment](), seed=0, **settings).learn(STEPS)
        agent.save(FOLDER / name, include=["replay"] if "buffer_size" in settings else [])
        loaded = rlsdk.load(FOLDER / name)
        seen, allowed = observations(loaded), masks(loaded, environment)
        later = resumed(FOLDER / f"{name}.rlsdk", environment)
        trained[name] = parameters(later)
        written[name] = {
            "observations": seen,
            "masks": allowed,
            "before": answers(loaded, seen, allowed),
            "after": answers(later, seen, allowed),
            "steps": [loaded.num_timesteps, later.num_timesteps],
        }
        print(name, loaded.num_timesteps, later.num_timesteps, file=sys.stderr)
    (FOLDER / "answers.json").write_text(json.dumps(written) + "\n")
    np.savez_compressed(FOLDER / "trained.npz", **trained)
