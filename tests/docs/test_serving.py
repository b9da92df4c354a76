"""The service of docs/guides/serving.md: clients at the same time, episodes, and wrong input."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.repository.test_docs import ROOT, blocks

OBSERVATIONS = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32).tolist()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The names of the page, after the blocks that train the agent and define the service."""
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    space: dict[str, Any] = {"__name__": "service"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("service"))
        for text in blocks(Path(ROOT / "docs/guides/serving.md"), "python")[:2]:
            exec(compile(text, "serving.md", "exec"), space)
    return space


def client_of(service: Mapping[str, Any]) -> Any:
    from fastapi.testclient import TestClient

    service["states"].clear()
    return TestClient(service["app"])


def played(client: Any, name: str, first: bool = True) -> list[int]:
    """The actions for all observations, requested one after another."""
    answers = [
        client.post(f"/act/{name}", json=observation, params={"first": first and at == 0})
        for at, observation in enumerate(OBSERVATIONS)
    ]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json()["action"] for answer in answers]


@pytest.mark.full
def test_clients_at_the_same_time_do_not_mix(service: Mapping[str, Any]) -> None:
    session = service["agent"].session(1, deterministic=True)
    alone = [int(session.act(np.array(observation, np.float32))) for observation in OBSERVATIONS]
    assert len(set(alone)) == 2, "the agent prefers no action"
    with client_of(service) as client, ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda name: played(client, f"robot-{name}"), range(8)))
    assert together == [alone] * 8


@pytest.mark.full
def test_the_state_stays_in_the_service(service: Mapping[str, Any]) -> None:
    with client_of(service) as client:
        played(client, "a")
        before = service["states"]["a"]
        client.post("/act/a", json=OBSERVATIONS[0])
        continued = service["states"]["a"]
        client.post("/act/a", json=OBSERVATIONS[0], params={"first": True})
        begun = service["states"]["a"]
        client.post("/act/b", json=OBSERVATIONS[0])
    assert not equal(continued, before)
    assert not equal(continued, begun), "`first` begins an episode"
    assert equal(begun, service["states"]["b"]), "a new client needs no `first`"


def equal(one: Any, other: Any) -> bool:
    from rlsdk.tree import leaves

    return all(bool((a == b).all()) for a, b in zip(leaves(one), leaves(other), strict=True))


@pytest.mark.full
@pytest.mark.parametrize(
    "body", ["[0.1, 0.2]", "[NaN, 0, 0, 0]", "[1e308, 0, 0, 0]", "[]", '["x", 0, 0, 0]', "{}", "[[0, 0, 0, 0]]"]
)
def test_wrong_input_is_refused_and_changes_no_state(service: Mapping[str, Any], body: str) -> None:
    with client_of(service) as client:
        played(client, "a")
        before = service["states"]["a"]
        answer = client.post("/act/a", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]
    assert service["states"]["a"] is before
