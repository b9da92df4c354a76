"""Bugs of proximal policy optimisation with recurrent networks."""

from __future__ import annotations

from tests.planted.bug import Bug

BUILD = "plugins/rlsdk-recurrent-ppo/src/rlsdk_recurrent_ppo/build.py"
MEMORY, NETWORK = "rlsdk/networks/recurrent.py", "rlsdk/networks/actor_critic.py"
LOSS, ROWS = "rlsdk/updates/clipped_policy.py", "rlsdk/updates/minibatches.py"
HEADS, CATEGORICAL = "rlsdk/networks/action_heads.py", "rlsdk/distributions/categorical.py"

BUGS = (
    Bug(
        id="the-memory-survives-the-episode-while-acting",
        algorithm="recurrent-ppo",
        kind="starts",
        file=MEMORY,
        old="masked = forgotten(state, is_first)",
        new="masked = state",
    ),
    Bug(
        id="the-memory-survives-the-episode-while-learning",
        algorithm="recurrent-ppo",
        kind="starts",
        file=MEMORY,
        old="initial = forgotten(tuple(part[first_rows] for part in states), is_first[first_rows])",
        new="initial = tuple(part[first_rows] for part in states)",
    ),
    Bug(
        id="one-start-makes-all-environments-forget",
        algorithm="recurrent-ppo",
        kind="starts",
        file=MEMORY,
        old="part.masked_fill(is_first.view(-1, *[1] * (part.ndim - 1)), 0.0)",
        new="part.masked_fill(is_first.any(), 0.0)",
    ),
    Bug(
        id="episodes-run-together-in-updates",
        algorithm="recurrent-ppo",
        kind="starts",
        file=ROWS,
        old="starts, length = observation.is_first.clone(), len(steps.reward)",
        new="starts, length = torch.zeros_like(observation.is_first), len(steps.reward)",
    ),
    Bug(
        id="the-critic-reads-the-memory-of-the-actor",
        algorithm="recurrent-ppo",
        kind="starts",
        file=NETWORK,
        old="self._critic_step(others, latent, carry.critic, observation.is_first)",
        new="self._critic_step(others, latent, carry.actor, observation.is_first)",
    ),
    Bug(
        id="the-last-value-is-that-of-the-first-memory",
        algorithm="recurrent-ppo",
        kind="starts",
        file=ROWS,
        old="last_memory = (rollout.last_carry.actor, rollout.last_carry.critic)",
        new="last_memory = (rollout.initial_carry.actor, rollout.initial_carry.critic)",
    ),
    Bug(
        id="memories-are-stored-a-step-late",
        algorithm="recurrent-ppo",
        kind="rows",
        file=NETWORK,
        old="extras = Estimates(distribution.log_prob(action), value, (carry.actor, carry.critic))",
        new="extras = Estimates(distribution.log_prob(action), value, (actor, critic))",
    ),
    Bug(
        id="the-memory-of-the-critic-is-not-trained",
        algorithm="recurrent-ppo",
        kind="training",
        file=NETWORK,
        old="self.critic_memory).sequence(others, memory[1], observation.is_first, starts)",
        new="self.critic_memory).sequence(others, memory[1], observation.is_first, starts).detach()",
    ),
    Bug(
        id="sequence-length-is-not-passed-on",
        algorithm="recurrent-ppo",
        kind="settings",
        file=BUILD,
        old="        cut_every=config.sequence_length,\n",
        new="",
    ),
    Bug(
        id="noise-is-drawn-once-a-rollout",
        algorithm="recurrent-ppo",
        kind="settings",
        file=NETWORK,
        old="noise = self.sde.refreshed(noise, self.resample_every, generator)",
        new="noise = self.sde.refreshed(noise, None, generator)",
    ),
    Bug(
        id="gru-policies-have-an-lstm",
        algorithm="recurrent-ppo",
        kind="declarations",
        file=BUILD,
        old="memory, every = memory_of(config.policy), config.sde_sample_freq",
        new='memory, every = "lstm", config.sde_sample_freq',
    ),
    Bug(
        id="weights-of-rows-are-ignored",
        algorithm="recurrent-ppo",
        kind="fillers",
        file=LOSS,
        old="share = torch.full_like(now.value, 1.0 / len(rows)) if weight is None else weight / weight.sum()",
        new="share = torch.full_like(now.value, 1.0 / len(rows))",
    ),
    Bug(
        id="minibatches-begin-at-a-place-of-the-global-generator",
        algorithm="recurrent-ppo",
        kind="seeds",
        file=ROWS,
        old="place = int(torch.randint(count, (), generator=generator, device=device))",
        new="place = int(torch.randint(count, (), device=device))",
    ),
    Bug(
        id="first-values-of-several-choices-are-forgotten-in-updates",
        algorithm="recurrent-ppo",
        kind="spaces",
        file=HEADS,
        old="    def from_environment(self, action: Tensor) -> Tensor:\n        return action - self.start\n",
        new="    def from_environment(self, action: Tensor) -> Tensor:\n        return action\n",
    ),
    Bug(
        id="the-probability-of-several-choices-is-that-of-the-first",
        algorithm="recurrent-ppo",
        kind="distributions",
        file=CATEGORICAL,
        old="return torch.cat([own.gather(-1, chosen) for own, chosen in parts], -1).sum(-1)",
        new="return torch.cat([own.gather(-1, chosen) for own, chosen in parts], -1)[:, 0]",
    ),
    Bug(
        id="the-entropy-of-padding-counts",
        algorithm="recurrent-ppo",
        kind="fillers",
        file=LOSS,
        old="grad_entropy = -terms.ent_coef * share if terms.ent_coef else None",
        new="grad_entropy = -terms.ent_coef * torch.full_like(share, 1.0 / len(share)) if terms.ent_coef else None",
    ),
    Bug(
        id="a-second-step-after-the-last-epoch",
        algorithm="recurrent-ppo",
        kind="training",
        file=LOSS,
        old='        metrics["train/explained_variance"]',
        new='        self.optimizer.step(rate, config.max_grad_norm)\n        metrics["train/explained_variance"]',
    ),
)
