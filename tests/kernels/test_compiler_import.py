"""Importing torch's compiler takes two seconds. Agents that compile nothing do not import it, and give the same results."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rlsdk.registry.discovery import algorithms

AGENTS = """
import io, json, sys, warnings
import rlsdk
from rlsdk.environments import make_vec_env

warnings.simplefilter("ignore")
found = {}
for identity, env in json.loads(sys.argv[1]).items():
    agent = rlsdk.make(identity, env=make_vec_env(env, 1))
    agent.learn(150)
    agent.save(file := io.BytesIO())
    file.seek(0)
    rlsdk.load(file)
    found[identity] = "torch._dynamo" in sys.modules
print(json.dumps(found))
"""
OPTIMIZERS = """
import sys
import torch
from rlsdk.kernels import step_optimizer, without_compiler
from rlsdk.updates.optimizer import CLASSES

def trained(make, step):
    generator = torch.Generator().manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(7, generator=generator))
    optimizer = make(weights)
    for _ in range(5):
        weights.grad = torch.randn(7, generator=generator)
        step(optimizer)
    return weights.detach()

def made(kind):
    def make(weights):
        with without_compiler():
            return kind([weights], lr=0.1, weight_decay=0.01)
    return make

quick = {name: trained(made(kind), step_optimizer) for name, kind in CLASSES.items()}
assert "torch._dynamo" not in sys.modules
assert not hasattr(torch.optim.Optimizer.add_param_group.__wrapped__, "__dynamo_disable")
for name, kind in CLASSES.items():
    usual = trained(lambda weights: kind([weights], lr=0.1, weight_decay=0.01), kind.step)
    assert torch.equal(quick[name], usual), name
assert "torch._dynamo" in sys.modules
"""
HOOKED = """
import torch
from rlsdk.kernels import step_optimizer, without_compiler

seen = []
weights = torch.nn.Parameter(torch.ones(3))
weights.grad = torch.ones(3)
with without_compiler():
    optimizer = torch.optim.Adam([weights])
optimizer.register_step_post_hook(lambda *_: seen.append("after"))
step_optimizer(optimizer)
assert seen == ["after"]
"""


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_no_algorithm_imports_the_compiler() -> None:
    continuous = {"crossq", "ddpg", "sac", "td3", "tqc"}
    chosen = {each.id: "Pendulum-v1" if each.id in continuous else "CartPole-v1" for each in algorithms()}
    chosen |= {"maskable-ppo": "rlsdk/InvalidActionEnvDiscrete-v0"}
    offline = {"bc", "cql", "gail", "iql", "td3-bc"}
    found = json.loads(run(AGENTS, json.dumps({name: env for name, env in chosen.items() if name not in offline})))
    assert len(found) >= 10
    assert not [name for name, imported in found.items() if imported]


@pytest.mark.full
@pytest.mark.parametrize("program", [OPTIMIZERS, HOOKED], ids=["every class", "hooks"])
def test_steps_are_those_of_torch(program: str) -> None:
    run(program)
