"""`rlsdk new`: an unchanged new package installs, trains and passes the kit. Refused requests write no files."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from ruamel.yaml import YAML

import rlsdk
from rlsdk.errors import ArtifactError, SettingsError
from rlsdk_interchange import record_episodes
from rlsdk_testing import Clause, clauses
from rlsdk_testing.scaffold import families, first_steps, new_package, rendered
from rlsdk_testing.scaffold.families import FamilyTemplate, family_templates
from rlsdk_testing.scaffold.package import OLDEST, SDK, TO_FILL_IN
from tests.example_plugins import install
from tests.plugin_site import on_path
from tests.tables import in_one_test
from tests.throwaway import Environment, build_wheels

ROOT = Path(__file__).parents[3]
TEMPLATES = {f"my-{template.folder.name}": template for template in family_templates()}
"""Id -> the template of the package."""


def written(identity: str, template: FamilyTemplate, folder: Path) -> Path:
    """Write a new package of this template and return its folder."""
    return new_package(identity, template.family, folder, actions=template.for_actions)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an unchanged package of each template, installed for this process and its child processes."""
    folder = tmp_path_factory.mktemp("site")
    for identity, template in TEMPLATES.items():
        install(written(identity, template, folder) / "pyproject.toml", folder / "installed")
    with pytest.MonkeyPatch.context() as patch, on_path(folder / "installed"):
        patch.setenv("PYTHONPATH", str(folder / "installed"))
        yield folder


def its_test(site: Path, identity: str, name: str) -> ModuleType:
    """Import the module `tests/test_<name>.py` of a package and return it."""
    file = site / f"rlsdk-{identity}" / "tests" / f"test_{name}.py"
    spec = importlib.util.spec_from_file_location(f"{file.parent.parent.name}.{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("each", clauses(), ids=str)
def test_each_clause_holds_for_two_of_them(site: Path, each: Clause) -> None:
    """Each clause is checked with two of the templates, in turn. The slow suite checks every clause of every template."""
    number = clauses().index(each)
    for identity in (list(TEMPLATES) * 2)[number % len(TEMPLATES) :][:2]:
        its_test(site, identity, "contract").test_contract(each)


@pytest.mark.parametrize("identity", TEMPLATES)
def test_untouched_packages_learn(site: Path, identity: str, tmp_path: Path) -> None:
    learns = its_test(site, identity, "learns")
    more = [tmp_path] if TEMPLATES[identity].family == "offline" else []
    learns.test_naming_what_is_seen(0, *more)


@pytest.mark.parametrize("identity", TEMPLATES)
def test_untouched_packages_are_run_with_their_preset(site: Path, identity: str, cli: Any, tmp_path: Path) -> None:
    template = TEMPLATES[identity]
    command = first_steps(identity, template.family, template.for_actions)[1].split()[1:]
    if template.family == "offline":
        command[-1] = f"dataset={recorded_cart_pole(tmp_path / 'demo')}"
    code, out, error = cli(*command, "--steps", "600", "--eval-every", "0", "--eval-episodes", "1", "--out", "run")
    assert code == 0, error
    assert f"preset for {template.contents['preset']['env']}" in out
    assert (tmp_path / "run" / "final.rlsdk").is_file()
    assert identity in cli("list")[1]


def recorded_cart_pole(path: Path) -> Path:
    """Record three episodes of an untrained agent on CartPole."""
    return record_episodes(rlsdk.make("my-on-policy", env="CartPole-v1", seed=0), "CartPole-v1", 3, path, seed=0)


@pytest.mark.full
def test_the_command_of_the_offline_package(site: Path, tmp_path: Path) -> None:
    its_test(site, "my-offline", "learns").test_the_command_line(tmp_path)


def test_the_offline_package_without_data_names_the_setting(site: Path) -> None:
    with pytest.raises(SettingsError, match="recorded episodes: give dataset=PATH, or --dataset FILE"):
        rlsdk.make("my-offline", env="CartPole-v1")


@pytest.mark.full
def test_packages_are_formatted(site: Path) -> None:
    for identity in TEMPLATES:
        package = site / f"rlsdk-{identity}"
        for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."]):
            subprocess.run([sys.executable, "-m", *command], cwd=package, check=True)


@pytest.mark.slow
def test_packages_are_typed(site: Path) -> None:
    sources = [str(site / f"rlsdk-{identity}" / "src") for identity in TEMPLATES]
    subprocess.run([sys.executable, "-m", "mypy", "--strict", *sources], cwd=site, check=True)


@pytest.fixture(scope="module")
def house(site: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Path]:
    """A virtual environment with rlsdk and an unchanged package of each template, installed from wheels; and its folder."""
    folder = tmp_path_factory.mktemp("new")
    sources = [shutil.copytree(path, folder / path.name) for path in (site / f"rlsdk-{each}" for each in TEMPLATES)]
    return Environment(folder / "env", build_wheels([ROOT, *sources], folder / "wheels")), folder


@pytest.mark.slow
def test_wheels_of_untouched_packages_are_listed(house: tuple[Environment, Path]) -> None:
    env, _ = house
    listed = env.json("import rlsdk; result = [rlsdk.__file__, [p.qualified_id for p in rlsdk.algorithms()]]")
    assert str(ROOT / "rlsdk") not in listed[0], "the core comes from its wheel"
    assert {f"rlsdk-{identity}/{identity}" for identity in TEMPLATES} <= set(listed[1])


@pytest.mark.slow
@pytest.mark.parametrize("identity", TEMPLATES)
def test_the_tests_of_an_untouched_package_pass(house: tuple[Environment, Path], identity: str) -> None:
    """The tests in a new package check every clause of the contracts, and that the algorithm learns."""
    env, folder = house
    package = folder / f"rlsdk-{identity}"
    done = env.run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "tests"), "--rootdir", str(package))
    assert done.returncode == 0, done.stdout[-3000:]


