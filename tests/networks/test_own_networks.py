"""Custom networks and recurrent memories: learning, files, export, and errors for those that do not fit."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import rlsdk
from rlsdk.errors import SettingsError
from rlsdk.networks import forgotten, sequence_by_steps
from rlsdk_envs.toy import AnySpaceEnv
from rlsdk_interchange.exporting import export
from tests.tables import in_one_test

VECTOR = spaces.Box(-2.0, 2.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (12, 10, 3), np.uint8)
NESTED = spaces.Dict({"n": spaces.Discrete(3, start=2), "x": VECTOR})


def parts_of(nested: Any) -> Any:
    """Return the values of a dict, the tuple itself, or a list with the one value."""
    return nested.values() if isinstance(nested, dict) else nested if isinstance(nested, tuple) else [nested]


def width_of(space: Any) -> int:
    parts = parts_of(getattr(space, "spaces", space))
    one_hot = {spaces.Discrete: lambda part: int(part.n), spaces.MultiDiscrete: lambda part: int(part.nvec.sum())}
    return sum(one_hot.get(type(part), lambda part: int(np.prod(part.shape)))(part) for part in parts)


def flat(observations: Any) -> Tensor:
    parts = parts_of(observations)
    assert all(part.dtype == torch.float32 for part in parts)
    return torch.cat([part.flatten(1) for part in parts], 1)


class Net(nn.Module):
    """A network from preprocessed observations to [N, output_dim], with layers that have no kernel."""

    def __init__(self, observation_space: Any, output_dim: int, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width_of(observation_space), width), nn.Linear(width, output_dim)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, observations: Any) -> Tensor:
        return self.last(self.dropout(torch.nn.functional.mish(self.norm(self.first(flat(observations))))))


class Critic(nn.Module):
    def __init__(self, observation_space: Any, action_dim: int, output_dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(width_of(observation_space) + action_dim, 8), nn.Softplus(), nn.Linear(8, output_dim)
        )

    def forward(self, observations: Any, actions: Tensor) -> Tensor:
        return self.net(torch.cat([flat(observations), actions], 1))


class Trace(nn.Module):
    """A recurrent memory whose state is a decaying sum of the features."""

    def __init__(self, inputs: int, decay: float = 0.5) -> None:
        super().__init__()
        self.features_dim, self.decay = inputs, nn.Parameter(torch.full((inputs,), decay))

    def initial(self, batch: int) -> tuple[Tensor, ...]:
        return (torch.zeros(batch, self.features_dim),)

    def step(self, features: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        (trace,) = forgotten(state, is_first)
        latent = self.decay * trace + features
        return latent, (latent,)

    def sequence(self, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor) -> Tensor:
        return sequence_by_steps(self, features, states, is_first, starts)


OFF = {"buffer_size": 60, "learning_starts": 4, "batch_size": 4}
ON = {"n_steps": 8, "batch_size": 4}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qrdqn": ("qrdqn", OFF | {"train_freq": 1}, {"network_class": Net, "n_quantiles": 5}),
    "tqc": ("tqc", OFF, {"actor_class": Net, "critic_class": Critic, "n_quantiles": 5}),
    "tqc, actor": ("tqc", OFF, {"actor_class": Net, "net_arch": [4]}),
    "tqc, critics": ("tqc", OFF, {"critic_class": Critic, "n_critics": 3, "net_arch": [4]}),
    "sac": ("sac", OFF, {"actor_class": Net, "critic_class": Critic}),
    "crossq": ("crossq", OFF, {"actor_class": Net, "critic_class": Critic}),
    "td3": ("td3", OFF, {"actor_class": Net, "critic_class": Critic}),
    "td3, actor": ("td3", OFF, {"actor_class": Net, "net_arch": [4]}),
    "ddpg, critics": ("ddpg", OFF, {"critic_class": Critic, "net_arch": [4]}),
    "dqn": ("dqn", OFF | {"train_freq": 1}, {"network_class": Net}),
    "ppo": ("ppo", ON | {"n_epochs": 1}, {"actor_class": Net, "critic_class": Net}),
    "a2c": ("a2c", {"n_steps": 8}, {"actor_class": Net, "critic_class": Net}),
    "trpo": ("trpo", ON, {"actor_class": Net, "critic_class": Net, "critic_kwargs": {"width": 4}}),
    "trpo, actor": ("trpo", ON, {"actor_class": Net, "net_arch": [4]}),
    "maskable-ppo": ("maskable-ppo", ON | {"n_epochs": 1}, {"actor_class": Net, "critic_class": Net}),
    "maskable-ppo, critic": ("maskable-ppo", ON | {"n_epochs": 1}, {"critic_class": Net, "net_arch": [4]}),
    "recurrent-ppo": ("recurrent-ppo", ON | {"n_epochs": 1}, {"memory_class": Trace, "net_arch": [4]}),
}


BOX = ("tqc", "sac", "crossq", "td3", "ddpg")


def environment(case: str, observation: Any, action: Any = None) -> Any:
    chosen = spaces.Box(-1.0, 1.0, (2,), np.float32) if CASES[case][0] in BOX else spaces.Discrete(3)
    return AnySpaceEnv(observation, action or chosen, 5)


def made(case: str, observation: Any = VECTOR, action: Any = None, **changes: Any) -> Any:
    algorithm, settings, kwargs = CASES[case]
    kind = "MultiInput" if isinstance(observation, spaces.Dict) else "Mlp"
    policy = f"{kind}LstmPolicy" if algorithm == "recurrent-ppo" else f"{kind}Policy"
    env = environment(case, observation, action)
    networks = kwargs | changes.pop("policy_kwargs", {})
    return rlsdk.make(algorithm, env=env, policy=policy, policy_kwargs=networks, seed=0, **settings | changes)


def objects_of(case: str) -> dict[str, Any]:
    return {f"policy_kwargs.{name}": value for name, value in CASES[case][2].items() if isinstance(value, type)}


def states(model: Any) -> dict[str, Any]:
    from rlsdk_testing.subject import flat_state

    return flat_state(model)


@pytest.mark.parametrize("observation", [VECTOR, IMAGE, NESTED], ids=["vector", "image", "Dict"])
@pytest.mark.parametrize("case", CASES)
def test_they_learn_save_load_and_go_on_exactly(case: str, observation: Any, tmp_path: Path) -> None:
    model = made(case, observation).learn(16)
    names = [name for name in states(model) if "network" in name or "ensemble" in name or "memory" in name]
    before = states(made(case, observation))
    assert any(not torch.equal(before[name], states(model)[name]) for name in names), "the user's layers are trained"
    checkpoint = tmp_path / "a.rlsdk"
    off_policy = "buffer_size" in CASES[case][1]
    model.save(checkpoint, include=["replay"] if off_policy else None)
    again = rlsdk.load(
        checkpoint, env=environment(case, observation), custom_objects=objects_of(case), force_reset=False
    )
    observation.seed(3)
    seen = observation.sample()
    masks = "none" if case.startswith("maskable") else None
    actions = [each.predict(seen, deterministic=True, action_masks=masks)[0] for each in (model, again)]
    np.testing.assert_array_equal(*actions)
    for each in (model, again):
        each.learn(16, reset_num_timesteps=False)
    for name, value in states(model).items():
        assert torch.equal(value, states(again)[name]), name
    with pytest.raises(rlsdk.errors.RlsdkError, match="custom_objects"):
        rlsdk.load(BytesIO(checkpoint.read_bytes()))


@pytest.mark.parametrize("case", CASES)
def test_they_are_exported(case: str, tmp_path: Path) -> None:
    exported = export(made(case).learn(8), tmp_path / "policy")
    assert exported.path.is_file()


@pytest.mark.parametrize(
    "action",
    [
        spaces.Box(-1.0, 1.0, (2, 2), np.float32),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    ],
    ids=["Box", "MultiDiscrete", "MultiBinary", "Dict"],
)
def test_an_actor_of_every_action_space(action: Any) -> None:
    model = made("trpo", action=action).learn(16)
    assert model.predict(VECTOR.sample())[0] is not None


def test_a_memory_is_used_over_time_and_cut_at_episodes() -> None:
    model = made("recurrent-ppo")
    memory = model.policy.memory
    features, first = torch.randn(6, 3), torch.tensor([True, False, False, True, False, False])
    state, latents, before = memory.initial(1), [], []
    for t in range(6):
        before.append(state[0])
        latent, state = memory.step(features[t : t + 1], state, first[t : t + 1])
        latents.append(latent)
    whole = memory.sequence(features, (torch.cat(before),), first, torch.tensor([1, 0, 1, 1, 0, 0]).bool())
    torch.testing.assert_close(torch.cat(latents), whole)
    torch.testing.assert_close(latents[3], features[3:4])


class Wide(Net):
    def __init__(self, observation_space: Any, output_dim: int) -> None:
        super().__init__(observation_space, output_dim + 1)


class WideCritic(Critic):
    def __init__(self, observation_space: Any, action_dim: int, output_dim: int) -> None:
        super().__init__(observation_space, action_dim, output_dim + 1)


class Forgetful(Trace):
    def sequence(self, features: Tensor, states: tuple[Tensor, ...], is_first: Tensor, starts: Tensor) -> Tensor:
        return features


class Misspelt(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.features_dim = inputs

    def steps(self) -> None: ...


class Raises(Net):
    def forward(self, observations: Any) -> Tensor:
        return self.last(observations)


class CannotBeMade(Net):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise ValueError("no layers\nno network")


class Infinite(Net):
    def forward(self, observations: Any) -> Tensor:
        return super().forward(observations) / 0.0


class InfiniteTrace(Trace):
    def step(self, features: Tensor, state: tuple[Tensor, ...], is_first: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        latent, state = super().step(features, state, is_first)
        return latent.log(), state


@in_one_test
@pytest.mark.parametrize(
    ("case", "changes", "wanted"),
    [
        (
            "qrdqn",
            {"network_class": Wide},
            r"qrdqn: policy_kwargs.network_class Wide gave \[2, 16\].*expected \[2, 3, 5\]",
        ),
        (
            "tqc",
            {"actor_class": Wide},
            r"tqc: policy_kwargs.actor_class Wide gave \[2, 5\].*expected \[2, 4\]: 2 means",
        ),
        ("tqc", {"critic_class": WideCritic}, r"tqc: policy_kwargs.critic_class WideCritic gave \[2, 6\].*\[2, 5\]"),
        ("trpo", {"critic_class": Wide, "critic_kwargs": {}}, r"trpo: .*critic_class Wide gave \[2, 2\].*\[2, 1\]"),
        ("trpo", {"actor_kwargs": {"depth": 3}}, "unexpected keyword argument 'depth'.*observation_space, output_dim"),
        ("trpo", {"actor_class": Raises}, r"failed on 2 preprocessed observations, \[2, 3\]"),
        ("trpo", {"actor_class": lambda *_: 3}, "must give a torch.nn.Module, not int"),
        ("trpo", {"actor_class": 3}, "not a class"),
        ("recurrent-ppo", {"memory_class": Forgetful}, "sequence gives other latents than step"),
        (
            "recurrent-ppo",
            {"memory_class": Misspelt},
            "recurrent-ppo: .*memory_class Misspelt must have.*initial, step, seq",
        ),
        ("recurrent-ppo", {"memory_class": int}, "memory_class int must give a torch.nn.Module, not int"),
        ("recurrent-ppo", {"memory_class": InfiniteTrace}, "step gave numbers that are not finite"),
        (
            "recurrent-ppo",
            {"memory_class": CannotBeMade},
            r"recurrent-ppo: .* cannot be made: no layers\\nno network; it is",
        ),
        (
            "trpo",
            {"actor_class": CannotBeMade},
            r"trpo: .*actor_class CannotBeMade cannot be made: no layers\\nno network; it",
        ),
        (
            "tqc",
            {"critic_class": CannotBeMade},
            r"tqc: .*cannot be made: .*\(observation_space, action_dim, output_dim\)",
        ),
        (
            "trpo",
            {"features_extractor_class": CannotBeMade, "actor_class": None},
            "trpo: .*extractor_class CannotBeMade cannot",
        ),
        ("td3", {"actor_class": Wide}, r"td3: .*actor_class Wide gave \[2, 3\].*\[2, 2\]: 2 actions before tanh"),
        ("sac", {"actor_class": None, "share_features_extractor": True}, "leave critic_class out"),
        ("td3", {"critic_class": None, "share_features_extractor": True}, "leave actor_class out"),
        ("qrdqn", {"network_class": Infinite}, "qrdqn: .*network_class Infinite gave numbers that are not finite"),
        ("recurrent-ppo", {"actor_class": Net}, "features_extractor_class or memory_class"),
    ],
)
def test_what_does_not_fit_is_one_error_when_the_agent_is_made(case: str, changes: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SettingsError, match=wanted) as error:
        made(case, policy_kwargs=changes)
    assert "\n" not in str(error.value)


def test_state_dependent_noise_needs_a_latent() -> None:
    with pytest.raises(SettingsError, match="use_sde"):
        made("trpo", action=spaces.Box(-1.0, 1.0, (2,), np.float32), use_sde=True)
    with pytest.raises(SettingsError, match="use_sde"):
        made("tqc", use_sde=True)


def test_networks_with_modes_learn_in_train_and_act_in_eval() -> None:
    model = made("qrdqn", policy_kwargs={"network_kwargs": {"dropout": 0.5}}).learn(12)
    seen = VECTOR.sample()
    actions = {int(model.predict(seen, deterministic=True)[0]) for _ in range(20)}
    assert len(actions) == 1
