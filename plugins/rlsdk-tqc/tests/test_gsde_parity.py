"""gSDE of TQC compared with sb3-contrib: gradients, weights after updates, and when noise matrices are sampled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlsdk.records import Observation, Transitions
from rlsdk_tqc import TQC
from tests.peer_gsde import BOX, Counting, drawn_by_ours, drawn_by_theirs

sb3_contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

ROWS, ACTIONS = 64, BOX.shape[0]


def pair(latent: int, **settings: Any) -> tuple[Any, Any]:
    """(our agent, the agent of sb3-contrib) with the same weights, `latent` units before the noise, and plain
    gradient descent."""
    networks: dict[str, Any] = {
        "net_arch": {"pi": [16, latent], "qf": [16, 16]},
        "optimizer_class": torch.optim.SGD,
        "log_std_init": -0.5,
        # latents are not close to 0, where the small constant in the variance would matter
        "activation_fn": torch.nn.Softplus,
        "n_quantiles": 5,
        **settings.pop("networks", {}),
    }
    small = {"buffer_size": 100, "seed": 0, "device": "cpu", "use_sde": True, "learning_rate": 0.05, **settings}
    theirs = sb3_contrib.TQC("MlpPolicy", Counting(), policy_kwargs=dict(networks), **small)
    theirs.set_logger(configure(None, []))
    ours = TQC("MlpPolicy", Counting(), policy_kwargs=networks, **small)
    with torch.no_grad():
        for mine, other in actors(ours, theirs):
            mine.copy_(other)
        algorithm: Any = ours.parts.algorithm
        for critics, other in (
            (algorithm.critics, theirs.critic),
            (algorithm.trained.target.network, theirs.critic_target),
        ):
            for i in (0, 2, 4):
                critics.ensemble.layers[i].weight.copy_(torch.stack([net[i].weight.T for net in other.q_networks]))
                critics.ensemble.layers[i].bias.copy_(torch.stack([net[i].bias[None] for net in other.q_networks]))
    return ours, theirs


def actors(ours: Any, theirs: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs (parameter of our actor, the same parameter of the actor of sb3-contrib)."""
    actor, mean = theirs.actor, theirs.actor.mu if isinstance(theirs.actor.mu, torch.nn.Linear) else theirs.actor.mu[0]
    modules = [(ours.policy.body[i], actor.latent_pi[i]) for i in (0, 2)] + [(ours.policy.mean, mean)]
    return [(ours.policy.sde.log_std, actor.log_std)] + [
        (getattr(mine, name), getattr(other, name)) for mine, other in modules for name in ("weight", "bias")
    ]


def batches(rng: np.random.Generator, gamma: float) -> tuple[Transitions, ReplayBufferSamples]:
    unit = torch.tensor(rng.uniform(-1, 1, (ROWS, ACTIONS)), dtype=torch.float32)
    seen, following = (torch.tensor(rng.normal(size=(ROWS, 2)), dtype=torch.float32) for _ in range(2))
    reward, done = torch.tensor(rng.normal(size=ROWS), dtype=torch.float32), torch.tensor(rng.random(ROWS) < 0.2)
    first = torch.zeros(ROWS, dtype=torch.bool)
    observations = Observation(seen, first), Observation(following, first)
    ours = Transitions(observations[0], unit, reward, gamma * (~done).float(), observations[1], torch.arange(ROWS))
    return ours, ReplayBufferSamples(seen, unit, following, done.float()[:, None], reward[:, None], None)


