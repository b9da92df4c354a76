"""Bugs of trust region policy optimization."""

from __future__ import annotations

from tests.planted.bug import Bug

PLUGIN = "plugins/rlsdk-trpo/src/rlsdk_trpo"
ALGORITHM, BUILD, LOSS = f"{PLUGIN}/algorithm.py", f"{PLUGIN}/build.py", f"{PLUGIN}/loss.py"
ROWS, GAUSSIAN = "rlsdk/updates/minibatches.py", "rlsdk/distributions/gaussian.py"

BUGS = (
    Bug(
        id="the-gradient-points-down",
        algorithm="trpo",
        kind="targets",
        file=LOSS,
        old="return (log_prob - old_log_prob).exp() * advantage / len(advantage)",
        new="return -(log_prob - old_log_prob).exp() * advantage / len(advantage)",
    ),
    Bug(
        id="values-are-pushed-away-from-returns",
        algorithm="trpo",
        kind="targets",
        file=ALGORITHM,
        old="error = value - minibatch.target",
        new="error = minibatch.target - value",
    ),
    Bug(
        id="time-limits-end-the-return",
        algorithm="trpo",
        kind="targets",
        file=ROWS,
        old="advantages(steps, value",
        new="advantages(replace(steps, terminated=steps.terminated | steps.truncated), value",
    ),
    Bug(
        id="advantages-run-over-the-ends-of-episodes",
        algorithm="trpo",
        kind="targets",
        file=ROWS,
        old="advantages(steps, value",
        new="advantages(replace(steps, truncated=torch.zeros_like(steps.truncated)), value",
    ),
    Bug(
        id="steps-that-failed-stay",
        algorithm="trpo",
        kind="targets",
        file=ALGORITHM,
        old="        if not success:\n            self.actor.values.copy_(start)\n",
        new="        if not success:\n",
    ),
    Bug(
        id="the-divergence-is-measured-to-itself",
        algorithm="trpo",
        kind="targets",
        file=ALGORITHM,
        old="old = deepcopy(self.kernel.policy(rows)[0])",
        new="old = self.kernel.policy(rows)[0]",
    ),
    Bug(
        id="cg-damping-is-ignored",
        algorithm="trpo",
        kind="settings",
        file=ALGORITHM,
        old="damped = fisher(vector) / self.kl_parts + config.cg_damping * vector",
        new="damped = fisher(vector) / self.kl_parts",
    ),
    Bug(
        id="sub-sampling-is-ignored",
        algorithm="trpo",
        kind="settings",
        file=ALGORITHM,
        old="count = max(1, len(rows) // self.config.sub_sampling_factor)",
        new="count = len(rows)",
    ),
    Bug(
        id="the-bound-is-always-per-dimension",
        algorithm="trpo",
        kind="settings",
        file=BUILD,
        old="_dimensions(context.action_space) if config.kl_per_dimension else 1",
        new="_dimensions(context.action_space)",
    ),
    Bug(
        id="values-are-not-trained",
        algorithm="trpo",
        kind="training",
        file=ALGORITHM,
        old="                self.optimizer.step(rate)\n",
        new="",
    ),
    Bug(
        id="the-optimizer-of-values-begins-again",
        algorithm="trpo",
        kind="resume",
        file=ALGORITHM,
        old='        self.optimizer.load_state_dict(state["optimizer"])\n',
        new="",
    ),
    Bug(
        id="a-metric-is-no-tensor",
        algorithm="trpo",
        kind="metrics",
        file=ALGORITHM,
        old='"train/is_line_search_success": before.new_tensor(float(success))',
        new='"train/is_line_search_success": float(success)',
    ),
    Bug(
        id="the-divergence-of-gaussians-is-turned-round",
        algorithm="trpo",
        kind="distributions",
        file=GAUSSIAN,
        old="variance_ratio = (2.0 * (self.log_std - other.log_std)).exp()",
        new="variance_ratio = (2.0 * (other.log_std - self.log_std)).exp()",
    ),
    Bug(
        id="the-step-ends-at-half-of-the-divergence",
        algorithm="trpo",
        kind="targets",
        file=LOSS,
        old="(2.0 * target_kl / curvature)",
        new="(target_kl / curvature)",
    ),
)
