"""Bugs of the cross-entropy method, the example of a population method."""

from __future__ import annotations

from tests.planted.bug import Bug

ALGORITHM = "examples/third_party/cross-entropy/src/acme_cross_entropy/algorithm.py"
LOOP = "plugins/rlsdk-ars/src/rlsdk_ars"
PLAN, POLICY = f"{LOOP}/population.py", f"{LOOP}/search_policy.py"

BUGS = (
    Bug(
        id="the-worst-are-the-elite",
        algorithm="cross-entropy",
        kind="targets",
        file=ALGORITHM,
        old="batch.score.topk(min(self.config.elites, len(batch.score))).indices",
        new="batch.score.topk(min(self.config.elites, len(batch.score)), largest=False).indices",
    ),
    Bug(
        id="extra-noise-is-forgotten",
        algorithm="cross-entropy",
        kind="settings",
        file=ALGORITHM,
        old=" + self.config.extra_std * (1.0 - progress)",
        new="",
    ),
    Bug(
        id="the-number-of-candidates-is-fixed",
        algorithm="cross-entropy",
        kind="settings",
        file=ALGORITHM,
        old="shape = self.config.candidates, len(self.mean)",
        new="shape = 32, len(self.mean)",
    ),
    Bug(
        id="candidates-play-one-episode",
        algorithm="cross-entropy",
        kind="settings",
        file=ALGORITHM,
        old="PopulationPlan(make_act, config.n_eval_episodes)",
        new="PopulationPlan(make_act, 1)",
    ),
    Bug(
        id="the-mean-leaves-the-policy",
        algorithm="cross-entropy",
        kind="training",
        file=ALGORITHM,
        old="self.mean.copy_(best.mean(0))",
        new="self.mean = best.mean(0)",
    ),
    Bug(
        id="deviations-are-not-restored",
        algorithm="cross-entropy",
        kind="resume",
        file=ALGORITHM,
        old='        self.std = state["search"]["std"].to(self.mean)',
        new="        pass",
    ),
    Bug(
        id="candidates-of-the-global-generator",
        algorithm="cross-entropy",
        kind="seeds",
        file=ALGORITHM,
        old="torch.randn(shape, generator=self.generator, device=self.mean.device)",
        new="torch.randn(shape, device=self.mean.device)",
    ),
    Bug(
        id="candidates-lie-on-one-side-of-the-mean",
        algorithm="cross-entropy",
        kind="population",
        file=ALGORITHM,
        old="torch.randn(shape, generator=self.generator",
        new="torch.rand(shape, generator=self.generator",
    ),
    Bug(
        id="all-episodes-of-a-candidate-are-the-same",
        algorithm="cross-entropy",
        kind="population",
        file=PLAN,
        old='derive(base, "episode", k) % 2**31',
        new='derive(base, "episode", 0) % 2**31',
    ),
    Bug(
        id="returns-of-episodes-are-added-up",
        algorithm="cross-entropy",
        kind="population",
        file="rlsdk/environments/vector/faults.py",
        old="self.total, self.length, self._due = 0.0, 0, LONG\n        # a wrapper",
        new="self.length, self._due = 0, LONG\n        # a wrapper",
    ),
    Bug(
        id="candidates-play-the-other-bits",
        algorithm="cross-entropy",
        kind="spaces",
        file=POLICY,
        old="return lambda outputs: (outputs > 0.0).astype(np.int8)",
        new="return lambda outputs: (outputs < 0.0).astype(np.int8)",
    ),
)
