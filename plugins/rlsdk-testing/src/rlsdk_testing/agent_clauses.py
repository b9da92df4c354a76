"""Clauses about agents of every algorithm: saving and loading, seeds, prediction and preprocessing."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlsdk.agent import Agent
from rlsdk.errors import ArtifactError
from rlsdk.evaluation import run_episodes
from rlsdk.interfaces import plays_episodes
from rlsdk.tree import flatten, unflatten
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.kit import clause, require
from rlsdk_testing.subject import ACTIONS, Subject, differing, equal_values, flat_state


@clause(
    "agent.save-load-predict",
    "A saved agent, loaded without an environment, predicts the same actions bit for bit.",
    "act(), build(): make every tensor that acting uses a parameter or buffer of the policy, or list the object that holds"
    " it in `Parts.states`. Then it is stored in the file.",
)
def save_load_predict(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for what, agent in subject.agents():
            _move_away_from_initial_weights(agent)
            path = Path(folder) / "agent"
            agent.save(path)
            loaded = type(agent).load(path)
            space = agent.observation_space
            space.seed(1)
            for _ in range(3):
                seen = space.sample()
                one = subject.predict(agent, seen, deterministic=True)
                two = subject.predict(loaded, seen, deterministic=True)
                require(equal_values(one, two), f"{what}: {one} before saving, {two} after loading")


def _move_away_from_initial_weights(agent: Agent) -> None:
    """Change the weights of the policy: otherwise `load` could build equal networks from the seed without reading the file."""
    with torch.no_grad():
        for value in agent.parts.policy.state_dict().values():
            if value.is_floating_point():
                value.mul_(0.5).add_(0.1)


@clause(
    "agent.predict-array",
    "predict() returns a numpy array: one action for one observation, and one row per observation for a batch.",
    "In the policy's `act`, return actions of shape [B, *space.shape], one row per row of the observation.",
)
def predict_array(subject: Subject) -> None:
    agent = subject.agent()
    single, batch = subject.predict(agent, subject.seen.sample()), subject.predict(agent, subject.samples(3))
    require(isinstance(single, np.ndarray) and isinstance(batch, np.ndarray), f"got {type(single)} and {type(batch)}")
    shape = agent.action_space.shape or ()
    require(single.shape == shape, f"one action has shape {single.shape}")
    require(batch.shape == (3, *shape), f"three actions have shape {batch.shape}")


@clause(
    "agent.parameters-round-trip",
    "set_parameters(get_parameters()) on another agent makes both agents equal. Parameters that do not fit"
    " raise ArtifactError and change nothing.",
    "List every network in `Parts` (policy, algorithm or states), and check names and shapes in `load_state_dict` "
    "before the first assignment.",
)
def parameters_round_trip(subject: Subject) -> None:
    one, two = subject.trained(), subject.agent(seed=7)
    require(bool(differing(flat_state(one), flat_state(two))), "agents with other seeds have equal parameters")
    two.set_parameters(one.get_parameters())
    wrong = differing(flat_state(one), flat_state(two))
    require(not wrong, f"these differ after set_parameters: {wrong[:5]}")
    for damage, unfit in _unfit(flatten(subject.agent(seed=8).get_parameters())):
        try:
            two.set_parameters(unflatten(unfit))
        except ArtifactError:
            pass
        else:
            require(False, f"set_parameters took parameters with {damage}")
        wrong = differing(flat_state(one), flat_state(two))
        require(not wrong, f"parameters with {damage} were refused, and yet these changed: {wrong[:5]}")


def _unfit(parameters: dict[str, Any]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (description, parameters that do not fit the agent).

    The wrong entry comes last. So an agent that checks and assigns entries one at a time has already changed something.
    """
    *_, last = (name for name, value in parameters.items() if isinstance(value, torch.Tensor) and value.dim())
    rest = {name: value for name, value in parameters.items() if name != last}
    yield "twice the rows in the last tensor", {**rest, last: torch.cat([parameters[last]] * 2)}
    yield "a section that no agent has", {**parameters, "unknown/weight": parameters[last]}