@pytest.mark.parametrize("networks", [{}, {"clip_mean": 0.0, "use_expln": True}], ids=["defaults", "expln"])
def test_updates_equal_the_peers(networks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one latent unit h, the noise h W of sb3-contrib is |h| std times a normal number, as in rlsdk. Gradients
    are then equal element by element, and not only on average."""
    ours, theirs = pair(1, networks=networks)
    rng, algorithm = np.random.default_rng(1), ours.parts.algorithm
    for _ in range(3):
        mine, samples = batches(rng, theirs.gamma)
        normal = torch.tensor(rng.normal(size=(1, ACTIONS)), dtype=torch.float32)
        monkeypatch.setattr(
            "torch.distributions.normal._standard_normal", lambda shape, *a, n=normal, **k: n.expand(shape).clone()
        )
        with torch.no_grad():
            latents = [ours.policy.body(seen.features) for seen in (mine.observation, mine.next_observation)]
            matrix = normal * ours.policy.sde.std()
            noise = [latent @ matrix / ours.policy.sde.log_std_of(latent).exp() for latent in latents]
        monkeypatch.setattr(theirs.replay_buffer, "sample", lambda *a, s=samples, **k: s)
        before = [value.detach().clone() for value, _ in actors(ours, theirs)]
        theirs.train(gradient_steps=1, batch_size=ROWS)
        with monkeypatch.context() as patch:
            # the noise of both passes of the actor
            patch.setattr(torch, "randn", lambda *shape, given=noise, **k: torch.stack(given))
            algorithm.update(mine, progress=0.0)
        for old, (value, other) in zip(before, actors(ours, theirs), strict=True):
            step = float((other.detach() - old).abs().max())
            assert step > 1e-5
            assert float((value - other).detach().abs().max()) < 0.002 * step
    critic = torch.stack([net[2].weight.T for net in theirs.critic.q_networks])
    torch.testing.assert_close(algorithm.critics.ensemble.layers[2].weight.data, critic.data, atol=1e-5, rtol=0.0)


def test_the_expected_gradient_is_the_peers() -> None:
    """sb3-contrib samples a noise matrix, rlsdk samples from its marginal distribution. The mean gradients over
    40,000 actions in one state agree."""
    ours, theirs = pair(8)
    count, generator = 40_000, torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    seen = torch.tensor([[0.4, -1.3]]).expand(count, -1)

    def gradient(action: torch.Tensor, log_prob: torch.Tensor, parameters: list[torch.Tensor]) -> torch.Tensor:
        loss = (0.3 * log_prob + (3.0 * action).sin().sum(-1) + action.prod(-1)).mean()
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, parameters)])

    theirs.actor.reset_noise(count)
    columns = list(zip(*actors(ours, theirs), strict=True))
    expected = gradient(*theirs.actor.action_log_prob(seen), list(columns[1]))
    distribution = ours.policy.distribution(seen)
    found = gradient(*distribution.transform(torch.randn(count, ACTIONS, generator=generator)), list(columns[0]))
    hidden = slice(columns[0][0].numel(), None)
    assert float((found[hidden] - expected[hidden]).norm()) < 0.06 * float(expected[hidden].norm())
    assert float((found - expected).norm()) < 0.06 * float(expected.norm())


@pytest.mark.parametrize(
    "settings", [{"train_freq": 6, "sde_sample_freq": 4}, {"train_freq": 6}, {"sde_sample_freq": 4}]
)
@pytest.mark.parametrize("episodes", [False, True])
def test_matrices_are_drawn_when_the_peers_are(
    settings: dict[str, Any], episodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**settings, "train_freq": (2, "episode")} if episodes else settings
    common = {"use_sde": True, "use_sde_at_warmup": True, "learning_starts": 0, "gradient_steps": 1, "seed": 0, **given}
    small = {"buffer_size": 100, "batch_size": 4, "policy_kwargs": {"net_arch": [4], "n_quantiles": 3}, "device": "cpu"}
    ours = TQC("MlpPolicy", Counting(), **common, **small)
    mine = drawn_by_ours(ours, 30, monkeypatch)
    theirs = sb3_contrib.TQC("MlpPolicy", Counting(), **common, **small)
    assert mine == drawn_by_theirs(theirs, theirs.actor, 30, monkeypatch)
    assert ours.num_timesteps == theirs.num_timesteps
