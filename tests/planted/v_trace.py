"""Bugs of V-trace, the example with a training loop of its own and a memory of sequences."""

from __future__ import annotations

from tests.planted.bug import Bug

PACKAGE = "examples/third_party/v-trace/src/acme_vtrace"
ALGORITHM, POLICY, TARGETS = f"{PACKAGE}/algorithm.py", f"{PACKAGE}/policy.py", f"{PACKAGE}/targets.py"
SEQUENCES = "rlsdk/buffers/sequences.py"

BUGS = (
    Bug(
        id="the-policy-gradient-points-down",
        algorithm="v-trace",
        kind="targets",
        file=ALGORITHM,
        old="policy_loss = -(weight * log_prob * targets.advantage).sum()",
        new="policy_loss = (weight * log_prob * targets.advantage).sum()",
    ),
    Bug(
        id="importance-weights-are-upside-down",
        algorithm="v-trace",
        kind="targets",
        file=ALGORITHM,
        old='(log_prob - steps.extras["log_prob"]).exp()',
        new='(steps.extras["log_prob"] - log_prob).exp()',
    ),
    Bug(
        id="a-rollout-never-terminates",
        algorithm="v-trace",
        kind="targets",
        file=ALGORITHM,
        old="discount = gamma * (~steps.terminated).float()",
        new="discount = torch.full_like(steps.reward, gamma)",
    ),
    Bug(
        id="episodes-lead-into-the-next",
        algorithm="v-trace",
        kind="rows",
        file=ALGORITHM,
        old="(value, policy.value(following).view(shape)),",
        new="(value, torch.cat([value[1:], policy.value(following).view(shape)[-1:]])),",
    ),
    Bug(
        id="clip-c-is-clip-rho",
        algorithm="v-trace",
        kind="settings",
        file=TARGETS,
        old="ratio.clamp(max=clips.rho), ratio.clamp(max=clips.c)",
        new="ratio.clamp(max=clips.rho), ratio.clamp(max=clips.rho)",
    ),
    Bug(
        id="one-update-from-replay",
        algorithm="v-trace",
        kind="settings",
        file=ALGORITHM,
        old="for _ in range(self.replay_ratio)",
        new="for _ in range(1)",
    ),
    Bug(
        id="the-critic-is-not-trained",
        algorithm="v-trace",
        kind="training",
        file=ALGORITHM,
        old='FlatOptimizer(policy, "adam", config.learning_rate)',
        new='FlatOptimizer(policy.actor, "adam", config.learning_rate)',
    ),
    Bug(
        id="padding-is-learned-from",
        algorithm="v-trace",
        kind="fillers",
        file=ALGORITHM,
        old="weight = batch.loss_mask / batch.loss_mask.sum().clamp(min=1)",
        new="weight = torch.ones_like(log_prob) / batch.loss_mask.sum().clamp(min=1)",
    ),
    Bug(
        id="actions-are-read-from-0",
        algorithm="v-trace",
        kind="spaces",
        file=ALGORITHM,
        old="chosen.log_prob(steps.action.long().flatten() - policy.start)",
        new="chosen.log_prob(steps.action.long().flatten().clamp(max=policy.actor[-1].out_features - 1))",
    ),
    Bug(
        id="the-probability-of-another-action-is-stored",
        algorithm="v-trace",
        kind="distributions",
        file=POLICY,
        old='{"log_prob": chosen.log_prob(action)}',
        new='{"log_prob": chosen.log_prob(chosen.mode())}',
    ),
    Bug(
        id="the-same-sequences-in-every-round",
        algorithm="v-trace",
        kind="seeds",
        file=ALGORITHM,
        old='parts.sample(self.batch_size, training.streams["replay"])',
        new="parts.sample(self.batch_size, torch.Generator().manual_seed(0))",
    ),
    Bug(
        id="steps-of-one-environment-are-counted",
        algorithm="v-trace",
        kind="metrics",
        file=ALGORITHM,
        old="steps = cursor.env_steps + len(rollout.steps.reward) * collector.num_envs",
        new="steps = cursor.env_steps + len(rollout.steps.reward)",
    ),
    Bug(
        id="the-newest-row-is-repeated-as-if-it-were-another",
        algorithm="v-trace",
        kind="memory",
        file=SEQUENCES,
        old="held = age + ahead < stored.filled  # [T, N]",
        new="held = age + ahead <= stored.filled",
    ),
)