@clause(
    "agent.seed-reproduces",
    "The same seed gives the same parameters after training, bit for bit.",
    "update(), act(), build(): draw random numbers from the generators that the SDK passes (`context`, `generator=`)."
    " Results must not depend on time, the order of sets, threads or global random state.",
)
def seed_reproduces(subject: Subject) -> None:
    states = [flat_state(subject.trained(seed=3)) for _ in range(2)]
    wrong = differing(states[0], states[1])
    require(not wrong, f"two runs with seed 3 differ in {wrong[:5]}")


@clause(
    "agent.global-state-untouched",
    "Building, training and predicting change neither global random state nor the number of torch threads.",
    "build(), update(), act(): do not call random.seed, np.random.*, torch.manual_seed or torch.set_num_threads. Draw"
    " random numbers from the generators that the SDK passes.",
)
def global_state_untouched(subject: Subject) -> None:
    def state() -> list[object]:
        numpy_state = np.random.get_state()  # noqa: NPY002  # the check reads the global state
        return [random.getstate(), str(numpy_state), torch.random.get_rng_state().tolist(), torch.get_num_threads()]

    before = state()
    subject.predict(subject.trained(), subject.seen.sample())
    names = ("Python's random state", "numpy's random state", "torch's random state", "torch's threads")
    wrong = [name for name, a, b in zip(names, before, state(), strict=True) if a != b]
    require(not wrong, f"changed: {wrong}")


@clause(
    "agent.evaluation-does-not-disturb",
    "An evaluation between two calls of learn does not change the training.",
    "Acting must not change the policy or the algorithm. Store the state of `act` in the recurrent state, and count"
    " training steps in `update`.",
)
def evaluation_does_not_disturb(subject: Subject) -> None:
    states = []
    for evaluates in (False, True):
        agent = subject.agent(seed=4).learn(20)
        if evaluates:
            env = AnySpaceEnv(subject.seen, ACTIONS[subject.action_kind])
            run_episodes(agent, env, 3, deterministic=False)
        states.append(flat_state(agent.learn(20, reset_num_timesteps=False)))
    wrong = differing(states[0], states[1])
    require(not wrong, f"with an evaluation in between, these differ: {wrong[:5]}")


@clause(
    "agent.preprocessing-travels",
    "Normalization statistics and frame stacking are stored in the file and applied by predict.",
    "Use the observations that the SDK passes to `act` and `update`. Normalize other data with"
    " `context.observation_normalizer`.",
)
def preprocessing_travels(subject: Subject) -> None:
    subject.needs_vectors("vectors are normalized")
    # such methods stack frames in the environment
    episodes = plays_episodes(subject.agent().parts.plan)
    frames = 1 if episodes else 2
    agent = subject.trained(normalize={"norm_reward": True}, frame_stack=frames)
    normalizer = agent.normalizer
    require(normalizer is not None, "the setting normalize had no effect")
    assert normalizer is not None
    counts = [float(moments.count) for moments in normalizer.moments.values()]
    require(bool(counts) and min(counts) >= 40, f"after 40 steps the statistics have seen {counts} observations")
    seen = subject.seen.sample()
    with tempfile.TemporaryDirectory() as folder:
        agent.save(Path(folder) / "agent")
        loaded = type(agent).load(Path(folder) / "agent")
    one, two = (subject.predict(each, seen, deterministic=True) for each in (agent, loaded))
    require(equal_values(one, two), f"{one} before saving, {two} after loading")
    assert loaded.normalizer is not None
    require(loaded.normalizer.normalize_obs(np.tile(seen, frames)) is not None, "the statistics did not travel")
    wrong = differing(flat_state(agent), flat_state(loaded))
    require(not any("normalizer" in name for name in wrong), f"the statistics changed on their way: {wrong[:3]}")
