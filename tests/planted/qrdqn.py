"""Bugs of quantile-regression DQN."""

from __future__ import annotations

from tests.planted.bug import Bug

LEARNING, VALUES = "rlsdk/updates/q_learning.py", "rlsdk/math/values.py"
POLICY, QUANTILES = "rlsdk/networks/discrete_values.py", "rlsdk/math/values.py"
WARM_UP, SETTINGS = "rlsdk/exploration/behavior.py", "rlsdk/settings/off_policy.py"
STORAGE, RING, REPLAY = "rlsdk/buffers/rows.py", "rlsdk/buffers/rows.py", "rlsdk/buffers/replay.py"

BUGS = (
    Bug(
        id="targets-go-on-after-the-end",
        algorithm="qrdqn",
        kind="targets",
        file=VALUES,
        old="return torch.addcmul(reward.unsqueeze(1), discount.unsqueeze(1), chosen)",
        new="return torch.addcmul(reward.unsqueeze(1), discount.max(), chosen)",
    ),
    Bug(
        id="targets-come-from-the-online-network",
        algorithm="qrdqn",
        kind="targets",
        file=LEARNING,
        old="sizes, network = batch.next_observation, self.policy.sizes, self.target.network",
        new="sizes, network = batch.next_observation, self.policy.sizes, self.policy",
    ),
    Bug(
        id="quantiles-are-upside-down",
        algorithm="qrdqn",
        kind="targets",
        file=QUANTILES,
        old="return 2.0 * midpoints(count, torch.empty(0, dtype=dtype, device=device)) - 1.0",
        new="return 1.0 - 2.0 * midpoints(count, torch.empty(0, dtype=dtype, device=device))",
    ),
    Bug(
        id="the-target-never-moves",
        algorithm="qrdqn",
        kind="training",
        file=LEARNING,
        old="            self.target.update(tau if due == 1 else 1.0 - (1.0 - tau) ** due)\n",
        new="",
    ),
    Bug(
        id="encoders-are-not-trained",
        algorithm="qrdqn",
        kind="training",
        file=POLICY,
        old="flat, vjp = kernel.evaluate(self._encoded(features))",
        new="flat, vjp = kernel.evaluate(self._encoded(features).detach())",
    ),
    Bug(
        id="double-q-is-ignored",
        algorithm="qrdqn",
        kind="settings",
        file=LEARNING,
        old="selector = self.policy.evaluate(following.features)[0] if self.config.double_q else next_values",
        new="selector = next_values",
    ),
    Bug(
        id="the-target-moves-at-every-step",
        algorithm="qrdqn",
        kind="settings",
        file=LEARNING,
        old="interval = max(self.config.target_update_interval // self.num_envs, 1) * self.num_envs",
        new="interval = self.num_envs",
    ),
    Bug(
        id="exploration-fraction-is-ignored",
        algorithm="qrdqn",
        kind="settings",
        file=SETTINGS,
        old="done = 1.0 if self.exploration_fraction == 0.0 else min(1.0, progress / self.exploration_fraction)",
        new="done = progress",
    ),
    Bug(
        id="masks-are-forgotten-in-the-bootstrap",
        algorithm="qrdqn",
        kind="masks",
        file=LEARNING,
        old="mask = following.action_mask",
        new="mask = None",
    ),
    Bug(
        id="random-actions-are-not-masked",
        algorithm="qrdqn",
        kind="masks",
        file=POLICY,
        old="epsilon_greedy(action, self.sizes, self.epsilon, observation.action_mask, generator)",
        new="epsilon_greedy(action, self.sizes, self.epsilon, None, generator)",
    ),
    Bug(
        id="the-warm-up-is-not-masked",
        algorithm="qrdqn",
        kind="masks",
        file=WARM_UP,
        old="random = allowed_actions(self.space, mask, generator) if mask is not None else None",
        new="random = None",
    ),
    Bug(
        id="importance-weights-are-ignored",
        algorithm="qrdqn",
        kind="fillers",
        file=LEARNING,
        old="loss, grad = self.loss(current, target, weight=batch.weight)",
        new="loss, grad = self.loss(current, target, weight=None)",
    ),
    Bug(
        id="filler-rows-are-sampled",
        algorithm="qrdqn",
        kind="fillers",
        file=REPLAY,
        old="if not self.holes and self.frames is None:",
        new="if self.frames is None:",
    ),
    Bug(
        id="the-share-of-random-actions-is-not-stored",
        algorithm="qrdqn",
        kind="resume",
        file=POLICY,
        old='self.register_buffer("epsilon", torch.tensor(1.0))',
        new='self.register_buffer("epsilon", torch.tensor(1.0), persistent=False)',
    ),
    Bug(
        id="steps-since-the-target-moved-are-not-restored",
        algorithm="qrdqn",
        kind="resume",
        file=LEARNING,
        old="self.target_updates, self.since_target, self.counted = counters",
        new="self.target_updates, _, self.counted = counters",
    ),
    Bug(
        id="columns-of-several-choices-are-mixed",
        algorithm="qrdqn",
        kind="spaces",
        file=VALUES,
        old="offsets = constant([sum(sizes[:k]) for k in range(len(sizes))], action)",
        new="offsets = constant([0 for k in range(len(sizes))], action)",
    ),
    Bug(
        id="time-limits-are-stored-as-ends",
        algorithm="qrdqn",
        kind="memory",
        file=STORAGE,
        old=".masked_fill_(steps.terminated, 0.0)",
        new=".masked_fill_(steps.terminated | steps.truncated, 0.0)",
    ),
    Bug(
        id="targets-over-several-steps-are-discounted-once",
        algorithm="qrdqn",
        kind="memory",
        file=RING,
        old="discount = torch.where(going, discount * discounts[following], discount)",
        new="discount = torch.where(going, discounts[following], discount)",
    ),
)
