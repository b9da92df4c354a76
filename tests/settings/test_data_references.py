"""Settings that refer to recorded data: any package can read data of its own kind; messages name the package of ours."""

from __future__ import annotations

import hashlib
import sys
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import rlsdk
import rlsdk.environments
from rlsdk.agent.assembly import recorded_spaces
from rlsdk.errors import ArtifactError, SettingsError, UnknownNameError
from rlsdk.executors import make_executor
from rlsdk.runs.recorded_run import environment_of, require_same_dataset, with_dataset
from rlsdk.settings import AgentConfig, DataReference, commented_toml, data_in, data_settings, structure, unstructure
from rlsdk.spaces import Discrete, Space


@attrs.frozen
class Lines(DataReference):
    """Data of another kind: a text file that names the environment."""

    @staticmethod
    def identify(path: str | PathLike[str]) -> tuple[Path, str]:
        place = Path(path)
        if not place.is_file():
            raise ArtifactError(f"there are no lines at {place}")
        return place, hashlib.sha256(place.read_bytes()).hexdigest()

    def contents(self) -> tuple[str | None, tuple[Space, Space]]:
        return Path(str(self.path)).read_text() or None, (Discrete(16), Discrete(4))


@attrs.frozen
class Config(AgentConfig):
    lines: Lines | None = None


SPEC: Any = SimpleNamespace(id="lines", config_type=Config)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "some.txt").write_text("FrozenLake-v1")
    return tmp_path / "some.txt"


def test_data_of_another_kind_are_a_setting(lines: Path) -> None:
    assert data_settings(Config) == {"lines": Lines}
    config = structure({"policy": "MlpPolicy", "lines": str(lines)}, Config)
    assert config.lines is not None
    assert (config.lines.name, config.lines.path) == ("some", str(lines))
    assert recorded_spaces(config) == (Discrete(16), Discrete(4))
    stored = unstructure(config)["lines"]
    assert stored == {"name": "some", "digest": config.lines.digest}, "files store no path"
    again = structure({"policy": "MlpPolicy", "lines": stored}, Config)
    assert again.lines == config.lines
    assert recorded_spaces(again) is None, "without the data, an agent has no spaces of them"
    assert data_in(Config, {"lines": lines}) == {"lines": config.lines}
    for wrong in (3, {"path": 3}, {"name": "some"}):
        with pytest.raises(SettingsError, match="is not a data set; give the path"):
            structure({"policy": "MlpPolicy", "lines": wrong}, Config)


def test_a_run_takes_and_compares_them(lines: Path, tmp_path: Path) -> None:
    settings = with_dataset(SPEC, {}, lines)
    assert environment_of(SPEC, settings) == "FrozenLake-v1"
    config = tmp_path / "config.toml"
    config.write_text(commented_toml(Config, unstructure(structure({"policy": "MlpPolicy", **settings}, Config))))
    require_same_dataset(SPEC, config, settings)
    lines.write_text("CliffWalking-v1")
    with pytest.raises(ArtifactError, match="is another data set than expected"):
        with_dataset(SPEC, settings, lines)
    with pytest.raises(SettingsError, match=r"learns from the data set 'some', .* is another"):
        require_same_dataset(SPEC, config, {"lines": str(lines)})
    assert environment_of(SPEC, with_dataset(SPEC, {}, lines)) is None, "its spaces are not those of the data"


ABSENT = ("rlsdk_datasets", "rlsdk_envs", "rlsdk_parallel")


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch, cli: Any, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ABSENT]:
        monkeypatch.delitem(sys.modules, name)
    for name in ABSENT:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(vars(rlsdk.environments), "check_env", raising=False)
    with pytest.raises(UnknownNameError, match=r"^check_env is in rlsdk-envs, which is not installed: pip install "):
        from rlsdk.environments import check_env  # noqa: F401
    assert "check_env" not in dir(rlsdk.environments)
    agent = rlsdk.make("ppo", env="CartPole-v1", n_steps=8, batch_size=8)
    with pytest.raises(
        UnknownNameError, match=r"^pretrain is in rlsdk-datasets, which is not installed: pip install .*rlsdk-datasets"
    ):
        agent.pretrain("demo")
    for given in ({"collectors": 2}, {"executor": "in-process"}, {"max_lag": 1}):
        with pytest.raises(
            UnknownNameError, match=r"^the argument collectors is in rlsdk-parallel, .*: pip install .*rlsdk-parallel"
        ):
            rlsdk.environments.make_vec_env("CartPole-v1", 2, **given)  # type: ignore[arg-type]
    monkeypatch.setenv("RLSDK_PLUGINS", "ppo")
    code, _, err = cli(
        "run", "ppo", "--env", "CartPole-v1", "--n-envs", "2", "--collectors", "2", "--out", str(tmp_path / "a")
    )
    assert (code, err.count("\n"), "rlsdk-parallel" in err) == (1, 1, True), err
    for given in ("processes", "in-process"):
        with pytest.raises(
            (SettingsError, UnknownNameError), match=rf"^vectorization '{given}' is in rlsdk-parallel, which"
        ):
            rlsdk.environments.make_vec_env("CartPole-v1", 2, vectorization=given)
    with pytest.raises(
        SettingsError, match=r"'processes' is in a package that is not installed: pip install .*rlsdk-parallel"
    ):
        make_executor("processes", 1)
    code, _, err = cli("inspect", "demo.safetensors")
    assert (code, err.count("\n")) == (1, 1)
    assert "demo.safetensors is a file of rlsdk-datasets, which is not installed: pip install" in err
