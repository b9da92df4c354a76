"""Agents are made, trained and used under every mode of torch, and in several threads."""

from __future__ import annotations

import contextlib
import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rlsdk
from rlsdk.errors import UsageError
from rlsdk.networks.layers import initialization
from rlsdk.runtime.process import derive
from rlsdk_trpo import TRPO
from tests.tables import in_one_test

SEEN = {
    "trpo": np.array([[0.1, 0.2, 0.3]] * 40, np.float32),
    "qrdqn": np.array([[0.1, 0.2, 0.3, 0.4]] * 40, np.float32),
}


def made(name: str = "trpo") -> Any:
    settings: dict[str, Any] = {"trpo": {"n_steps": 16, "batch_size": 8, "n_critic_updates": 1}}.get(
        name, {"buffer_size": 60, "learning_starts": 4, "batch_size": 4, "train_freq": 1}
    )
    env = {"trpo": "Pendulum-v1", "qrdqn": "CartPole-v1", "tqc": "Pendulum-v1"}[name]
    return rlsdk.make(name, env=env, policy_kwargs={"net_arch": [8]}, seed=0, **settings)


def weights(model: Any) -> Any:
    return torch.cat([value.flatten() for value in model.policy.state_dict().values()])


class Drawing(nn.Module):
    """A features extractor that draws random numbers with every kind of function in torch."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.features_dim = 3
        like = torch.empty(4)
        drawn = [torch.randn(4), torch.rand(4), torch.randint(9, (4,)), torch.randint(1, 9, (4,)), torch.randperm(4)]
        drawn += [
            torch.randn_like(like),
            torch.rand_like(like),
            torch.randint_like(like, 9),
            torch.randint_like(like, 2, 9),
        ]
        drawn += [torch.normal(like.zero_(), 1.0), torch.bernoulli(like + 0.5), torch.multinomial(like + 1.0, 2)]
        drawn += [nn.functional.dropout(like + 1.0), torch.empty(4).exponential_(), torch.poisson(like + 3.0)]
        self.register_buffer("drawn", torch.cat([value.float() for value in drawn]))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations


def test_initial_weights_are_those_of_the_global_generator_to_the_bit() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(derive(3, "initialisation"))
        wanted = [Drawing(None).drawn, nn.LSTM(3, 4).weight_hh_l0, nn.init.orthogonal_(torch.empty(5, 5))]
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    with initialization(3):
        found = [Drawing(None).drawn, nn.LSTM(3, 4).weight_hh_l0, nn.init.orthogonal_(torch.empty(5, 5))]
    assert torch.equal(before, torch.random.get_rng_state())
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.equal(mine, theirs)


def test_making_agents_in_threads_disturbs_nobody() -> None:
    kwargs = {"features_extractor_class": Drawing, "net_arch": [16]}

    def one(_: int) -> Any:
        return weights(TRPO("MlpPolicy", "Pendulum-v1", seed=0, policy_kwargs=kwargs))

    wanted = one(0)
    torch.manual_seed(7)
    numbers = torch.rand(300)
    torch.manual_seed(7)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(one, i) for i in range(9)]
        mine = torch.cat([torch.rand(1) for _ in range(300)])
        found = [future.result() for future in futures]
    assert torch.equal(mine, numbers)
    assert all(torch.equal(each, wanted) for each in found)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES: dict[str, Any] = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "deterministic": deterministic,
    "default device cpu": lambda: torch.device("cpu"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["trpo", "qrdqn"])
def test_the_callers_modes_do_not_count(name: str, mode: str) -> None:
    plain = made(name).learn(24)
    wanted = weights(plain), plain.predict(SEEN[name], deterministic=True)[0]
    file = BytesIO()
    with MODES[mode]():
        model = made(name).learn(8)
        model.learn(8, reset_num_timesteps=False) if name == "qrdqn" else None
        first = model.predict(SEEN[name], deterministic=True)[0]
        model.save(file)
        again = rlsdk.load(BytesIO(file.getvalue()), env=model.env)
        whole = made(name).learn(24)
        np.testing.assert_array_equal(whole.predict(SEEN[name], deterministic=True)[0], wanted[1])
    assert torch.equal(weights(whole), wanted[0])
    model.learn(16, reset_num_timesteps=False)
    again.learn(16, reset_num_timesteps=False)
    again.set_parameters(model.get_parameters())
    assert first.shape == wanted[1].shape


def changed(settings: dict[str, Any]) -> Callable[[Any, bytes], Any]:
    def change(model: Any, file: bytes) -> Any:
        for name, value in settings.items():
            setattr(model, name, value)
        return model

    return change


def done(call: Callable[[Any, bytes], object]) -> Callable[[Any, bytes], Any]:
    def change(model: Any, file: bytes) -> Any:
        call(model, file)
        return model

    return change


REQUESTS: dict[str, Callable[[Any, bytes], Any]] = {
    "load": lambda model, file: rlsdk.load(BytesIO(file), env=model.env, force_reset=False),
    "load without environment": lambda model, file: rlsdk.load(BytesIO(file)),
    "copy": lambda model, file: copy.deepcopy(model),
    "load_policy": lambda model, file: type(model).load_policy(BytesIO(file), model.env, learning_starts=4),
    "set_env": done(lambda model, file: model.set_env("Pendulum-v1")),
    "set_parameters": done(lambda model, file: model.set_parameters(model.get_parameters())),
    "replay_buffer": done(lambda model, file: model.replay_buffer),
    "load_replay_buffer": done(lambda model, file: model.load_replay_buffer(replayed(model))),
    "settings": changed({"ent_coef": 0.2, "gamma": 0.5, "learning_rate": 1e-3}),
    "predict": done(lambda model, file: model.predict(model.observation_space.sample())),
    "train": done(lambda model, file: model.train(2)),
}
"""Requests of users. Each returns an agent that is to learn."""


def replayed(model: Any) -> BytesIO:
    model.save_replay_buffer(file := BytesIO())
    file.seek(0)
    return file


@in_one_test
@pytest.mark.parametrize("request_of", REQUESTS)
@pytest.mark.parametrize("mode", ["inference_mode", "no_grad"])
def test_an_agent_learns_after_each_request_in_a_mode(request_of: str, mode: str) -> None:
    """A tensor that is made in inference mode can never be trained or changed in place outside of it."""
    model = made("tqc").learn(12)
    model.save(file := BytesIO(), include=["replay"])
    with MODES[mode]():
        found = REQUESTS[request_of](model, file.getvalue())
    if found.env is None:
        found.set_env("Pendulum-v1")
    found.learn(80, reset_num_timesteps=False)
    with MODES[mode]():
        found.learn(4, reset_num_timesteps=False)
    found.train(2)


def test_defaults_that_agents_cannot_work_with_are_named() -> None:
    model = made()
    for set_it, put_back, wanted in (
        (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
            "default dtype",
        ),
        (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None), "default device"),
    ):
        set_it()
        try:
            for call in (made, lambda: model.learn(16), lambda: model.predict(SEEN["trpo"])):
                with pytest.raises(UsageError, match=wanted):
                    call()
        finally:
            put_back()
    model.learn(16)


COLD_THREADS = """
import threading, warnings
import torch, rlsdk
warnings.simplefilter("error")
made = []
def work():
    for _ in range(3):
        agent = rlsdk.make("trpo", env="CartPole-v1", seed=0)
        made.append(tuple(float(p.detach().sum()) for p in agent.policy.parameters()))
threads = [threading.Thread(target=work) for _ in range(3)]
torch.manual_seed(3)
expected = torch.rand(1000)
torch.manual_seed(3)
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(made) == 9 and len(set(made)) == 1, made
assert torch.equal(torch.rand(1000), expected)
"""


@pytest.mark.full
def test_agents_made_by_id_in_threads_of_a_new_process() -> None:
    """The first call imports the plugin and checks for side effects. Other threads of the program are not side effects."""
    done = subprocess.run([sys.executable, "-c", COLD_THREADS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