def test_an_id_that_is_installed_gets_a_warning(tmp_path: Path, cli: Any) -> None:
    with pytest.warns(
        UserWarning, match="rlsdk-tqc has an algorithm 'tqc' too; installing the new package replaces it"
    ):
        assert (new_package("tqc", "on-policy", tmp_path / "a") / "pyproject.toml").is_file()
    with pytest.warns(UserWarning, match="replaces it"):  # the command line prints it as one line
        code, out, _ = cli("new", "tqc")
    assert code == 0
    assert 'pip install -e "./rlsdk-tqc[dev]"' in out


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ("My_Algo", "lower-case words"),
        ("2fast", "lower-case words"),
        ("a/../b", "lower-case words"),
        ("", "lower-case words"),
    ],
)
def test_ids_that_cannot_be(identity: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        new_package(identity, "on-policy", tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_to_do_next(cli: Any, tmp_path: Path) -> None:
    code, out, _ = cli("new", "mine", "--family", "own-loop")
    assert code == 0
    assert "FILL IN in rlsdk-mine/src/rlsdk_mine/plan.py" in out
    assert out.endswith("rlsdk check mine\n  rlsdk run mine --env CartPole-v1\n")
    code, out, error = cli("new", "mine", "--family", "offline", "--actions", "continuous")
    assert (code, out) == (1, "")
    assert (
        error
        == "error: --actions does not apply to the family offline, whose package has Discrete actions; leave it out\n"
    )
    for name in families():
        assert name in "".join(cli("new", "--help")[1].split())


def test_an_id_of_many_characters(cli: Any, tmp_path: Path) -> None:
    code, out, err = cli("new", "x" * 300)
    assert (code, out) == (1, "")
    assert "has 300 characters; ids have at most 64: shorten it" in err
    assert "free some space" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("template", family_templates(), ids=lambda template: template.folder.name)
def test_two_functions_are_to_be_filled_in(template: FamilyTemplate) -> None:
    files = rendered("mine", template.family, template.for_actions)
    found = {place: text.count(TO_FILL_IN) for place, text in files.items() if TO_FILL_IN in text}
    assert list(found.values()) == [2]
    assert first_steps("mine", template.family, template.for_actions)[0] in found


@pytest.mark.parametrize(
    ("family", "actions", "message"),
    [
        ("on-polcy", None, r"did you mean 'on-policy'\?"),
        ("off-policy", "discret", r"actions 'discret' of the family off-policy; did you mean 'discrete'\?"),
        (
            "population",
            "discrete",
            "--actions does not apply to the family population, whose package has Box, Discrete",
        ),
        ("common", None, "unknown family 'common'"),
    ],
)
def test_families_that_are_not_there(family: str, actions: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        new_package("mine", family, tmp_path, actions=actions)
    assert len(str(caught.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_what_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "rlsdk-mine").mkdir()
    with pytest.raises(ArtifactError, match="exists already"):
        new_package("mine", "on-policy", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="cannot write"):
        new_package("mine", "on-policy", tmp_path / "file" / "inside")
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
    """The CI of a new package tests every accepted Python version with the oldest and the newest accepted SDK."""
    files = rendered("my-algo", "on-policy")
    workflow = YAML(typ="safe", pure=True).load(files[".github/workflows/test.yml"])
    matrix, steps = workflow["jobs"]["test"]["strategy"]["matrix"], workflow["jobs"]["test"]["steps"]
    assert matrix == {"python": ["3.11", "3.12", "3.13", "3.14"], "sdk": [f"rlsdk=={OLDEST}", f"rlsdk{SDK}"]}
    assert "${{ matrix.python }}" in str(steps)
    assert "${{ matrix.sdk }}" in str(steps)
    assert SpecifierSet(SDK).contains(OLDEST)
    assert Version(OLDEST) == Version(SDK.partition(",")[0].removeprefix(">="))
    assert SpecifierSet(SDK).contains(rlsdk.__version__)
    assert f'sdk = "{SDK}"' in files["src/rlsdk_my_algo/rlsdk.toml"]


@in_one_test
@pytest.mark.parametrize(
    ("identity", "family", "name"),
    [
        ("none", "off-policy", "NoneAgent"),
        ("soft-q2-learning", "off-policy", "SoftQ2Learning"),
        ("actor-critic", "on-policy", "ActorCriticAgent"),
        ("rollout", "on-policy", "RolloutAgent"),
        ("agent", "off-policy", "AgentAgent"),
        ("exception", "off-policy", "ExceptionAgent"),
    ],
)
def test_class_names(identity: str, family: str, name: str, tmp_path: Path) -> None:
    """The name of the class differs from every name that the package imports and from built-in names."""
    package = new_package(identity, family, tmp_path)
    code = next(package.glob("src/*/agent.py")).read_text()
    assert f"class {name}(Agent[" in code
    compile(code, "agent.py", "exec")
