"""Updates and acting as CUDA graphs, and training on a GPU.

Without a GPU, the rules about captures are tested with a stand-in that runs the update again instead of replaying it. The other
tests are skipped. `rlsdk check ID --set device=cuda` checks the contracts on a GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from inspect import getattr_static
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import rlsdk
from rlsdk import tree
from rlsdk.kernels import factory
from rlsdk.kernels.factory import Graphed
from rlsdk.records import Act, Observation
from rlsdk.registry.discovery import algorithms
from rlsdk.settings.load import data_settings
from rlsdk_envs.toy import FakeImageEnv, InvalidActionEnvDiscrete, InvalidActionEnvMultiDiscrete
from rlsdk_kernels import cuda_graphs
from rlsdk_kernels.cuda_graphs import Capture, GraphedActing, GraphedUpdate
from rlsdk_testing.rollouts import rollout_of
from rlsdk_testing.subject import ACTIONS, Subject

has_gpu = torch.cuda.is_available()
on_gpu = pytest.mark.skipif(not has_gpu, reason="there is no GPU")

OFF_POLICY: dict[str, Any] = {"learning_starts": 20, "buffer_size": 500, "batch_size": 16, "seed": 3}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {}),
    "dqn, double, prioritized": ("dqn", {"double_q": True, "replay_buffer_class": "prioritized"}),
    "dqn, several updates": ("dqn", {"train_freq": 8, "gradient_steps": 8}),
    "dqn, images": ("dqn", {"policy": "CnnPolicy"}),
    "qrdqn": ("qrdqn", {"policy_kwargs": {"n_quantiles": 20}}),
    "qrdqn, images": ("qrdqn", {"policy": "CnnPolicy"}),
    "sac": ("sac", {}),
    "sac, schedule": ("sac", {"learning_rate": "lin_1e-3"}),
    "sac, fixed coefficient, slow target": ("sac", {"ent_coef": 0.1, "target_update_interval": 3}),
    "sac, gSDE": ("sac", {"use_sde": True}),
    "sac, prioritized": ("sac", {"replay_buffer_class": "prioritized"}),
    "td3": ("td3", {"policy_delay": 3}),
    "ddpg": ("ddpg", {}),
    "tqc": ("tqc", {}),
    "tqc, images": ("tqc", {"policy": "CnnPolicy"}),
    "ppo": ("ppo", {}),
    "ppo, schedules": ("ppo", {"learning_rate": "lin_1e-3", "clip_range": "lin_0.2", "clip_range_vf": 0.1}),
    "ppo, target KL": ("ppo", {"target_kl": 0.5}),
    "ppo, images": ("ppo", {"policy": "CnnPolicy"}),
    "ppo, gSDE": ("ppo", {"env": "Pendulum-v1", "use_sde": True}),
    "maskable-ppo": ("maskable-ppo", {"env": InvalidActionEnvDiscrete(4, 2)}),
    "maskable-ppo, two choices": ("maskable-ppo", {"env": InvalidActionEnvMultiDiscrete(4, 2)}),
}
ON_POLICY = ("ppo", "maskable-ppo", "recurrent-ppo")
METHODS = {"dqn": "_learn_batch", "qrdqn": "_learn_batch"}


class Rerun(GraphedUpdate[Any]):
    """Runs the step again where a graph would be replayed, with the same tensors for inputs and results."""

    def _capture(self, inputs: object, numbers: Any, choices: tuple[Hashable, ...]) -> Any:
        own = tree.map_tensors(torch.Tensor.clone, inputs)
        given = numbers if isinstance(numbers, tuple) else (numbers,)
        tensors = [None if number is None else torch.tensor(number, dtype=torch.float64) for number in given]

        def step(algorithm: object) -> Any:
            # kernels of the CPU take numbers
            found = tuple(None if tensor is None else float(tensor) for tensor in tensors)
            return self._step(algorithm, own, found if isinstance(numbers, tuple) else found[0], *choices)

        twin: Any = copy.deepcopy(self._algorithm)
        if hasattr(twin, "_kernels"):
            twin._kernels()  # as PPO's `update` does before its steps
        result = step(twin)
        used = [tensor for tensor in tensors if tensor is not None]
        return stand_in(lambda: step(self._algorithm), result, tree.leaves(own), used)


class RerunActing(GraphedActing):
    """Acts again where a graph would be replayed, with the same tensors for inputs and results."""

    def _may_replay(self, observation: object) -> bool:  # type: ignore[override]
        return True

    def _capture(self, inputs: Any, deterministic: bool, generator: torch.Generator) -> Any:
        observation, carry = own = tree.map_tensors(torch.Tensor.clone, inputs)
        trial = torch.Generator()  # a capture draws no numbers
        result = self._act(observation, carry, deterministic, trial)
        return stand_in(lambda: self._act(observation, carry, deterministic, generator), result, tree.leaves(own), [])


def stand_in(step: Callable[[], object], result: object, inputs: list[Any], numbers: list[Any]) -> Capture[Any]:
    """A capture whose graph calls `step`. Its results are like `result`."""
    values = [leaf.clone() for leaf in tree.leaves(result)]

    class Graph:
        @staticmethod
        def replay() -> None:
            for value, found in zip(values, tree.leaves(step()), strict=True):
                value.copy_(found)

    build = tree.layout(result).build
    return Capture(Graph(), inputs, numbers, values, lambda copies: build(iter(copies)))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code of the CPU makes no steps of policies, so that their methods run as on a GPU."""
    monkeypatch.setattr(factory, "policy_steps", lambda *_: None)


