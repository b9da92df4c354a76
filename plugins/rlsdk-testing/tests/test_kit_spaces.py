"""The contract kit checks plugins without vector observations, and policies with the plugin's own names."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch import Generator, Tensor

import rlsdk
from rlsdk.interfaces import BuildContext, Parts, State, require_spaces
from rlsdk.records import Act, Metrics, Observation, Rollout, successors
from rlsdk.registry import AlgorithmSpec, Manifest, unregister
from rlsdk.settings import AgentConfig, described
from rlsdk.spaces import Discrete
from rlsdk.training import OnPolicyPlan
from rlsdk_testing import CheckResult, run_checks

NONE = tuple[()]


@attrs.frozen
class TableConfig(AgentConfig):
    learning_rate: float = attrs.field(default=0.1, metadata=described("step size"))
    n_steps: int = attrs.field(default=8, metadata=described("steps of a rollout"))


class Table:
    """A policy with a table of values for each state and action; it is not a torch module."""

    def __init__(self, seen: Discrete, actions: Discrete) -> None:
        self.first, self.start = seen.start, actions.start
        self.values = torch.zeros(seen.n, actions.n)

    def of(self, observation: Observation) -> Tensor:
        return self.values[observation.features.long() - self.first]

    def initial_carry(self, batch: int) -> NONE:
        return ()

    def act(
        self, observation: Observation, carry: NONE, *, deterministic: bool, generator: Generator
    ) -> Act[NONE, NONE]:
        values = self.of(observation)
        if not deterministic:
            values = torch.rand(values.shape, generator=generator)
        return Act(values.argmax(-1) + self.start, (), ())

    def state_dict(self) -> State:
        return {"values": self.values}

    def load_state_dict(self, state: State, /) -> None:
        self.values.copy_(state["values"])


class TableLearning:
    """Q-learning from all steps of a rollout at once."""

    def __init__(self, table: Table, config: TableConfig, *, ends_go_on: bool) -> None:
        self.table, self.config, self.ends_go_on = table, config, ends_go_on

    def update(self, batch: Rollout[NONE, NONE], *, progress: float) -> Metrics:
        steps, table = batch.steps, self.table
        ended = torch.zeros_like(steps.valid) if self.ends_go_on else steps.terminated
        following = table.of(successors(batch)).amax(-1)
        rows, columns = steps.observation.features.long() - table.first, steps.action.long() - table.start
        error = steps.reward + 0.9 * following * ~ended - table.values[rows, columns]
        change = self.config.learning_rate * error * steps.valid
        table.values.index_put_((rows, columns), change, accumulate=True)
        return {"train/error": error.abs().mean()}

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State, /) -> None:
        pass


def checked(policy: str, *, ends_go_on: bool = False) -> dict[str, CheckResult]:
    """The results of the kit. ends_go_on: plant the bug that values after a termination count."""

    def build(context: BuildContext, config: TableConfig) -> Parts:
        require_spaces(context, "table", actions=("Discrete",), observations=("Discrete",))
        assert isinstance(context.observation_space, Discrete)
        assert isinstance(context.action_space, Discrete)
        table = Table(context.observation_space, context.action_space)
        return Parts(table, TableLearning(table, config, ends_go_on=ends_go_on), OnPolicyPlan(config.n_steps))

    spec = AlgorithmSpec(id="table", family="tabular", config_type=TableConfig, build=build, policies=(policy,))
    manifest = Manifest(
        id="table",
        title="Table",
        summary="a table",
        family="tabular",
        sdk=">=0.1",
        actions=("Discrete",),
        observations=("Discrete",),
        policies=(policy,),
    )
    rlsdk.register(spec, manifest)
    try:
        return {result.id: result for result in run_checks("table")}
    finally:
        unregister("table")


@pytest.mark.parametrize("policy", ["MlpPolicy", "Table"])
@pytest.mark.full
def test_a_correct_plugin_without_vectors_passes(policy: str) -> None:
    found = checked(policy)
    assert {name: result.detail for name, result in found.items() if result.status == "failed"} == {}
    assert sum(result.status == "passed" for result in found.values()) >= 35


def test_a_bug_of_a_plugin_without_vectors_is_found() -> None:
    found = checked("Table", ends_go_on=True)
    assert found["rollout.terminations-are-no-limits"].status == "failed"
