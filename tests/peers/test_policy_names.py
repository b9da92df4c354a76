"""The documented policy classes are importable names for `policy`."""

from __future__ import annotations

import types
from importlib import import_module
from pathlib import Path

import pytest

import rlsdk
from rlsdk.errors import UsageError
from rlsdk.registry import load
from rlsdk.settings.agent_config import PolicyName
from rlsdk_envs.toy import IdentityEnv
from tests.tables import in_one_test

DOCUMENTED = {
    "ars": {"ARSPolicy": "MlpPolicy", "ARSLinearPolicy": "LinearPolicy"},
    "maskable-ppo": {"MaskableActorCriticPolicy": "MlpPolicy", "MaskableActorCriticCnnPolicy": "CnnPolicy"},
    "qrdqn": {"QRDQNPolicy": "MlpPolicy"},
    "recurrent-ppo": {"RecurrentActorCriticPolicy": "MlpLstmPolicy"},
    "tqc": {"TQCPolicy": "MlpPolicy"},
    "trpo": {},
    "ppo": {"ActorCriticPolicy": "MlpPolicy", "ActorCriticCnnPolicy": "CnnPolicy"},
    "a2c": {"ActorCriticPolicy": "MlpPolicy", "MultiInputActorCriticPolicy": "MultiInputPolicy"},
    "dqn": {"DQNPolicy": "MlpPolicy"},
    "sac": {"SACPolicy": "MlpPolicy"},
    "crossq": {"CrossQPolicy": "MlpPolicy"},
    "td3": {"TD3Policy": "MlpPolicy"},
    "ddpg": {"TD3Policy": "MlpPolicy"},
}


@in_one_test
@pytest.mark.parametrize("algorithm", DOCUMENTED)
def test_every_name_is_one_of_the_algorithms_policies(algorithm: str) -> None:
    package, spec = import_module(f"rlsdk_{algorithm.replace('-', '_')}"), load(algorithm)
    module = import_module(f"{package.__name__}.policies")
    names = {name: value for name in dir(module) if isinstance(value := getattr(module, name), PolicyName)}
    assert set(names.values()) <= set(spec.policies)
    assert names.items() >= DOCUMENTED[algorithm].items()
    assert all(getattr(package, name) == value for name, value in DOCUMENTED[algorithm].items())


def test_a_name_is_stored_as_text(tmp_path: Path) -> None:
    from rlsdk_qrdqn import QRDQN, QRDQNPolicy

    model = QRDQN(QRDQNPolicy, IdentityEnv(3), buffer_size=10)
    model.save(tmp_path / "q")
    assert rlsdk.load(tmp_path / "q").config.policy == "MlpPolicy"


def test_a_subclass_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(UsageError, match=r"class Mine: 'MlpPolicy' names a policy .* policy_kwargs"):
        types.new_class("Mine", (PolicyName("MlpPolicy"),))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be a base class"):
        exec("class Mine(base): pass", {"base": PolicyName("MlpPolicy")})