def made(case: str, cases: dict[str, tuple[str, dict[str, Any]]] = CASES, **changes: Any) -> Any:
    """A small agent of a case. Without a GPU, its update is a `Rerun`, unless kernels are off."""
    name, settings = cases[case]
    device = "cuda" if has_gpu else "cpu"
    common = {"n_steps": 64, "batch_size": 16, "n_epochs": 2, "seed": 3} if name in ON_POLICY else OFF_POLICY
    settings = {**common, **settings, **changes}
    networks = {"net_arch": [32, 32], **settings.pop("policy_kwargs", {})}
    discrete = name in ("dqn", "qrdqn", *ON_POLICY)
    env: Any = settings.pop("env", "CartPole-v1" if discrete else "Pendulum-v1")
    if settings.get("policy", "").startswith("Cnn"):
        env = FakeImageEnv(36, 1, action_space=Discrete(3) if discrete else Box(-1.0, 1.0, (2,), np.float32))
    model = rlsdk.make(name, env=env, device=device, policy_kwargs=networks, **settings)
    if not has_gpu and networks.get("kernel") != "autograd" and name != "recurrent-ppo":
        algorithm: Any = model.parts.algorithm
        method = getattr_static(type(algorithm), METHODS.get(name, "_learn"))
        assert isinstance(method, Graphed)
        vars(algorithm)[method.name] = Rerun(method.step, algorithm, method.counters)
    return model


def plain_like(case: str) -> Any:
    """An agent of the case whose updates are computed by torch's modules, as written."""
    return made(case, policy_kwargs={**CASES[case][1].get("policy_kwargs", {}), "kernel": "autograd"})


def graph_of(model: Any) -> GraphedUpdate[Any]:
    """The graphs of an agent's update."""
    (found,) = (value for value in vars(model.parts.algorithm).values() if isinstance(value, GraphedUpdate))
    return found


