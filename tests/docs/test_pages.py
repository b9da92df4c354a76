"""Every example in README and docs runs, and the site builds without warnings."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from typer.testing import CliRunner

from rlsdk.cli.main import app
from rlsdk.registry import AlgorithmSpec, load, unregister
from tests.repository.test_docs import PAGES, ROOT, blocks, commands, identifier

SMALL = {"buffer_size": 2000, "batch_size": 16, "n_steps": 32}
"""Settings that make the commands quick, for algorithms that have them."""


def quick(algorithm: str) -> list[str]:
    """Options that shorten `rlsdk run ALGORITHM`."""
    spec = load(algorithm)
    fields = {field.name for field in attrs.fields(spec.config_type)}
    if "buffer_size" in fields:  # with a replay buffer, n_steps is the length of n-step targets
        fields -= {"n_steps"}
    chosen = [f"{name}={value}" for name, value in SMALL.items() if name in fields]
    return [part for text in ["policy_kwargs.net_arch=[8]", *chosen] for part in ("--set", text)]


NEEDS = {"rlsdk-jax": "jax", "rlsdk-lerobot": "pyarrow"}
"""Package whose page needs a library that rlsdk can do without -> that library."""


@pytest.mark.full
@pytest.mark.parametrize("path", [p for p in PAGES if blocks(p, "python")], ids=identifier)
def test_python_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDS.get(path.parent.name, "rlsdk"))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    try:
        for text in blocks(path, "python"):
            exec(compile(text, str(path), "exec"), namespace)
    finally:
        if isinstance(spec := namespace.get("spec"), AlgorithmSpec):
            unregister(spec.id)


def model_of_another_library(folder: Path) -> None:
    """Write the files from which docs/interchange.md starts: a model of sb3-contrib and its VecNormalize."""
    sb3_contrib = pytest.importorskip("sb3_contrib")
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    envs = VecNormalize(make_vec_env("Pendulum-v1"))
    sb3_contrib.TRPO("MlpPolicy", envs).save(folder / "model.zip")
    envs.save(folder / "vecnormalize.pkl")


def settings_of_the_zoo(folder: Path) -> None:
    """Write hyperparams/ppo.yml into a folder, as rl-baselines3-zoo has it."""
    (folder / "hyperparams").mkdir()
    table = "CartPole-v1:\n  n_timesteps: !!float 64\n  n_envs: 2\n  n_steps: 32\n  policy: 'MlpPolicy'\n"
    (folder / "hyperparams" / "ppo.yml").write_text(table)


@pytest.mark.full
@pytest.mark.parametrize("path", [p for p in PAGES if commands(p)], ids=identifier)
def test_commands_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDS.get(path.parent.name, "rlsdk"))
    monkeypatch.chdir(tmp_path)
    if path.name == "interchange.md":
        model_of_another_library(tmp_path)
    if path.name == "coming-from-sb3-contrib.md":
        settings_of_the_zoo(tmp_path)
    for written in commands(path):
        line, _, target = written.partition(" > ")
        arguments = shlex.split(line)[1:]
        if arguments[0] == "run":
            resume = "--resume" in arguments
            # every number of steps, as some pages repeat trainings of hours; a resumed training has more than its first part
            arguments = [
                re.sub(r"^\d{4,}$", lambda found: "420" if int(found[0]) >= 20_000 else "210", a) for a in arguments
            ]
            arguments += ["--eval-episodes", "1", *([] if resume else quick(arguments[1]))]
        if arguments[0] == "check":  # each package has a test that runs all clauses
            arguments += ["--seconds", "5"]
        done = CliRunner().invoke(app, arguments)
        unfinished = arguments[0] == "check" and done.exit_code == 3
        assert done.exit_code == 0 or unfinished, f"{line}\n{done.output}\n{done.exception}"
        if target:
            (tmp_path / target.strip()).write_text(done.stdout)


@pytest.mark.full
def test_the_site_builds(tmp_path: Path) -> None:
    """Sphinx builds the site without warnings: no broken link, no unlisted page, no docstring that cannot be parsed."""
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(tmp_path / "site")]
    done = subprocess.run(
        [*command, "-d", str(tmp_path / "trees")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site/cards/tqc.html").read_text()
    assert "truncated quantile critics" in page
    assert not re.findall(r'href="[^"#:]*\.md["#]', page), "links lead to pages of the site"
