"""Bugs of PPO-Lagrangian, the example with a constraint."""

from __future__ import annotations

from tests.planted.bug import Bug

ALGORITHM = "examples/third_party/constrained/src/acme_constrained/algorithm.py"
UPDATE = "rlsdk/updates/clipped_policy.py"

BUGS = (
    Bug(
        id="costs-are-rewarded",
        algorithm="ppo-lagrangian",
        kind="targets",
        file=ALGORITHM,
        old="reward = (steps.reward - weight * steps.info[COST]) / (1.0 + weight)",
        new="reward = (steps.reward + weight * steps.info[COST]) / (1.0 + weight)",
    ),
    Bug(
        id="the-multiplier-goes-the-wrong-way",
        algorithm="ppo-lagrangian",
        kind="targets",
        file=ALGORITHM,
        old="excess = costs.mean() - self.config.cost_limit",
        new="excess = self.config.cost_limit - costs.mean()",
    ),
    Bug(
        id="the-limit-of-costs-is-ignored",
        algorithm="ppo-lagrangian",
        kind="settings",
        file=ALGORITHM,
        old="excess = costs.mean() - self.config.cost_limit",
        new="excess = costs.mean()",
    ),
    Bug(
        id="the-multiplier-begins-at-0",
        algorithm="ppo-lagrangian",
        kind="settings",
        file=ALGORITHM,
        old="self.multiplier = torch.tensor(config.initial_multiplier)",
        new="self.multiplier = torch.tensor(0.0)",
    ),
    Bug(
        id="the-clip-range-is-that-of-the-start",
        algorithm="ppo-lagrangian",
        kind="settings",
        file=UPDATE,
        old="clip, limit = config.clip_range(remaining)",
        new="clip, limit = config.clip_range(1.0)",
    ),
    Bug(
        id="the-multiplier-is-not-restored",
        algorithm="ppo-lagrangian",
        kind="resume",
        file=ALGORITHM,
        old='        self.multiplier = state["multiplier"].clone()\n',
        new="",
    ),
    Bug(
        id="costs-of-running-episodes-are-not-restored",
        algorithm="ppo-lagrangian",
        kind="resume",
        file=ALGORITHM,
        old='            self.running = state["running"].clone()',
        new="            pass",
    ),
    Bug(
        id="costs-of-past-episodes-are-added",
        algorithm="ppo-lagrangian",
        kind="starts",
        file=ALGORITHM,
        old="self.running = self.running.masked_fill(first[t], 0.0) + cost[t]",
        new="self.running = self.running + cost[t]",
    ),
    Bug(
        id="one-start-forgets-all-costs",
        algorithm="ppo-lagrangian",
        kind="starts",
        file=ALGORITHM,
        old="self.running.masked_fill(first[t], 0.0)",
        new="self.running.masked_fill(first[t].any(), 0.0)",
    ),
    Bug(
        id="costs-of-episodes-at-a-time-limit-are-not-seen",
        algorithm="ppo-lagrangian",
        kind="data",
        file=ALGORITHM,
        old="ended, found = (steps.terminated | steps.truncated).cpu(), list[Tensor]()",
        new="ended, found = steps.terminated.cpu(), list[Tensor]()",
    ),
)