def batches_of(model: Any, count: int) -> list[Any]:
    """Batches of the agent's buffer, or rollouts."""
    if model.parts.buffer is None:
        return [rollout_of(model, 64) for _ in range(count // 4)]
    return [model.parts.sample(model.batch_size, model.streams["replay"]) for _ in range(count)]


def updates(model: Any, batches: list[Any]) -> list[dict[str, torch.Tensor]]:
    return [dict(model.parts.algorithm.update(batch, progress=i / 100)) for i, batch in enumerate(batches)]


def require_equal(graphed: Any, plain: Any, batches: list[Any]) -> None:
    """Update both agents with the same batches and noise; compare metrics and weights."""
    for model in (graphed, plain):
        model.streams.reseed(5)
    pairs = list(zip(updates(graphed, batches), updates(plain, batches), strict=True))
    pairs.append((graphed.parts.policy.state_dict(), plain.parts.policy.state_dict()))
    for mine, theirs in pairs:
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            torch.testing.assert_close(value, theirs[name], rtol=2e-3, atol=2e-4, msg=f"{name}: {value} {theirs[name]}")


# images take long on the CPU, and the stand-in does nothing else for them
@pytest.mark.parametrize("case", [pytest.param(case, marks=[on_gpu] if "images" in case else []) for case in CASES])
def test_a_graph_computes_what_torch_computes(case: str) -> None:
    """Twelve updates with the same batches, replayed and as written; again after a change of weights, and of settings."""
    graphed, plain = made(case), plain_like(case)
    graphed.learn(24)
    plain.learn(24)
    batches = batches_of(graphed, 12)
    plain.set_parameters(graphed.get_parameters())
    require_equal(graphed, plain, batches)
    graph = graph_of(graphed)
    captures = dict(graph.captures.made)
    assert bool(captures) is ("target KL" not in case)
    graphed.set_parameters(plain.get_parameters())
    require_equal(graphed, plain, batches)
    for model in (graphed, plain):
        model.gamma, model.learning_rate = 0.5, 1e-4
        model.set_parameters(plain.get_parameters())
    require_equal(graphed, plain, batches)
    assert graph.captures.made or "target KL" in case
    assert not set(map(id, graph.captures.made.values())) & set(map(id, captures.values()))
    assert not graph.captures.fails


ACTING: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        case: CASES[case] for case in ("dqn", "dqn, images", "qrdqn", "sac", "td3", "tqc, images", "ppo", "ppo, images")
    },
    "maskable-ppo": CASES["maskable-ppo"],
    "maskable-ppo, two choices": CASES["maskable-ppo, two choices"],
    "maskable-ppo, images": ("maskable-ppo", {"policy": "CnnPolicy"}),
    "recurrent-ppo": ("recurrent-ppo", {}),
    "recurrent-ppo, images": ("recurrent-ppo", {"policy": "CnnLstmPolicy"}),
}


def acting_of(model: Any) -> GraphedActing:
    """The graphs of a policy's acting."""
    policy = model.parts.policy
    acts = policy._kernels.kernel[0]
    return acts if has_gpu else RerunActing(acts, policy)


def require_equal_acts(graphed: GraphedActing, model: Any, *, deterministic: bool = False) -> None:
    """Act ten times with a policy, replayed and as written, with the same observations, carries and random numbers."""
    steps = rollout_of(model, 11).steps
    ours, theirs = (torch.Generator(model.device).manual_seed(7) for _ in range(2))
    carries = [model.parts.policy.initial_carry(1)] * 2
    for t in range(10):
        observation = tree.map_tensors(lambda leaf, t=t: leaf[t], steps.observation)
        mine = graphed(observation, carries[0], deterministic, ours)
        other = graphed._act(observation, carries[1], deterministic, theirs)
        for one, two in zip(tree.leaves(mine), tree.leaves(other), strict=True):
            assert one.dtype == two.dtype
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
        carries = [mine.carry, other.carry]
    assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("case", [pytest.param(case, marks=[on_gpu] if "images" in case else []) for case in ACTING])
