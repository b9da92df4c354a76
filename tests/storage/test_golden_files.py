"""The golden file of every format can be read, by rlsdk and by the reader in examples/, and its training continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlsdk
from rlsdk import tree
from rlsdk.storage.archive import FORMAT
from tests.golden.make import answers, machine, parameters, resumed

ROOT = Path(__file__).parents[2]
FORMATS = sorted((ROOT / "tests" / "golden").glob("format-*"))
FILES = [
    pytest.param(path, id=f"{path.parent.name}-{path.stem}") for folder in FORMATS for path in folder.glob("*.rlsdk")
]
KERNELS = os.environ.get("RLSDK_KERNELS") != "off"
"""Whether kernels are used, as when the file was written. Plain torch rounds differently."""


def written(path: Path) -> dict[str, Any]:
    """What the agent in a golden file did when the file was written."""
    found: dict[str, Any] = json.loads((path.parent / "answers.json").read_text())
    return found


def test_each_format_has_a_file() -> None:
    assert [folder.name for folder in FORMATS] == [f"format-{number}" for number in range(1, FORMAT + 1)]
    assert len(FILES) == len(FORMATS)


@pytest.mark.parametrize("path", FILES)
def test_golden_files_answer_as_when_they_were_written(path: Path) -> None:
    wanted, agent = written(path), rlsdk.load(path)
    assert agent.num_timesteps == wanted["steps"][0]
    found = answers(agent, wanted["observations"])
    exact = KERNELS and wanted["machine"] == machine()  # elsewhere products of matrices may round differently
    for kind in ("mode", "sample"):
        np.testing.assert_allclose(found[kind], wanted["before"][kind], rtol=0, atol=0 if exact else 1e-6)


@pytest.mark.parametrize("path", FILES)
def test_golden_files_train_on_as_when_they_were_written(path: Path) -> None:
    """Later versions and other processors may add numbers in another order; within one version it is exact to the bit."""
    wanted, agent = written(path), resumed(path)
    assert agent.num_timesteps == wanted["steps"][1]
    found, before = parameters(agent), parameters(rlsdk.load(path))
    assert not np.array_equal(found, before)
    rounding = 1e-5 if KERNELS else 1e-4
    np.testing.assert_allclose(found, wanted["trained"], rtol=0, atol=rounding)
    after = answers(agent, wanted["observations"])
    for kind in ("mode", "sample"):
        np.testing.assert_allclose(after[kind], wanted["after"][kind], rtol=0, atol=10 * rounding)


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


@pytest.mark.full
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


@pytest.mark.full
def test_the_example_prints_and_refuses(tmp_path: Path) -> None:
    path = FORMATS[0] / "tqc.rlsdk"
    command = [sys.executable, str(ROOT / "examples" / "read_agent_file.py")]
    done = subprocess.run([*command, str(path)], check=True, capture_output=True, text=True)
    assert "tqc on Pendulum-v1, made with rlsdk-tqc" in done.stdout
    data = bytearray(path.read_bytes())
    data[-2000] ^= 1
    (tmp_path / "broken").write_bytes(data)
    broken = subprocess.run([*command, str(tmp_path / "broken")], check=False, capture_output=True, text=True)
    assert broken.returncode != 0
