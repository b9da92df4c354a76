"""Bugs of Dyna, the example with a memory and a training step of its own."""

from __future__ import annotations

from tests.planted.bug import Bug

PACKAGE = "examples/third_party/dyna/src/acme_dyna"
ALGORITHM, MEMORY, MODEL = f"{PACKAGE}/algorithm.py", f"{PACKAGE}/memory.py", f"{PACKAGE}/model.py"

BUGS = (
    Bug(
        id="moves-go-on-after-the-end",
        algorithm="dyna",
        kind="targets",
        file=ALGORITHM,
        old="self.learner.config.gamma * (~moves.terminated).float()",
        new="torch.full_like(moves.reward, self.learner.config.gamma)",
    ),
    Bug(
        id="imagined-ends-are-turned-round",
        algorithm="dyna",
        kind="targets",
        file=MODEL,
        old="return Moves(observation, action, reward, following, logit > 0.0)",
        new="return Moves(observation, action, reward, following, logit < 0.0)",
    ),
    Bug(
        id="the-model-has-the-step-size-of-the-values",
        algorithm="dyna",
        kind="settings",
        file=ALGORITHM,
        old="self.optimizer.step(self.learner.config.model_learning_rate)",
        new="self.optimizer.step(self.learner.config.learning_rate(1.0 - progress))",
    ),
    Bug(
        id="five-planning-steps",
        algorithm="dyna",
        kind="settings",
        file=ALGORITHM,
        old="for _ in range(self.learner.config.planning_steps):",
        new="for _ in range(5):",
    ),
    Bug(
        id="the-model-is-not-trained",
        algorithm="dyna",
        kind="training",
        file=ALGORITHM,
        old="        self.optimizer.step(self.learner.config.model_learning_rate)\n",
        new="",
    ),
    Bug(
        id="the-model-does-not-learn-rewards",
        algorithm="dyna",
        kind="training",
        file=MODEL,
        old="(following - moves.next_observation).square().mean() + (reward - moves.reward).square().mean()",
        new="(following - moves.next_observation).square().mean()",
    ),
    Bug(
        id="steps-do-not-reach-the-learner",
        algorithm="dyna",
        kind="training",
        file=ALGORITHM,
        old="        self.learner.collected(env_steps, progress)\n",
        new="",
    ),
    Bug(
        id="the-optimizer-of-the-model-begins-again",
        algorithm="dyna",
        kind="resume",
        file=ALGORITHM,
        old='        self.optimizer.load_state_dict(state["model_optimizer"])\n',
        new="",
    ),
    Bug(
        id="the-oldest-move-is-not-restored",
        algorithm="dyna",
        kind="resume",
        file=MEMORY,
        old='self.rows, self.oldest = rows.clone(), int(state["oldest"]) % self.capacity',
        new="self.rows, self.oldest = rows.clone(), 0",
    ),
    Bug(
        id="the-first-action-is-added-twice",
        algorithm="dyna",
        kind="spaces",
        file=ALGORITHM,
        old="            moves.action + self._first_action,\n",
        new="            moves.action + 2 * self._first_action,\n",
    ),
    Bug(
        id="moves-end-at-time-limits",
        algorithm="dyna",
        kind="memory",
        file=MEMORY,
        old="steps.terminated.float().unsqueeze(-1)",
        new="(steps.terminated | steps.truncated).float().unsqueeze(-1)",
    ),
    Bug(
        id="moves-lead-nowhere",
        algorithm="dyna",
        kind="rows",
        file=MEMORY,
        old="successors(item).features.flatten(2)",
        new="steps.observation.features.flatten(2)",
    ),
    Bug(
        id="a-full-memory-replaces-one-row",
        algorithm="dyna",
        kind="memory",
        file=MEMORY,
        old="            self.oldest = (self.oldest + 1) % self.capacity\n",
        new="",
    ),
    Bug(
        id="filler-rows-are-moves",
        algorithm="dyna",
        kind="fillers",
        file=MEMORY,
        old="[steps.valid]",
        new=".flatten(0, 1)",
    ),
    Bug(
        id="what-followed-is-not-normalized",
        algorithm="dyna",
        kind="data",
        file=ALGORITHM,
        old="next_observation=self.context.observation_normalizer(moves.next_observation),",
        new="next_observation=moves.next_observation,",
    ),
)