def test_acting_by_a_graph_is_acting_as_written(case: str) -> None:
    """With the first weights, with others, after a change of a setting, with parameters in other memory, and greedily."""
    model = made(case, cases=ACTING)
    graphed, policy = acting_of(model), model.parts.policy
    require_equal_acts(graphed, model)
    made_first = dict(graphed.captures.made)
    assert made_first
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    require_equal_acts(graphed, model)
    policy.reader = object()
    require_equal_acts(graphed, model)
    for parameter in policy.parameters():
        parameter.data = parameter.data * 0.5
    require_equal_acts(graphed, model)
    require_equal_acts(graphed, model, deterministic=True)
    assert not graphed.captures.fails
    assert not set(made_first.values()) & set(graphed.captures.made.values())


def test_epsilon_of_replayed_acting_is_the_current_one() -> None:
    model = made("dqn", cases=ACTING)
    graphed, observation = acting_of(model), rollout_of(model, 1).steps.observation
    first = tree.map_tensors(lambda leaf: leaf[0], observation)
    chosen = []
    for epsilon in (0.0, 1.0):
        model.parts.policy.epsilon.fill_(epsilon)
        generator = torch.Generator(model.device).manual_seed(1)
        chosen.append({int(graphed(first, (), False, generator).action) for _ in range(40)})
    assert [len(actions) for actions in chosen] == [1, 2]


@on_gpu
def test_results_of_replays_are_not_overwritten() -> None:
    model = made("ppo, images")
    act = model.parts.policy.rollout_act()
    observation = tree.map_tensors(lambda leaf: leaf[0], rollout_of(model, 1).steps.observation)
    carry, generator = model.parts.policy.initial_carry(1), torch.Generator("cuda")
    acts = [act(observation, carry, deterministic=False, generator=generator) for _ in range(30)]
    assert len({int(one.action) for one in acts}) > 1
    assert len({one.action.data_ptr() for one in acts}) == len(acts)


@on_gpu
def test_acting_continues_without_a_graph_if_it_reads_values() -> None:
    def reads(observation: Any, carry: Any, deterministic: bool, generator: torch.Generator) -> Act[Any, Any]:
        drawn = torch.rand(3, generator=generator, device="cuda")
        return Act(drawn * float(drawn.sum()), carry, ())

    observation = Observation(torch.zeros(1, 3, device="cuda"), torch.ones(1, dtype=torch.bool, device="cuda"))
    graphed, generator = GraphedActing(reads, torch.nn.Linear(1, 1)), torch.Generator("cuda").manual_seed(0)
    found = torch.stack([graphed(observation, (), False, generator).action for _ in range(8)])
    assert graphed.captures.fails
    assert len(set(found.flatten().tolist())) == found.numel()


def replaced_layer(model: Any) -> None:
    model.parts.policy.body[0] = torch.nn.Linear(3, 32).to(model.device)


def hooked(model: Any) -> None:
    model.parts.policy.body[0].register_forward_hook(lambda *_: None)


def own_memory(model: Any) -> None:
    parameter = next(model.parts.policy.parameters())
    parameter.data = parameter.data.clone()


def no_gradients(model: Any) -> None:
    model.parts.policy.zero_grad()


def frozen(model: Any) -> None:
    next(model.parts.policy.parameters()).requires_grad_(False)


def another_target_entropy(model: Any) -> None:
    model.parts.algorithm.entropy.target_entropy = -7.0


CHANGES = [replaced_layer, hooked, own_memory, no_gradients, frozen, another_target_entropy]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_the_agent_is_not_missed(change: Callable[[Any], None]) -> None:
    graphed, plain = made("sac"), plain_like("sac")
    graphed.learn(30)
    plain.learn(30)
    batches = batches_of(graphed, 8)
    plain.set_parameters(graphed.get_parameters())
    require_equal(graphed, plain, batches)
    change(graphed)
    change(plain)
    plain.set_parameters(graphed.get_parameters())
    require_equal(graphed, plain, batches)
    assert bool(graph_of(graphed).captures.made) is (change is not hooked)


