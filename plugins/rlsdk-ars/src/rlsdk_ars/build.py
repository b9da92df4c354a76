"""Puts ARS together; the only place that chooses its parts."""

from __future__ import annotations

from math import prod

from torch import nn

from rlsdk.errors import SettingsError, suggest
from rlsdk.networks import build_encoder, features_dim, mlp
from rlsdk.parts import Facts, Parts, PopulationPlan, require_spaces
from rlsdk.settings.networks import widths
from rlsdk.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, choices_of, shape_of
from rlsdk_ars.algorithm import RandomSearch
from rlsdk_ars.config import ARSConfig
from rlsdk_ars.policy import ACTIVATIONS, ActionSpace, NumpyPolicy, SearchPolicy

HIDDEN = (64, 64)
ACTIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")
OBSERVATIONS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def build(facts: Facts, config: ARSConfig) -> Parts:
    """The parts of one ARS agent.

    Raises:
        UnsupportedSpaceError: the actions are Dict or Tuple. SettingsError: an activation numpy has not.
    """
    require_spaces(facts, "ARS", actions=ACTIONS, observations=OBSERVATIONS)
    space, networks = facts.action_space, config.policy_kwargs
    assert isinstance(space, Box | Discrete | MultiDiscrete | MultiBinary)
    linear = config.policy == "LinearPolicy"
    activation = networks.activation_fn
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise SettingsError(
            f"ARS plays candidates in numpy: activation_fn {activation!r}; {suggest(str(activation), ACTIVATIONS)}"
        )
    kind = "MultiInputPolicy" if isinstance(facts.observation_space, Dict | Tuple) else "MlpPolicy"
    encoder = build_encoder(facts.observation_space, kind, networks)
    if any(True for _ in encoder.parameters()):
        raise SettingsError(
            "ARS searches the parameters of the policy alone; images and custom extractors are not possible"
        )
    inputs, outputs = features_dim(encoder), _outputs(space)
    hidden = () if linear else widths(networks.net_arch, "pi", HIDDEN)
    body = mlp(inputs, hidden, activation)
    layers = nn.Sequential(*body, nn.Linear(hidden[-1] if hidden else inputs, outputs, bias=not linear))
    squash = not linear and networks.squash_output
    policy = SearchPolicy(encoder, layers, space, squash).to(facts.device)
    shapes = tuple((m.out_features, m.in_features, m.bias is not None) for m in layers if isinstance(m, nn.Linear))
    return Parts(
        policy=policy,
        algorithm=RandomSearch(policy, config, facts.streams["update"]),
        plan=PopulationPlan(
            NumpyPolicy(shapes, activation, space, squash), config.n_eval_episodes, config.alive_bonus_offset
        ),
    )


def _outputs(space: ActionSpace) -> int:
    """Numbers an action is made of: one per value of each choice, per bit, or per entry of a Box."""
    choices = isinstance(space, Discrete | MultiDiscrete)
    return sum(choices_of(space)) if choices else prod(shape_of(space))
