"""Files of every released format can be read, by rlsdk and by the reader in examples/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlsdk
from rlsdk import tree
from tests.golden.make import AGENTS, play

ROOT = Path(__file__).parents[1]
FORMATS = sorted((ROOT / "tests" / "golden").glob("format-*"))
FILES = [
    pytest.param(path, id=f"{path.parent.name}-{path.stem}") for folder in FORMATS for path in folder.glob("*.rlsdk")
]


def test_each_algorithm_has_a_file_of_each_format() -> None:
    for folder in FORMATS:
        assert {path.stem for path in folder.glob("*.rlsdk")} == set(AGENTS)


@pytest.mark.parametrize("path", FILES)
def test_golden_files_answer_as_when_they_were_written(path: Path) -> None:
    wanted = json.loads((path.parent / "answers.json").read_text())[path.stem]
    agent = rlsdk.load(path)
    found = play(agent, wanted["observations"], wanted["masks"])
    np.testing.assert_allclose(np.array(found), np.array(wanted["actions"]), atol=1e-5)


@pytest.mark.parametrize("path", FILES)
def test_golden_files_can_be_trained_on(path: Path) -> None:
    env, steps, _ = AGENTS[path.stem]
    agent = rlsdk.load(path, env=env)
    before = agent.num_timesteps
    agent.learn(steps, reset_num_timesteps=False)
    assert agent.num_timesteps > before


ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "rlsdk", "gymnasium", "safetensors"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, "examples")
import numpy as np
import read_agent_file
manifest, sections = read_agent_file.read(sys.argv[1])
arrays = {k: v for k, v in sections["policy"].items() if isinstance(v, np.ndarray)}
np.savez(sys.argv[2], **{k.replace("/", "|"): v for k, v in arrays.items()})
"""


@pytest.mark.parametrize("path", FILES)
def test_the_example_reads_them_with_the_standard_library_and_numpy(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "read.npz"
    subprocess.run([sys.executable, "-c", ALONE, str(path), str(target)], check=True, cwd=ROOT)
    agent = rlsdk.load(path)
    wanted: dict[str, Any] = {
        k: v for k, v in tree.flatten(agent.get_parameters()["policy"]).items() if hasattr(v, "numpy")
    }
    with np.load(target) as found:
        assert {name.replace("|", "/") for name in found} == set(wanted)
        for name in found:
            np.testing.assert_array_equal(found[name], wanted[name.replace("|", "/")].numpy())


def test_the_example_prints_and_refuses(tmp_path: Path) -> None:
    path = FORMATS[0] / "trpo.rlsdk"
    command = [sys.executable, str(ROOT / "examples" / "read_agent_file.py")]
    done = subprocess.run([*command, str(path)], check=True, capture_output=True, text=True)
    assert "trpo on Pendulum-v1, made with rlsdk-trpo" in done.stdout
    data = bytearray(path.read_bytes())
    data[-2000] ^= 1
    (tmp_path / "broken").write_bytes(data)
    broken = subprocess.run([*command, str(tmp_path / "broken")], check=False, capture_output=True, text=True)
    assert broken.returncode != 0