def test_subclasses_may_replace_or_extend_the_update() -> None:
    calls = []

    class Own(type(made("sac").parts.algorithm)):  # type: ignore[misc]
        def _learn(self, *arguments: Any) -> Any:
            calls.append(1)
            return super()._learn(*arguments)

    model = made("sac").learn(30)
    vars(model.parts.algorithm).pop("_learn")
    model.parts.algorithm.__class__ = Own
    for _ in range(6):
        model.parts.algorithm.update(model.parts.sample(16, model.streams["replay"]), progress=0.5)
    assert len(calls) == 6
    assert callable(Own.__mro__[1]._learn)


def test_further_shapes_run_as_written() -> None:
    model = made("sac").learn(30)
    for size in range(2, 10):
        for _ in range(6):
            model.parts.algorithm.update(model.parts.sample(size, model.streams["replay"]), progress=0.5)
    assert len(graph_of(model).captures.made) == cuda_graphs.MOST_GRAPHS


@pytest.mark.parametrize("case", ["sac", "dqn"])
def test_frozen_parameters_do_not_move(case: str) -> None:
    model = made(case).learn(40)
    first = next(model.parts.policy.parameters())
    first.requires_grad_(False)
    before = first.detach().clone()
    model.learn(20, reset_num_timesteps=False)
    assert torch.equal(first, before)
    first.requires_grad_(True)
    model.learn(20, reset_num_timesteps=False)
    assert not torch.equal(first, before)


def test_networks_of_users_run_as_written() -> None:
    calls = []

    class Counting(torch.nn.Module):
        def __init__(self, space: Any, features_dim: int = 3) -> None:
            super().__init__()
            self.features_dim = features_dim

        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return observation

    model = made("sac", policy_kwargs={"features_extractor_class": Counting}).learn(60)
    before = len(calls)
    model.learn(10, reset_num_timesteps=False)
    assert len(calls) > before + 30


ALGORITHMS = sorted(plugin.id for plugin in algorithms() if str(plugin.distribution).startswith("rlsdk-"))


def require_travels(model: Any, subject: Subject, folder: Path) -> None:
    """Save an agent that was trained on the GPU; load it on both devices, let it act, and train on."""
    model.save(folder / "agent.rlsdk")
    observation = np.stack([model.observation_space.sample() for _ in range(5)])
    expected = subject.predict(model, observation, deterministic=True)
    data_sets = {name: getattr(model, name) for name in data_settings(subject.spec.config_type)}
    for device in ("cpu", "cuda"):
        loaded = type(model).load(folder / "agent.rlsdk", device=device, env=model.env, **data_sets)
        assert loaded.device.type == device
        found = subject.predict(loaded, observation, deterministic=True)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        loaded.learn(40, reset_num_timesteps=False)
        loaded.save(folder / "again.rlsdk")
        other = "cuda" if device == "cpu" else "cpu"
        type(model).load(folder / "again.rlsdk", device=other, env=model.env, **data_sets).learn(40)


@on_gpu
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_on_a_gpu(name: str, tmp_path: Path) -> None:
    subject = Subject(name)
    model = subject.trained(device="cuda")
    assert {value.device.type for value in model.parts.policy.state_dict().values()} == {"cuda"}
    require_travels(model, subject, tmp_path)


@on_gpu
def test_training_of_recurrent_policies_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    made("recurrent-ppo", cases=ACTING).learn(130)
    assert not [str(warning.message) for warning in recwarn if "contiguous" in str(warning.message)]


@on_gpu
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "ars"])
def test_image_policies_are_on_the_gpu_by_default(name: str, tmp_path: Path) -> None:
    subject = Subject(name)
    env = FakeImageEnv(action_space=ACTIONS[subject.action_kind])
    model: Any = subject.agent(env, policy=subject.policy_for("Cnn"), device="auto").learn(40)
    assert model.device.type == "cuda"
    require_travels(model, subject, tmp_path)
    copy.deepcopy(model.parts.algorithm)


@on_gpu
def test_a_normalized_training_with_all_extras(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"normalize": True, "n_steps": 3, "replay_buffer_class": "prioritized"}
    model = made("sac", **settings).learn(60)
    require_travels(model, Subject("sac"), tmp_path)
