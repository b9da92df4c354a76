"""Mutation tests of the contract kit: each mutant (a planted bug) must fail the clause that checks for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import torch

from rlsdk.errors import ContractViolation
from rlsdk_kernels.compiled_library import may_compile
from rlsdk_testing import clauses, run_checks, verify
from rlsdk_tqc.loss import truncated_target
from tests.example_plugins import installed_examples
from tests.mutants import ALONE, MUTANTS, Patch

FIRST = {clause: plant for clause, _, plant in reversed(MUTANTS)}
"""The fast suite tries one mutant per clause."""
FOUND_LATE = {
    "a_new_target_entropy_is_not_taken_over",
    "advantages_take_time_limits_for_terminations",
    "critics_see_actions_in_units_of_the_environment",
    "every_rollout_is_passed_once",
    "later_entropy_is_punished",
    "memories_are_forgotten_at_every_step",
    "replayed_sequences_are_not_normalized",
    "scores_are_whole_numbers",
    "sequences_cross_the_newest_row",
    "targets_of_values_see_no_rewards_above_1",
    "targets_of_values_see_no_rewards_below_minus_1",
    "the_deviation_is_that_of_the_start",
    "the_first_allowed_action_is_taken_where_the_best_is_forbidden",
    "the_sign_of_observations_is_lost",
}
"""Mutants that take more than ten seconds to find: only the slow suite tries them."""


def in_fast_suite(clause: str, plant: Callable[[Patch], None]) -> bool:
    """Whether the fast suite tries this mutant: it is the first of its clause and is not in FOUND_LATE."""
    return FIRST[clause] is plant and plant.__name__ not in FOUND_LATE


OUTDATED = re.compile(r"(TypeError|AttributeError|NameError|ImportError): ")
"""The errors of a mutant that patches code which has changed. Such a mutant would fail any clause."""
COMPILED = {"policy.in-place-is-act"}
"""Clauses about abilities that the policies of rlsdk have in compiled code only."""


def marks_of(clause: str, fast: bool) -> list[pytest.MarkDecorator]:
    """The marks of a test that plants a bug for a clause."""
    needs = [pytest.mark.skipif(not may_compile(), reason="this installation uses no compiled kernels")]
    return [*([] if fast else [pytest.mark.slow]), *(needs if clause in COMPILED else [])]


CASES = [
    pytest.param(clause, *rest, id=rest[-1].__name__, marks=marks_of(clause, in_fast_suite(clause, rest[-1])))
    for clause, *rest in MUTANTS
]


@pytest.fixture(scope="module", autouse=True)
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the example plugins: some mutants change them."""
    with installed_examples(tmp_path_factory.mktemp("examples")):
        yield


@pytest.mark.parametrize(("clause", "algorithm", "plant"), CASES)
def test_the_kit_catches(clause: str, algorithm: str, plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    verify(algorithm, clause)
    plant(monkeypatch)
    with pytest.raises(ContractViolation) as caught:
        verify(algorithm, clause)
    assert not OUTDATED.search(str(caught.value)), "the mutant no longer fits the code that it patches"


def test_every_mutant_fits_the_code() -> None:
    """A mutant whose patch has no target any more is tried in the slow suite only; here it is noticed at once."""
    failures = []
    for _, _, plant in MUTANTS:
        try:
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
        except Exception as error:
            failures.append(f"{plant.__name__}: {error!r}")
    assert failures == []


def test_every_clause_has_a_mutant_of_its_own() -> None:
    assert ALONE.keys() == {clause.id for clause in clauses()}


FORMULA = "formula.reference"


@pytest.mark.slow
@pytest.mark.parametrize("clause", [pytest.param(clause, marks=marks_of(clause, True)) for clause in ALONE])
def test_each_clause_finds_what_no_other_finds(clause: str, monkeypatch: Patch) -> None:
    """`formula.reference` does not count: where a package states its formula, it finds almost every change of an update."""
    _, algorithm, plant = ALONE[clause]
    plant(monkeypatch)
    failed = [result.id for result in run_checks(algorithm, isolate=False) if result.status == "failed"]
    assert [each for each in failed if each in (clause, *ALONE.keys() - {FORMULA})] == [clause]


def test_the_hand_computed_target_catches_the_classic_mistakes() -> None:
    atoms = torch.tensor([[[1.0, 4.0, 9.0]], [[2.0, 3.0, 8.0]]])
    arguments = (torch.tensor([-3.0]), torch.tensor([10.0]), torch.tensor([0.5]), torch.tensor(2.0))
    expected = sorted(truncated_target(atoms, *arguments, keep=4)[0].tolist())
    pooled = atoms.movedim(0, 1).reshape(1, 6).sort().values
    entropy = -2.0 * -3.0
    wrong = {
        "smallest dropped": 10.0 + 0.5 * (pooled[0, 2:] + entropy),
        "entropy outside the discount": 10.0 + 0.5 * pooled[0, :4] + entropy,
        "entropy with the wrong sign": 10.0 + 0.5 * (pooled[0, :4] - entropy),
        "nothing dropped": 10.0 + 0.5 * (pooled[0] + entropy),
    }
    assert expected == pytest.approx((10.0 + 0.5 * (pooled[0, :4] + entropy)).tolist())
    for name, values in wrong.items():
        assert sorted(values.tolist()) != pytest.approx(expected), name
