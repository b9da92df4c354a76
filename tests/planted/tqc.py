"""Bugs of truncated quantile critics."""

from __future__ import annotations

from tests.planted.bug import Bug

PLUGIN = "plugins/rlsdk-tqc/src/rlsdk_tqc"
ALGORITHM, BUILD, LOSS = f"{PLUGIN}/algorithm.py", f"{PLUGIN}/build.py", f"{PLUGIN}/loss.py"
UPDATE, CRITICS = "rlsdk/updates/continuous.py", "rlsdk/updates/continuous.py"
GAUSSIAN = "rlsdk/distributions/gaussian.py"
SCALE, STORAGE = "rlsdk/networks/action_heads.py", "rlsdk/buffers/rows.py"

BUGS = (
    Bug(
        id="the-entropy-of-targets-has-the-wrong-sign",
        algorithm="tqc",
        kind="targets",
        file=LOSS,
        old="soft = smallest(pooled, keep) - (alpha * next_log_prob).unsqueeze(1)",
        new="soft = smallest(pooled, keep) + (alpha * next_log_prob).unsqueeze(1)",
    ),
    Bug(
        id="the-largest-atoms-stay",
        algorithm="tqc",
        kind="targets",
        file=LOSS,
        old="smallest(pooled, keep)",
        new="-smallest(-pooled, keep)",
    ),
    Bug(
        id="the-actor-goes-down",
        algorithm="tqc",
        kind="targets",
        file=UPDATE,
        old="vjp(-grad, (alpha / len(log_prob)).expand_as(log_prob))",
        new="vjp(grad, (alpha / len(log_prob)).expand_as(log_prob))",
    ),
    Bug(
        id="the-entropy-coefficient-goes-the-wrong-way",
        algorithm="tqc",
        kind="targets",
        file=UPDATE,
        old="gradient = -(log_prob + self.target_entropy).mean()",
        new="gradient = (log_prob + self.target_entropy).mean()",
    ),
    Bug(
        id="targets-are-of-the-same-observation",
        algorithm="tqc",
        kind="targets",
        file=UPDATE,
        old="observation, target = batch.next_observation.features, trained.target.network",
        new="observation, target = batch.observation.features, trained.target.network",
    ),
    Bug(
        id="no-atom-is-dropped",
        algorithm="tqc",
        kind="settings",
        file=ALGORITHM,
        old="def __init__(self, config: TQCConfig) -> None:\n        self.keep = config.kept_quantiles",
        new="def __init__(self, config: TQCConfig) -> None:\n"
        "        self.keep = config.policy_kwargs.n_critics * config.policy_kwargs.n_quantiles",
    ),
    Bug(
        id="target-entropy-is-ignored",
        algorithm="tqc",
        kind="settings",
        file=UPDATE,
        old="        target_entropy = config.target_entropy_for(actor.scale.size)\n",
        new="        target_entropy = -float(actor.scale.size)\n",
    ),
    Bug(
        id="the-warm-up-is-always-uniform",
        algorithm="tqc",
        kind="settings",
        file=BUILD,
        old="noisy_behavior(actor, context, config, warm_up=config.warms_up_uniformly)",
        new="noisy_behavior(actor, context, config)",
    ),
    Bug(
        id="the-encoder-of-the-critics-is-not-trained",
        algorithm="tqc",
        kind="training",
        file=CRITICS,
        old="self.own = critics.ensemble if self.shared else critics",
        new="self.own = critics.ensemble",
    ),
    Bug(
        id="the-target-moves-once",
        algorithm="tqc",
        kind="training",
        file=UPDATE,
        old="moves_target = trained.updates % self.config.target_update_interval == 0",
        new="moves_target = trained.updates == 0",
    ),
    Bug(
        id="the-entropy-coefficient-is-not-restored",
        algorithm="tqc",
        kind="resume",
        file=UPDATE,
        old='        self.entropy.load_state_dict(state["entropy"])\n',
        new="",
    ),
    Bug(
        id="noise-of-the-global-generator",
        algorithm="tqc",
        kind="seeds",
        file=UPDATE,
        old="noise = torch.randn(shape, generator=self.generator, device=self.generator.device)\n        networks",
        new="noise = torch.randn(shape, device=self.generator.device)\n        networks",
    ),
    Bug(
        id="action-noise-goes-on-in-the-next-episode",
        algorithm="tqc",
        kind="starts",
        file="rlsdk/exploration/behavior.py",
        old="self.noise.step(self.noise.started(carry.noise, observation.is_first), generator)",
        new="self.noise.step(carry.noise, generator)",
    ),
    Bug(
        id="critics-see-actions-in-other-units",
        algorithm="tqc",
        kind="spaces",
        file=CRITICS,
        old="critics.evaluate(features, scale.to_unit(batch.action))",
        new="critics.evaluate(features, batch.action.flatten(1))",
    ),
    Bug(
        id="the-density-is-not-corrected-for-tanh",
        algorithm="tqc",
        kind="distributions",
        file=GAUSSIAN,
        old="return action, log_prob - (2.0 * (LOG_TWO - raw - softplus(-2.0 * raw))).sum(-1)",
        new="return action, log_prob",
    ),
    Bug(
        id="what-ended-an-episode-is-lost",
        algorithm="tqc",
        kind="memory",
        file=STORAGE,
        old="single = count == 1 and item.final_observations is None",
        new="single = count == 1",
    ),
    Bug(
        id="quantiles-of-one-critic-alone-are-dropped",
        algorithm="tqc",
        kind="targets",
        file=f"{PLUGIN}/config.py",
        old="(\n            networks.n_quantiles - self.top_quantiles_to_drop_per_net\n        )",
        new="networks.n_quantiles - self.top_quantiles_to_drop_per_net",
    ),
)
