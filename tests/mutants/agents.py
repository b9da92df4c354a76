"""Bugs of agents that users would notice."""

from __future__ import annotations

from typing import Any

import torch

from rlsdk.agent import agent, assembly, training_state
from rlsdk.agent import persistence as parameters
from rlsdk.agent.prediction import Session
from rlsdk.preprocessing import Normalizer
from tests.mutants.catalog import Patch, mutant


@mutant("agent.save-load-predict")
def loading_leaves_fresh_weights(patch: Patch) -> None:
    patch.setattr(training_state, "restore", lambda *arguments: None)


@mutant("agent.evaluation-does-not-disturb", alone=True)
def evaluation_draws_from_the_training_stream(patch: Patch) -> None:
    begin = agent.Agent.session

    def session(self: Any, *arguments: Any, **settings: Any) -> Session:
        begun = begin(self, *arguments, **settings)
        begun.generator = self.streams["action"]
        return begun

    patch.setattr(agent.Agent, "session", session)


@mutant("agent.seed-reproduces")
def networks_start_from_global_random_state(patch: Patch) -> None:
    import contextlib

    patch.setattr(assembly, "initialization", lambda seed: contextlib.nullcontext())


@mutant("agent.global-state-untouched", alone=True)
def building_seeds_the_global_generator(patch: Patch) -> None:
    import contextlib

    patch.setattr(assembly, "initialization", lambda seed: contextlib.nullcontext(torch.manual_seed(seed + 12345)))


@mutant("agent.parameters-round-trip")
def set_parameters_skips_the_algorithm(patch: Patch) -> None:
    patch.setattr(parameters, "_apply", lambda agent, p: agent.parts.policy.load_state_dict(p["policy"]))


@mutant("agent.parameters-round-trip", alone=True)
def parameters_are_set_before_all_are_looked_at(patch: Patch) -> None:
    true = parameters.set_parameters

    def broken(agent: Any, source: Any, *, exact_match: bool) -> None:
        for name, value in source.items() if isinstance(source, dict) else ():
            if name in parameters.parameters_of(agent):
                true(agent, {name: value}, exact_match=False)
        true(agent, source, exact_match=exact_match)

    patch.setattr(parameters, "set_parameters", broken)


@mutant("agent.predict-array", alone=True)
def one_action_comes_back_as_a_number(patch: Patch) -> None:
    predict = agent.Agent.predict

    def broken(self: Any, observation: Any, *arguments: Any, **keywords: Any) -> Any:
        action, state = predict(self, observation, *arguments, **keywords)
        return (action.tolist() if action.ndim == 1 else action), state

    patch.setattr(agent.Agent, "predict", broken)


@mutant("agent.preprocessing-travels")
def statistics_stay_behind(patch: Patch) -> None:
    patch.setattr(Normalizer, "load_state_dict", lambda self, state: None)


@mutant("agent.save-load-predict")
def loading_rounds_the_policy(patch: Patch) -> None:
    restore = training_state.restore

    def broken(loaded: Any, *state: Any) -> None:
        restore(loaded, *state)
        if loaded.preprocessing.normalizer is None:
            for value in loaded.parts.policy.state_dict().values():
                value.mul_(1.001)

    patch.setattr(training_state, "restore", broken)


@mutant("agent.seed-reproduces", alone=True)
def long_runs_explore_by_the_clock(patch: Patch) -> None:
    learn, start = agent.Agent.learn, [0]

    def broken(self: Any, total_timesteps: int, *arguments: Any, **keywords: Any) -> Any:
        if total_timesteps == 40 and self.seed == 3:
            start[0] += 1
            self.streams["action"].manual_seed(start[0])
        return learn(self, total_timesteps, *arguments, **keywords)

    patch.setattr(agent.Agent, "learn", broken)
