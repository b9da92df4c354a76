"""Bugs of proximal policy optimization with masks."""

from __future__ import annotations

from tests.planted.bug import Bug

PLUGIN = "plugins/rlsdk-maskable-ppo/src/rlsdk_maskable_ppo"
BUILD, AGENT = f"{PLUGIN}/build.py", f"{PLUGIN}/agent.py"
SURROGATE, UPDATE = "rlsdk/math/surrogate.py", "rlsdk/updates/clipped_policy.py"
ROWS, NETWORK = "rlsdk/updates/minibatches.py", "rlsdk/networks/actor_critic.py"
CATEGORICAL, BERNOULLI = "rlsdk/distributions/categorical.py", "rlsdk/distributions/categorical.py"

BUGS = (
    Bug(
        id="the-surrogate-goes-down",
        algorithm="maskable-ppo",
        kind="targets",
        file=SURROGATE,
        old="return moved.mul(moved <= ratio.clamp(1.0 - clip, 1.0 + clip) * advantage).neg_()",
        new="return moved.mul(moved <= ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)",
    ),
    Bug(
        id="entropy-is-punished",
        algorithm="maskable-ppo",
        kind="targets",
        file="rlsdk/updates/clipped_policy.py",
        old="grad_entropy = -terms.ent_coef * share if",
        new="grad_entropy = terms.ent_coef * share if",
    ),
    Bug(
        id="time-limits-bootstrap-from-the-next-episode",
        algorithm="maskable-ppo",
        kind="rows",
        file=ROWS,
        old="following[finals.time, finals.env] = network.found_values(finals.observation, after)",
        new="network.found_values(finals.observation, after)",
    ),
    Bug(
        id="gae-lambda-is-ignored",
        algorithm="maskable-ppo",
        kind="settings",
        file=ROWS,
        old="next_value, gamma, lam)",
        new="next_value, gamma, 1.0)",
    ),
    Bug(
        id="values-are-never-clipped",
        algorithm="maskable-ppo",
        kind="settings",
        file=UPDATE,
        old="clip_value = None if config.clip_range_vf is None else config.clip_range_vf(remaining)",
        new="clip_value = None",
    ),
    Bug(
        id="target-kl-stops-nothing",
        algorithm="maskable-ppo",
        kind="settings",
        file=UPDATE,
        old="1.5 * config.target_kl if config.target_kl is not None else None",
        new="1e9 * config.target_kl if config.target_kl is not None else None",
    ),
    Bug(
        id="use-masking-is-ignored",
        algorithm="maskable-ppo",
        kind="settings",
        file=BUILD,
        old="    network.use_masks = config.use_masking\n",
        new="",
    ),
    Bug(
        id="updates-see-no-masks",
        algorithm="maskable-ppo",
        kind="masks",
        file=NETWORK,
        old="        mask = observation.action_mask if self.use_masks else None\n        distribution: Distribution",
        new="        mask = None\n        distribution: Distribution",
    ),
    Bug(
        id="acting-sees-no-masks",
        algorithm="maskable-ppo",
        kind="masks",
        file=NETWORK,
        old="distribution = self.head(latent, observation.action_mask if self.use_masks else None)",
        new="distribution = self.head(latent, None)",
    ),
    Bug(
        id="several-choices-are-not-masked",
        algorithm="maskable-ppo",
        kind="masks",
        file=CATEGORICAL,
        old="masks = [None] * len(parts) if mask is None else torch.split(mask, list(sizes), -1)",
        new="masks = [None] * len(parts)",
    ),
    Bug(
        id="masks-of-bits-are-swapped",
        algorithm="maskable-ppo",
        kind="masks",
        file=BERNOULLI,
        old="zero, one = mask.view(*mask.shape[:-1], -1, 2).unbind(-1)",
        new="one, zero = mask.view(*mask.shape[:-1], -1, 2).unbind(-1)",
    ),
    Bug(
        id="filler-rows-are-learned-from",
        algorithm="maskable-ppo",
        kind="fillers",
        file=ROWS,
        old="None if whole else flat(steps.valid).to(torch.float32),",
        new="None,",
    ),
    Bug(
        id="the-count-of-epochs-begins-again",
        algorithm="maskable-ppo",
        kind="resume",
        file=UPDATE,
        old='        self.updates = count_in(state["counters"], "updates")\n',
        new="",
    ),
    Bug(
        id="explained-variance-of-the-prediction",
        algorithm="maskable-ppo",
        kind="metrics",
        file=UPDATE,
        old="explained_variance(rows.value, rows.target)",
        new="explained_variance(rows.target, rows.value)",
    ),
    Bug(
        id="log-probabilities-of-bits-are-swapped",
        algorithm="maskable-ppo",
        kind="distributions",
        file=BERNOULLI,
        old="sign = 2.0 * action.to(self.logits.dtype) - 1.0",
        new="sign = 1.0 - 2.0 * action.to(self.logits.dtype)",
    ),
    Bug(
        id="ratios-are-clipped-at-twice-the-range",
        algorithm="maskable-ppo",
        kind="targets",
        file=SURROGATE,
        old="moved <= ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)",
        new="moved <= ratio.clamp(1.0 - 2.0 * clip, 1.0 + 2.0 * clip) * advantage)",
    ),
)
