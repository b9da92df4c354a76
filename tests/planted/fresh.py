"""Bugs written before the clauses `count.*`, `dose.*`, `formula.*` and those about rows, to measure them.

One author wrote both the bugs and the clauses. A fixed seed split the bugs into two halves. The clauses were improved while
half A was looked at; the kit ran on half B once, at the end.
"""

from __future__ import annotations

import random

from tests.planted.bug import Bug

_TEMPLATES = "plugins/rlsdk-testing/src/rlsdk_testing/scaffold/templates"
_THIRD = "examples/third_party"
_FILES = {
    **{
        f"{name}:{part}": f"{_TEMPLATES}/{name}/src/PACKAGE/{part}.py.tmpl"
        for name, part in (
            ("on-policy", "algorithm"),
            ("off-policy-discrete", "algorithm"),
            ("off-policy-discrete", "config"),
            ("off-policy-discrete", "build"),
            ("off-policy-continuous", "algorithm"),
            ("offline", "algorithm"),
            ("own-loop", "plan"),
            ("population", "algorithm"),
            ("population", "build"),
        )
    },
    "dyna": f"{_THIRD}/dyna/src/acme_dyna/algorithm.py",
    "cloning": f"{_THIRD}/cloning/src/acme_cloning/algorithm.py",
    "reinforce": f"{_THIRD}/reinforce/src/acme_reinforce/algorithm.py",
    "v-trace": f"{_THIRD}/v-trace/src/acme_vtrace/algorithm.py",
    "v-trace:targets": f"{_THIRD}/v-trace/src/acme_vtrace/targets.py",
    "rnd": f"{_THIRD}/random-network-distillation/src/acme_rnd/algorithm.py",
    "constrained": f"{_THIRD}/constrained/src/acme_constrained/algorithm.py",
    "cross-entropy": f"{_THIRD}/cross-entropy/src/acme_cross_entropy/algorithm.py",
    "q-learning": "rlsdk/updates/q_learning.py",
}
_ALGORITHMS = {
    "on-policy": "planted-on-policy",
    "off-policy-discrete": "planted-off-policy",
    "off-policy-continuous": "planted-continuous",
    "offline": "planted-offline",
    "own-loop": "planted-own-loop",
    "population": "planted-population",
    "constrained": "ppo-lagrangian",
    "q-learning": "qrdqn",
}


def _bug(identity: str, kind: str, place: str, old: str, new: str) -> Bug:
    name = place.partition(":")[0]
    return Bug(identity, _ALGORITHMS.get(name, name), kind, _FILES[place], old, new)


