"""Exported policies return the actions of `predict`, without rlsdk."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import rlsdk
from rlsdk.errors import ArtifactError, SettingsError, UsageError
from rlsdk.runtime import is_edited
from rlsdk_envs.toy import FakeImageEnv, HybridActionEnv, SimpleMultiObsEnv, TMazeEnv
from rlsdk_interchange import record_episodes
from rlsdk_interchange.cards import Results, model_card
from rlsdk_interchange.exporting import export
from rlsdk_sb3 import BaseFeaturesExtractor

ort = pytest.importorskip("onnxruntime")
STEPS = 200

KINDS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "ars-linear": ("ars", "CartPole-v1", {"policy": "LinearPolicy"}),
    "ars-mlp-normalized": ("ars", "Pendulum-v1", {"policy": "MlpPolicy", "normalize": True, "zero_policy": False}),
    "tqc-normalized": ("tqc", "Pendulum-v1", {"normalize": True}),
    "tqc-gsde": ("tqc", "Pendulum-v1", {"use_sde": True}),
    "tqc-dict": ("tqc", lambda: SimpleMultiObsEnv(), {"policy": "MultiInputPolicy"}),
    "qrdqn-frames": ("qrdqn", "CartPole-v1", {"frame_stack": 3}),
    "qrdqn-images": (
        "qrdqn",
        lambda: FakeImageEnv(36, 3, action_space=gym.spaces.Discrete(4)),
        {"policy": "CnnPolicy", "frame_stack": 2},
    ),
    "trpo": ("trpo", "Pendulum-v1", {}),
    "trpo-gsde": ("trpo", "Pendulum-v1", {"use_sde": True}),
    "maskable-ppo": ("maskable-ppo", "rlsdk/InvalidActionEnvDiscrete-v0", {}),
    "maskable-ppo-several": ("maskable-ppo", "rlsdk/InvalidActionEnvMultiDiscrete-v0", {}),
    "maskable-ppo-bits": ("maskable-ppo", "rlsdk/InvalidActionEnvMultiBinary-v0", {}),
    "maskable-ppo-hybrid": ("maskable-ppo", lambda: HybridActionEnv(), {"use_masking": False}),
    "recurrent-ppo": ("recurrent-ppo", "CartPole-v1", {"normalize": True}),
    "recurrent-ppo-maze": ("recurrent-ppo", lambda: TMazeEnv(), {}),
    "recurrent-ppo-gru": ("recurrent-ppo", "CartPole-v1", {"policy": "MlpGruPolicy"}),
    "dqn-dueling": ("dqn", "CartPole-v1", {"policy_kwargs": {"dueling": True}}),
    "qrdqn-dueling-several": (
        "qrdqn",
        "rlsdk/InvalidActionEnvMultiDiscrete-v0",
        {"policy_kwargs": {"dueling": True}},
    ),
    "ppo-lstm-hybrid": ("ppo", lambda: HybridActionEnv(), {"policy": "MlpLstmPolicy"}),
    "a2c-squashed": ("a2c", "Pendulum-v1", {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    "sac-bounds": ("sac", "Pendulum-v1", {"action_bounds": (-0.5, 1.0), "normalize": True}),
    "td3-frames": ("td3", "Pendulum-v1", {"frame_stack": 2}),
    "ddpg-dict": ("ddpg", lambda: SimpleMultiObsEnv(), {"policy": "MultiInputPolicy"}),
}


def trained(name: str) -> Any:
    """An agent after 70 steps of training, so that the statistics of normalizers are no longer the initial ones."""
    algorithm, env, settings = KINDS[name]
    if algorithm in ("tqc", "qrdqn", "dqn", "sac", "td3", "ddpg"):
        settings = {"buffer_size": 200, "learning_starts": 50, "batch_size": 8, **settings}
    elif algorithm != "ars":
        settings = {"n_steps": 32, **({} if algorithm == "a2c" else {"batch_size": 16}), **settings}
    return rlsdk.make(algorithm, env=env, seed=0, **settings).learn(70)


def fed(agent: Any, observation: Any, mask: Any) -> dict[str, Any]:
    """The inputs of the exported policy for one observation: name -> array with one row."""
    leaves = observation if isinstance(observation, dict) else {"": observation}
    named = {f"observation.{k}" if k else "observation": np.asarray(v)[None] for k, v in leaves.items()}
    stored = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in named.items()}
    return stored if mask is None else {**stored, "action_mask": np.asarray(mask, bool).reshape(1, -1)}


def episode_agrees(agent: Any, call: Any, exported: Any) -> None:
    """Compare the actions of the agent's session and of the exported policy on the same observations, over 200 steps."""
    algorithm_env = agent.env.environments[0]
    session = agent.session()
    states: dict[str, Any] = {}
    observation, first = algorithm_env.reset(seed=3)[0], True
    for _ in range(STEPS):
        mask = None
        if "action_mask" in exported.inputs:
            mask = np.concatenate([np.atleast_1d(m) for m in algorithm_env.get_wrapper_attr("action_masks")()])
        given = fed(agent, observation, mask)
        if exported.states:
            names = [name for name in exported.inputs if name.startswith("state.")]
            states = states or {n: np.zeros((1, *s), kind) for n, (kind, s) in zip(names, exported.states, strict=True)}
            given |= {"episode_start": np.array([first]), **states}
        found = dict(zip(exported.outputs, call({name: given[name] for name in exported.inputs}), strict=True))
        wanted = session.act(observation, mask)
        states = {n.removeprefix("next_"): value for n, value in found.items() if n.startswith("next_state.")}
        parts = (
            dict(enumerate(wanted))
            if isinstance(wanted, tuple)
            else wanted
            if isinstance(wanted, dict)
            else {"": wanted}
        )
        for key, value in parts.items():
            name = "action" if key == "" else f"action.{key}"
            np.testing.assert_allclose(found[name][0].reshape(np.shape(value)), value, atol=1e-5)
        observation, _, terminated, truncated, _ = algorithm_env.step(wanted)
        first = bool(terminated or truncated)
        if first:
            session.ended(True)
            observation = algorithm_env.reset()[0]


