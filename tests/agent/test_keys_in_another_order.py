"""Dict keys in another order: what a file holds by position is matched by name, or refused, wherever agents read files.

All entries have the same shape, so that no check of shapes can notice a mistake.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

import rlsdk
from rlsdk.environments import make_vec_env, to_space
from rlsdk.errors import ArtifactError, MaskError
from rlsdk.evaluation import evaluate_policy, run_episodes
from rlsdk.spaces import choice_places
from rlsdk.tree import flatten
from rlsdk_datasets import RecordedEpisode, open_episodes, write_episodes
from rlsdk_interchange import export_minari, import_minari, record_episodes

PAIR = Box(-1.0, 1.0, (2,), np.float32)
SORTED, TURNED = ("abc", "xyz"), ("cab", "zxy")
"""(keys of observations, keys of actions) in two orders."""
ALLOWED = {"x": [0, 1, 1], "y": [1, 0, 1], "z": [1, 1, 0]}
ROLLOUTS: dict[str, Any] = {"n_steps": 32, "batch_size": 16}
MEMORY: dict[str, Any] = {"buffer_size": 500, "learning_starts": 16, "batch_size": 16}
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("gaussians", ROLLOUTS),
    "a2c": ("choices", {}),
    "trpo": ("choices", ROLLOUTS),
    "acktr": ("gaussians", {}),
    "recurrent-ppo": ("choices", {**ROLLOUTS, "policy": "MultiInputLstmPolicy"}),
    "acer": ("choice", {}),
    "dqn": ("choice", MEMORY),
    "sac": ("gaussian", MEMORY),
    "td3": ("gaussian", MEMORY),
    "ars": ("gaussian", {"policy": "LinearPolicy"}),
}
"""Id -> (kind of actions, settings)."""


class Keyed(gymnasium.Env[Any, Any]):
    """Observations and rewards that depend on the names of entries, not on their order."""

    def __init__(self, keys: str = "abc", parts: str = "xyz", kind: str = "gaussians", nested: bool = False) -> None:
        entries: Any = OrderedDict((key, PAIR) for key in keys)
        if nested:
            entries = OrderedDict(sorted({"m": PAIR, "n": Dict(entries)}.items(), reverse=keys == "cab"))
        self.observation_space = Dict(entries)
        part = Discrete(3) if "choice" in kind else PAIR
        self.action_space = Dict(OrderedDict((key, part) for key in parts)) if kind.endswith("s") else part
        self.parts, self.kind, self.nested, self.left = parts, kind, nested, 10

    def _seen(self) -> Any:
        self.at = {
            key: self.np_random.uniform(-1, scale, 2).astype(np.float32)
            for key, scale in zip("abc", (1, 0.5, 0), strict=True)
        }
        return {"n": self.at, "m": self.at["a"] / 2} if self.nested else dict(self.at)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = 10
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        parts = action if isinstance(action, dict) else {"x": action, "z": action}
        reward = float(np.sum(parts["x"] * self.at["a"]) + 2 * np.sum(parts["z"] * self.at["c"]))
        self.left -= 1
        return self._seen(), reward, False, not self.left, {}


class Masked(Keyed):
    def action_masks(self) -> Any:
        return np.concatenate([ALLOWED[key] for key in self.parts]).astype(bool)


def made(name: str, order: tuple[str, str] = SORTED, *, nested: bool = False, **settings: Any) -> Any:
    kind, own = AGENTS[name]
    settings = {"policy": "MultiInputPolicy", "seed": 1, **own, **settings}
    return rlsdk.make(name, env=Keyed(*order, kind, nested), **settings)


def same(one: Any, other: Any) -> bool:
    """Whether all parameters, optimizers and statistics of two agents are equal to the bit."""
    mine, theirs = (flatten({**a.get_parameters(), "norm": a.training_state()["policy"]}) for a in (one, other))
    return mine.keys() == theirs.keys() and all(
        torch.equal(torch.as_tensor(value), torch.as_tensor(theirs[name]))
        for name, value in mine.items()
        if isinstance(value, torch.Tensor | int | float)
    )


def act_alike(one: Any, other: Any, env: Keyed) -> bool:
    """Whether two agents take the same deterministic actions along an episode."""
    observation, _ = env.reset(seed=3)
    for _ in range(10):
        actions = [agent.predict(observation, deterministic=True)[0] for agent in (one, other)]
        parts = [action if isinstance(action, dict) else {"": action} for action in actions]
        if not all(np.array_equal(parts[0][key], parts[1][key]) for key in parts[0]):
            return False
        observation = env.step(actions[0])[0]
    return True


@pytest.mark.parametrize("normalize", [None, True])
@pytest.mark.parametrize("name", AGENTS)
def test_training_goes_on_in_an_environment_of_another_order(name: str, normalize: Any, tmp_path: Path) -> None:
    made(name, normalize=normalize).learn(64).save(tmp_path / "it")
    kind = AGENTS[name][0]
    one, other = (rlsdk.load(tmp_path / "it", Keyed(*order, kind)) for order in (SORTED, TURNED))
    for agent in (one, other):
        agent.learn(64, reset_num_timesteps=False)
    assert same(one, other)
    played = [run_episodes(one, Keyed(*order, kind), 2, seed=0).returns for order in (SORTED, TURNED)]
    assert played[0] == played[1]


@pytest.mark.parametrize("how", [{"vectorization": "async"}, {"collectors": 2}], ids=str)
@pytest.mark.full
def test_environments_elsewhere_may_have_another_order(how: Any, tmp_path: Path) -> None:
    def envs(order: tuple[str, str], **how: Any) -> Any:
        return make_vec_env(Keyed, 2, env_kwargs=dict(zip(("keys", "parts"), order, strict=True)), **how)

    settings: Any = {"policy": "MultiInputPolicy", "seed": 1, "normalize": True, "env_groups": 2, **ROLLOUTS}
    rlsdk.make("ppo", env=envs(SORTED), **settings).learn(64).save(tmp_path / "it")
    agents = [rlsdk.load(tmp_path / "it", env) for env in (envs(SORTED), envs(TURNED, **how))]
    for agent in agents:
        agent.learn(64, reset_num_timesteps=False)
        agent.get_env().close()
    assert same(*agents)


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
@pytest.mark.parametrize("name", ["ppo", "a2c", "recurrent-ppo", "sac", "ars"])
def test_load_policy_takes_over_the_order_of_the_file(name: str, nested: bool, tmp_path: Path) -> None:
    agent = made(name, nested=nested, normalize=True).learn(64)
    agent.save(tmp_path / "it")
    own = {key: value for key, value in AGENTS[name][1].items() if key != "policy"}
    env = Keyed(*TURNED, AGENTS[name][0], nested)
    taken = type(agent).load_policy(tmp_path / "it", env, **own)
    assert not taken.policy_transfer.partial
    assert act_alike(agent, taken, env)
    taken.learn(64).save(tmp_path / "again")
    assert act_alike(taken, rlsdk.load(tmp_path / "again"), env)


def test_a_run_from_a_file_takes_over_its_order(tmp_path: Path, cli: Any) -> None:
    for order in (SORTED, TURNED):
        gymnasium.register(f"Keyed{order[0]}-v0", lambda order=order: Keyed(*order))
    try:
        agent = made("ppo", learning_rate=1e-30).learn(32)
        agent.save("it")
        run = ("run", "ppo", "--from", "it", "--env", "Keyedcab-v0", "--steps", "32", "--eval-every", "0", "--quiet")
        settings = ("n_steps=32", "batch_size=16", "learning_rate=1e-30")
        code, _, err = cli(*run, "--out", "out", *(word for each in settings for word in ("--set", each)))
        assert code == 0, err
        (file,) = Path("out").rglob("final.rlsdk")
        assert act_alike(agent, rlsdk.load(file), Keyed(*TURNED))
    finally:
        for order in (SORTED, TURNED):
            del gymnasium.registry[f"Keyed{order[0]}-v0"]


@pytest.mark.parametrize("order", [("cab", "xyz"), ("abc", "zxy"), ("abf", "xyz"), ("ab", "xyz")])
def test_parameters_of_other_entries_are_refused(order: tuple[str, str], tmp_path: Path) -> None:
    agent, other = made("ppo"), made("ppo", order, seed=2)
    agent.save(tmp_path / "it")
    torch.save(agent.get_parameters(), tmp_path / "parameters.pt")
    for given in (tmp_path / "it", agent.get_parameters(), torch.load(tmp_path / "parameters.pt")):
        for exact in (True, False):
            with pytest.raises(
                ArtifactError, match=r"belong to the entries \['[ax]'\] of 2, .* by position, and the agent"
            ):
                other.set_parameters(given, exact_match=exact)
    assert same(other, made("ppo", order, seed=2))
    if set(order[0]) != set("abc"):
        with pytest.raises(ArtifactError, match="needs an environment with all of its entries"):
            type(agent).load_policy(tmp_path / "it", Keyed(*order), **ROLLOUTS)
    made("ppo", SORTED, seed=2).set_parameters(agent.get_parameters())


def test_entries_of_other_sizes_and_new_ones(tmp_path: Path) -> None:
    """A new entry changes the first layer only; sizes that only look the same in total are refused."""

    class Sized(Keyed):
        def __init__(self, **sizes: int) -> None:
            super().__init__()
            self.observation_space = Dict({key: Box(-1.0, 1.0, (size,), np.float32) for key, size in sizes.items()})

    agent = rlsdk.make("ppo", env=Sized(b=2, c=4), policy="MultiInputPolicy", **ROLLOUTS)
    agent.save(tmp_path / "it")
    with pytest.raises(
        ArtifactError, match=r"\['b'\] of 2, \['c'\] of 4 of the .*agent has \['b'\] of 4, \['c'\] of 2"
    ):
        type(agent).load_policy(tmp_path / "it", Sized(b=4, c=2), **ROLLOUTS)
    with pytest.warns(UserWarning, match=r"unchanged: body.0.weight \(shape \(64, 7\), the file's has \(64, 6\)\)"):
        taken = type(agent).load_policy(tmp_path / "it", Sized(a=1, b=2, c=4), **ROLLOUTS)
    assert list(taken.observation_space.spaces) == ["b", "c", "a"]


def test_masks_in_another_order_are_refused(tmp_path: Path) -> None:
    settings: Any = {"policy": "MultiInputPolicy", **ROLLOUTS}
    agent = rlsdk.make("maskable-ppo", env=Masked(*SORTED, "choices"), **settings).learn(32)
    agent.save(tmp_path / "it")
    plain = rlsdk.make("ppo", env=Keyed(*SORTED, "choices"), **settings)
    turned, env = Masked(*TURNED, "choices"), Masked("cab", "xyz", "choices")
    for use in (
        lambda env: rlsdk.load(tmp_path / "it", env),
        lambda env: type(agent).load_policy(tmp_path / "it", env, **ROLLOUTS),
        lambda env: type(plain).load_policy(tmp_path / "it", env, **ROLLOUTS),
        lambda env: evaluate_policy(agent, env, 1),
        lambda env: record_episodes(agent, env, 1, tmp_path / "demo"),
        plain.set_env,
    ):
        use(env)
        with pytest.raises(
            MaskError, match=r"has the actions \['x'\], \['y'\], \['z'\], in this order, and the env.* \['z'\]"
        ):
            use(turned)
    assert list(rlsdk.make("ppo", env=turned, **settings).action_space.spaces) == list("zxy")


def demonstrations(folder: Path, kind: str, *, masks: bool = False) -> tuple[Path, Path]:
    """Two data sets of the same episodes, with keys in two orders."""
    env = (Masked if masks else Keyed)(*SORTED, kind)
    agent = rlsdk.make("maskable-ppo" if masks else "ppo", env=env, policy="MultiInputPolicy", seed=3, **ROLLOUTS)
    first = record_episodes(agent, env, 4, folder / "sorted", seed=0)
    episodes, turned = open_episodes(first), Keyed(*TURNED, kind)
    spaces = to_space(turned.observation_space), to_space(turned.action_space)
    places = choice_places(spaces[1], episodes.action_space)
    assert (places is None) == (kind != "choices")
    copies = []
    for each in episodes:
        mask = None if each.action_masks is None else each.action_masks[:, places]
        copies.append(RecordedEpisode(each.observations, each.actions, each.rewards, each.terminated, mask, each.seed))
    return first, write_episodes(folder / "turned", copies, *spaces)


@pytest.mark.parametrize(
    ("name", "kind", "masks"),
    [
        ("ppo", "choices", False),
        ("maskable-ppo", "choices", True),
        ("bc", "choices", True),
        ("bc", "gaussians", False),
        ("gail", "choices", False),
        ("td3-bc", "gaussian", False),
    ],
)
def test_data_sets_of_another_order_teach_the_same(name: str, kind: str, masks: bool, tmp_path: Path) -> None:
    agents = []
    for data in demonstrations(tmp_path, kind, masks=masks):
        settings: Any = {} if name in ("bc", "td3-bc") else ROLLOUTS
        settings = settings if name in ("ppo", "maskable-ppo") else {**settings, "dataset": str(data)}
        env = (Masked if masks else Keyed)(*SORTED, kind)
        agent = rlsdk.make(name, env=env, policy="MultiInputPolicy", seed=1, normalize=True, **settings)
        agents.append(agent.learn(64) if "dataset" in settings else agent)
        if "dataset" not in settings:
            agent.pretrain(data, n_epochs=2)
    assert same(*agents)


@pytest.mark.parametrize("masks", [False, True])
def test_through_minari_and_behavior_cloning(masks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minari sorts keys. The clone has the sorted order; the agent that begins with it trains in the other one."""
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    data = demonstrations(tmp_path, "choices", masks=masks)
    clones = []
    for number, file in enumerate(data):
        export_minari(file, f"demo/keys-v{number}")
        back = import_minari(f"demo/keys-v{number}", tmp_path / f"back{number}")
        clones.append(rlsdk.make("bc", env=None, policy="MultiInputPolicy", dataset=str(back), seed=0).learn(64))
    assert same(*clones)
    clones[0].save(tmp_path / "clone")
    ppo = rlsdk.agent.agent_class(rlsdk.registry.load("ppo"))
    env = Keyed(*TURNED, "choices")
    assert act_alike(clones[0], ppo.load_policy(tmp_path / "clone", env, **ROLLOUTS), env)


def test_replay_files_of_another_order_hold_the_same_steps(tmp_path: Path) -> None:
    made("sac", normalize=True).learn(64).save_replay_buffer(tmp_path / "steps")
    samples = []
    for order in (SORTED, TURNED):
        agent = made("sac", order)
        agent.load_replay_buffer(tmp_path / "steps")
        batch = agent.replay_buffer.sample(20, torch.Generator().manual_seed(1))
        samples.append((batch.observation.features, batch.next_observation.features))
    for one, other in zip(*samples, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in "abc")
    with pytest.raises(
        ArtifactError, match=r"holds steps with the entries .* the agent has .*\['f'\] of 2; load it into"
    ):
        made("sac", ("abf", "xyz")).load_replay_buffer(tmp_path / "steps")