_WRITTEN = (
    _bug(
        "one-epoch-too-many", "settings", "on-policy:algorithm", "range(config.n_epochs)", "range(config.n_epochs + 1)"
    ),
    _bug(
        "gamma-and-lambda-change-places",
        "targets",
        "on-policy:algorithm",
        "gamma=config.gamma, lam=config.gae_lambda",
        "gamma=config.gae_lambda, lam=config.gamma",
    ),
    _bug(
        "the-rate-decays-twice",
        "settings",
        "on-policy:algorithm",
        "config.learning_rate(1.0 - progress)",
        "config.learning_rate(1.0 - progress) * (1.0 - progress)",
    ),
    _bug(
        "values-learn-the-median",
        "targets",
        "on-policy:algorithm",
        "(value - target).square()",
        "(value - target).abs()",
    ),
    _bug(
        "each-value-learns-all-targets",
        "rows",
        "on-policy:algorithm",
        "value_loss(value, part.target)",
        "value_loss(value.unsqueeze(-1), part.target).mean(-1)",
    ),
    _bug(
        "the-entropy-coefficient-is-squared",
        "settings",
        "on-policy:algorithm",
        "config.ent_coef * entropy",
        "config.ent_coef * config.ent_coef * entropy",
    ),
    _bug(
        "the-last-minibatch-is-left-out",
        "rows",
        "on-policy:algorithm",
        "shuffled(rows, config.batch_size, self.generator)",
        "list(shuffled(rows, config.batch_size, self.generator))[:-1]",
    ),
    _bug(
        "the-policy-term-has-the-weight-of-values",
        "settings",
        "on-policy:algorithm",
        "policy + config.vf_coef * values",
        "config.vf_coef * (policy + values)",
    ),
    _bug(
        "rewards-are-discounted-too",
        "targets",
        "off-policy-discrete:algorithm",
        "reward + discount * next_values.max(-1).values",
        "discount * (reward + next_values.max(-1).values)",
    ),
    _bug(
        "the-discount-is-squared",
        "targets",
        "off-policy-discrete:algorithm",
        "reward + discount * next_values",
        "reward + discount**2 * next_values",
    ),
    _bug(
        "exploration-grows",
        "settings",
        "off-policy-discrete:algorithm",
        "self.config.exploration_rate(progress)",
        "self.config.exploration_rate(1.0 - progress)",
    ),
    _bug(
        "tau-is-what-stays",
        "settings",
        "off-policy-discrete:algorithm",
        "self.target.update(self.config.tau)",
        "self.target.update(1.0 - self.config.tau)",
    ),
    _bug(
        "weights-count-twice",
        "rows",
        "off-policy-discrete:algorithm",
        "errors * batch.weight)",
        "errors * batch.weight.square())",
    ),
    _bug(
        "the-mean-is-divided-by-the-rows-again",
        "rows",
        "off-policy-discrete:algorithm",
        ").mean()  # the weights",
        ").mean() / len(errors)  # the weights",
    ),
    _bug(
        "the-huber-loss-is-narrow",
        "targets",
        "off-policy-discrete:algorithm",
        'reduction="none")',
        'reduction="none", beta=0.1)',
    ),
    _bug(
        "errors-of-rows-are-squared",
        "memory",
        "off-policy-discrete:algorithm",
        "(wanted - value).detach().abs()",
        "(wanted - value).detach().square()",
    ),
    _bug(
        "the-rate-falls-quadratically",
        "settings",
        "off-policy-discrete:algorithm",
        "self.config.learning_rate(1.0 - progress)",
        "self.config.learning_rate((1.0 - progress) ** 2)",
    ),
    _bug(
        "exploration-stops-at-the-rest",
        "settings",
        "off-policy-discrete:config",
        "1.0 + done * (self.exploration_final_eps - 1.0)",
        "1.0 - done * self.exploration_final_eps",
    ),
    _bug(
        "the-warm-up-counts-vector-steps",
        "settings",
        "off-policy-discrete:build",
        "config.learning_starts, context.num_envs",
        "config.learning_starts * context.num_envs, context.num_envs",
    ),
    _bug(
        "targets-are-the-mean-of-critics",
        "targets",
        "off-policy-continuous:algorithm",
        "next_values.min(0).values - alpha",
        "next_values.mean(0) - alpha",
    ),
    _bug(
        "entropy-is-added-after-the-discount",
        "targets",
        "off-policy-continuous:algorithm",
        "discount * (next_values.min(0).values - alpha * next_log_prob)",
        "discount * next_values.min(0).values - alpha * next_log_prob",
    ),
    _bug(
        "the-actor-follows-the-first-critic",
        "targets",
        "off-policy-continuous:algorithm",
        "value = values.min(0).values.mean()",
        "value = values[0].mean()",
    ),
    _bug(
        "alpha-is-squared-in-targets",
        "targets",
        "off-policy-continuous:algorithm",
        "alpha * next_log_prob)",
        "alpha * alpha * next_log_prob)",
    ),
    _bug(
        "all-rows-have-the-mean-weight",
        "rows",
        "off-policy-continuous:algorithm",
        "errors * weight)",
        "errors * weight.mean())",
    ),
    _bug(
        "the-critic-loss-is-of-the-fourth-power",
        "targets",
        "off-policy-continuous:algorithm",
        "(values - wanted).square() / 2",
        "(values - wanted).pow(4) / 4",
    ),
    _bug(
        "the-penalty-is-of-the-largest-value",
        "targets",
        "offline:algorithm",
        "values.logsumexp(-1) - value",
        "values.max(-1).values - value",
    ),
    _bug(
        "tau-shrinks-with-progress",
        "settings",
        "offline:algorithm",
        "self.target.update(self.config.tau)",
        "self.target.update(self.config.tau * (1.0 - progress))",
    ),
    _bug(
        "the-penalty-does-not-raise-recorded-actions",
        "targets",
        "offline:algorithm",
        "(values.logsumexp(-1) - value)",
        "(values.logsumexp(-1) - value.detach())",
    ),
    _bug(
        "offline-targets-use-the-discounted-reward",
        "targets",
        "offline:algorithm",
        "reward + discount * next_values.max(-1).values",
        "(1.0 - discount) * reward + discount * next_values.max(-1).values",
    ),
    _bug(
        "only-the-last-episode-is-reported",
        "metrics",
        "own-loop:plan",
        "cursor.updates, rollout.episodes, metrics",
        "cursor.updates, rollout.episodes[-1:], metrics",
    ),
    _bug(
        "the-loop-learns-twice-from-a-round",
        "metrics",
        "own-loop:plan",
        "return training.parts.algorithm.update(rollout, progress=progress), 1",
        "training.parts.algorithm.update(rollout, progress=progress)\n"
        "    return training.parts.algorithm.update(rollout, progress=progress), 1",
    ),
    _bug(
        "the-loop-stops-a-round-early",
        "metrics",
        "own-loop:plan",
        "while cursor.env_steps < training.end:",
        "while cursor.env_steps + self.n_steps * training.collector.num_envs < training.end:",
    ),
    _bug(
        "lengths-and-episodes-are-added",
        "settings",
        "own-loop:plan",
        "self.mean_length * self.episodes_per_round",
        "self.mean_length + self.episodes_per_round",
    ),
    _bug(
        "spread-is-a-variance",
        "population",
        "population:algorithm",
        "mean + spread * noise",
        "mean + spread**0.5 * noise",
    ),
    _bug(
        "one-elite-too-many",
        "population",
        "population:algorithm",
        "score.topk(elites)",
        "score.topk(min(elites + 1, len(score)))",
    ),
    _bug(
        "the-next-mean-is-a-median",
        "population",
        "population:algorithm",
        ".indices].mean(0)",
        ".indices].median(0).values",
    ),
    _bug(
        "the-same-noise-in-every-round",
        "seeds",
        "population:algorithm",
        "generator=self.generator, device",
        "generator=self.generator.manual_seed(0), device",
    ),
    _bug(
        "candidates-play-one-episode-more",
        "population",
        "population:build",
        "config.n_eval_episodes",
        "config.n_eval_episodes + 1",
    ),
    _bug(
        "one-planning-step-too-few",
        "settings",
        "dyna",
        "range(self.learner.config.planning_steps)",
        "range(1, self.learner.config.planning_steps)",
    ),
    _bug("gradients-of-updates-pile-up", "training", "cloning", "        self.optimizer.zero_grad()\n", ""),
    _bug(
        "the-median-row-is-cloned",
        "rows",
        "cloning",
        "loss = -self.policy.log_prob(batch.observation, batch.action).mean()",
        "loss = -self.policy.log_prob(batch.observation, batch.action).median()",
    ),
    _bug("the-baseline-counts-unfinished-steps", "fillers", "reinforce", "(gain * weight).sum()  #", "gain.mean()  #"),
    _bug("traces-are-not-discounted", "targets", "v-trace:targets", "discount * c * goes_on", "c * goes_on"),
    _bug("one-replayed-update-more", "settings", "v-trace", "range(self.replay_ratio)", "range(self.replay_ratio + 1)"),
    _bug(
        "rows-are-never-shuffled",
        "seeds",
        "rnd",
        "torch.randperm(len(rows.action), generator=self.generator, device=bonus.device)",
        "torch.arange(len(rows.action), device=bonus.device)",
    ),
    _bug(
        "the-extrinsic-weight-multiplies-both",
        "settings",
        "rnd",
        "config.extrinsic_coef * own + config.intrinsic_coef * curious",
        "config.extrinsic_coef * (own + config.intrinsic_coef * curious)",
    ),
    _bug(
        "intrinsic-traces-are-not-discounted",
        "targets",
        "rnd",
        "config.intrinsic_gamma * config.gae_lambda",
        "config.gae_lambda",
    ),
    _bug("costs-of-episodes-are-added-up", "rows", "constrained", "costs.mean() - self", "costs.sum() - self"),
    _bug(
        "the-deviation-is-a-variance",
        "population",
        "cross-entropy",
        "best.std(0, correction=0)",
        "best.var(0, correction=0)",
    ),
    _bug(
        "the-target-moves-one-step-late",
        "settings",
        "q-learning",
        "// self.num_envs, 1) * self.num_envs",
        "// self.num_envs, 1) * self.num_envs + self.num_envs",
    ),
)
_ORDER = random.Random(64).sample(range(len(_WRITTEN)), len(_WRITTEN))
HALF_A = tuple(_WRITTEN[place] for place in sorted(_ORDER[: len(_ORDER) // 2]))
HALF_B = tuple(_WRITTEN[place] for place in sorted(_ORDER[len(_ORDER) // 2 :]))
BUGS = HALF_A + HALF_B
