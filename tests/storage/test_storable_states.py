"""States of plugins in files: states of torch's optimizers are restored; states that files cannot hold are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlsdk.errors import PluginError
from rlsdk.storage.archive import read_archive, write_archive
from rlsdk.storage.tensors import nested_state
from rlsdk.tree import flatten
from tests.tables import in_one_test


def adam() -> tuple[torch.optim.Adam, list[torch.nn.Parameter]]:
    """An optimizer that has made a step, and its parameters."""
    parameters = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(3))]
    optimizer = torch.optim.Adam(parameters, 0.1)
    torch.autograd.backward(torch.cat([each.square() for each in parameters]).sum())
    optimizer.step()
    return optimizer, parameters


def require_equal(loaded: Any, optimizer: torch.optim.Adam) -> None:
    other, parameters = adam()
    other.state.clear()
    other.load_state_dict(loaded)
    for mine, its in zip(parameters, optimizer.state, strict=True):
        assert torch.equal(other.state[mine]["exp_avg"], optimizer.state[its]["exp_avg"])


def test_an_optimizer_of_torch_remembers_after_loading(tmp_path: Path) -> None:
    optimizer, _ = adam()
    write_archive(tmp_path / "file", {"kind": "some"}, {"training": {"actor": {"optimizer": optimizer.state_dict()}}})
    _, sections = read_archive(tmp_path / "file", kind="some")
    loaded: Any = sections["training"]["actor"]
    require_equal(loaded["optimizer"], optimizer)


def test_an_optimizer_of_torch_remembers_after_flattening() -> None:
    optimizer, _ = adam()
    nested: Any = nested_state(flatten({"optimizer": optimizer.state_dict()}))
    require_equal(nested["optimizer"], optimizer)


@in_one_test
@pytest.mark.parametrize(
    ("state", "words"),
    [
        pytest.param({3: torch.ones(1)}, "the name 3 in the state 'training/agent'", id="number"),
        pytest.param({"a": {"train/loss": 1.0}}, "the name 'train/loss' in the state 'training/agent/a'", id="slash"),
        pytest.param({"": 1.0}, "the name '' in the state", id="empty"),
        pytest.param(
            {"a": [torch.ones(1)]}, "a value of type Tensor in a list in the state 'training/agent/a'", id="list"
        ),
        pytest.param({"a": [{"b": {3: 1.0}}]}, "the name 3 in the state 'training/agent/a'", id="number-in-list"),
        pytest.param({"a": {1, 2}}, "a value of type set in the state 'training/agent/a'", id="set"),
        pytest.param({"a": {"b": float("nan")}}, "the number nan in the state 'training/agent/a/b'", id="nan"),
    ],
)
def test_a_state_that_files_cannot_hold_is_named(tmp_path: Path, state: Any, words: str) -> None:
    with pytest.raises(PluginError) as found:
        write_archive(tmp_path / "file", {"kind": "some"}, {"training": {"agent": state}})
    assert words in str(found.value)
    assert "cannot be stored" in str(found.value)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "file").exists()
