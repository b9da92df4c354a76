"""Bounds on the architecture: what a reader meets, sizes, import costs, and what torch can compile."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import house_measures, training_trace
from tests.training_trace import code_lines

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "rlsdk").rglob("*.py"), *ROOT.glob("*/rlsdk-*/src/**/*.py")])
NAMELESS = {"utils.py", "util.py", "common.py", "misc.py", "helpers.py", "helper.py", "base.py"}
DOCUMENTED_SIGNATURES = {
    "AtariWrapper.__init__",
    "CheckpointCallback.__init__",
    "EvalCallback.__init__",
    "learn",
    "pretrain",
    "load",
    "make_atari_env",
    "make_vec_env",
    "evaluate_policy",
    "run_training",
    "record_episodes_of",
    "evaluate_file",
    "import_agent",
    "record_file",
    "watch_agent",
    "plot_curves",
    "run_bench",
    "tune_algorithm",
}


def too_large(path: Path) -> Iterator[str]:
    """What exceeds 450 lines of code in the file, 40 in a function, or six parameters."""
    tree, lines = ast.parse(path.read_text()), code_lines(path)
    if len(lines) > 450:
        yield f"{path.name}: {len(lines)} lines of code"
    owners = {child: node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for child in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            within = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
            if len(lines.intersection(within)) > 40:
                yield f"{node.name}: {len(lines.intersection(within))} lines of code"
            first = [argument.arg for argument in node.args.args[:1]]
            parameters = len(node.args.args) + len(node.args.kwonlyargs) - (first in (["self"], ["cls"]))
            documented = {node.name, f"{owners.get(node)}.{node.name}"} & DOCUMENTED_SIGNATURES
            if parameters > 6 and not documented:
                yield f"{node.name}: {parameters} parameters"


def test_files_and_functions_are_short() -> None:
    found = {path: [*too_large(path)] for path in SOURCES}
    assert not [path.name for path in SOURCES if path.name in NAMELESS]
    assert not {str(path.relative_to(ROOT)): what for path, what in found.items() if what}


@pytest.mark.kernels("counts what a step with kernels runs")
@pytest.mark.parametrize("name", training_trace.PATHS)
def test_a_reader_meets_no_more_than_before(name: str) -> None:
    """The distinct functions, files and classes that a path enters; `house_measures.ENTERED` has the bounds and the aims."""
    bounds, _ = house_measures.ENTERED[name]
    numbers = training_trace.trace_of(name).numbers
    assert all(number <= bound for number, bound in zip(numbers, bounds, strict=True)), (numbers, bounds)


@pytest.mark.kernels("lists what a step with kernels runs")
def test_the_page_lists_what_a_training_step_runs() -> None:
    listed = training_trace.listed_files(training_trace.PAGE.read_text())
    found = [list(training_trace.rows_of(name)) for name in training_trace.TABLES]
    assert listed == found, "write the page again: python -m tests.training_trace"


def test_the_page_has_the_order_of_imports() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert [f"rlsdk.{name}" for name in listed] == contracts[0]["layers"]
    found = [path for path in (ROOT / "rlsdk").iterdir() if path.suffix in ("", ".py")]
    assert set(contracts[0]["layers"]) == {f"rlsdk.{path.stem}" for path in found if not path.name.startswith("_")}


@pytest.mark.parametrize(("name", "value"), house_measures.measured().items())
def test_the_house_is_measured(name: str, value: float) -> None:
    bound = house_measures.BOUNDS[name]
    assert bound.holds(value), f"{name} is {value:.5g}, the bound {bound.bound}, the aim {bound.aim}"


def test_the_root_of_the_core_holds_few_modules() -> None:
    assert len(list((ROOT / "rlsdk").glob("*.py"))) <= 10


PRIVATE_OF_TORCH = re.compile(
    r"""\btorch\._[a-z_C]  # torch._C, torch._dynamo, ...
    | \btorch\.[a-z_.]+\._[a-z]  # torch.utils._python_dispatch
    | ^\s*from\ torch\S*\ import\ (?:.*,\s*)?_  # from torch.nn.modules.batchnorm import _BatchNorm
    | getattr\(torch[\w.]*,\ "_
    | \._(?:parameters|buffers|modules|non_persistent_buffers_set|schema|overloadname|flat_weights)\b
    | _(?:forward|backward|state_dict|load_state_dict)_(?:pre_|post_)?hooks\b
    | _optimizer_step_(?:pre|post)_hooks\b""",
    re.VERBOSE | re.MULTILINE,
)


def test_private_names_of_torch_occur_in_kernels_only() -> None:
    """Only kernels use private names of torch. They check first whether a name exists; where it is missing, torch computes."""
    found = {
        str(path.relative_to(ROOT)): match.group().strip()
        for path in SOURCES
        if (match := PRIVATE_OF_TORCH.search(path.read_text()))
    }
    kernels = {path for path in found if path.startswith(("rlsdk/kernels/", "plugins/rlsdk-kernels/"))}
    assert {"plugins/rlsdk-kernels/src/rlsdk_kernels/memory.py", "rlsdk/kernels/structure.py"} <= kernels, (
        "the pattern finds them"
    )
    assert not found.keys() - kernels, {path: found[path] for path in found.keys() - kernels}


def test_classes_are_not_deep() -> None:
    """The inheritance depth is 1, except for torch modules, protocols and exceptions."""
    parents: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = [ast.unparse(b).split("[")[0].split(".")[-1] for b in node.bases]
                parents[node.name] = names
    free = {"Protocol", "Module", "Exception", "Generic", "Env", "ABC", "RlsdkError"}

    def depth(name: str) -> int:
        return 1 + max((depth(b) for b in parents.get(name, []) if b in parents and b not in free), default=0)

    # classes of settings are exempt: those of a recurrent policy inherit those of networks, actor-critics and memories
    judged = {name: bases for name, bases in parents.items() if "Protocol" not in bases and not name.endswith("Config")}
    deep = {name for name in judged if depth(name) > 2}
    assert deep <= {"Policy", "Buffer", "Algorithm"}, deep


@pytest.mark.parametrize(
    "module", ["rlsdk", "rlsdk.registry", "rlsdk.settings", "rlsdk.settings.schedules", "rlsdk_tqc", "rlsdk_tqc.config"]
)
def test_looking_imports_nothing_heavy(module: str) -> None:
    heavy = "{'torch', 'gymnasium', 'matplotlib', 'hypothesis', 'pydantic'}"
    code = f"import {module}, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_session_embedded_in_a_product_changes_no_globals() -> None:
    code = """
import logging, random, signal, torch, numpy, warnings
import sympy  # torch imports it at some point, and it adds a warning filter
def state():
    return [random.getstate(), str(numpy.random.get_state()), torch.random.get_rng_state().tolist(), torch.get_num_threads(),
            torch.get_default_dtype(), signal.getsignal(signal.SIGINT), logging.getLogger().handlers, logging.root.level,
            list(warnings.filters), torch.is_grad_enabled()]
import rlsdk.agent, rlsdk_envs.toy, rlsdk_tqc.agent, rlsdk_tqc.build, gymnasium
before = state()
agent = rlsdk_tqc.TQC("MlpPolicy", rlsdk_envs.toy.IdentityEnvBox(), buffer_size=100, learning_starts=5, batch_size=8)
agent.learn(20)
agent.session(1).act([0.0])
after = state()
assert before == after, [i for i, (a, b) in enumerate(zip(before, after)) if a != b]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def hot_functions() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    from rlsdk.distributions import Gaussian, SquashedGaussian
    from rlsdk.math.values import quantile_huber, quantile_huber_loss
    from rlsdk_tqc.loss import truncated_target

    def gaussian(mean: Any, log_std: Any, action: Any) -> Any:
        one = Gaussian(mean, log_std)
        return one.log_prob(action) + one.entropy() + one.kl_divergence(Gaussian(action, log_std)) + one.mode().sum()

    def squashed(mean: Any, log_std: Any, noise: Any) -> Any:
        one = SquashedGaussian(mean, log_std)
        action, density = one.transform(noise)
        return density + one.log_prob(action) + one.entropy() + one.kl_divergence(SquashedGaussian(noise, log_std))

    three = (torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 3))
    return {
        "quantile_huber": (
            lambda z, y: quantile_huber(z, y, sum_over_quantiles=False),
            (torch.randn(2, 4, 5), torch.randn(4, 7)),
        ),
        "quantile_huber, sorted": (
            lambda z, y: quantile_huber(z, y, sum_over_quantiles=False),
            (torch.randn(4, 120), torch.randn(4, 120)),
        ),
        "quantile_huber_loss": (quantile_huber_loss, (torch.randn(4, 2, 5), torch.randn(4, 7))),
        "truncated_target": (
            lambda q, p, r, d, a: truncated_target(q, p, r, d, a, keep=8).sort(-1).values,  # in any order
            (torch.randn(2, 4, 5), torch.randn(4), torch.randn(4), torch.rand(4), torch.tensor(0.5)),
        ),
        "Gaussian": (gaussian, three),
        "SquashedGaussian": (squashed, three),
    }


@pytest.mark.parametrize(
    "name",
    [
        "quantile_huber",
        "quantile_huber, sorted",
        "quantile_huber_loss",
        "truncated_target",
        "Gaussian",
        "SquashedGaussian",
    ],
)
def test_hot_functions_compile_whole(name: str) -> None:
    function, arguments = hot_functions()[name]
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    expected, got = function(*arguments), compiled(*arguments)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (expected, got)), strict=True):
        torch.testing.assert_close(a, b)


def test_networks_compile_whole() -> None:
    from rlsdk_tqc import TQC

    model = TQC("MlpPolicy", "Pendulum-v1", buffer_size=100)
    algorithm, seen, action = model.parts.algorithm, torch.randn(4, 3), torch.randn(4, 1)

    def step(seen: Any, action: Any) -> Any:
        squashed = model.policy.distribution(model.policy.encoder(seen))
        return algorithm.critics(seen, action), squashed.mean, squashed.log_std

    expected, got = step(seen, action), torch.compile(step, backend="eager", fullgraph=True)(seen, action)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(a, b)
