"""Bugs of packages that `rlsdk new` made: mistakes in the files that authors are meant to change."""

from __future__ import annotations

from tests.planted.bug import Bug

FILES = {
    family: f"plugins/rlsdk-testing/src/rlsdk_testing/scaffold/templates/{family}/src/PACKAGE/algorithm.py.tmpl"
    for family in ("on-policy", "off-policy-discrete", "off-policy-continuous", "offline", "population")
}
ON, OFF, POPULATION = FILES["on-policy"], FILES["off-policy-discrete"], FILES["population"]
CONTINUOUS, OFFLINE = FILES["off-policy-continuous"], FILES["offline"]
LOOP = "plugins/rlsdk-testing/src/rlsdk_testing/scaffold/templates/own-loop/src/PACKAGE/plan.py.tmpl"

BUGS = (
    Bug(
        id="the-target-moves-twice",
        algorithm="planted-off-policy",
        kind="settings",
        file=OFF,
        old="        self.target.update(self.config.tau)\n",
        new="        self.target.update(self.config.tau)\n        self.target.update(self.config.tau)\n",
    ),
    Bug(
        id="bad-actions-become-likelier",
        algorithm="planted-on-policy",
        kind="targets",
        file=ON,
        old="return -log_prob * advantage",
        new="return log_prob * advantage",
    ),
    Bug(
        id="advantages-are-learnt-as-values",
        algorithm="planted-on-policy",
        kind="targets",
        file=ON,
        old="value_loss(value, part.target)",
        new="value_loss(value, part.advantage)",
    ),
    Bug(
        id="lambda-is-fixed",
        algorithm="planted-on-policy",
        kind="settings",
        file=ON,
        old="lam=config.gae_lambda",
        new="lam=0.95",
    ),
    Bug(
        id="the-value-loss-has-no-weight",
        algorithm="planted-on-policy",
        kind="settings",
        file=ON,
        old="config.vf_coef * values",
        new="values",
    ),
    Bug(
        id="actions-stay-in-units-of-the-environment",
        algorithm="planted-on-policy",
        kind="spaces",
        file=ON,
        old="distribution.log_prob(self.network.internal(part.action))",
        new="distribution.log_prob(part.action)",
    ),
    Bug(
        id="every-episode-goes-on",
        algorithm="planted-off-policy",
        kind="targets",
        file=OFF,
        old="return reward + discount * next_values.max(-1).values",
        new="return reward + discount.max() * next_values.max(-1).values",
    ),
    Bug(
        id="the-target-follows-at-a-fixed-rate",
        algorithm="planted-off-policy",
        kind="settings",
        file=OFF,
        old="self.target.update(self.config.tau)",
        new="self.target.update(0.01)",
    ),
    Bug(
        id="weights-of-samples-are-ignored",
        algorithm="planted-off-policy",
        kind="fillers",
        file=OFF,
        old="error = (errors if batch.weight is None else errors * batch.weight).mean()",
        new="error = errors.mean()",
    ),
    Bug(
        id="the-target-network-is-not-restored",
        algorithm="planted-off-policy",
        kind="resume",
        file=OFF,
        old='        self.target.load_state_dict(state["target"])\n',
        new="",
    ),
    Bug(
        id="candidates-that-earned-least-are-followed",
        algorithm="planted-population",
        kind="targets",
        file=POPULATION,
        old="played[score.topk(elites).indices].mean(0)",
        new="played[score.topk(elites, largest=False).indices].mean(0)",
    ),
    Bug(
        id="surprise-is-punished-in-targets",
        algorithm="planted-continuous",
        kind="targets",
        file=CONTINUOUS,
        old="(next_values.min(0).values - alpha * next_log_prob)",
        new="(next_values.min(0).values + alpha * next_log_prob)",
    ),
    Bug(
        id="critics-leave-their-target",
        algorithm="planted-continuous",
        kind="targets",
        file=CONTINUOUS,
        old="return error.detach(), torch.autograd.grad(error, values)[0]",
        new="return error.detach(), -torch.autograd.grad(error, values)[0]",
    ),
    Bug(
        id="the-penalty-raises-what-is-not-in-the-data",
        algorithm="planted-offline",
        kind="targets",
        file=OFFLINE,
        old="conservatism * (values.logsumexp(-1) - value)",
        new="conservatism * (value - values.logsumexp(-1))",
    ),
    Bug(
        id="there-is-no-penalty",
        algorithm="planted-offline",
        kind="settings",
        file=OFFLINE,
        old="return (value - wanted).square() / 2 + conservatism * (values.logsumexp(-1) - value)",
        new="return (value - wanted).square() / 2",
    ),
    Bug(
        id="the-offline-target-stands-still",
        algorithm="planted-offline",
        kind="training",
        file=OFFLINE,
        old="        self.target.update(self.config.tau)\n",
        new="",
    ),
    Bug(
        id="rounds-forget-how-long-episodes-are",
        algorithm="planted-own-loop",
        kind="resume",
        file=LOOP,
        old='        self.mean_length = float(state["mean_length"])',
        new="        pass",
    ),
    Bug(
        id="rounds-are-never-longer",
        algorithm="planted-own-loop",
        kind="settings",
        file=LOOP,
        old="max(self.shortest, round(self.mean_length * self.episodes_per_round))",
        new="max(self.shortest, round(self.mean_length))",
    ),
    Bug(
        id="the-loop-counts-one-environment",
        algorithm="planted-own-loop",
        kind="metrics",
        file=LOOP,
        old="steps = cursor.env_steps + len(rollout.steps.reward) * training.collector.num_envs",
        new="steps = cursor.env_steps + len(rollout.steps.reward)",
    ),
    Bug(
        id="updates-are-not-counted",
        algorithm="planted-own-loop",
        kind="metrics",
        file=LOOP,
        old="cursor = Cursor(steps, cursor.updates + updates)",
        new="cursor = Cursor(steps, updates)",
    ),
)
