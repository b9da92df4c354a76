"""The cases: algorithm, environment and settings, the same for both sides."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.trainers import Trainer


@dataclass(frozen=True)
class Case:
    """`algorithm` names the plugin's class and, upper-cased, the peer's; `warmup` steps are not timed."""

    name: str
    algorithm: str
    env: str
    settings: dict[str, Any] = field(default_factory=dict)
    warmup: int = 1040
    chunk: int = 200
    peer: str = ""
    """The peer's class, where it is not the id in capitals."""
    policy: str = "MlpPolicy"
    n_envs: int = 1
    normalize: bool = False
    workers: int = 0
    """Processes that play; such cases are timed by the clock, as the processor's time is theirs."""

    def ours(self, seed: int) -> Trainer:
        """Our agent, warmed up."""
        import rlsdk
        from rlsdk.environments import make_vec_env
        from rlsdk.registry import load

        count = max(self.n_envs, load(self.algorithm).default_envs)  # the plugin's default
        kind = "async" if self.workers else "sync"
        env = make_vec_env(self.source(), count, vectorization=kind, workers=self.workers or None)
        context = {"seed": seed, "device": "cpu", **({"normalize": True} if self.normalize else {})}
        model = rlsdk.make(self.algorithm, env=env, policy=self.policy, **context, **self.settings)
        model.learn(self.warmup, threads=None)

        def learn(steps: int) -> object:
            return model.learn(steps, reset_num_timesteps=False, threads=None)

        return Trainer(learn, model.parts.algorithm, "update")

    def theirs(self, seed: int) -> Trainer:
        """The same with sb3-contrib."""
        import sb3_contrib

        return self._peer(sb3_contrib, seed)

    def sbx(self, seed: int) -> Trainer:
        """The same with SBX (JAX)."""
        import sbx

        return self._peer(sbx, seed)

    def _peer(self, library: Any, seed: int) -> Trainer:
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import VecNormalize

        env: Any = make_vec_env(self.source(), self.n_envs, seed=seed)
        kind = getattr(library, self.peer or self.algorithm.upper())
        env = VecNormalize(env) if self.normalize else env
        settings = copy.deepcopy(self.settings)  # the peers write into what they are given
        model = kind(self.policy, env, seed=seed, device="cpu", **settings)
        extra = {"async_eval": self._players(model)} if self.workers else {}
        model.learn(self.warmup, **extra)
        return Trainer(lambda steps: model.learn(steps, reset_num_timesteps=False, **extra), model, "train")

    def _players(self, model: Any) -> Any:
        from sb3_contrib.common.vec_env import AsyncEval
        from stable_baselines3.common.env_util import make_vec_env

        makers: list[Any] = [partial(make_vec_env, self.source(), seed=i) for i in range(self.workers)]
        players: Any = AsyncEval(makers, model.policy)
        players.seed(0)
        players.close = lambda: None  # the peer ends them after every `learn`; starting them again is not to be timed
        return players

    def source(self) -> Any:
        """The environment: its id, or what makes it."""
        from gymnasium.spaces import Discrete

        from rlsdk.environments import toy

        if self.env == IMAGES:
            return lambda: toy.FakeImageEnv(84, 4, action_space=Discrete(6))
        if not self.env.startswith("toy:"):
            return self.env

        name, *arguments = self.env.removeprefix("toy:").split(",")
        return lambda: getattr(toy, name)(*map(int, arguments))


TQC = {"learning_starts": 1000, "buffer_size": 100_000}
TRPO: dict[str, Any] = {}
QRDQN = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256], "n_quantiles": 10},
}
QRDQN_200 = {**QRDQN, "policy_kwargs": {"net_arch": [256, 256], "n_quantiles": 200}}
"""As many quantiles as by default."""
QRDQN_IMAGE = {
    "batch_size": 32,
    "buffer_size": 20_000,
    "learning_starts": 1000,
    "train_freq": 4,
    "gradient_steps": 1,
    "target_update_interval": 10_000,
    "exploration_fraction": 0.025,
}
IMAGES = "images"
TOY = "toy:InvalidActionEnvDiscrete,80,60"
CASES = {
    case.name: case
    for case in (
        Case("tqc-pendulum", "tqc", "Pendulum-v1", TQC),
        Case("tqc-halfcheetah", "tqc", "HalfCheetah-v5", TQC),
        Case("trpo-halfcheetah", "trpo", "HalfCheetah-v5", TRPO, warmup=2048, chunk=8192, normalize=True),
        Case("trpo-pendulum", "trpo", "Pendulum-v1", TRPO, warmup=2048, chunk=8192),
        Case("maskable-ppo-toy-1", "maskable-ppo", TOY, {}, warmup=2048, chunk=4096, peer="MaskablePPO"),
        Case(
            "maskable-ppo-toy-8",
            "maskable-ppo",
            TOY,
            {"n_steps": 256},
            warmup=2048,
            chunk=4096,
            peer="MaskablePPO",
            n_envs=8,
        ),
        Case(
            "recurrent-ppo-cartpole-8",
            "recurrent-ppo",
            "CartPole-v1",
            {},
            warmup=1024,
            chunk=1024,
            peer="RecurrentPPO",
            policy="MlpLstmPolicy",
            n_envs=8,
        ),
        Case("qrdqn-cartpole", "qrdqn", "CartPole-v1", QRDQN, warmup=1500, chunk=2048),
        Case("qrdqn-cartpole-200", "qrdqn", "CartPole-v1", QRDQN_200, warmup=1500, chunk=256),
        Case("qrdqn-image", "qrdqn", IMAGES, QRDQN_IMAGE, warmup=1040, chunk=60, policy="CnnPolicy"),
        Case("ars-halfcheetah", "ars", "HalfCheetah-v5", {}, warmup=16_000, chunk=16_000, policy="LinearPolicy"),
        Case("ars-pendulum", "ars", "Pendulum-v1", {}, warmup=3200, chunk=16_000, policy="LinearPolicy"),
        Case(
            "ars-halfcheetah-2-workers",
            "ars",
            "HalfCheetah-v5",
            {},
            warmup=32_000,
            chunk=64_000,
            policy="LinearPolicy",
            workers=2,
        ),
    )
}
