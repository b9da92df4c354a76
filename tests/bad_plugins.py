"""A small plugin that passes the contract kit; tests insert a line into its functions to break it."""

from __future__ import annotations

from pathlib import Path

from tests.plugin_site import Site

MANIFEST = """
id = "{id}"
title = "A plugin"
summary = "for tests of the kit"
family = "off-policy"
sdk = ">=0.1"
actions = ["Box"]
observations = ["Box"]
policies = ["MlpPolicy"]
traits = ["replay"]
"""
CODE = """
import attrs
from rlsdk.registry import AlgorithmSpec, hookimpl
from rlsdk.settings import AgentConfig, described, in_range

@attrs.frozen
class Config(AgentConfig):
    learning_rate: float = attrs.field(default=1e-3, validator=in_range(0, open_low=True), metadata=described("step size"))
    buffer_size: int = attrs.field(default=1000, validator=in_range(1), metadata=described("transitions remembered"))
    batch_size: int = attrs.field(default=64, validator=in_range(1), metadata=described("transitions per update"))
    gamma: float = attrs.field(default=0.99, validator=in_range(0, 1), metadata=described("discount"))
    places: str | None = attrs.field(default=None, metadata=described("a file that building reads"))

def build(context, config):
    from acme_{id}.parts import parts
    return parts(context, config)

@hookimpl
def algorithm():
    return AlgorithmSpec(id="{id}", family="off-policy", config_type=Config, build=build, policies=("MlpPolicy",){spec})
"""
PARTS = """
import os, sys, time
import torch
from rlsdk.buffers import ReplayBuffer
from rlsdk.exploration import UniformWarmUp
from rlsdk.interfaces import Parts, require_spaces
from rlsdk.networks import ActionScale, build_encoder, build_squashed_actor
from rlsdk.settings.actor_critic import NetworkConfig
from rlsdk.training import OffPolicyPlan
from rlsdk.updates import FlatOptimizer

def build_policy(context, config):
    encoder = build_encoder(context, config.policy, NetworkConfig())
    return build_squashed_actor(encoder, [16], "relu", ActionScale(context.action_space))

class Cloning:
    def __init__(self, actor, config):
        self.actor, self.config = actor, config
        self.optimizer = FlatOptimizer(actor, "adam", config.learning_rate)

    def update(self, batch, *, progress):
        {update}
        wanted = self.actor.scale.to_unit(batch.action)
        loss = (self.actor.distribution_of(batch.observation).mode() - wanted).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step(self.config.learning_rate)
        return {{"train/loss": loss.detach()}}

    def state_dict(self):
        {state_dict}
        return {{"optimizer": self.optimizer.state_dict()}}

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state["optimizer"])

def parts(context, config):
    {build}
    require_spaces(context, "{id}", actions=("Box",), observations=("Box",))
    actor = build_policy(context, config)
    return Parts(
        policy=actor,
        algorithm=Cloning(actor, config),
        plan=OffPolicyPlan(train_every=1, gradient_steps=1, batch_size=config.batch_size, learning_starts=10),
        buffer=ReplayBuffer(context, config.buffer_size, config.gamma),
        behavior=UniformWarmUp(actor, context.action_space, steps=5),
    )
"""


def add_plugin(site: Site, identity: str = "bad", *, spec: str = "", **lines: str) -> Path:
    """Add the plugin to a site; `lines` are inserted at the beginning of `update`, `state_dict` and `build`."""
    chosen = {name: lines.get(name, "pass") for name in ("update", "state_dict", "build")}
    package = site.add(
        identity, manifest=MANIFEST.format(id=identity), code=CODE.format(id=identity, spec=spec and f", {spec}")
    )
    (package / "parts.py").write_text(PARTS.format(id=identity, **chosen))
    site.listed()
    return package
