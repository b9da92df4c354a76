"""Code that mypy and pyright check and that is not run. `warn_unused_ignores` requires an error where an ignore is."""

from collections.abc import Callable
from typing import Any, assert_type

import gymnasium
import numpy as np
from torch import Generator, Tensor

from rlsdk import Agent
from rlsdk.callbacks import CheckpointCallback, EvalCallback
from rlsdk.environments import ConnectedEnv
from rlsdk.evaluation.evaluate import evaluate_policy
from rlsdk.interfaces import Buffer, BuildContext, Parts, State
from rlsdk.interfaces.policy import TorchPolicy
from rlsdk.kernels import KernelChoice, protocol
from rlsdk.records import Transitions
from rlsdk.registry import AlgorithmSpec
from rlsdk.settings.schedules import Schedule
from rlsdk_ars import ARS
from rlsdk_kernels import choice
from rlsdk_maskable_ppo import MaskablePPO
from rlsdk_qrdqn import QRDQN
from rlsdk_recurrent_ppo import RecurrentPPO
from rlsdk_sb3 import BaseCallback, NumpyVectorEnv
from rlsdk_tqc import TQC
from rlsdk_tqc.config import TQCConfig
from rlsdk_trpo import TRPO

model = TQC("MlpPolicy", "Pendulum-v1", 1e-3, buffer_size=10_000, verbose=1)
TQC(policy="MlpPolicy", env="Pendulum-v1", learning_rate="lin_3e-4", train_freq=(1, "episode"))
TQC("MlpPolicy", "Pendulum-v1", policy_kwargs={"n_critics": 5}, seed=3)
assert_type(model.learn(total_timesteps=10_000, log_interval=4), TQC)
assert_type(TQC.load("file"), TQC)
assert_type(model.config, TQCConfig)
assert_type(model.config.gamma, float)
misspelt = model.config.gama  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
action, state = model.predict(np.zeros(3), deterministic=True)
print(action.mean(), int(action), action[0] + 1, gymnasium.make("Pendulum-v1").step(action))
action.men()  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue]
state.cpu()  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
model.predict(np.zeros((4, 3)), state=state, episode_start=np.zeros(4, bool))
print(model.session(4).act(np.zeros((4, 3))).shp)  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue]

assert_type(model.config, TQCConfig)
assert_type(model.config.batch_size, int)
assert_type(model.config.learning_rate, Schedule)
assert_type(model.policy, TorchPolicy)
assert_type(model.observation_space, gymnasium.Space[Any])
assert_type(model.action_space, gymnasium.Space[Any])
assert_type(model.env, ConnectedEnv | None)
loop: NumpyVectorEnv | None = model.get_env()  # Any: the core does not import the package of the class
print(loop.stepp)  # type: ignore[union-attr] # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
assert_type(model.replay_buffer, Buffer[Any, Any] | None)
assert_type(model.get_parameters(), dict[str, State])
assert_type(model.num_timesteps, int)
assert_type(ARS.load("file").config.n_delta, int)
print(model.config.learning_rat)  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


class Watching(BaseCallback):
    def _on_step(self) -> bool:
        assert_type(self.model.num_timesteps, int)
        return self.model.gamma < 1.0  # type: ignore[no-any-return]  # settings are read by name


def any_agent(agent: Agent) -> Agent:
    evaluate_policy(agent, "Pendulum-v1")
    return agent.learn(10, callback=[EvalCallback("Pendulum-v1"), CheckpointCallback(100, "folder"), Watching()])


any_agent(model)

TQC("MlpPolicy", "Pendulum-v1", learning_rat=1e-3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
TQC("MlpPolicy", "Pendulum-v1", buffer_size="many")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
TQC("MlpPolicy", "Pendulum-v1", train_freq=0.5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

assert_type(MaskablePPO("MlpPolicy", "CartPole-v1", 3e-4, n_steps=64, clip_range="lin_0.2").learn(10), MaskablePPO)
RecurrentPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs={"lstm_hidden_size": 64}, normalize=True)
TRPO("MlpPolicy", "Pendulum-v1", target_kl=0.02, normalize={"norm_reward": False}, frame_stack=2)
assert_type(ARS("LinearPolicy", "CartPole-v1", n_delta=4, delta_std="lin_0.05").learn(10), ARS)
QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"n_quantiles": 50}, train_freq=(1, "episode"))

TRPO("MlpPolicy", "Pendulum-v1", cg_max_step=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
MaskablePPO("MlpPolicy", "CartPole-v1", batch_size="many")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def of_plugins(
    parts: Parts[Transitions], spec: AlgorithmSpec[TQCConfig], context: BuildContext, generator: Generator, seen: Tensor
) -> None:
    assert_type(parts.sample(8, generator), Transitions)
    assert_type(parts.buffer, Buffer[Any, Transitions] | None)
    print(parts.sample(8, generator).rewards)  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    assert_type(spec.config_type, type[TQCConfig])
    assert_type(context.observation_normalizer(seen), Tensor)
    assert_type(TQC.load("file").config, TQCConfig)
    assert_type(QRDQN.load("file").config.policy_kwargs.n_quantiles, int)
    assert_type(RecurrentPPO.load("file").config.policy_kwargs.lstm_hidden_size, int)


def of_kernels(
    layers: Any,
    setting: KernelChoice,
    network: protocol.DenseNetwork,
    evaluator: protocol.PolicyEvaluator[protocol.PolicyRows],
    loss: protocol.PolicyLoss,
) -> None:
    """Kernels have the types of their slots."""
    network = choice.dense_network(layers, layers, setting, False, network)
    evaluator = choice.policy_evaluator(layers, setting, False, evaluator)
    loss = choice.policy_loss(setting, loss)
    greedy: Callable[..., protocol.GreedyKernel | None] = choice.greedy_acting
    normalization: Callable[..., protocol.NormalizationKernel | None] = choice.normalization
    steps: Callable[..., protocol.PolicySteps | None] = choice.policy_steps
    transition: Callable[..., protocol.ReplayedTransition[Any, Any, Any] | None] = choice.graphed_transition
    print(network, evaluator, loss, greedy, normalization, steps, transition)
