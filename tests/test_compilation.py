"""`learn(compile=...)`: the same numbers, and training continues where the compiler fails."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import rlsdk
from rlsdk.errors import SettingsError
from rlsdk.kernels import reference
from rlsdk.math.quantiles import quantile_huber
from rlsdk.runtime import compilation
from rlsdk.runtime.compilation import compiled, compiling


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_forms", {})


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """torch.compile without its compiler; what was asked of it."""
    asked: list[Any] = []

    def compile_eagerly(function: Any, **options: Any) -> Any:
        asked.append((function, options))
        return function

    monkeypatch.setattr(torch, "compile", compile_eagerly)
    return asked


def small(**settings: Any) -> Any:
    sizes: dict[str, Any] = {"learning_starts": 4, "buffer_size": 100, "batch_size": 8, "train_freq": 2}
    few = {"n_quantiles": 25}  # of many the sums are found by sorting
    return rlsdk.make("qrdqn", env="CartPole-v1", seed=0, policy_kwargs=few, **sizes, **settings)


@pytest.mark.kernels("the compiled form is one of the kernels")
@pytest.mark.parametrize("weighted", [False, True])
def test_the_fused_form_gives_the_same_sums(weighted: bool, eager: list[Any]) -> None:
    torch.manual_seed(0)
    z, y = torch.randn(2, 5, 3), torch.randn(5, 4)
    weight = torch.rand(5) if weighted else None
    plain = quantile_huber(z, y, sum_over_quantiles=True, weight=weight)
    with compiling("default"):
        fused = quantile_huber(z, y, sum_over_quantiles=True, weight=weight)
    assert [function for function, _ in eager] == [reference.pairwise_huber]
    torch.testing.assert_close(fused, plain)


@pytest.mark.kernels("the compiled form is one of the kernels")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "max"])
def test_trainings_agree(mode: str) -> None:
    """With the real compiler."""
    plain, fast = (small().learn(60, compile=how).get_parameters() for how in ("off", mode))
    assert compilation._forms[mode, reference.pairwise_huber] is not None, "it was compiled"
    for name, value in plain["policy"].items():
        torch.testing.assert_close(fast["policy"][name], value, atol=1e-4, rtol=1e-3)


@pytest.mark.kernels("the compiled form is one of the kernels")
def test_nothing_is_compiled_unless_asked_for(eager: list[Any]) -> None:
    small().learn(12)
    assert eager == []
    small().learn(12, compile="max")
    assert [options["mode"] for _, options in eager] == ["max-autotune-no-cudagraphs"]
    assert compiled(reference.pairwise_huber) is None, "outside of learning"


@pytest.mark.kernels("the compiled form is one of the kernels")
def test_training_goes_on_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(function: Any, **options: Any) -> Any:
        def call(*args: Any) -> Any:
            raise RuntimeError("no C++ compiler was found\nand much more")

        return call

    expected = small().learn(24).get_parameters()
    monkeypatch.setattr(torch, "compile", broken)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = small().learn(24, compile="default").get_parameters()
    warned = [str(w.message) for w in caught if "torch.compile" in str(w.message)]
    assert warned == ["pairwise_huber continues without torch.compile, which failed: no C++ compiler was found"]
    for name, value in expected["policy"].items():
        torch.testing.assert_close(found["policy"][name], value, atol=1e-5, rtol=1e-4)


def test_what_is_wrong_with_arguments_is_not_hidden(eager: list[Any]) -> None:
    def picky(x: Tensor) -> Tensor:
        raise ValueError("this x will not do")

    with compiling("default"), pytest.raises(ValueError, match="will not do"):
        compiled(picky)(torch.ones(1))  # type: ignore[misc]
    assert len(compilation._forms) == 1


def test_unknown_modes_are_refused(cli: Any) -> None:
    with pytest.raises(SettingsError, match="no mode 'fastest'; use one of off, default, max"):
        small().learn(12, compile="fastest")
    code, _, err = cli("run", "qrdqn", "--env", "CartPole-v1", "--steps", "10", "--compile", "fastest")
    assert code == 1
    assert "no mode 'fastest'" in err
    assert "Traceback" not in err
    assert not Path("runs").exists(), "refused before anything was written"
