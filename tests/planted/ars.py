"""Bugs of augmented random search."""

from __future__ import annotations

from tests.planted.bug import Bug

PLUGIN = "plugins/rlsdk-ars/src/rlsdk_ars"
ALGORITHM, BUILD, LOSS = f"{PLUGIN}/algorithm.py", f"{PLUGIN}/build.py", f"{PLUGIN}/loss.py"
PLAN, POLICY = f"{PLUGIN}/population.py", f"{PLUGIN}/search_policy.py"

BUGS = (
    Bug(
        id="the-step-goes-down",
        algorithm="ars",
        kind="targets",
        file=LOSS,
        old="(used_plus - used_minus) @ deltas[best]",
        new="(used_minus - used_plus) @ deltas[best]",
    ),
    Bug(
        id="the-worst-directions-are-followed",
        algorithm="ars",
        kind="targets",
        file=LOSS,
        old="argsort(descending=True)[:top]",
        new="argsort()[:top]",
    ),
    Bug(
        id="scores-are-paired-with-their-neighbors",
        algorithm="ars",
        kind="rows",
        file=ALGORITHM,
        old="plus, minus = batch.score.chunk(2)",
        new="plus, minus = batch.score[::2], batch.score[1::2]",
    ),
    Bug(
        id="n-top-is-ignored",
        algorithm="ars",
        kind="settings",
        file=ALGORITHM,
        old="search_step(self.deltas, plus, minus, self.config.top)",
        new="search_step(self.deltas, plus, minus, self.config.n_delta)",
    ),
    Bug(
        id="delta-std-runs-backwards",
        algorithm="ars",
        kind="settings",
        file=ALGORITHM,
        old="spread = self.config.delta_std(1.0 - progress) * self.deltas",
        new="spread = self.config.delta_std(progress) * self.deltas",
    ),
    Bug(
        id="zero-policy-is-always-on",
        algorithm="ars",
        kind="settings",
        file=ALGORITHM,
        old="        if config.zero_policy:\n            self.values.zero_()",
        new="        self.values.zero_()",
    ),
    Bug(
        id="new-settings-of-a-living-search-are-ignored",
        algorithm="ars",
        kind="settings",
        file=ALGORITHM,
        old='"""Use new settings from the next proposal on."""\n        self.config = config',
        new='"""Use new settings from the next proposal on."""',
    ),
    Bug(
        id="directions-of-the-global-generator",
        algorithm="ars",
        kind="seeds",
        file=ALGORITHM,
        old="torch.randn(shape, generator=self.generator, device=self.values.device)",
        new="torch.randn(shape, device=self.values.device)",
    ),
    Bug(
        id="candidates-play-from-0-where-actions-start-later",
        algorithm="ars",
        kind="spaces",
        file=POLICY,
        old="return lambda outputs: outputs.argmax(1) + space.start",
        new="return lambda outputs: outputs.argmax(1)",
    ),
    Bug(
        id="candidates-are-not-moved-to-the-bounds",
        algorithm="ars",
        kind="spaces",
        file=POLICY,
        old="values = outputs if span is None else low + (np.tanh(outputs) + 1.0) * span",
        new="values = outputs if span is None else np.tanh(outputs)",
    ),
    Bug(
        id="every-round-plays-the-same-episodes",
        algorithm="ars",
        kind="population",
        file=PLAN,
        old='base = derive(seed, f"candidate {index}", iteration)',
        new='base = derive(seed, f"candidate {index}", 0)',
    ),
    Bug(
        id="the-first-episode-alone-is-scored",
        algorithm="ars",
        kind="population",
        file=PLAN,
        old="return sum(totals) / len(totals)",
        new="return totals[0]",
    ),
    Bug(
        id="statistics-are-of-the-first-candidate",
        algorithm="ars",
        kind="population",
        file=PLAN,
        old="for result in results:  # in the order of candidates, wherever they were played",
        new="for result in results[:1]:",
    ),
    Bug(
        id="directions-are-ranked-by-one-of-their-scores",
        algorithm="ars",
        kind="population",
        file=LOSS,
        old="plus.maximum(minus).argsort(descending=True)",
        new="plus.argsort(descending=True)",
    ),
)
