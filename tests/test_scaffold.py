"""`rlsdk new`: the package it writes installs, trains and keeps the contracts as it is; bad requests leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from ruamel.yaml import YAML

import rlsdk
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk.registry.spec import FAMILIES
from rlsdk.scaffold import new_package
from rlsdk.scaffold.package import OLDEST, SDK, rendered
from tests.throwaway import Environment, build_wheels

ROOT = Path(__file__).parents[1]
PACKAGES = {family: f"my-{family.partition('-')[0]}" for family in FAMILIES}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Path]:
    """An environment with the core and an untouched package of each family, all installed from wheels."""
    folder = tmp_path_factory.mktemp("new")
    sources = [new_package(identity, family, folder) for family, identity in PACKAGES.items()]
    return Environment(folder / "env", build_wheels([ROOT, *sources], folder / "wheels")), folder


def test_untouched_packages_are_listed_and_train(house: tuple[Environment, Path]) -> None:
    env, folder = house
    listed = env.json("import rlsdk; result = [rlsdk.__file__, [p.qualified_id for p in rlsdk.algorithms()]]")
    assert str(ROOT / "rlsdk") not in listed[0], "the core comes from its wheel"
    assert {f"rlsdk-{identity}/{identity}" for identity in PACKAGES.values()} <= set(listed[1])
    for identity in PACKAGES.values():
        out = folder / f"run-{identity}"
        done = env.run(
            "-m", "rlsdk", "run", identity, "--env", "CartPole-v1", "--steps", "600", "--out", str(out), "--seed", "0"
        )
        assert done.returncode == 0, done.stderr
        assert "preset for CartPole-v1" in done.stdout
        assert (out / "final.rlsdk").is_file()


def test_packages_are_formatted(house: tuple[Environment, Path]) -> None:
    _, folder = house
    for identity in PACKAGES.values():
        package = folder / f"rlsdk-{identity}"
        for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."]):
            subprocess.run([sys.executable, "-m", *command], cwd=package, check=True)


@pytest.mark.slow
def test_packages_are_typed(house: tuple[Environment, Path]) -> None:
    _, folder = house
    sources = [str(folder / f"rlsdk-{identity}" / "src") for identity in PACKAGES.values()]
    subprocess.run([sys.executable, "-m", "mypy", "--strict", *sources], cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_tests_of_an_untouched_package_pass(house: tuple[Environment, Path], family: str) -> None:
    """Its own tests: every clause of the contracts, and that it learns."""
    env, folder = house
    package = folder / f"rlsdk-{PACKAGES[family]}"
    done = env.run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "tests"), "--rootdir", str(package))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ("My_Algo", "lower-case words"),
        ("2fast", "lower-case words"),
        ("a/../b", "lower-case words"),
        ("", "lower-case words"),
        ("tqc", "installed already"),
    ],
)
def test_ids_that_cannot_be(identity: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        new_package(identity, "on-policy", tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "rlsdk-mine").mkdir()
    with pytest.raises(ArtifactError, match="exists already"):
        new_package("mine", "on-policy", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot write"):
        new_package("mine", "on-policy", tmp_path / "file" / "inside")
    with pytest.raises(SettingsError, match=r"did you mean 'on-policy'\?"):
        new_package("mine", "on-polcy", tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "rlsdk-mine"]


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, count = Path.write_text, [0]

    def broken(self: Path, *arguments: object, **keywords: object) -> int:
        count[0] += 1
        if count[0] == 5:
            raise OSError(28, "No space left on device")
        return write(self, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", broken)
    with pytest.raises(ArtifactError, match="No space left"):
        new_package("mine", "population", tmp_path)
    assert not list(tmp_path.iterdir())


def test_new_packages_are_tried_with_all_they_claim() -> None:
    """Their CI runs every Python they accept that torch has, with the oldest SDK of the range and the newest."""
    files = rendered("my-algo", "on-policy")
    workflow = YAML(typ="safe", pure=True).load(files[".github/workflows/test.yml"])
    matrix, steps = workflow["jobs"]["test"]["strategy"]["matrix"], workflow["jobs"]["test"]["steps"]
    assert matrix == {"python": ["3.11", "3.12", "3.13"], "sdk": [f"rlsdk=={OLDEST}", f"rlsdk{SDK}"]}
    assert "${{ matrix.python }}" in str(steps)
    assert "${{ matrix.sdk }}" in str(steps)
    assert SpecifierSet(SDK).contains(OLDEST)
    assert Version(OLDEST) == Version(SDK.partition(",")[0].removeprefix(">="))
    assert SpecifierSet(SDK).contains(rlsdk.__version__)
    assert f'sdk = "{SDK}"' in files["src/rlsdk_my_algo/rlsdk.toml"]


@pytest.mark.parametrize(("identity", "name"), [("none", "NoneAgent"), ("soft-q2-learning", "SoftQ2Learning")])
def test_class_names(identity: str, name: str, tmp_path: Path) -> None:
    package = new_package(identity, "off-policy", tmp_path)
    code = next(package.glob("src/*/agent.py")).read_text()
    assert f"class {name}(Agent[" in code
    compile(code, "agent.py", "exec")
