"""Bugs of behavior cloning, the offline example."""

from __future__ import annotations

from tests.planted.bug import Bug

PACKAGE = "examples/third_party/cloning/src/acme_cloning"
ALGORITHM, POLICY = f"{PACKAGE}/algorithm.py", f"{PACKAGE}/policy.py"

BUGS = (
    Bug(
        id="recorded-actions-become-less-likely",
        algorithm="cloning",
        kind="targets",
        file=ALGORITHM,
        old="loss = -self.policy.log_prob(batch.observation, batch.action).mean()",
        new="loss = self.policy.log_prob(batch.observation, batch.action).mean()",
    ),
    Bug(
        id="actions-are-cloned-from-what-followed-them",
        algorithm="cloning",
        kind="rows",
        file=ALGORITHM,
        old="loss = -self.policy.log_prob(batch.observation, batch.action).mean()",
        new="loss = -self.policy.log_prob(batch.next_observation, batch.action).mean()",
    ),
    Bug(
        id="the-step-size-of-cloning-is-fixed",
        algorithm="cloning",
        kind="settings",
        file=ALGORITHM,
        old="self.optimizer.step(self.config.learning_rate)",
        new="self.optimizer.step(1e-3)",
    ),
    Bug(
        id="no-episode-is-held-out",
        algorithm="cloning",
        kind="settings",
        file=ALGORITHM,
        old="RecordedTransitions(config.dataset, context, share=1.0 - config.held_out)",
        new="RecordedTransitions(config.dataset, context)",
    ),
    Bug(
        id="recorded-actions-are-read-from-0",
        algorithm="cloning",
        kind="spaces",
        file=POLICY,
        old="return chosen.log_prob(action.long() - self.actions.start)",
        new="return chosen.log_prob(action.long().clamp(max=self.actions.n - 1))",
    ),
    Bug(
        id="cloned-actions-begin-at-0",
        algorithm="cloning",
        kind="spaces",
        file=POLICY,
        old="return Act(action + self.actions.start, (), ())",
        new="return Act(action, (), ())",
    ),
    Bug(
        id="cloned-actions-are-flat",
        algorithm="cloning",
        kind="spaces",
        file=POLICY,
        old="return Act(action.reshape(-1, *self.actions.shape), (), ())",
        new="return Act(action, (), ())",
    ),
    Bug(
        id="a-cloned-policy-ignores-masks",
        algorithm="cloning",
        kind="masks",
        file=POLICY,
        old="return Categorical.of(output, observation.action_mask)",
        new="return Categorical.of(output)",
    ),
    Bug(
        id="deviations-are-frozen",
        algorithm="cloning",
        kind="training",
        file=POLICY,
        old="nn.Parameter(torch.zeros(size)) if",
        new="nn.Parameter(torch.zeros(size), requires_grad=False) if",
    ),
    Bug(
        id="the-optimizer-of-cloning-is-not-stored",
        algorithm="cloning",
        kind="resume",
        file=ALGORITHM,
        old='return {"optimizer": self.optimizer.state_dict()}',
        new='return {"optimizer": {}}',
    ),
    Bug(
        id="cloned-actions-are-always-drawn",
        algorithm="cloning",
        kind="seeds",
        file=POLICY,
        old="action = chosen.mode() if deterministic else chosen.sample(generator)",
        new="action = chosen.sample(generator)",
    ),
    Bug(
        id="the-held-out-loss-is-of-what-is-learned-from",
        algorithm="cloning",
        kind="data",
        file=ALGORITHM,
        old="episodes = None if self.recorded is None else self.recorded.held_out",
        new="episodes = None if self.recorded is None else self.recorded.episodes",
    ),
    Bug(
        id="few-recorded-steps-are-sampled",
        algorithm="cloning",
        kind="data",
        file="plugins/rlsdk-datasets/src/rlsdk_datasets/recorded.py",
        old="return torch.randint(self.episodes.steps, (size,), generator=generator, device=generator.device)",
        new="return torch.randint(len(self.episodes), (size,), generator=generator, device=generator.device)",
    ),
)
