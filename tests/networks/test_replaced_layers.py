"""After a user changes layers of an agent's networks, prediction, training and agent files use the changed layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.utils import parametrizations, prune

import rlsdk
from rlsdk.environments import to_space
from rlsdk.errors import UsageError
from rlsdk.kernels import Structure
from rlsdk.kernels.factory import compiled_off, kernels_off
from rlsdk.networks.encoders import NatureEncoder
from rlsdk.updates import FlatOptimizer, TargetNetwork
from rlsdk_kernels import choice
from rlsdk_kernels.compiled_dense import CompiledDense
from rlsdk_kernels.compiled_library import loaded_library
from tests.compiled_variants import needs_library
from tests.tables import in_one_test

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "tqc": ("Pendulum-v1", {"buffer_size": 100, "learning_starts": 4, "batch_size": 4}),
    "qrdqn": ("CartPole-v1", {"buffer_size": 100, "learning_starts": 4, "batch_size": 4, "train_freq": 1}),
    "trpo": ("Pendulum-v1", {"n_steps": 16, "batch_size": 8, "n_critic_updates": 1}),
    "recurrent-ppo": ("CartPole-v1", {"n_steps": 16, "batch_size": 8, "n_epochs": 1}),
}
OTHER_LAYERS = (
    "wider_layers",
    "other_activation",
    "one_layer_less",
    "one_layer_more",
    "weight_norm",
    "spectral_norm",
    "pruned",
)
EDITS: dict[str, Callable[[nn.Module], Any]] = {}


def made(name: str, **more: Any) -> Any:
    env, settings = SMALL[name]
    networks = {"net_arch": [6, 6], **({"lstm_hidden_size": 4} if "recurrent" in name else {})}
    return rlsdk.make(name, env=env, policy_kwargs=networks, seed=0, **settings | more)


def acted(model: Any) -> Any:
    space = model.observation_space
    space.seed(5)
    seen = np.stack([space.sample().clip(-2, 2) for _ in range(4)]).astype(np.float32)
    return model.predict(seen, deterministic=True)[0]


def by_torch(model: Any) -> Any:
    """The actions for the same observations when torch runs the modules of the policy."""
    policy = copy.deepcopy(model.policy)
    policy.apply(lambda module: module.register_forward_hook(lambda *_: None))  # hooks exclude kernels
    parts = model.parts
    model._assembled.parts = type(parts)(policy, parts.algorithm, parts.plan)
    try:
        return acted(model)
    finally:
        model._assembled.parts = parts


def last(policy: Any) -> nn.Linear:
    return getattr(policy, "mean", None) or getattr(policy.head, "linear", policy.head)  # type: ignore[no-any-return]


def edit(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    EDITS[function.__name__] = function
    return function


@edit
def new_weight(policy: Any) -> None:
    last(policy).weight = nn.Parameter(torch.randn_like(last(policy).weight))


@edit
def new_bias_by_hand(policy: Any) -> None:
    last(policy)._parameters["bias"] = nn.Parameter(torch.randn_like(last(policy).bias))


@edit
def new_layer(policy: Any) -> None:
    policy.body[0] = nn.Linear(policy.body[0].in_features, 6)


@edit
def wider_layers(policy: Any) -> None:
    policy.body[0], policy.body[2] = nn.Linear(policy.body[0].in_features, 9), nn.Linear(9, 6)


@edit
def other_activation(policy: Any) -> None:
    policy.body[1] = nn.SiLU()


@edit
def one_layer_less(policy: Any) -> None:
    del policy.body[2]


@edit
def one_layer_more(policy: Any) -> None:
    policy.body.append(nn.Dropout(0.5))


@edit
def values_in_place(policy: Any) -> None:
    last(policy).weight.data.copy_(torch.randn_like(last(policy).weight))


@edit
def other_memory(policy: Any) -> None:
    last(policy).weight.data = torch.randn_like(last(policy).weight)


@edit
def assigned_state(policy: Any) -> None:
    state = {name: torch.randn_like(v) if v.is_floating_point() else v for name, v in policy.state_dict().items()}
    policy.load_state_dict(state, assign=True)


@edit
def weight_norm(policy: Any) -> None:
    parametrizations.weight_norm(policy.body[0])


@edit
def spectral_norm(policy: Any) -> None:
    torch.nn.utils.spectral_norm(policy.body[0])


@edit
def pruned(policy: Any) -> None:
    prune.l1_unstructured(policy.body[0], "weight", amount=0.5)


@edit
def forward_hook(policy: Any) -> None:
    policy.body.register_forward_hook(lambda module, given, found: found * 3.0)


@edit
def pre_hook(policy: Any) -> None:
    policy.body[0].register_forward_pre_hook(lambda module, given: (given[0] * 3.0,))


@edit
def own_forward(policy: Any) -> None:
    layer = policy.body[0]
    layer.forward = lambda x: 3.0 * nn.functional.linear(x, layer.weight, layer.bias)


@edit
def zeroed_gradients(policy: Any) -> None:
    policy.zero_grad()


@in_one_test
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("change", EDITS)
@pytest.mark.full
def test_prediction_training_and_file_agree(name: str, change: str) -> None:
    torch.manual_seed(0)
    model = made(name).learn(16)
    before = acted(model)
    EDITS[change](model.policy)
    changed = acted(model)
    np.testing.assert_allclose(changed, by_torch(model), atol=1e-5)
    if change not in ("zeroed_gradients", "one_layer_more", "weight_norm") and model.action_space.shape:
        assert not np.array_equal(before, changed), "the change must be seen"
    if change == "weight_norm":
        np.testing.assert_allclose(changed, before, atol=1e-5, err_msg="other parameters of the same function")
    states = {key: value.clone() for key, value in model.policy.state_dict().items()}
    model.learn(32, reset_num_timesteps=False)
    trained = [key for key, v in model.policy.state_dict().items() if "mask" not in key and v.is_floating_point()]
    first = [key for key in trained if key.startswith("body.0.") and not key.endswith(("_u", "_v"))]
    moved = {key for key in trained if not torch.equal(states[key], model.policy.state_dict()[key])}
    assert moved & set(first) or name == "trpo", f"body.0 is not trained: {moved}"
    np.testing.assert_allclose(acted(model), by_torch(model), atol=1e-5)
    file = BytesIO()
    if change in OTHER_LAYERS:
        with pytest.raises(UsageError, match=r"not the layers.*policy_kwargs"):
            model.save(file)
        return
    model.save(file)
    if change not in ("forward_hook", "pre_hook", "own_forward"):
        np.testing.assert_array_equal(acted(model), acted(rlsdk.load(BytesIO(file.getvalue()))))


@pytest.mark.parametrize("name", SMALL)
def test_hooks_fire_and_stop(name: str) -> None:
    model = made(name).learn(16)
    model.learn(16)
    seen = {"forward": 0, "backward": 0, "tensor": 0}

    def count(kind: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            seen[kind] += 1

        return hook

    layer = model.policy.body[0]
    handles = [layer.register_forward_hook(count("forward")), layer.register_full_backward_hook(count("backward"))]
    plain = acted(model)
    assert seen["forward"] == 1
    model.learn(16)
    assert seen["forward"] > 10
    assert seen["backward"] > 0
    for handle in handles:
        handle.remove()
    again = dict(seen)
    model.learn(16)
    assert seen == again
    assert plain.shape == acted(model).shape
    everywhere = nn.modules.module.register_module_forward_hook(count("tensor"))
    try:
        acted(model)
    finally:
        everywhere.remove()
    assert seen["tensor"] > 0


@in_one_test
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("what", ["body", "everything"])
def test_frozen_layers_stay(name: str, what: str) -> None:
    model = made(name).learn(32)
    policy = model.policy
    (policy if what == "everything" else policy.body).requires_grad_(False)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    model.learn(32, reset_num_timesteps=False)
    moved = {key for key, value in policy.state_dict().items() if not torch.equal(value, before[key])} - {"epsilon"}
    assert not {key for key in moved if key.startswith("body.")}
    assert bool(moved) == (what == "body") or name == "trpo"


@pytest.mark.parametrize("name", SMALL)
def test_another_dtype_is_refused(name: str) -> None:
    model = made(name).learn(16)
    model.policy.to(torch.float64)
    with pytest.raises((UsageError, RuntimeError, ValueError), match=r"[Ff]loat"):
        acted(model)
    with pytest.raises((UsageError, RuntimeError, ValueError), match=r"[Ff]loat|dtype|Double"):
        model.learn(32, reset_num_timesteps=False)
    model.policy.float()
    acted(model)
    model.learn(16, reset_num_timesteps=False)


@pytest.mark.parametrize("name", SMALL)
def test_a_copy_is_a_network_of_its_own(name: str) -> None:
    model = made(name).learn(16)
    mine = acted(model)
    twin = copy.deepcopy(model.policy)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    np.testing.assert_array_equal(acted(model), mine)
    places = [{parameter.data_ptr() for parameter in each.parameters()} for each in (twin, model.policy)]
    assert not places[0] & places[1]
    new_weight(model.policy)
    model.learn(16)


def test_layers_replaced_while_training() -> None:
    model = made("trpo")

    def change(names: dict[str, Any], _: Any) -> None:
        if names["self"].num_timesteps == 16:
            names["self"].policy.body[1] = nn.ReLU()
            names["self"].policy.critic_body[0].register_forward_hook(lambda *_: None)

    model.learn(48, callback=change)
    np.testing.assert_allclose(acted(model), by_torch(model), atol=1e-5)


def test_critics_and_their_target_follow() -> None:
    model = made("tqc").learn(16)
    algorithm = model.parts.algorithm
    layer = algorithm.critics.ensemble.layers[0]
    layer.weight = nn.Parameter(torch.randn_like(layer.weight))
    fresh, target = layer.weight.detach().clone(), algorithm.trained.target.network.ensemble.layers[0].weight
    before = target.detach().clone()
    model.learn(16, reset_num_timesteps=False)
    assert not torch.equal(layer.weight, fresh), "the new weight is trained"
    assert not torch.equal(target, before), "the target follows it"
    algorithm.critics.ensemble.layers[1] = nn.Tanh()
    model.learn(8, reset_num_timesteps=False)
    assert isinstance(algorithm.trained.target.network.ensemble.layers[1], nn.Tanh)
    with pytest.raises(UsageError, match="not the layers"):
        model.save(BytesIO())


@pytest.mark.kernels("names the kernel")
def test_the_target_is_run_by_the_same_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_avx2", lambda: False)  # as on processors without it
    algorithm = made("tqc", batch_size=20_000).learn(8).parts.algorithm
    online, target = algorithm.critics._kernels()[0], algorithm.trained.target.network._kernels()[0]
    assert online.name == target.name == "torch"


def test_ars_follows_or_refuses() -> None:
    model = rlsdk.make("ars", env="CartPole-v1", policy="MlpPolicy", n_delta=2, seed=0, policy_kwargs={"net_arch": [4]})
    model.policy.layers[0].weight = nn.Parameter(torch.full((4, 4), 0.25))
    model.learn(200)
    assert not torch.equal(model.policy.layers[0].weight, torch.full((4, 4), 0.25))
    handle = model.policy.layers[0].register_forward_hook(lambda *_: None)
    with pytest.raises(UsageError, match="hooks"):
        model.learn(200)
    handle.remove()
    model.learn(200)
    model.policy.layers[1] = nn.Tanh()
    with pytest.raises(UsageError, match="net_arch"):
        model.learn(200)


def test_moments_of_parameters_that_stay_are_kept() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = FlatOptimizer(network, "adam", 0.1)
    optimizer.zero_grad()
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step(0.1)
    moments = optimizer.state_dict()["exp_avg"]
    network[1] = nn.Linear(2, 3)
    optimizer.zero_grad()
    after = optimizer.state_dict()
    assert torch.equal(after["exp_avg"][:6], moments[:6])
    assert after["exp_avg"].shape == (15,)
    assert not after["exp_avg"][6:].any()
    seen: list[int] = []
    optimizer.optimizer.register_step_post_hook(lambda *_: seen.append(1))
    optimizer.step(0.1)
    assert seen == [1]


def test_a_target_pairs_by_place_and_takes_over_new_layers() -> None:
    online = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    target = TargetNetwork(online)
    target.update(0.5)
    online[0] = nn.Linear(2, 2)
    target.update(1.0)
    assert torch.equal(target.network[0].weight, online[0].weight)
    online[1] = nn.Tanh()
    target.update(0.5)
    assert isinstance(target.network[1], nn.Tanh)
    assert not any(parameter.requires_grad for parameter in target.network.parameters())


def test_structure_sees_what_was_replaced_and_nothing_else() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(), nn.ReLU())
    structure = Structure(network)
    assert structure.changed()
    assert not structure.changed()
    with torch.no_grad():
        network[0].weight.fill_(1.0)
    nn.Linear(2, 2).register_forward_hook(lambda *_: None)  # a hook in another network
    assert not structure.changed()
    for change in (
        lambda: network[1].append(nn.ReLU()),
        lambda: setattr(network[0], "bias", None),
        lambda: network.append(nn.Linear(1, 1)),
        lambda: network.insert(0, nn.ReLU()),
    ):
        change()
        assert structure.changed()
        assert not structure.changed()


def test_convolutions_are_called_where_a_hook_or_another_layer_asks_for_it() -> None:
    encoder = NatureEncoder(to_space(spaces.Box(0, 255, (36, 36, 1), np.uint8)), features_dim=4)
    pixels = torch.randint(0, 255, (2, 36, 36, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    before, calls = encoder(pixels), []
    for layer in (encoder.convolutions, encoder.convolutions[0], encoder.linear, encoder.linear[0]):
        handle = layer.register_forward_hook(lambda *_: calls.append(1))
        torch.testing.assert_close(encoder(pixels), before)
        handle.remove()
    assert len(calls) == 4
    encoder.convolutions[1] = nn.Tanh()
    wanted = encoder.linear(encoder.convolutions(pixels.movedim(-1, -3).float() / 255.0))
    torch.testing.assert_close(encoder(pixels), wanted)


@pytest.mark.parametrize(("policy", "with_bias"), [("MlpPolicy", False), ("LinearPolicy", True)])
def test_ars_with_bias_or_without(policy: str, with_bias: bool) -> None:
    kwargs = {"with_bias": with_bias}
    model = rlsdk.make("ars", env="CartPole-v1", policy=policy, n_delta=2, seed=0, policy_kwargs=kwargs).learn(100)
    layers = [layer for layer in model.policy.modules() if isinstance(layer, nn.Linear)]
    assert all((layer.bias is not None) == with_bias for layer in layers)
    file = BytesIO()
    model.save(file)
    np.testing.assert_array_equal(acted(model), acted(rlsdk.load(BytesIO(file.getvalue()))))


def _turned(weight: nn.Parameter) -> None:
    weight.data = weight.data.T


def _expanded(weight: nn.Parameter) -> None:
    weight.data = weight.data[:1].expand(weight.shape)


def _reversed_by_strides(weight: nn.Parameter) -> None:
    weight.data = torch.as_strided(weight.data, weight.shape, (1, 0))


def _set(weight: nn.Parameter) -> None:
    other = weight.detach().clone().T
    weight.data.set_(other)  # changes only the alias
    weight.data = other


LAYOUTS = [_turned, _expanded, _reversed_by_strides, _set]
LAID_OUT: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("CartPole-v1", {"n_steps": 16, "batch_size": 8}),
    "a2c": ("Pendulum-v1", {"n_steps": 16}),
    "dqn": ("CartPole-v1", {"learning_starts": 4, "batch_size": 4}),
    "qrdqn": SMALL["qrdqn"],
    "sac": ("Pendulum-v1", {"learning_starts": 4, "batch_size": 4}),
    "td3": ("Pendulum-v1", {"learning_starts": 4, "batch_size": 4}),
}
KERNELS: dict[str, Any] = {"compiled": nullcontext, "uncompiled": compiled_off, "off": kernels_off}


def laid_out(name: str) -> tuple[Any, nn.Parameter]:
    env, settings = LAID_OUT[name]
    model = rlsdk.make(name, env=env, policy_kwargs={"net_arch": [6, 6]}, seed=0, **settings)
    acted(model)  # kernels have read the addresses
    (weight,) = [p for n, p in model.policy.named_parameters() if p.shape == (6, 6) and "critic" not in n][:1]
    return model, weight


@in_one_test
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("change", LAYOUTS)
@pytest.mark.parametrize("name", LAID_OUT)
def test_another_layout_at_the_same_address_is_noticed(name: str, change: Any, kernels: str) -> None:
    with KERNELS[kernels]():
        model, weight = laid_out(name)
        before, address = acted(model), weight.data_ptr()
        change(weight)
        assert change is _set or weight.data_ptr() == address
        many = np.tile(model.observation_space.sample(), (100, 1))
        assert np.allclose(acted(model), by_torch(model), atol=1e-6)
        model.predict(many)
        assert not np.array_equal(acted(model), before) or model.action_space.dtype == np.int64


@in_one_test
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", LAID_OUT)
def test_another_layout_is_noticed_while_training(name: str, kernels: str) -> None:
    with KERNELS[kernels]():
        one, weight = laid_out(name)
        two, other = laid_out(name)
        weight.data = weight.data.T
        other.data.copy_(other.data.T.clone())
        for model in (one, two):
            model.learn(48)
        for mine, theirs in zip(one.policy.parameters(), two.policy.parameters(), strict=True):
            assert torch.allclose(mine, theirs, atol=1e-5)  # torch multiplies turned matrices with other rounding


def _reshaped(weight: nn.Parameter) -> None:
    weight.data = weight.data.reshape(9, 4)


def _shortened(weight: nn.Parameter) -> None:
    weight.data = weight.data[:5]


def _resized(weight: nn.Parameter) -> None:
    weight.data = weight.data.resize_(2, 3)


def _read_as_integers(weight: nn.Parameter) -> None:
    weight.requires_grad_(False)
    weight.data = weight.data.view(torch.int32)


@in_one_test
@pytest.mark.parametrize("guarded", [True, False], ids=["guards", "no_guards"])
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("change", [_reshaped, _shortened, _resized, _read_as_integers])
@pytest.mark.parametrize("name", LAID_OUT)
def test_another_shape_at_the_same_address_is_refused(
    name: str, change: Any, kernels: str, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr("rlsdk_kernels.memory._guards", None)  # as in a version of torch without them
    with KERNELS[kernels]():
        model, weight = laid_out(name)
        before, address = weight.data, weight.data_ptr()
        change(weight)
        assert weight.data_ptr() == address
        with pytest.raises((UsageError, RuntimeError, IndexError), match=r"6, 6|shape|dtype|dim|same type|expected"):
            acted(model)
        weight.data = before
        acted(model)


@in_one_test
@pytest.mark.parametrize("name", LAID_OUT)
def test_prediction_in_other_modes_of_torch_is_the_same(name: str) -> None:
    model, weight = laid_out(name)
    expected = acted(model)
    for mode in (torch.inference_mode, torch.no_grad, nullcontext):
        with mode():
            np.testing.assert_array_equal(acted(model), expected)
            np.testing.assert_array_equal(acted(model), expected)
    weight.requires_grad_(False)
    np.testing.assert_array_equal(acted(model), expected)


@in_one_test
@pytest.mark.parametrize("name", LAID_OUT)
def test_a_parameter_without_memory_is_refused(name: str) -> None:
    model, weight = laid_out(name)
    model.learn(32)
    weight.data = weight.data.clone()
    weight.untyped_storage().resize_(0)
    for call in (lambda: acted(model), lambda: model.learn(32)):
        with pytest.raises(UsageError, match="lost its memory"):
            call()


@in_one_test
@pytest.mark.parametrize("kernels", ["compiled", "uncompiled"])
@pytest.mark.parametrize("name", LAID_OUT)
def test_memory_that_kernels_read_cannot_be_taken_away(name: str, kernels: str) -> None:
    """Compiled code knows the addresses from the beginning of a rollout, so a callback must not free the memory in it."""
    seen: list[int] = []

    def free(names: dict[str, Any], _: Any) -> None:
        for parameter in names["self"].policy.parameters():
            if parameter.data_ptr() in read:
                with pytest.raises(RuntimeError, match="not resizable"):
                    parameter.untyped_storage().resize_(0)
                seen.append(1)

    with KERNELS[kernels]():
        model, weight = laid_out(name)
        model.learn(16)
        acted(model)
        read = {p.data_ptr() for n, p in model.policy.named_parameters() if "critic" not in n}
        model.learn(16, callback=free, reset_num_timesteps=False)
        assert seen
        assert weight.untyped_storage().nbytes()


@needs_library
@pytest.mark.kernels("tests compiled kernels")
def test_memory_of_a_rollout_cannot_be_taken_away() -> None:
    layer, seen, found, log_std = nn.Linear(4, 3), torch.randn(2, 5, 4), torch.zeros(5, 3), torch.zeros(3)
    call = CompiledDense([layer]).calls(loaded_library().act_by_noise, seen, log_std, found)
    for tensor in (layer.weight, layer.bias, seen, log_std, found):
        with pytest.raises(RuntimeError, match="not resizable"):
            tensor.untyped_storage().resize_(0)
    call(1, log_std.data_ptr(), found.data_ptr())
    assert torch.allclose(found, layer(seen[1]), atol=1e-6)


@needs_library
@pytest.mark.kernels("tests compiled kernels")
def test_memory_that_a_parameter_gives_away_stays_while_it_is_used() -> None:
    """A callback may do so in the middle of a rollout, in which compiled code knows the addresses from its beginning."""
    layer, seen, found, log_std = nn.Linear(4, 3), torch.randn(2, 5, 4), torch.zeros(5, 3), torch.zeros(3)
    network, expected = CompiledDense([layer]), layer(seen[1])
    call = network.calls(loaded_library().act_by_noise, seen)
    layer.weight.data, layer.bias.data = torch.zeros(3, 4), torch.zeros(3)
    others = [torch.full((size,), torch.nan) for size in (3, 12) for _ in range(50)]  # what takes freed memory
    call(1, log_std.data_ptr(), found.data_ptr())
    assert torch.allclose(found, expected, atol=1e-6)
    assert others
    assert not network(seen[1]).any()