FAST = ("ars-linear", "tqc-normalized", "qrdqn-frames", "maskable-ppo", "recurrent-ppo", "dqn-dueling", "sac-bounds")


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in KINDS])
def test_onnx_agrees_over_an_episode(name: str, tmp_path: Path) -> None:
    agent = trained(name)
    exported = export(agent, tmp_path / "policy")
    runtime = ort.InferenceSession(str(exported.path))
    assert [i.name for i in runtime.get_inputs()] == list(exported.inputs)
    states = [i for i in runtime.get_inputs() if i.name.startswith("state.")]
    assert [tuple(i.shape[1:]) for i in states] == [shape for _, shape in exported.states]
    episode_agrees(agent, lambda given: runtime.run(list(exported.outputs), given), exported)


@pytest.mark.full
@pytest.mark.parametrize("name", ["recurrent-ppo", "dqn-dueling", pytest.param("qrdqn-images", marks=pytest.mark.slow)])
def test_torch_export_agrees_and_needs_no_rlsdk(name: str, tmp_path: Path) -> None:
    agent = trained(name)
    exported = export(agent, tmp_path / "policy", "torch-export")
    program = torch.export.load(exported.path).module()

    def call(given: dict[str, Any]) -> list[Any]:
        return [value.numpy() for value in program(*(torch.from_numpy(value) for value in given.values()))]

    episode_agrees(agent, call, exported)
    alone = f"""
import sys
sys.modules["rlsdk"] = None
import torch
program = torch.export.load({str(exported.path)!r}).module()
print(len(program(*torch.export.load({str(exported.path)!r}).example_inputs[0])))
"""
    done = subprocess.run([sys.executable, "-c", alone], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert int(done.stdout) == len(exported.outputs)


def test_batches_of_any_size(tmp_path: Path) -> None:
    agent = trained("tqc-normalized")
    runtime = ort.InferenceSession(str(export(agent, tmp_path / "policy").path))
    for rows in (1, 2, 77):
        seen = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        np.testing.assert_allclose(
            runtime.run(None, {"observation": seen})[0], agent.predict(seen, deterministic=True)[0], atol=1e-5
        )


def test_actions_are_clipped_as_for_the_environment(tmp_path: Path) -> None:
    agent = trained("trpo")
    with torch.no_grad():
        agent.policy.head.linear.bias.fill_(50.0)
    runtime = ort.InferenceSession(str(export(agent, tmp_path / "policy").path))
    assert runtime.run(None, {"observation": np.zeros((1, 3), np.float32)})[0].item() == 2.0


@pytest.mark.full
def test_no_thread_stays(tmp_path: Path) -> None:
    """After an export no further thread is alive, not even that of a hidden progress bar."""
    script = f"""
import threading
import rlsdk
from rlsdk_interchange.exporting import export
agent = rlsdk.make("ars", env="CartPole-v1", policy="LinearPolicy", seed=0)
for kind in ("torch-export", "onnx"):
    export(agent, {str(tmp_path / "policy")!r}, kind)
print([thread.name for thread in threading.enumerate()])
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("['MainThread']\n", "")


def test_the_agent_is_left_alone(tmp_path: Path) -> None:
    agent, before = trained("tqc-normalized"), io.BytesIO()
    agent.save(before)
    export(agent, tmp_path / "policy", "torch-export")
    after = io.BytesIO()
    agent.save(after)
    assert after.getvalue() == before.getvalue()


class Branching(nn.Module):
    """An activation with a branch that depends on its values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if bool((x > 0).all()) else -x


class Forgetful(nn.Module):
    """An activation whose result depends on the number of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class CountingExtractor(BaseFeaturesExtractor):
    """Features of images that grow with every call."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space, features_dim=1)
        self.calls = 0

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return pictures.flatten(1).mean(1, keepdim=True) * self.calls


def test_policies_of_pictures_are_compared_on_pictures_that_differ(tmp_path: Path) -> None:
    odd = rlsdk.make(
        "ppo",
        policy="CnnPolicy",
        env=FakeImageEnv(36, 3, action_space=gym.spaces.Box(-1, 1, (1,))),
        policy_kwargs={"features_extractor_class": CountingExtractor},
    )
    with pytest.raises(UsageError, match="gives other actions than the agent"):
        export(odd, tmp_path / "x", "torch-export")


def test_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = trained("trpo")
    with pytest.raises(SettingsError, match="unknown format 'tflite'; accepted: onnx, torch-export"):
        export(agent, tmp_path / "x", "tflite")
    with pytest.raises(ArtifactError, match="cannot write"):
        export(agent, "/proc/nowhere/x", "torch-export")
    odd = rlsdk.make("trpo", env="Pendulum-v1", policy_kwargs={"activation_fn": Branching})
    with pytest.raises(UsageError, match=r"cannot be exported: .*branches that depend on values"):
        export(odd, tmp_path / "x", "torch-export")
    odd = rlsdk.make("trpo", env="Pendulum-v1", policy_kwargs={"activation_fn": Forgetful})
    with pytest.raises(UsageError, match="gives other actions than the agent"):
        export(odd, tmp_path / "x", "torch-export")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(SettingsError, match=r"pip install .*\[export\]\""):
        export(agent, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_model_cards_say_what_it_is(tmp_path: Path) -> None:
    agent = trained("recurrent-ppo")
    exported = export(agent, tmp_path / "policy", results=Results(500.0, 0.0, 10))
    assert exported.card is not None
    card = exported.card.read_text()
    for words in (
        "# recurrent-ppo on CartPole-v1",
        "seed 0",
        "`n_steps` | 32",
        "Mean return 500",
        'value: "500.00 +/- 0.00"',
        "episode_start",
        'policy.run(None, {"observation": observation, "episode_start": episode_start, "state.000": state_000,',
        "rlsdk 0.",
    ):
        assert words in card


def test_a_card_counts_what_the_training_counted(tmp_path: Path) -> None:
    record_episodes("random", "CartPole-v1", 2, tmp_path / "demo", seed=0)
    clone = rlsdk.make("bc", env=None, dataset=str(tmp_path / "demo"), policy_kwargs={"net_arch": [4]}, seed=0).learn(3)
    assert "Trained with rlsdk for 3 updates, seed 0." in model_card(clone)
    assert "Trained with rlsdk for 0 environment steps, seed 0." in model_card(
        rlsdk.make("ppo", env="CartPole-v1", seed=0)
    )


def test_the_card_is_written_from_python_too(tmp_path: Path) -> None:
    agent = trained("trpo")
    exported = export(agent, tmp_path / "policy", "torch-export", results=Results(500.0, 0.0, 10))
    assert exported.card == tmp_path / "policy.md"
    text = exported.card.read_text()
    assert not is_edited(text)
    assert "Mean return 500" in text
    assert 'policy = torch.export.load("policy.pt2").module()\noutputs = policy(observation)' in text
    export(agent, tmp_path / "policy", "torch-export")
    assert "Mean return 500" not in exported.card.read_text()
    assert export(agent, tmp_path / "alone", "torch-export", card=False).card is None
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(SettingsError, match=r"the model card would replace .*notes\.md, which is another text"):
        export(agent, tmp_path / "notes", "torch-export")
    assert {path.name for path in tmp_path.iterdir()} == {"policy.pt2", "policy.md", "alone.pt2", "notes.md"}


def test_python_and_the_command_write_the_same_card(cli: Any) -> None:
    options = ("--steps", "200", "--eval-every", "100", "--eval-episodes", "2", "--out", "run", "-q")
    assert cli("run", "ars", "--env", "CartPole-v1", *options)[0] == 0
    for name in ("best", "final"):
        assert cli("export", f"run/{name}.rlsdk", "--format", "torch-export")[0] == 0
        card = Path(f"run/{name}.md").read_text()
        assert "mean_reward" in card
        export(f"run/{name}", f"run/{name}", "torch-export")
        assert Path(f"run/{name}.md").read_text() == card


def test_command_line(cli: Any) -> None:
    Path("run").mkdir()
    rlsdk.make("trpo", env="Pendulum-v1", seed=0, policy_kwargs={"net_arch": [4]}).save("run/final.rlsdk")
    final = {"mean": -100.0, "std": 1.0, "episodes": 2}
    record = {"algorithm": "trpo", "env": "Pendulum-v1", "steps": 100, "n_envs": 1, "seed": 0}
    record["final_evaluation"] = final
    Path("run/run.json").write_text(json.dumps(record))
    code, out, err = cli("export", "run/final.rlsdk")
    assert code == 0, err
    assert "final.onnx: inputs observation; outputs action" in out
    assert "-100.00 +- 1.00 over 2 deterministic episodes" in Path("run/final.md").read_text()
    assert cli("export", "run/final.rlsdk", "--format", "torch-export", "--out", "elsewhere")[0] == 0
    assert torch.export.load("elsewhere.pt2") is not None
    Path("run/notes.txt").write_text("no agent")
    for arguments, words in (
        (("run/final.rlsdk", "--format", "pickle"), "unknown format 'pickle'"),
        (("run/nothing.rlsdk",), "there is no file"),
        (("run/notes.txt",), "is not a whole"),
    ):
        code, _, err = cli("export", *arguments)
        assert (code, words in err) == (1, True), err
