"""The package is imported at the first use of one of its names; without it, everything else works and errors name it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rlsdk_sb3
from rlsdk.errors import UnknownNameError
from tests.tables import in_one_test

TRAINED = """
import io, sys
import rlsdk
{missing}
SMALL = {{"buffer_size": 100, "learning_starts": 4, "batch_size": 4}}
for name, env, settings in (
    ("tqc", "Pendulum-v1", {{**SMALL, "use_sde": True}}),
    ("qrdqn", "CartPole-v1", {{**SMALL, "train_freq": 1, "normalize": True}}),
    ("trpo", "Pendulum-v1", {{"n_steps": 16, "batch_size": 8, "frame_stack": 2}}),
    ("recurrent-ppo", "CartPole-v1", {{"n_steps": 16, "batch_size": 8, "n_epochs": 1}}),
    ("ars", "CartPole-v1", {{"n_delta": 1}}),
):
    model = rlsdk.make(name, env=env, seed=0, **settings).learn(32)
    model.save(file := io.BytesIO())
    file.seek(0)
    again = rlsdk.load(file, env).learn(16, reset_num_timesteps=False)
    again.predict(again.observation_space.sample(), deterministic=True)
    assert again.n_steps if name == "trpo" else again.gamma if name != "ars" else again.n_delta
"""
UNUSED = "assert not [name for name in sys.modules if name.startswith('rlsdk_sb3')]"
WITHOUT = """
from rlsdk.callbacks import LambdaCallback
from rlsdk.evaluation import evaluate_policy
from rlsdk.errors import RlsdkError

def refused(work):
    try:
        work()
    except (RlsdkError, AttributeError) as error:
        return str(error)
    raise AssertionError("no error")

for text in (
    refused(lambda: model.learn(8, callback=lambda scope, _: True)),
    refused(lambda: model.get_env()),
    refused(lambda: model.ep_info_buffer),
    refused(lambda: model.policy.action_net),
    refused(lambda: model.learn(8, eval_env=None)),
    refused(lambda: evaluate_policy(model, "CartPole-v1", 1, callback=lambda scope, _: None)),
):
    assert "rlsdk-sb3" in text and "pip install" in text and "\\n" not in text, text
model.learn(8, callback=LambdaCallback(on_report=lambda run, _: None))
assert "get_env" in dir(model) and "gama" in refused(lambda: model.gama)
model._mine = 1
assert model._mine == 1
"""


def in_a_process(program: str) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_training_saving_and_predicting_import_nothing_of_it() -> None:
    in_a_process(TRAINED.format(missing="") + UNUSED)


@pytest.mark.full
def test_without_the_package_errors_name_it() -> None:
    in_a_process(TRAINED.format(missing="sys.modules['rlsdk_sb3'] = None") + WITHOUT)


@in_one_test
@pytest.mark.parametrize("name", rlsdk_sb3.__all__)
def test_every_name_is_there_and_other_packages_name_the_import(name: str) -> None:
    assert getattr(rlsdk_sb3, name) is not None
    for package in ("rlsdk", "rlsdk.callbacks", "rlsdk.environments", "rlsdk.networks", "rlsdk.sinks"):
        if name == "EvalCallback" and package == "rlsdk.callbacks":
            continue
        with pytest.raises(UnknownNameError, match=rf"^{package} has no '{name}'; from rlsdk_sb3 import {name}$"):
            exec(f"from {package} import {name}", {})
